#include "controller/slice_check.hpp"

#include <dlfcn.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/clock.hpp"
#include "base/processes.hpp"
#include "controller/slice_answers.hpp"
#include "controller/slice_trial.hpp"
#include "controller/trial_rule.hpp"
#include "shm/outside.hpp"

namespace sluice::controller {

/// The thread may outlive the object, for as long as it is blocked.
struct SliceCheck::Shared {
  std::mutex mutex;
  std::condition_variable wake;
  shm::Board* board = nullptr;  ///< Null: over.
  const Tally* tally = nullptr;
};

namespace {

using shm::SliceAnswer;
using Shared = SliceCheck::Shared;

/// What the thread reads of the board at once.
struct View {
  struct Device {
    bool in_use = false;
    bool simulated = false;
    std::string uuid;  ///< Empty: the board has no such device.
  };
  std::vector<Device> devices;
  std::uint64_t arrivals = 0;  ///< Changes when a program comes.
  shm::Snapshot snapshot;
};

View view_of(const Shared& shared) {
  const shm::Board& board = *shared.board;
  const std::uint64_t now_ns = base::monotonic_ns();
  View view;
  view.arrivals =
      shared.tally->attached.load() + shared.tally->reattached.load() + shared.tally->leases.load();
  view.snapshot = shm::take_snapshot(board, now_ns);
  view.devices.resize(board.devices.size());
  for (const shm::DeviceSnapshot& device : view.snapshot.devices) {
    const auto index = static_cast<std::size_t>(device.index);
    view.devices[index] = {SliceCheck::in_use(board, index), device.simulated, device.uuid};
  }
  return view;
}

bool has_nvml() {
  void* const library = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (library != nullptr) dlclose(library);
  return library != nullptr;
}

/// Whether programs started by us may get an MPS daemon. There, killing a program is not harmless.
bool has_mps() {
  const char* folder = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  const std::string pipes = folder != nullptr && *folder != '\0' ? folder : "/tmp/nvidia-mps";
  return access((pipes + "/control").c_str(), F_OK) == 0;
}

/// Whether a program outside Sluice, other than those of the trial, uses the device. Programs that
/// cannot be told apart are those of the trial, up to two.
bool foreign_on(const View& view, int device, const std::string& session, pid_t trial) {
  long own = 0;
  for (const shm::OutsideProcess& process : shm::find_outside(view.snapshot, session)) {
    if (process.device != device) continue;
    const bool known = process.pid != 0;
    if (known && (trial <= 0 || getpgid(static_cast<pid_t>(process.pid)) != trial)) return true;
    ++own;
  }
  return own > (trial > 0 ? 2 : 0);
}

class Checker {
 public:
  Checker(std::shared_ptr<Shared> shared, SliceCheckOptions options)
      : shared_(std::move(shared)),
        options_(std::move(options)),
        driver_(loaded_driver()),
        nvml_(has_nvml()) {}

  void run() {
    while (const std::optional<View> view = look()) {
      try {
        step(*view);
      } catch (const std::exception& error) {
        spdlog::warn("cannot try time slices: {}", error.what());
        trial_.reset();
      }
      if (!show_and_wait()) break;
    }
    trial_.reset();
  }

 private:
  static constexpr std::uint64_t kReadNs = 2'000'000'000;
  static constexpr std::uint64_t kForeignNs = 1'000'000'000;
  static constexpr std::chrono::milliseconds kPause{500};
  static constexpr std::chrono::milliseconds kTrialPause{20};

  std::optional<View> look() {
    const std::lock_guard lock(shared_->mutex);
    if (shared_->board == nullptr) return std::nullopt;
    return view_of(*shared_);
  }

  void step(const View& view) {
    const std::uint64_t now_ns = base::monotonic_ns() * options_.speed;
    const bool arrived = std::exchange(arrivals_, view.arrivals) != view.arrivals;
    const bool read = now_ns >= read_ns_;
    if (read) read_ns_ = now_ns + kReadNs;
    for (std::size_t i = 0; i < view.devices.size(); ++i) {
      const View::Device& device = view.devices[i];
      if (device.uuid.empty()) continue;
      const bool is_new = std::exchange(seen_[i], device.uuid) != device.uuid;
      if (read || is_new) read_answer(i, device);
      tick(view, i, {.quiet = !arrived && !device.in_use}, now_ns);
    }
  }

  void read_answer(std::size_t index, const View::Device& device) {
    for (const std::string& folder : {options_.folder, std::string(kNodeAnswerFolder)}) {
      const auto found = recorded_answer(folder, device.uuid, driver_of(device));
      if (!found) continue;
      answers_[index] = *found;
      return;
    }
  }

