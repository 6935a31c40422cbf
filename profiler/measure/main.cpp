// sluice-measure: measures programs on a GPU. Reads a request in JSON per line, and answers with
// one line. A process of its own, because a faulty program costs the context: then it answers and
// ends, and a new one takes its place.
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "base/command_line.hpp"
#include "base/node_service.hpp"
#include "profiler/measure/loaded_program.hpp"
#include "profiler/measure/pair_timer.hpp"
#include "profiler/measure/task_buffers.hpp"
#include "profiler/records/record.hpp"

namespace sluice::profiler {
namespace {

using nlohmann::json;

constexpr std::size_t kMostExpectedBytes = std::size_t{2} << 30;

std::string session_name() {
  const char* const name = std::getenv("SLUICE_SESSION");
  return name != nullptr ? name : base::default_session();
}

/// "NVIDIA H200" -> "H200", "Tesla T4" -> "T4".
std::string short_name(std::string name) {
  for (const std::string maker : {"NVIDIA ", "Tesla ", "GeForce "}) {
    if (name.starts_with(maker)) name.erase(0, maker.size());
  }
  if (name.starts_with("Sluice simulated")) return "simulated";
  return name.substr(0, name.find(' '));
}

json failure(MeasureError error, const std::exception& why) {
  return {{"ok", false}, {"error", why.what()}, {"code", static_cast<int>(error)}};
}

class Measurer {
 public:
  explicit Measurer(int device)
      : context_(device), device_(device_of(device)), neighbours_(session_name(), uuid()) {}

  /// {"do": "hello", "sms": [0, 64]}: makes the shares; 0 means all SMs.
  [[nodiscard]] json hello(const json& request) {
    char name[128] = {};
    SLUICE_CUDA(cuDeviceGetName(name, sizeof name, device_));
    json answer{
        {"ok", true},
        {"device", short_name(name)},
        {"name", name},
        {"arch", "sm_" + std::to_string(
                             context_.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10 +
                             context_.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR))},
        {"shares", json::array()}};
    for (const unsigned wanted : request.at("sms")) {
      try {
        const Share& share = share_with_timer(wanted).share;
        answer["shares"].push_back({{"sms", share.sms()}, {"whole", share.whole()}});
      } catch (const base::RunError& error) {
        answer["shares"].push_back({{"ok", false}, {"error", error.what()}});
      }
    }
    return answer;
  }

  /// {"do": "measure", "task", "program", "arch", "sms": [0, 64], "reference": folder}: the times
  /// on each share.
  [[nodiscard]] json measure(const json& request) {
    const auto task = std::get<Task>(pack_entry(request.at("task")));
    const auto program = std::get<Program>(pack_entry(request.at("program")));
    const std::string& cubin = program.cubins.at(request.at("arch"));
    neighbours_.refresh();
    context_.make_current();
    buffers_.prepare(task, program, request.at("reference"));
    json answer{{"ok", true}, {"shares", json::array()}};
    for (const unsigned wanted : request.at("sms")) {
      TimedShare& on = share_with_timer(wanted);
      on.share.make_current();
      LoadedProgram loaded(program, cubin, buffers_.addresses());
      answer["registers"] = loaded.registers();
      answer["spill_bytes"] = loaded.spill_bytes();
      try {
        on.timer.run_once(loaded);
        if (answer["shares"].empty()) {
          check(task, request.at("reference"));
          on.timer.raise_clocks(loaded);
        }
        answer["shares"].push_back(times_on(on.timer, loaded));
      } catch (const RunTimeout&) {
        loaded.abandon();
        throw;
      }
    }
    return answer;
  }

  /// {"do": "pair", "tasks": [2], "programs": [2], "arch"}: both on two streams.
  [[nodiscard]] json pair(const json& request) {
    neighbours_.refresh();
    context_.make_current();
    LoadedProgram a = load(request, 0);
    LoadedProgram b = load(request, 1);
    if (!pair_timer_) pair_timer_ = std::make_unique<PairTimer>(device_, neighbours_);
    try {
      const PairTimes times = pair_timer_->measure(a, b);
      return {{"ok", true},
              {"alone_s", times.alone_s},
              {"runs", times.runs},
              {"together_s", times.together_s},
              {"serial_s", times.serial_s},
              {"spread", times.spread},
              {"disturbed", times.disturbed}};
    } catch (const RunTimeout&) {
      a.abandon();
      b.abandon();
      throw;
    }
  }

  /// {"do": "steady", "tasks": [1], "programs": [1], "arch", "begin_ns", "seconds"}: runs a program
  /// without a break, next to another process.
  [[nodiscard]] json steady(const json& request) {
    context_.make_current();
    LoadedProgram loaded = load(request, 0);
    try {
      const SteadyRuns steady = run_steadily(share_with_timer(0).timer, loaded,
                                             request.at("begin_ns"), request.at("seconds"));
      return {{"ok", true}, {"runs", steady.runs}, {"seconds", steady.seconds}};
    } catch (const RunTimeout&) {
      loaded.abandon();
      throw;
    }
  }

