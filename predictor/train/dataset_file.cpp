#include "predictor/train/dataset_file.hpp"

#include <torch/csrc/jit/serialization/pickle.h>
#include <torch/types.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/error.hpp"

namespace sluice::predictor {
namespace {

using nlohmann::json;

constexpr int kVersion = 2;

template <class T>
torch::Tensor tensor_of(const std::vector<T>& values) {
  return torch::from_blob(const_cast<T*>(values.data()), {static_cast<std::int64_t>(values.size())},
                          c10::CppTypeToScalarType<T>::value)
      .clone();
}

template <class T>
std::vector<T> values_of(const c10::Dict<c10::IValue, c10::IValue>& parts, const char* name) {
  const auto tensor = parts.at(name).toTensor().contiguous();
  const T* first = tensor.const_data_ptr<T>();
  return {first, first + tensor.numel()};
}

json networks_json(const Dataset& data) {
  json networks = json::array();
  for (const Network& network : data.networks) {
    json calls = json::array();
    for (const auto& call : network.calls) {
      calls.push_back({{"task", call.task}, {"after", call.after}});
    }
    networks.push_back({{"name", network.name},
                        {"target", network.target},
                        {"batch", network.batch},
                        {"calls", std::move(calls)}});
  }
  return networks;
}

/// What is no number of a program or a label.
json describe(const Dataset& data) {
  json tasks = json::array();
  for (const Task& task : data.tasks) {
    tasks.push_back({{"id", task.id},
                     {"name", task.name},
                     {"target", task.target},
                     {"workload_key", task.workload_key},
                     {"flop", task.flop},
                     {"bytes", task.bytes}});
  }
  json programs = json::array();
  for (const Program& program : data.programs) programs.push_back(program.id);
  return {{"version", kVersion},
          {"devices", data.devices},
          {"tasks", std::move(tasks)},
          {"networks", networks_json(data)},
          {"programs", std::move(programs)}};
}

void read_description(const json& text, Dataset& data) {
  data.devices = text.at("devices").get<std::vector<std::string>>();
  for (const json& task : text.at("tasks")) {
    data.tasks.push_back({.id = task.at("id"),
                          .name = task.at("name"),
                          .target = task.at("target"),
                          .workload_key = task.at("workload_key"),
                          .flop = task.at("flop"),
                          .bytes = task.at("bytes")});
  }
  for (const json& from : text.at("networks")) {
    Network network{.name = from.at("name"),
                    .target = from.at("target"),
                    .batch = from.at("batch"),
                    .calls = {}};
    for (const json& call : from.at("calls")) {
      network.calls.push_back({call.at("task"), call.at("after").get<std::vector<std::size_t>>()});
    }
    data.networks.push_back(std::move(network));
  }
  for (const json& id : text.at("programs")) data.programs.push_back({.id = id});
}

void read_programs(const c10::Dict<c10::IValue, c10::IValue>& parts, Dataset& data) {
  const auto tasks = values_of<std::int64_t>(parts, "program_task");
  const auto indices = values_of<std::int64_t>(parts, "program_index");
  const auto leaves = values_of<std::int64_t>(parts, "program_leaves");
  const auto features = values_of<float>(parts, "features");
  const auto positions = values_of<std::int32_t>(parts, "positions");
  std::size_t at = 0;
  for (std::size_t p = 0; p < data.programs.size(); ++p) {
    Program& program = data.programs[p];
    program.task = static_cast<std::size_t>(tasks[p]);
    program.index = indices[p];
    for (std::int64_t l = 0; l < leaves[p]; ++l, ++at) {
      std::copy_n(features.data() + at * kFeatures, kFeatures,
                  program.leaves.emplace_back().begin());
      program.positions.push_back(positions[at]);
    }
  }
}

c10::IValue as_dictionary(const Dataset& data) {
  std::vector<float> features;
  std::vector<std::int32_t> positions;
  std::vector<std::int64_t> tasks, indices, leaves, programs, devices;
  std::vector<double> seconds;
  for (const Program& program : data.programs) {
    tasks.push_back(static_cast<std::int64_t>(program.task));
    indices.push_back(program.index);
    leaves.push_back(static_cast<std::int64_t>(program.leaves.size()));
    for (const Leaf& leaf : program.leaves)
      features.insert(features.end(), leaf.begin(), leaf.end());
    positions.insert(positions.end(), program.positions.begin(), program.positions.end());
  }
  for (const Label& label : data.labels) {
    programs.push_back(static_cast<std::int64_t>(label.query.program));
    devices.push_back(static_cast<std::int64_t>(label.query.device));
    seconds.push_back(label.seconds);
  }
  c10::impl::GenericDict parts(c10::StringType::get(), c10::AnyType::get());
  parts.insert("description", describe(data).dump());
  parts.insert("features", tensor_of(features).view({-1, static_cast<std::int64_t>(kFeatures)}));
  parts.insert("positions", tensor_of(positions));
  parts.insert("program_task", tensor_of(tasks));
  parts.insert("program_index", tensor_of(indices));
  parts.insert("program_leaves", tensor_of(leaves));
  parts.insert("label_program", tensor_of(programs));
  parts.insert("label_device", tensor_of(devices));
  parts.insert("label_seconds", tensor_of(seconds));
  return parts;
}

Dataset from_dictionary(const c10::IValue& value) {
  const auto parts = value.toGenericDict();
  const json text = json::parse(parts.at("description").toStringRef());
  if (text.at("version") != kVersion) throw std::runtime_error("it is of another version");
  Dataset data;
  read_description(text, data);
  read_programs(parts, data);
  const auto programs = values_of<std::int64_t>(parts, "label_program");
  const auto devices = values_of<std::int64_t>(parts, "label_device");
  const auto seconds = values_of<double>(parts, "label_seconds");
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    data.labels.push_back(
        {{static_cast<std::size_t>(programs[i]), static_cast<std::size_t>(devices[i])},
         seconds[i]});
  }
  return data;
}

}  // namespace

void save_dataset(const std::string& file, const Dataset& data) {
  const std::vector<char> bytes = torch::jit::pickle_save(as_dictionary(data));
  std::ofstream out(file, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!out.flush()) throw base::RunError("cannot write " + file);
}

Dataset load_dataset(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) {
    throw base::UsageError("there is no data set " + file +
                           "; make one with `sluice predict make_dataset`");
  }
  const std::vector<char> bytes{std::istreambuf_iterator<char>(in),
                                std::istreambuf_iterator<char>()};
  try {
    return from_dictionary(torch::jit::pickle_load(bytes));
  } catch (const std::exception&) {
    throw base::UsageError(file + " is no data set of this version; make it again with `sluice " +
                           "predict make_dataset`");
  }
}

}  // namespace sluice::predictor
