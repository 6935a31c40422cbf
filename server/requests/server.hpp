#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <vector>

#include "server/figures/outcomes.hpp"
#include "server/figures/profile.hpp"
#include "server/memory/residency.hpp"
#include "server/models/config_file.hpp"
#include "server/models/loader.hpp"
#include "server/requests/announcer.hpp"
#include "server/requests/device.hpp"
#include "server/requests/records.hpp"
#include "server/service/byte_budget.hpp"
#include "server/service/service.hpp"
#include "server/training/training.hpp"

namespace sluice::server {

struct ServerOptions {
  DispatcherOptions dispatcher;
  std::string records_file;                     ///< Empty: none.
  std::string access_log;                       ///< Empty: none.
  std::string device = "cpu";                   ///< What GPUs are: gpu, simulated, or cpu.
  std::uint64_t max_queued_bytes = 1ULL << 30;  ///< Of all requests and unsent responses.
  double drain_s = 30;
  bool announce = true;  ///< Jobs, at the headers of requests.
  bool jobs = true;      ///< False: the gate never closes for this server.
  /// Weights leave a GPU for other models and for training. Nothing: they always stay. May throw.
  /// Null: they stay on each GPU.
  std::function<std::optional<memory::ResidencyOptions>(int gpu)> memory;
  bool grants = true;         ///< Training is granted memory, and shrunk.
  int training_gpu = kNoGpu;  ///< Where training runs.
  /// The configuration of a model as it is now: of the config file, or with default settings where
  /// only the store has the model. Nothing if neither has it. May throw. Null: as at the start.
  std::function<std::optional<ModelConfig>(const std::string& name)> find_model;
  /// The versions of a model that its files have, each with its path. May throw. Null: version 1.
  std::function<std::vector<ModelVersion>(const ModelConfig&)> find_versions;
};

/// The server behind its protocols: models, queue, counters.
class Server : public Service {
 public:
  struct Events {
    std::function<void()> shut_down;  ///< A client asked for it.
    /// All requests have been answered, or will be. From any thread.
    std::function<void(const std::string&)> context_lost;
    std::function<void(const std::string&)> log;  ///< A line for people.
  };
  /// Null where there is none. They must live longer.
  struct Attached {
    training::Training* training = nullptr;
    Profile* profile = nullptr;
  };
  Server(const ServerOptions& options, std::vector<ModelConfig> models, MakeInstance make,
         Events events, Attached attached = {nullptr, nullptr});
  ~Server() override;

  /// Loads the models that are to be preloaded. Throws if one cannot be loaded.
  void preload();
  /// From now on not ready. Requests are still answered.
  void leave();
  /// From now on requests are refused, and queued ones are answered. Returns true when all are
  /// answered, or false at `until_ns`.
  [[nodiscard]] bool drain(std::uint64_t until_ns);

  std::uint64_t headers(const std::string& model, std::uint64_t bytes) override;
  void forget(std::uint64_t announced) override;
  const ByteBudget& memory() const override { return memory_; }
  std::shared_ptr<Cancellation> infer(Request request, Done done) override;
  void refused(const std::string& model, const Status& status) override;
  bool live() const override { return true; }
  /// Not while a model is not served because its load has failed.
  bool ready() const override;
  bool model_ready(const std::string& model, const std::string& version) const override;
  std::optional<ModelMetadata> metadata(const std::string& model,
                                        const std::string& version) const override;
  std::optional<std::vector<ModelStatistics>> statistics(const std::string& model) const override;
  std::vector<RepositoryEntry> repository() const override;
  Status load(const std::string& model) override;
  Status unload(const std::string& model) override;
  /// Inference may run now: what Turn::take() has refused.
  void wake();
  void train(const TrainRequest& request, TrainDone done) override;
  Status stop_training(const std::string& job, const std::string& id) override;
  std::string scheduler() const override;
  Status set_scheduler(const std::string& name) override;
  /// After the records and the access log were rotated.
  void reopen_logs();
  nlohmann::json status() const override;
  std::string metrics() const override;
  void shut_down() override;