 private:
  struct TimedShare {
    TimedShare(CUdevice device, unsigned sms, Neighbours& neighbours)
        : share(device, sms), timer(((void)share.make_current(), share), neighbours) {}
    Share share;
    RunTimer timer;
  };

  /// The outputs of a program are not those of the task.
  class WrongAnswer : public base::RunError {
   public:
    using base::RunError::RunError;
  };

  static CUdevice device_of(int index) {
    CUdevice device = 0;
    SLUICE_CUDA(cuDeviceGet(&device, index));
    return device;
  }

  [[nodiscard]] std::array<std::uint8_t, 16> uuid() const {
    CUuuid found{};
    SLUICE_CUDA(cuDeviceGetUuid(&found, device_));
    std::array<std::uint8_t, 16> bytes{};
    std::memcpy(bytes.data(), found.bytes, bytes.size());
    return bytes;
  }

  TimedShare& share_with_timer(unsigned wanted) {
    auto& place = shares_[wanted];
    if (!place) {
      context_.make_current();
      place = std::make_unique<TimedShare>(device_, wanted, neighbours_);
    }
    return *place;
  }

  /// A program of a request for several, with buffers of its own.
  [[nodiscard]] LoadedProgram load(const json& request, std::size_t side) {
    const auto task = std::get<Task>(pack_entry(request.at("tasks").at(side)));
    const auto program = std::get<Program>(pack_entry(request.at("programs").at(side)));
    pair_buffers_[side].prepare(task, program, "");
    return {program, program.cubins.at(request.at("arch")), pair_buffers_[side].addresses()};
  }

  /// Compares what the program computed.
  void check(const Task& task, const std::string& reference) {
    Outputs found = buffers_.outputs(task);
    const Outputs* expected = expected_.find(task.id);
    if (expected == nullptr) {
      auto given = reference_outputs(task, reference);
      const bool is_first = !given;
      expected_.add(task.id, is_first ? std::move(found) : std::move(*given));
      if (is_first) return;
      expected = expected_.find(task.id);
    }
    const std::string what = difference(task, *expected, found);
    if (!what.empty()) throw WrongAnswer(what);
  }

  static json times_on(RunTimer& timer, const LoadedProgram& loaded) {
    try {
      const MeasuredTimes times = timer.measure(loaded);
      return {
          {"seconds", times.seconds}, {"spread", times.spread}, {"disturbed", times.disturbed()}};
    } catch (const TooSlow& error) {
      return failure(MeasureError::kRunTimeout, error);
    }
  }

  friend json answer_to(Measurer& measurer, const json& request, bool& lost);

  engine::CudaContext context_;
  CUdevice device_;
  Neighbours neighbours_;
  TaskBuffers buffers_;
  std::array<TaskBuffers, 2> pair_buffers_;
  std::unique_ptr<PairTimer> pair_timer_;
  ExpectedOutputs expected_{kMostExpectedBytes};
  std::map<unsigned, std::unique_ptr<TimedShare>> shares_;
};

/// `lost`: set if this process can measure nothing more.
json answer_to(Measurer& measurer, const json& request, bool& lost) {
  try {
    const auto& what = request.at("do").get_ref<const std::string&>();
    if (what == "hello") return measurer.hello(request);
    if (what == "pair") return measurer.pair(request);
    if (what == "steady") return measurer.steady(request);
    return measurer.measure(request);
  } catch (const RunTimeout& error) {
    lost = true;
    return failure(MeasureError::kRunTimeout, error);
  } catch (const TooSlow& error) {
    return failure(MeasureError::kRunTimeout, error);
  } catch (const engine::ContextLost& error) {
    lost = true;
    return failure(MeasureError::kRuntimeDevice, error);
  } catch (const Measurer::WrongAnswer& error) {
    return failure(MeasureError::kWrongAnswer, error);
  } catch (const base::RunError& error) {
    return failure(MeasureError::kRuntimeDevice, error);
  }
}

int serve(int device) {
  Measurer measurer(device);
  std::string line;
  while (std::getline(std::cin, line)) {
    bool lost = false;
    json answer = answer_to(measurer, json::parse(line), lost);
    answer["lost"] = lost;
    std::cout << answer.dump() << std::endl;
    // Not exit(): a kernel that never ends would keep the driver's own end from ending.
    if (lost) _exit(base::kExitFailed);
  }
  return base::kExitFine;
}

}  // namespace
}  // namespace sluice::profiler

int main(int argc, char** argv) {
  return sluice::base::run_program("sluice-measure", [&] {
    if (argc != 2) throw sluice::base::UsageError("usage: sluice-measure DEVICE < requests");
    return sluice::profiler::serve(std::stoi(argv[1]));
  });
}
