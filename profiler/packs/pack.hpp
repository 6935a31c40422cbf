#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "profiler/packs/xz_lines.hpp"

/// Packs of tensor programs: xz'd JSON lines, an object a line (docs/reference/programs-format.md).
namespace sluice::profiler {

/// One sampling decision of a sketch.
struct Knob {
  std::string name{};
  /// "sp": an ordered factorisation of `extent`. "ot": one of `values`.
  std::string type{};
  std::int64_t extent = 0;
  std::size_t parts = 0;
  std::int64_t max_innermost = 0;
  nlohmann::json values = nlohmann::json::array();
};
using Sketch = std::vector<Knob>;

struct Buffer {
  std::vector<std::int64_t> shape;
  std::string dtype;
  bool output = false;

  [[nodiscard]] std::size_t elements() const;
  [[nodiscard]] std::size_t element_bytes() const;
  [[nodiscard]] std::size_t bytes() const { return elements() * element_bytes(); }
};

struct PackHeader {
  std::string target;
  std::string tvm;
  std::string ffi;
  std::uint64_t seed = 0;
};

/// A neural network as calls of tasks.
struct Network {
  struct Call {
    std::string task;
    std::vector<std::size_t> after;  ///< Indices of the calls whose results this call reads.
  };
  std::string name;
  std::int64_t batch = 1;
  std::vector<Call> calls;  ///< In the order of execution.
};

/// One operator, or several fused ones, of a network, with its shapes.
struct Task {
  std::string id{};
  std::string name{};
  std::string workload_key{};
  double flop = 0;
  std::vector<Buffer> buffers{};
  std::vector<Sketch> sketches{};
};

struct Kernel {
  std::string name;
  std::array<unsigned, 3> grid{1, 1, 1};
  std::array<unsigned, 3> block{1, 1, 1};
  unsigned shared = 0;              ///< Dynamic shared memory, bytes.
  unsigned static_shared = 0;       ///< Bytes of arrays that a block shares. 0 in older packs.
  unsigned local = 0;               ///< Bytes of arrays of a thread. 0 in older packs.
  std::vector<std::size_t> args{};  ///< Indices: the task's buffers, then the program's `extra`.

  [[nodiscard]] std::uint64_t blocks() const { return std::uint64_t{grid[0]} * grid[1] * grid[2]; }
  /// Of a block.
  [[nodiscard]] std::uint64_t threads() const {
    return std::uint64_t{block[0]} * block[1] * block[2];
  }
  [[nodiscard]] std::uint64_t all_threads() const { return blocks() * threads(); }
};

/// The kernel with the most threads in all; the first of several. Null if there is none.
[[nodiscard]] const Kernel* widest(const std::vector<Kernel>& kernels);

/// One way to compute a task: its loops, tiles and threads.
struct Program {
  std::string id;
  std::string task;
  std::size_t sketch = 0;
  std::uint64_t index = 0;  ///< Over all sketches of the task.
  nlohmann::json entity = nlohmann::json::array();
  std::string source{};  ///< CUDA C; empty in packs without sources.
  std::vector<Kernel> kernels{};
  std::vector<std::size_t> extra{};  ///< Bytes of buffers between the kernels.
  std::vector<std::vector<float>> features{};
  std::vector<std::size_t> position{};  ///< Pre-order position of each leaf.
  std::size_t nodes = 0;
  std::map<std::string, std::string> cubins{};  ///< Architecture: the binary, not base64.
};

using PackEntry = std::variant<PackHeader, Network, Task, Program>;

/// The JSON of an entry, and back. The latter throws nlohmann::json::exception, or base::UsageError
/// for an unknown kind or version.
[[nodiscard]] nlohmann::json to_json(const PackEntry& entry);
[[nodiscard]] PackEntry pack_entry(const nlohmann::json& line);

class PackReader {
 public:
  explicit PackReader(const std::string& file) : file_(file), lines_(file) {}
  /// The next entry; nothing at the end. Throws base::UsageError with file and line, also if there
  /// is not even a first one.
  [[nodiscard]] std::optional<PackEntry> next();
  /// The pack is cut off behind the entries so far, as one is that is still being made.
  [[nodiscard]] bool torn() const { return lines_.torn(); }

 private:
  std::string file_;
  XzLineReader lines_;
};

/// Writes FILE.NUMBER.part, which no other writer has and close() renames: a pack of that name is
/// whole, and that of the last of several writers. Without close() an older pack stays as it was.
/// Of a link, the file behind it is replaced. Throws base::UsageError for a folder or a device,
/// else base::RunError.
class PackWriter {
 public:
  explicit PackWriter(const std::string& file);
  ~PackWriter();
  PackWriter(const PackWriter&) = delete;
  PackWriter& operator=(const PackWriter&) = delete;

  void add(const PackEntry& entry) { lines_.write(to_json(entry).dump()); }
  void close();

 private:
  std::string file_;
  std::string part_;
  XzLineWriter lines_;
  bool closed_ = false;
};

/// The first line of a pack. Throws base::UsageError if the file is no pack.
[[nodiscard]] PackHeader read_header(const std::string& file);

/// A whole pack.
struct Pack {
  PackHeader header;
  std::vector<Network> networks;
  std::map<std::string, Task> tasks;
  std::vector<Program> programs;
  bool torn = false;  ///< It is cut off.
};

/// Reads a whole pack without the sources and binaries of its programs, which would be gigabytes.
/// Throws base::UsageError.
[[nodiscard]] Pack read_pack(const std::string& file);

}  // namespace sluice::profiler
