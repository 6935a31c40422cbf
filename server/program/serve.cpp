#include "server/program/serve.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <future>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "base/clock.hpp"
#include "base/signal_fd.hpp"
#include "server/memory/memory_options.hpp"
#include "server/program/early_end.hpp"
#include "server/program/front.hpp"

namespace sluice::server {
namespace {

using std::chrono::milliseconds;

constexpr const char* kName = "sluice serve";
constexpr int kSignalled = 128;

void say(const std::string& line) { std::fprintf(stderr, "%s: %s\n", kName, line.c_str()); }

/// What other threads tell the main thread, which waits in poll().
class Events {
 public:
  enum class Kind : std::uint8_t {
    kLoaded,
    kLoadFailed,
    kShutDown,
    kContextLost,
    kDrained,
    kDrainedInPart
  };

  void add(Kind kind) {
    const std::lock_guard lock(mutex_);
    events_.push_back(kind);
    eventfd_write(fd_.get(), 1);
  }
  /// Waits for an event, a signal, or `until_ns`. Returns the events so far.
  std::vector<Kind> wait(const base::SignalFd& signals, std::uint64_t until_ns) {
    std::array<pollfd, 2> fds{pollfd{fd_.get(), POLLIN, 0}, pollfd{signals.fd(), POLLIN, 0}};
    constexpr std::uint64_t kLongestMs = 1'000'000;
    const std::uint64_t now = base::monotonic_ns();
    const std::uint64_t left_ms = until_ns <= now ? 0 : (until_ns - now) / 1'000'000 + 1;
    poll(fds.data(), fds.size(), static_cast<int>(std::min(left_ms, kLongestMs)));
    eventfd_t ignored = 0;
    eventfd_read(fd_.get(), &ignored);
    const std::lock_guard lock(mutex_);
    return std::exchange(events_, {});
  }

 private:
  base::Fd fd_{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::mutex mutex_;
  std::vector<Kind> events_;
};

std::uint64_t to_ns(double seconds) { return static_cast<std::uint64_t>(seconds * 1e9); }

/// A GPU of the server, as CUDA_VISIBLE_DEVICES of another process.
std::string visible_device(int device) {
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible == nullptr) return std::to_string(device);
  std::istringstream list(visible);
  std::string entry;
  for (int i = 0; i <= device; ++i) {
    if (!std::getline(list, entry, ',')) return std::to_string(device);
  }
  return entry;
}

/// Jobs find `sluice.train`; what the user has put there comes first.
std::string python_path(const base::Install& install) {
  const char* const before = std::getenv("PYTHONPATH");
  const std::string first = before == nullptr || *before == '\0' ? "" : std::string(before) + ":";
  return "PYTHONPATH=" + first + install.python().string();
}

training::TrainingOptions training_options(const ServeOptions& options, Place place) {
  training::TrainingOptions out;
  out.mode = options.train.mode;
  out.store = options.train.store;
  out.wedged_s = options.train.wedged_s;
  const base::Install install = base::Install::of_this_program();
  out.guard = install.program("trainer-guard");
  out.environment.push_back(python_path(install));
  // On a CPU there is nothing to gate. env finds the interpreter of a job.
  out.wrapper = {"/usr/bin/env"};
  if (place == Place::kCpu) return out;
  out.session = options.session;
  const bool real = place == Place::kRealGpu;
  out.environment.push_back("CUDA_VISIBLE_DEVICES=" + visible_device(options.device));
  if (real) {
    const bool chosen = std::getenv("PYTORCH_ALLOC_CONF") != nullptr ||
                        std::getenv("PYTORCH_CUDA_ALLOC_CONF") != nullptr;
    // PyTorch then gives memory back page by page.
    if (!chosen) out.environment.emplace_back("PYTORCH_ALLOC_CONF=expandable_segments:True");
  }
  out.wrapper = {install.subcommand("exec").string(),
                 "--priority",
                 "0",
                 "--policy",
                 options.train.policy,
                 "--gpu",
                 real ? "real" : "sim",
                 "--session",
                 options.session,
                 "--"};
  return out;
}

EngineSettings engine_settings(const ServeOptions& options, Place place) {
  EngineSettings settings{engine::model_store(options.store), place, ""};
  settings.placement =
      options.memory.use_sta ? engine::Placement::kFixed : engine::Placement::kAnywhere;
  const scheduler::Traits traits = scheduler::traits_of(options.server.dispatcher.policy);
  settings.takes_turns = traits.order != scheduler::Order::kSideBySide;
  return settings;
}

ServerOptions server_options(const ServeOptions& all, Place place, const Engines& engines) {
  ServerOptions options = all.server;
  if (place != Place::kCpu) {
    options.memory = [&all, &engines](int gpu) {
      return memory_options(all.memory, engines.free_memory(all.models, gpu),
                            to_ns(all.train.wedged_s));
    };
    options.training_gpu = all.device;
  }
  options.grants = all.memory.use_sta && !all.train.store.empty();
  if (all.verbose) options.dispatcher.batch_line = say;
  options.device = place == Place::kRealGpu        ? "gpu"
                   : place == Place::kSimulatedGpu ? "simulated"
                                                   : "cpu";
  const base::Install install = base::Install::of_this_program();
  const engine::ModelStore store = engine::model_store(all.store);
  options.find_model = [&all, install, store, place](const std::string& name) {
    auto found = find_model(install, store, all.config_file, name);
    if (found) settle_gpus(place, all.device, *found);
    return found;
  };
  options.find_versions = [store](const ModelConfig& model) { return find_versions(store, model); };
  return options;
}

/// Each connection has a descriptor, and the usual limit of 1024 is that of programs with select().
void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  static_cast<void>(setrlimit(RLIMIT_NOFILE, &limit));
}

/// The life of a server: loading, serving, draining.
class Life {
 public:
  Life(const ServeOptions& options, Place place)
      : options_(options),
        engines_(base::Install::of_this_program(), engine_settings(options, place)),
        training_(training_options(options, place), {say,
                                                     [this](const training::Handover& handover) {
                                                       if (profile_) profile_->handover(handover);
                                                     },
                                                     [this] { server_.wake(); }}),
        server_(server_options(options, place, engines_), options.models,
                [this](const ModelConfig& config) { return engines_.make(config); },
                Server::Events{[this] { events_.add(Kind::kShutDown); },
                               [this](const std::string& why) {
                                 say(why +
                                     "; the device is unusable from now on, so this process ends");
                                 events_.add(Kind::kContextLost);
                               },
                               say},
                {&training_, options.profile.empty() ? nullptr : &profile_.emplace([this] {
                   return training_.memory_use();
                 })}),
        data_(server_, options, options.data, options.allow_control) {
    if (!options.control.listen.empty()) control_.emplace(server_, options, options.control, true);
    starting_.reset();
  }

