#include "engine/recording/recording.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

#include "base/json_node.hpp"

namespace sluice::engine {
namespace {

constexpr std::int64_t kMaxBlocks = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kMaxThreads = 1024;
constexpr std::int64_t kMaxKernelNs = 60'000'000'000;
constexpr std::int64_t kMaxLaunchNs = 3'600'000'000'000;

/// The index of each column in a row.
struct Columns {
  std::size_t count = 0;
  std::size_t kind = 0;
  std::size_t grid = 0;
  std::size_t block = 0;
  std::size_t duration = 0;
  std::size_t launch = 0;
  std::size_t name = 0;  ///< `count` if there is none.
};

Columns read_columns(const base::JsonNode& node) {
  std::vector<std::string> names;
  for (const base::JsonNode& column : node.elements("a list of column names")) {
    names.push_back(column.as_text());
  }
  const auto index_of = [&](const char* name) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) node.complain(fmt::format("column \"{}\" is missing", name));
    return static_cast<std::size_t>(found - names.begin());
  };
  const auto name = std::find(names.begin(), names.end(), "name") - names.begin();
  return {names.size(),
          index_of("kind"),
          index_of("grid"),
          index_of("block"),
          index_of("duration_ns"),
          index_of("launch_ns"),
          static_cast<std::size_t>(name)};
}

/// The product of three dimensions, each at least 1.
std::uint32_t read_volume(const base::JsonNode& node, std::int64_t max) {
  const std::string allowed = fmt::format("[x, y, z], together at most {}", max);
  const auto dimensions = node.elements(allowed);
  if (dimensions.size() != 3) node.refuse(allowed);
  std::int64_t volume = 1;
  for (const base::JsonNode& dimension : dimensions) {
    volume *= dimension.as_integer(1, max);
    if (volume > max) node.refuse(allowed);
  }
  return static_cast<std::uint32_t>(volume);
}

/// The function of each kernel, by name, grid and block.
using Functions = std::map<std::string, std::uint32_t>;

void read_row(const base::JsonNode& node, const Columns& columns, Recording& recording,
              Functions& functions) {
  const auto cells = node.elements("a row, which is a list");
  if (cells.size() != columns.count) {
    node.complain(fmt::format("found {} cells, allowed: {}, as many as columns", cells.size(),
                              columns.count));
  }
  const std::string kind = cells[columns.kind].as_text();
  const auto duration = cells[columns.duration].as_integer(0, kMaxKernelNs);
  if (kind == "memcpy" || kind == "memset") {
    ++recording.left_out;
    recording.left_out_ns += static_cast<std::uint64_t>(duration);
    return;
  }
  if (kind != "kernel") cells[columns.kind].refuse("kernel, memcpy or memset");
  RecordedKernel kernel;
  kernel.duration_ns = static_cast<std::uint64_t>(duration);
  kernel.launch_ns = cells[columns.launch].as_integer(-kMaxLaunchNs, kMaxLaunchNs);
  kernel.blocks = read_volume(cells[columns.grid], kMaxBlocks);
  kernel.threads = read_volume(cells[columns.block], kMaxThreads);
  const std::string name = columns.name < cells.size() ? cells[columns.name].as_text() : "";
  const std::string key = fmt::format("{} {} {}", kernel.blocks, kernel.threads, name);
  const auto [at, added] = functions.try_emplace(key, static_cast<std::uint32_t>(functions.size()));
  if (added) recording.names.push_back(name);
  kernel.function = at->second;
  recording.kernels.push_back(kernel);
}

}  // namespace

std::uint64_t Recording::kernels_ns() const {
  std::uint64_t sum = 0;
  for (const RecordedKernel& kernel : kernels) sum += kernel.duration_ns;
  return sum;
}

Recording read_recording(const std::string& file) {
  const nlohmann::json document = base::parse_json_file(file);
  const base::JsonNode root(file, document);
  root.expect_object({"model", "gpu", "columns", "rows"});
  Recording recording;
  recording.model = root.member("model").as_text();
  if (const auto gpu = root.find("gpu")) recording.gpu = gpu->as_text();
  const Columns columns = read_columns(root.member("columns"));
  const base::JsonNode rows = root.member("rows");
  Functions functions;
  for (const base::JsonNode& row : rows.elements("a list of rows"))
    read_row(row, columns, recording, functions);
  if (recording.kernels.empty()) rows.complain("no kernel in this recording, nothing to replay");

  const std::int64_t first = recording.kernels.front().launch_ns;
  std::int64_t latest = 0;
  for (RecordedKernel& kernel : recording.kernels) {
    // Launch times must not decrease: a row that is out of order is launched with the previous row.
    latest = std::max(latest, kernel.launch_ns - first);
    kernel.launch_ns = latest;
  }
  return recording;
}

bool is_recording_path(const std::string& text) {
  return text.find('/') != std::string::npos || std::filesystem::path(text).extension() == ".json";
}

std::vector<std::string> recording_names(const std::filesystem::path& store) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(store, error)) {
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace sluice::engine
