#pragma once
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

/// Records of measurements: AutoTVM's JSON lines, with one key more (docs/reference/opbench.md).
namespace sluice::profiler {

/// AutoTVM's MeasureErrorNo.
enum class MeasureError {
  kNone = 0,
  kInstantiation = 1,  ///< The space refuses the index.
  kCompileHost = 2,
  kCompileDevice = 3,
  kRuntimeDevice = 4,
  kWrongAnswer = 5,
  kCompileTimeout = 6,
  kRunTimeout = 7,
  kUnknown = 8,
};

/// What Sluice adds to a record.
struct RecordDetails {
  std::string task;      ///< Id of the task.
  std::string program;   ///< Id of the program; empty if the space refused its index.
  std::string device{};  ///< H200, H200@64, cpu@2: the name in devices.csv.
  int sms = 0;
  int threads = 0;
  int registers = 0;    ///< Of a thread; the most of all kernels.
  int spill_bytes = 0;  ///< Local memory of a thread; the most of all kernels.
  double spread = 0;    ///< Longest over shortest repeat.
  bool disturbed = false;
};

struct Record {
  std::string target;
  std::string task_name;
  nlohmann::ordered_json args = nlohmann::ordered_json::array();  ///< ["TENSOR", shape, type] each.
  std::uint64_t index = 0;
  nlohmann::ordered_json code_hash = nullptr;
  nlohmann::ordered_json entity = nlohmann::ordered_json::array();
  std::vector<double> seconds{};
  MeasureError error = MeasureError::kNone;
  double all_cost = 0;   ///< Seconds that compiling and measuring took.
  double timestamp = 0;  ///< Seconds since 1970.
  std::string tvm_version{};
  std::optional<RecordDetails> details{};  ///< None in records of AutoTVM.

  /// Whether the times may be used: no error, not disturbed.
  [[nodiscard]] bool good() const;
  /// Whether others used the device each time that the program was measured.
  [[nodiscard]] bool disturbed() const { return details && details->disturbed; }
  /// The median of the repeats; infinite without one.
  [[nodiscard]] double cost() const;
  /// The cost of a good record; infinite for any other.
  [[nodiscard]] double good_cost() const { return good() ? cost() : INFINITY; }
};

/// The line of a record, without its end. A line of AutoTVM 0.2 that is read and written again has
/// the same bytes.
[[nodiscard]] std::string to_line(const Record& record);
/// Throws base::UsageError if the line is not a record.
[[nodiscard]] Record record_of(const std::string& line);

struct Records {
  std::vector<Record> records;
  bool torn = false;  ///< The last line had no end and was dropped.
};

/// Reads a file of records; one that ends in .xz is compressed. Empty if there is no file. Throws
/// base::UsageError with file and line.
[[nodiscard]] Records read_records(const std::string& file);

/// Calls `take` for each line of a file of records. True if the last line has no end; it is
/// dropped. Does nothing if there is no file. Adds file and line to a base::UsageError of `take`.
bool for_each_line(const std::string& file, const std::function<void(const std::string&)>& take);

/// A file to which records are added. When add() returns, the kernel has the line.
class RecordFile {
 public:
  /// Cuts off a torn last line, which an interrupted run may have left. Throws base::RunError, or
  /// base::UsageError for a compressed file.
  explicit RecordFile(std::string file);
  void add(const Record& record);
  /// A line without its end.
  void add_line(std::string line);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace sluice::profiler