  int run() {
    if (options_.max_live_minutes > 0) {
      end_ns_ = base::monotonic_ns() + static_cast<std::uint64_t>(options_.max_live_minutes * 60e9);
    }
    start(&Life::load);
    while (!exit_code_) {
      for (const Kind kind : events_.wait(signals_, end_ns_)) handle(kind);
      if (exit_code_) break;  // a signal must not end the process with another code
      const int signal = signals_.next().signal;
      if (signal != 0) handle_signal(signal);
      if (base::monotonic_ns() >= end_ns_) begin_drain("the time of --max-live-minute is over");
    }
    finish();
    return *exit_code_;
  }

 private:
  using Kind = Events::Kind;
  /// For calls that end when they are told to.
  static constexpr milliseconds kGrace{1000};
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};

  void start(void (Life::*work)()) {
    if (worker_.joinable()) worker_.join();
    worker_ = std::thread([this, work] { (this->*work)(); });
  }

  void load() {
    try {
      server_.preload();
      events_.add(Kind::kLoaded);
    } catch (const std::exception& error) {
      say(error.what());
      events_.add(Kind::kLoadFailed);
    }
  }

  /// First those who send requests learn that they should go elsewhere. Then open connections have
  /// their last requests answered. An update of a service then loses none.
  void drain() {
    const auto now = std::chrono::steady_clock::now();
    const auto until = now + to_ms(options_.server.drain_s);
    server_.leave();
    for (Front* const front : fronts()) front->http.leave();
    std::this_thread::sleep_until(std::min(now + to_ms(drain_delay_s_), until));
    training_.stop();  // Its calls last as long as their jobs.
    std::vector<std::future<void>> ends;
    for (Front* const front : fronts()) {
      ends.push_back(std::async(std::launch::async, [=] { front->grpc.finish(until); }));
      ends.push_back(std::async(std::launch::async, [=] { front->http.finish(until); }));
    }
    for (const auto& end : ends) end.wait_until(until);
    const auto left = std::chrono::nanoseconds(until - std::chrono::steady_clock::now()).count();
    const bool all = server_.drain(base::monotonic_ns() +
                                   static_cast<std::uint64_t>(std::max<std::int64_t>(left, 0)));
    events_.add(all ? Kind::kDrained : Kind::kDrainedInPart);
  }

  [[nodiscard]] std::vector<Front*> fronts() {
    std::vector<Front*> all{&data_};
    if (control_) all.push_back(&*control_);
    return all;
  }

  /// A lost context has a code of its own: the service manager must learn of it.
  void end_with(int code) {
    if (exit_code_ != kExitContextLost) exit_code_ = code;
  }

