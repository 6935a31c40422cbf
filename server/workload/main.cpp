// `sluice hybrid_workload`: requests for a server, and a report of their latency.
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>

#include "base/command_line.hpp"
#include "base/output.hpp"
#include "base/signal_fd.hpp"
#include "server/workload/empty_server.hpp"
#include "server/workload/inputs.hpp"
#include "server/workload/load.hpp"
#include "server/workload/plan.hpp"
#include "server/workload/report.hpp"
#include "server/workload/train_jobs.hpp"

namespace sluice::server::workload {
namespace {

constexpr const char* kName = "sluice hybrid_workload";
constexpr int kSignalled = 128;

void say(const std::string& line) { base::print_error(kName, line); }

/// Standard output, or the file of -l. Opened before the run, which would otherwise be lost.
class Report {
 public:
  explicit Report(const std::string& file) {
    if (!file.empty()) file_.emplace(file);
  }
  void write(const std::string& text) {
    if (file_) return file_->write(text);
    std::fwrite(text.data(), 1, text.size(), stdout);
  }

 private:
  std::optional<base::LineFile> file_;
};

std::vector<std::size_t> prepare(Client& client, const std::vector<Worker>& workers,
                                 const Options& options) {
  std::vector<std::size_t> requests;
  for (const Worker& worker : workers) {
    PreparedRequest request;
    request.model = worker.model;
    request.inputs = make_inputs(worker.model, client.inputs(worker.model),
                                 {options.batch, options.random_inputs, options.seed, options.dim});
    // The server counts from the headers.
    if (options.slo_ms) request.slo_ms = *options.slo_ms + options.announce_ms.value_or(0);
    requests.push_back(client.prepare(request));
  }
  return requests;
}

LoadEvents events(const Options& options) {
  LoadEvents events;
  events.progress = [&options](const LoadProgress& progress) {
    say(progress_line(progress, options.duration_s));
  };
  if (options.show_result != 0) {
    events.answer = [&options](const Worker&, std::uint64_t number, const Answer& answer) {
      if (!answer.first) return;
      const std::string text = show_result(number, *answer.first, options.show_result);
      std::fwrite(text.data(), 1, text.size(), stdout);
    };
  }
  return events;
}

std::string_view to_string(Ended ended) {
  switch (ended) {
    case Ended::kTime:
      return "time";
    case Ended::kDone:
      return "done";
    case Ended::kInterrupted:
      break;
  }
  return "interrupted";
}

nlohmann::json to_json(const std::vector<TrainSummary>& training) {
  nlohmann::json all = nlohmann::json::array();
  for (const TrainSummary& summary : training) {
    all.push_back({{"model", summary.model},
                   {"seconds", summary.seconds},
                   {"stopped", summary.stopped},
                   {"error", summary.error}});
  }
  return all;
}

/// Waits until the jobs, the time or a signal ends the run.
LoadResult run_training(const TrainJobs& jobs, const Options& options,
                        const base::SignalFd& signals) {
  constexpr int kLookAgainMs = 50;
  LoadResult result;
  const auto begin = std::chrono::steady_clock::now();
  result.ended = Ended::kDone;
  while (!jobs.ended()) {
    pollfd signal{signals.fd(), POLLIN, 0};
    if (poll(&signal, 1, kLookAgainMs) > 0) {
      result.ended = Ended::kInterrupted;
      break;
    }
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
    result.sending_s = passed.count();
    if (options.duration_s && passed.count() >= *options.duration_s) {
      result.ended = Ended::kTime;
      break;
    }
  }
  return result;
}

/// Returns how many requests were answered.
std::uint64_t write_report(Report& report, const std::vector<Worker>& workers,
                           const LoadResult& result, const std::vector<TrainSummary>& training,
                           const Options& options) {
  nlohmann::json models = nlohmann::json::array();
  std::uint64_t answered = 0;
  for (std::uint32_t i = 0; i < workers.size(); ++i) {
    const std::string& model = workers[i].model;
    const Summary summary = summarise(result.records, i, options.slo_ms);
    answered += summary.latency_ms.size();
    if (options.json) {
      models.push_back(to_json(workers[i], summary, result.sending_s));
    } else {
      report.write(table(model, summary, result.sending_s));
      if (options.verbose > 0 && !summary.latency_ms.empty()) {
        report.write(trace(model, result.records, i));
      }
    }
    for (const std::string& line : error_lines(model, summary, result.messages[i])) say(line);
  }
  if (options.json) {
    const nlohmann::json json{{"server", fmt::format("{}:{}", options.host, options.port)},
                              {"protocol", options.http ? "http" : "grpc"},
                              {"seed", options.seed},
                              {"batch", options.batch},
                              {"duration_s", result.sending_s},
                              {"ended", to_string(result.ended)},
                              {"models", models},
                              {"training", to_json(training)}};
    report.write(json.dump(2) + "\n");
  }
  for (const TrainSummary& summary : training) {
    if (!options.json) report.write(train_report(summary));
    if (!summary.error.empty()) say(fmt::format("training {}: {}", summary.model, summary.error));
  }
  return answered;
}

int run(int argc, char** argv) {
  Options options;
  if (const auto exit_code = parse_workload_options(argc, argv, options)) return *exit_code;
  if (options.empty_server) run_empty_server(*options.empty_server);
  const std::vector<Worker> workers = options.infer ? plan(options) : std::vector<Worker>{};
  if (options.random_dynamic_poisson) say(describe_benchmark(workers));
  // Before the threads of the client, which must not get the signals.
  const base::SignalFd signals{SIGINT, SIGTERM};
  Report report(options.log_file);
  std::optional<base::LineFile> csv_file;
  if (!options.csv_file.empty()) csv_file.emplace(options.csv_file);

  const ClientOptions server{options.host, options.port, options.show_result != 0};
  const auto client = options.http ? connect_http(server) : connect_grpc(server);
  const std::vector<std::size_t> requests = prepare(*client, workers, options);
  std::unique_ptr<TrainJobs> training;
  if (!options.train_models.empty()) {
    training = begin_train_jobs(
        server, options.train_models,
        fmt::format("num-epoch={}, batch-size={}", options.num_epoch, options.train_batch_size),
        options.infer);
  }
  const LoadResult result = options.infer
                                ? run_load(*client, workers, requests, load_options(options),
                                           signals.fd(), events(options))
                                : run_training(*training, options, signals);
  const auto trained = training ? training->stop() : std::vector<TrainSummary>{};

  const std::uint64_t answered = write_report(report, workers, result, trained, options);
  if (csv_file) csv_file->write(csv(workers, result.records));
  if (result.ended == Ended::kInterrupted) return kSignalled + signals.next().signal;
  if (answered == 0 && options.infer) throw base::RunError("no request was answered");
  const bool failed = std::any_of(trained.begin(), trained.end(),
                                  [](const auto& summary) { return !summary.error.empty(); });
  return failed ? base::kExitFailed : base::kExitFine;
}

}  // namespace
}  // namespace sluice::server::workload

int main(int argc, char** argv) {
  return sluice::base::run_program(sluice::server::workload::kName,
                                   [&] { return sluice::server::workload::run(argc, argv); });
}
