#include "predictor/data/dataset_file.hpp"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "predictor/model/binary.hpp"

namespace sluice::predictor {
namespace {

using nlohmann::json;

constexpr const char* kKind = "data set";
constexpr const char* kRemedy = "make one with `sluice predict make_dataset`";

json to_json(const Task& task) {
  return {{"id", task.id},         {"name", task.name},
          {"target", task.target}, {"key", task.workload_key},
          {"flop", task.flop},     {"bytes", task.bytes}};
}

Task task_of(const json& value) {
  return {.id = value.at("id"),
          .name = value.at("name"),
          .target = value.at("target"),
          .workload_key = value.at("key"),
          .flop = value.at("flop"),
          .bytes = value.at("bytes")};
}

json to_json(const Network& network) {
  json calls = json::array();
  for (const auto& call : network.calls) calls.push_back({call.task, call.after});
  return {{"name", network.name}, {"batch", network.batch}, {"calls", std::move(calls)}};
}

Network network_of(const json& value) {
  Network network{.name = value.at("name"), .batch = value.at("batch"), .calls = {}};
  for (const json& call : value.at("calls")) network.calls.push_back({call.at(0), call.at(1)});
  return network;
}

json to_json(const Program& program) {
  std::vector<float> kernels;
  for (const CountedKernel& kernel : program.kernels) {
    kernels.push_back(static_cast<float>(kernel.blocks));
    kernels.push_back(static_cast<float>(kernel.threads));
    for (const double number : kernel.counts.numbers()) {
      kernels.push_back(static_cast<float>(number));
    }
  }
  json value{{"id", program.id},
             {"task", program.task},
             {"index", program.index},
             {"leaves", program.leaves},
             {"kernels", as_binary(kernels)}};
  if (program.compiled) {
    value["compiled"] = {program.compiled->registers, program.compiled->spill_bytes};
  }
  return value;
}

Program program_of(const json& value) {
  Program program{.id = value.at("id"),
                  .task = value.at("task"),
                  .index = value.at("index"),
                  .leaves = value.at("leaves")};
  constexpr std::size_t kWidth = KernelCounts::kNumbers + 2;
  const auto kernels = from_binary<float>(value.at("kernels"));
  if (kernels.empty() || kernels.size() % kWidth != 0) {
    throw base::UsageError("other counts of a kernel");
  }
  for (std::size_t at = 0; at < kernels.size(); at += kWidth) {
    std::array<double, KernelCounts::kNumbers> numbers{};
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = kernels[at + 2 + i];
    program.kernels.push_back({kernels[at], kernels[at + 1], KernelCounts::of(numbers)});
  }
  if (const auto compiled = value.find("compiled"); compiled != value.end()) {
    program.compiled = {.registers = compiled->at(0), .spill_bytes = compiled->at(1)};
  }
  return program;
}

/// Refuses numbers of what is not there, which would be read behind the end.
void check(const Dataset& data) {
  const auto need = [](bool right) {
    if (!right) throw base::UsageError("its parts do not fit each other");
  };
  for (const Network& network : data.networks) {
    for (const auto& call : network.calls) need(call.task < data.tasks.size());
  }
  for (const Program& program : data.programs) need(program.task < data.tasks.size());
  for (const Label& label : data.labels) {
    need(label.query.program < data.programs.size() && label.query.device < data.devices.size() &&
         label.seconds > 0 && std::isfinite(label.seconds));
  }
}

}  // namespace

void save_dataset(const std::string& file, const Dataset& data) {
  json value{{"devices", data.devices},
             {"tasks", json::array()},
             {"networks", json::array()},
             {"programs", json::array()},
             {"labels", json::array()}};
  for (const Task& task : data.tasks) value["tasks"].push_back(to_json(task));
  for (const Network& network : data.networks) value["networks"].push_back(to_json(network));
  for (const Program& program : data.programs) value["programs"].push_back(to_json(program));
  for (const Label& label : data.labels) {
    value["labels"].push_back({label.query.program, label.query.device, label.seconds});
  }
  write_binary(file, kKind, std::move(value));
}

Dataset load_dataset(const std::string& file) {
  Dataset data;
  read_binary(file, kKind, kRemedy, [&data](const json& value) {
    value.at("devices").get_to(data.devices);
    for (const json& task : value.at("tasks")) data.tasks.push_back(task_of(task));
    for (const json& network : value.at("networks")) data.networks.push_back(network_of(network));
    for (const json& program : value.at("programs")) data.programs.push_back(program_of(program));
    for (const json& label : value.at("labels")) {
      data.labels.push_back({{label.at(0), label.at(1)}, label.at(2)});
    }
    check(data);
  });
  return data;
}

}  // namespace sluice::predictor