  void handle(Kind kind) {
    switch (kind) {
      case Kind::kLoaded:
        loaded_ = true;
        if (!draining_) say_ready();
        break;
      case Kind::kLoadFailed:
        end_with(base::kExitFailed);
        break;
      case Kind::kShutDown:
        begin_drain("a client asked for the end");
        break;
      case Kind::kContextLost:
        exit_code_ = kExitContextLost;
        break;
      case Kind::kDrained:
        end_with(base::kExitFine);
        break;
      case Kind::kDrainedInPart:
        say("some requests have no answer yet; ends all the same");
        end_with(base::kExitFailed);
        break;
    }
  }

  /// SIGHUP: the usual order of those who rotate logs and renew certificates.
  void reload() {
    say("SIGHUP: opens its logs again, and reads its certificates again");
    server_.reopen_logs();
    for (Front* const front : fronts()) {
      try {
        front->read_tls_again(options_);
      } catch (const std::exception& error) {
        say(fmt::format("{}; {} goes on with the certificate of before", error.what(),
                        front->listen));
      }
    }
  }

  void handle_signal(int signal) {
    if (signal == SIGHUP) return reload();
    if (draining_) {
      say("a second signal: ends at once");
      std::fflush(nullptr);
      _exit(kSignalled + signal);
    }
    // Somebody waits for the end after Ctrl-C, and balancers need the delay only after SIGTERM.
    if (signal == SIGTERM) drain_delay_s_ = options_.drain_delay_s;
    begin_drain(fmt::format("{}: finishes the requests of its clients, for at most {:g} s",
                            signal == SIGINT ? "Ctrl-C" : "SIGTERM", options_.server.drain_s));
  }

  void begin_drain(const std::string& why) {
    if (std::exchange(draining_, true)) return;
    if (!loaded_) {
      // There is nothing to finish, and the thread that loads cannot be interrupted.
      say("ended while it loads");
      std::fflush(nullptr);
      _exit(base::kExitFine);
    }
    end_ns_ = kNever;
    say(why);
    start(&Life::drain);
  }

  void say_ready() {
    if (options_.json) {
      nlohmann::json line{{"listen", options_.data.listen},
                          {"grpc_port", data_.grpc.port()},
                          {"http_port", data_.http.port()},
                          {"scheduler", server_.scheduler()},
                          {"pid", getpid()}};
      if (control_) {
        line["control"] = {{"listen", control_->listen},
                           {"grpc_port", control_->grpc.port()},
                           {"http_port", control_->http.port()}};
      }
      std::printf("%s\n", line.dump().c_str());
    } else {
      const std::string control = control_
                                      ? fmt::format(", control gRPC {}, HTTP {}",
                                                    control_->grpc_text(), control_->http_text())
                                      : "";
      std::printf("ready: gRPC %s, HTTP %s, scheduler %s%s\n", data_.grpc_text().c_str(),
                  data_.http_text().c_str(), server_.scheduler().c_str(), control.c_str());
    }
    std::fflush(stdout);
  }

  void write_profile() const {
    if (!profile_ || !loaded_) return;
    try {
      profile_->write(options_.profile);
    } catch (const base::RunError& error) {
      say(error.what());
    }
  }

  void finish() {
    if (*exit_code_ == base::kExitFine) training_.stop();
    write_profile();
    // A call that loads a model, or a step that never ends, must not keep the process.
    std::thread([code = *exit_code_] {
      std::this_thread::sleep_for(5 * kGrace);
      std::fflush(nullptr);
      _exit(code);
    }).detach();
    for (Front* const front : fronts()) {
      front->grpc.stop(kGrace);
      front->http.stop(kGrace);
    }
    if (*exit_code_ == kExitContextLost || *exit_code_ == base::kExitFailed) {
      // Neither an unusable device nor a step that does not end can be taken down in order.
      std::fflush(nullptr);
      _exit(*exit_code_);
    }
    worker_.join();
  }

  const ServeOptions& options_;
  base::SignalFd signals_{SIGINT, SIGTERM, SIGHUP};  // before any thread
  std::optional<EarlyEnd> starting_{std::in_place, signals_};
  Events events_;
  Engines engines_;
  training::Training training_;
  std::optional<Profile> profile_;  // reads training_
  Server server_;
  Front data_;
  std::optional<Front> control_;
  std::thread worker_;
  bool loaded_ = false;
  bool draining_ = false;
  double drain_delay_s_ = 0;
  std::uint64_t end_ns_ = kNever;
  std::optional<int> exit_code_;
};

}  // namespace

int serve(const ServeOptions& options, Place place) {
  raise_descriptor_limit();
  return Life(options, place).run();
}

}  // namespace sluice::server