  void tick(const View& view, std::size_t index, TrialRule::Seen seen, std::uint64_t now_ns) {
    const View::Device& device = view.devices[index];
    seen.running = trial_ && tried_ == index;
    if (seen.running && trial_->ended()) return take(view, device, seen.quiet);
    seen.wanted = !trial_ && answers_[index].kind == SliceAnswer::Kind::kNone && may_try(device);
    const auto foreign = [&] {
      if (seen.running && now_ns < foreign_ns_) return false;
      foreign_ns_ = now_ns + kForeignNs;
      return foreign_on(view, static_cast<int>(index), options_.session,
                        seen.running ? trial_->group() : 0);
    };
    switch (rules_[index].tick(now_ns, seen, foreign)) {
      case TrialRule::Do::kBegin:
        return begin(index, device);
      case TrialRule::Do::kEnd:
        spdlog::info("{} is in use; the trial of its time slices is ended", device.uuid);
        trial_.reset();
        return;
      case TrialRule::Do::kNothing:
        return;
    }
  }

  [[nodiscard]] std::string driver_of(const View::Device& device) const {
    return device.simulated ? kSimulatedDriver : driver_;
  }

  [[nodiscard]] bool may_try(const View::Device& device) const {
    if (options_.when == CheckSlices::kNever || has_mps()) return false;
    if (device.simulated) return options_.when == CheckSlices::kAlways;
    return !driver_.empty() && nvml_;
  }

  void begin(std::size_t index, const View::Device& device) {
    spdlog::info("{}: trying whether it obeys time slices", device.uuid);
    std::vector<std::string> command = options_.command;
    command.insert(command.end(), {device.uuid, "--gpu", device.simulated ? "sim" : "real"});
    trial_.emplace(command);
    tried_ = index;
  }

  void take(const View& view, const View::Device& device, bool quiet) {
    std::string why;
    const std::string text = trial_->printed();
    auto answer = printed_answer(text, why);
    const int index = static_cast<int>(tried_);
    if (!quiet || foreign_on(view, index, options_.session, trial_->group())) {
      answer = std::nullopt;
      why = "the GPU is in use";
    }
    trial_.reset();
    if (answer) {
      answers_[tried_] = *answer;
      record_answer(options_.folder, device.uuid, text);
    }
    spdlog::info("{}: time slices: {}{}", device.uuid,
                 shm::answer_text(answer.value_or(SliceAnswer{})),
                 why.empty() ? std::string() : " (" + why + ")");
  }

  /// False if it is over.
  bool show_and_wait() {
    std::unique_lock lock(shared_->mutex);
    const auto over = [this] { return shared_->board == nullptr; };
    if (over()) return false;
    for (std::size_t i = 0; i < answers_.size(); ++i) {
      shared_->board->slice_answers[i].store(answers_[i].pack());
    }
    return !shared_->wake.wait_for(
        lock, trial_ ? kTrialPause : kPause / static_cast<int>(options_.speed), over);
  }

  std::shared_ptr<Shared> shared_;
  SliceCheckOptions options_;
  std::string driver_;
  bool nvml_;
  std::array<SliceAnswer, shm::kMaxDevices> answers_{};
  std::array<TrialRule, shm::kMaxDevices> rules_{};
  std::optional<SliceTrial> trial_;
  std::size_t tried_ = 0;
  std::array<std::string, shm::kMaxDevices> seen_;  ///< The devices, by UUID.
  std::uint64_t arrivals_ = 0;
  std::uint64_t read_ns_ = 0;
  std::uint64_t foreign_ns_ = 0;
};

}  // namespace

SliceCheck::SliceCheck(shm::Board& board, const Tally& tally, SliceCheckOptions options)
    : shared_(std::make_shared<Shared>()) {
  shared_->board = &board;
  shared_->tally = &tally;
  std::thread([shared = shared_, options = std::move(options)]() mutable {
    Checker(shared, std::move(options)).run();
  }).detach();
}

SliceCheck::~SliceCheck() {
  const std::lock_guard lock(shared_->mutex);
  shared_->board = nullptr;
  shared_->wake.notify_one();
}

bool SliceCheck::in_use(const shm::Board& board, std::size_t device) noexcept {
  return std::any_of(board.slots.begin(), board.slots.end(), [&](const shm::Slot& slot) {
    const shm::SlotInfo info = shm::SlotInfo::unpack(slot.info.load());
    return info.state != shm::SlotState::kFree && info.device == device;
  });
}

}  // namespace sluice::controller
