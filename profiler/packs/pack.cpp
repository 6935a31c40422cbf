#include "profiler/packs/pack.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <filesystem>
#include <numeric>
#include <random>
#include <system_error>

#include "base/error.hpp"
#include "base/fd.hpp"
#include "profiler/packs/base64.hpp"

namespace sluice::profiler {

using nlohmann::json;

std::size_t Buffer::elements() const {
  return std::accumulate(shape.begin(), shape.end(), std::size_t{1},
                         [](std::size_t product, std::int64_t extent) {
                           return product * static_cast<std::size_t>(extent);
                         });
}

std::size_t Buffer::element_bytes() const {
  if (dtype == "bool") return 1;
  const std::size_t digits = dtype.find_first_of("0123456789");
  if (digits == std::string::npos) throw base::UsageError("unknown type '" + dtype + "'");
  return (std::stoul(dtype.substr(digits)) + 7) / 8;
}

const Kernel* widest(const std::vector<Kernel>& kernels) {
  const auto found = std::ranges::max_element(kernels, {}, &Kernel::all_threads);
  return found == kernels.end() ? nullptr : &*found;
}

namespace {

json knob_json(const Knob& knob) {
  if (knob.type == "ot") return {{"name", knob.name}, {"type", "ot"}, {"values", knob.values}};
  return {{"name", knob.name},
          {"type", "sp"},
          {"extent", knob.extent},
          {"parts", knob.parts},
          {"max_innermost", knob.max_innermost}};
}

Knob knob_of(const json& value) {
  Knob knob{.name = value.at("name"), .type = value.at("type")};
  if (knob.type == "ot") {
    knob.values = value.at("values");
  } else if (knob.type == "sp") {
    value.at("extent").get_to(knob.extent);
    value.at("parts").get_to(knob.parts);
    value.at("max_innermost").get_to(knob.max_innermost);
  } else {
    throw base::UsageError("unknown type of knob '" + knob.type + "'");
  }
  return knob;
}

json json_of(const PackHeader& header) {
  return {{"kind", "pack"},    {"version", 1},      {"target", header.target},
          {"tvm", header.tvm}, {"ffi", header.ffi}, {"seed", header.seed}};
}

PackHeader header_of(const json& line) {
  if (line.at("version") != 1) {
    throw base::UsageError("version " + line.at("version").dump() +
                           " of the format; this build reads version 1");
  }
  return {line.at("target"), line.at("tvm"), line.at("ffi"), line.at("seed")};
}

json json_of(const Network& network) {
  json calls = json::array();
  for (const Network::Call& call : network.calls) {
    calls.push_back({{"task", call.task}, {"after", call.after}});
  }
  return {{"kind", "network"}, {"name", network.name}, {"batch", network.batch}, {"calls", calls}};
}

Network network_of(const json& line) {
  Network network{line.at("name"), line.at("batch"), {}};
  for (const json& call : line.at("calls")) {
    network.calls.push_back({call.at("task"), call.at("after")});
  }
  return network;
}

json json_of(const Task& task) {
  json buffers = json::array();
  for (const Buffer& buffer : task.buffers) {
    buffers.push_back(
        {{"shape", buffer.shape}, {"dtype", buffer.dtype}, {"output", buffer.output}});
  }
  json sketches = json::array();
  for (const Sketch& sketch : task.sketches) {
    json knobs = json::array();
    for (const Knob& knob : sketch) knobs.push_back(knob_json(knob));
    sketches.push_back({{"knobs", knobs}});
  }
  return {{"kind", "task"},      {"task", task.id},
          {"name", task.name},   {"workload_key", task.workload_key},
          {"flop", task.flop},   {"buffers", buffers},
          {"sketches", sketches}};
}

Task task_of(const json& line) {
  Task task{.id = line.at("task"),
            .name = line.at("name"),
            .workload_key = line.at("workload_key"),
            .flop = line.at("flop")};
  for (const json& buffer : line.at("buffers")) {
    task.buffers.push_back({buffer.at("shape"), buffer.at("dtype"), buffer.at("output")});
  }
  for (const json& sketch : line.at("sketches")) {
    Sketch& knobs = task.sketches.emplace_back();
    for (const json& knob : sketch.at("knobs")) knobs.push_back(knob_of(knob));
  }
  return task;
}

json json_of(const Program& program) {
  json line{{"kind", "program"},
            {"id", program.id},
            {"task", program.task},
            {"sketch", program.sketch},
            {"index", program.index},
            {"entity", program.entity},
            {"extra", program.extra},
            {"features", program.features},
            {"position", program.position},
            {"nodes", program.nodes}};
  line["kernels"] = json::array();
  for (const Kernel& kernel : program.kernels) {
    line["kernels"].push_back({{"name", kernel.name},
                               {"grid", kernel.grid},
                               {"block", kernel.block},
                               {"shared", kernel.shared},
                               {"static_shared", kernel.static_shared},
                               {"local", kernel.local},
                               {"args", kernel.args}});
  }
  if (!program.source.empty()) line["source"] = program.source;
  for (const auto& [arch, binary] : program.cubins) line["cubin"][arch] = to_base64(binary);
  return line;
}

/// A member that some packs lack: programs for the CPU have no kernels, and programs in the tree no
/// source.
template <class Value>
void read_if_there(const json& line, const char* key, Value& value) {
  if (const auto found = line.find(key); found != line.end() && !found->is_null()) {
    found->get_to(value);
  }
}

Program program_of(const json& line) {
  Program program{.id = line.at("id"),
                  .task = line.at("task"),
                  .sketch = line.at("sketch"),
                  .index = line.at("index"),
                  .entity = line.at("entity")};
  read_if_there(line, "source", program.source);
  read_if_there(line, "extra", program.extra);
  read_if_there(line, "features", program.features);
  read_if_there(line, "position", program.position);
  read_if_there(line, "nodes", program.nodes);
  for (const json& kernel : line.value("kernels", json::array())) {
    program.kernels.push_back({.name = kernel.at("name"),
                               .grid = kernel.at("grid"),
                               .block = kernel.at("block"),
                               .shared = kernel.at("shared"),
                               .static_shared = kernel.value("static_shared", 0U),
                               .local = kernel.value("local", 0U),
                               .args = kernel.at("args")});
  }
  const json cubins = line.value("cubin", json::object());
  for (const auto& [arch, text] : cubins.items()) {
    program.cubins[arch] = from_base64(text.get_ref<const std::string&>());
  }
  return program;
}

template <class... Calls>
struct Overloaded : Calls... {
  using Calls::operator()...;
};
template <class... Calls>
Overloaded(Calls...) -> Overloaded<Calls...>;

}  // namespace

json to_json(const PackEntry& entry) {
  return std::visit([](const auto& of_a_kind) { return json_of(of_a_kind); }, entry);
}

PackEntry pack_entry(const json& line) {
  const std::string& kind = line.at("kind").get_ref<const std::string&>();
  if (kind == "pack") return header_of(line);
  if (kind == "network") return network_of(line);
  if (kind == "task") return task_of(line);
  if (kind == "program") return program_of(line);
  throw base::UsageError("unknown kind '" + kind + "'");
}

std::optional<PackEntry> PackReader::next() {
  const auto line = lines_.next();
  if (!line && lines_.line() == 0) {
    throw base::UsageError(file_ + ": not a pack: not one line can be read");
  }
  if (!line) return std::nullopt;
  const std::string where = file_ + ": line " + std::to_string(lines_.line()) + ": ";
  try {
    PackEntry entry = pack_entry(json::parse(*line));
    if (lines_.line() == 1 && !std::holds_alternative<PackHeader>(entry)) {
      throw base::UsageError("a pack begins with a line of the kind pack");
    }
    return entry;
  } catch (const base::UsageError& error) {
    throw base::UsageError(where + error.what());
  } catch (const json::exception& error) {
    throw base::UsageError(where + "not a line of a pack: " + error.what());
  }
}

PackHeader read_header(const std::string& file) {
  return std::get<PackHeader>(*PackReader(file).next());
}

namespace {

/// The file that a rename to `file` has to replace, so that a link stays a link. A rename would
/// also replace a device.
std::string behind_links(const std::string& file) {
  std::error_code failed;
  std::filesystem::path path = file;
  switch (std::filesystem::status(path, failed).type()) {
    case std::filesystem::file_type::regular:
    case std::filesystem::file_type::not_found:
      break;
    case std::filesystem::file_type::none:
      throw base::RunError(file + ": cannot be written: " + failed.message());
    case std::filesystem::file_type::directory:
      throw base::UsageError(file + ": a folder; name a file");
    default:
      throw base::UsageError(file + ": not an ordinary file; choose another name");
  }
  while (std::filesystem::is_symlink(path, failed)) {
    path = path.parent_path() / std::filesystem::read_symlink(path);
  }
  return path;
}

/// A new file next to `file`. mkstemp would make one that only its owner may read.
std::string new_part(const std::string& file) {
  std::random_device number;
  for (;;) {
    const std::string part = file + "." + std::to_string(number()) + ".part";
    const base::Fd created(open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (created) return part;
    if (errno != EEXIST) {
      throw base::RunError(file + ": cannot be created: " + std::generic_category().message(errno));
    }
  }
}

}  // namespace

PackWriter::PackWriter(const std::string& file)
    : file_(behind_links(file)), part_(new_part(file_)), lines_(part_) {}

PackWriter::~PackWriter() {
  std::error_code ignored;
  if (!closed_) std::filesystem::remove(part_, ignored);
}

void PackWriter::close() {
  lines_.close();
  std::error_code failed;
  std::filesystem::rename(part_, file_, failed);
  if (failed) throw base::RunError(file_ + ": cannot be written: " + failed.message());
  closed_ = true;
}

Pack read_pack(const std::string& file) {
  Pack pack;
  PackReader reader(file);
  while (auto entry = reader.next()) {
    std::visit(Overloaded{[&](PackHeader& header) { pack.header = std::move(header); },
                          [&](Network& network) { pack.networks.push_back(std::move(network)); },
                          [&](Task& task) { pack.tasks[task.id] = std::move(task); },
                          [&](Program& program) {
                            program.source.clear();
                            program.cubins.clear();
                            pack.programs.push_back(std::move(program));
                          }},
               *entry);
  }
  pack.torn = reader.torn();
  return pack;
}

}  // namespace sluice::profiler
