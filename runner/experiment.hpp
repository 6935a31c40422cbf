#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/model_spec.hpp"
#include "shm/give.hpp"
#include "shm/policy.hpp"
#include "shm/target.hpp"

namespace sluice::runner {

/// Whether the interposer is in a model's process, and its policy.
struct Control {
  bool hooked = false;  ///< False: the process runs without the interposer.
  shm::Policy policy;   ///< kNone unless hooked.
};

/// When a model's jobs start.
struct Arrival {
  enum class Kind : std::uint8_t {
    kClosed,    ///< sleep_time after the end of the previous job.
    kPeriodic,  ///< On a schedule that does not wait for earlier jobs.
    kPoisson,   ///< The same, with exponentially distributed intervals.
  };
  Kind kind = Kind::kClosed;
  double period_ms = 0;    ///< kPeriodic.
  double jitter = 0;       ///< kPeriodic: each arrival is moved by up to this part of the period.
  double rate_per_s = 0;   ///< kPoisson.
  std::uint64_t seed = 1;  ///< The same seed gives the same arrivals.
};

/// One entry of "models". Times are GPU times, which pass more slowly on a simulated GPU.
struct Model : engine::ModelSpec {
  double sleep_s = 0;
  double announce_ms = 0;  ///< Time to prepare a job's input; the job is announced before.
  std::string output_file_path = "./logs";
  std::string output_file_name;
  int priority = 0;
  Control control;
  shm::Target target;                      ///< A time is GPU time. No target unless control.hooked.
  std::uint64_t memory = 0;                ///< Limit of its device memory, in bytes. 0: none.
  std::uint32_t weight = 0;                ///< Among those of its priority (shm/weight.hpp).
  std::uint32_t give = shm::kDefaultGive;  ///< To those below it (shm/give.hpp), in 1/1000.
  Arrival arrival;
  nlohmann::json source;  ///< The entry of the file.

  /// The name in models_pid.json: the model's name, and `_HEIGHT` if the input is resized.
  [[nodiscard]] std::string display_name() const;
  /// `output_file_path/output_file_name` + suffix, for instance ".log".
  [[nodiscard]] std::string output_file(const std::string& suffix) const;
};

/// A whole experiment file.
struct Experiment {
  std::string file;
  std::vector<Model> models;
  std::optional<double> exp_dur_s;
  int device_id = 0;
  bool mps = false;  ///< The workers run on the GPU at the same time, under NVIDIA MPS.
  nlohmann::json source;
};

}  // namespace sluice::runner