 private:
  enum class State : std::uint8_t { kStarting, kServing, kLeaving, kEnded };
  /// A version of a model, loaded on all of its devices or on none.
  struct Version {
    std::string state = "UNAVAILABLE";
    std::string reason = "not loaded";
    Replicas replicas;
    std::shared_ptr<Statistics> statistics;  ///< Those of a model that is loaded again go on.
  };
  /// A model that the server knows.
  struct Entry {
    ModelConfig config;
    std::map<std::uint64_t, Version> versions;
    bool served = false;  ///< Was loaded once.
    bool failed = false;  ///< Should be served, and cannot be loaded.
    std::mutex changes;   ///< One load or unload of a model at a time.

    /// The highest version that is loaded, or null.
    [[nodiscard]] const Version* loaded() const;
  };
  /// The entry, which stays where it is, or null.
  [[nodiscard]] Entry* entry_of(const std::string& name);
  [[nodiscard]] Entry* entry_for_load(const std::string& name);
  [[nodiscard]] bool answers() const {
    return state_ == State::kServing || state_ == State::kLeaving;
  }
  /// The device of a GPU, made at its first use.
  Device& device(int gpu);
  [[nodiscard]] std::unique_ptr<Device> make_device(int gpu);
  /// Those of now, by their GPUs.
  [[nodiscard]] std::vector<Device*> devices() const;
  // Both need mutex_.
  [[nodiscard]] const Entry* asked_for(const std::string& model) const;
  [[nodiscard]] Status no_model(const std::string& name) const;
  [[nodiscard]] Replicas find(const std::string& name, const std::string& version,
                              Status& status) const;
  [[nodiscard]] Status check(Replicas& replicas, Request& request, Pending& pending);
  void stage(Model& model, Request& request) const;
  [[nodiscard]] Status accept(Replicas& replicas, std::size_t items);
  void refuse(const std::shared_ptr<Model>& model, Pending pending, const Status& status);
  void count(const std::shared_ptr<Model>& model, const Pending& pending, const Status& status);
  void answered(const Execution& execution, Pending& pending, const Status& status,
                const Response& response);
  [[nodiscard]] std::vector<ModelVersion> wanted_versions(const ModelConfig& config) const;
  [[nodiscard]] Status load_version(Entry& entry, const ModelConfig& config,
                                    const ModelVersion& version);
  void load_beside(const ModelConfig& config, std::shared_ptr<Statistics> statistics,
                   Replicas& replicas);
  void unload_others(Entry& entry, const std::vector<ModelVersion>& wanted);
  [[nodiscard]] Status load_failed(Entry& entry, const std::string& why);
  /// Returns what was loaded before.
  Replicas set_state(Version& version, std::string state, std::string reason, Replicas replicas);
  void retire(const Replicas& replicas);
  void say_target();
  [[nodiscard]] std::unique_ptr<memory::Residency> make_residency(
      Device& device, const memory::ResidencyOptions& options);
  void context_lost(const std::string& why);
  [[nodiscard]] std::shared_ptr<Model> load_with_room(
      const ModelConfig& config, memory::Residency::Room& room,
      const std::shared_ptr<Statistics>& statistics);
  [[nodiscard]] nlohmann::json status_of(const std::string& name, std::uint64_t number,
                                         const Version& version, const Model* model) const;
  [[nodiscard]] nlohmann::json status_of(const Device& device) const;
  void write_devices(base::MetricsText& out) const;

  ServerOptions options_;
  MakeInstance make_;
  Events events_;
  training::Training* training_;
  Profile* profile_;
  std::atomic<State> state_{State::kStarting};
  std::atomic<std::uint64_t> next_request_{1};
  const ByteBudget memory_;
  mutable std::shared_mutex mutex_;  ///< Guards entries_.
  std::map<std::string, Entry> entries_;
  /// One load at a time: each is measured. An unload makes room, so it does not wait for a load.
  std::mutex loading_;
  std::mutex target_;  ///< Guards the gate's target.
  std::uint32_t next_model_ = 1;
  Announcer announcer_;
  Records records_;
  Outcomes outcomes_;
  std::mutex policy_changes_;                ///< One change of all devices at a time.
  mutable std::shared_mutex devices_mutex_;  ///< Guards what follows. Devices stay.
  scheduler::Policy policy_;
  std::map<int, std::unique_ptr<Device>> devices_;
};

}  // namespace sluice::server
