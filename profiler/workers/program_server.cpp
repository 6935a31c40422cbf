#include "profiler/workers/program_server.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/install.hpp"

namespace sluice::profiler {

using nlohmann::json;

namespace {

constexpr double kLimitS = 600;  ///< Importing a large network takes minutes.
/// Of the programs of a call. More must have another cause, and each costs the start of a process.
constexpr int kMostFatal = 3;
/// The answer of a process that was lost. The others are objects.
const json kLost = false;

std::vector<std::vector<std::string>> installed_servers(std::size_t processes) {
  return {processes, {base::Install::of_this_program().subcommand("programs"), "serve"}};
}

/// Empty for an answer that says why there is no program.
std::optional<Program> program_of(const json& answer) {
  if (answer.contains("error")) return std::nullopt;
  return std::get<Program>(pack_entry(answer));
}

/// The answer if it is a good one; else throws. `what` was asked for.
json checked(const std::string& what, const WorkerAnswer& given) {
  if (given.how == WorkerAnswer::How::kTimeout) {
    throw ServerLost(fmt::format("sluice programs: {} took more than {} s", what, kLimitS), true);
  }
  if (given.how == WorkerAnswer::How::kDied) {
    throw ServerLost(fmt::format("sluice programs {} during {}; see above", given.text, what),
                     false);
  }
  json answer = json::parse(given.text);
  if (!answer.at("ok")) {
    throw base::RunError("sluice programs: " + answer.at("error").get<std::string>());
  }
  return answer;
}

void report_left_out(const ServerLost& lost, const json& request) {
  fmt::print(stderr, "sluice opbench: {}: {}, left out\n", lost.what(), request.dump());
}

}  // namespace

std::size_t ImportedNetwork::weight(const std::string& task) const {
  return static_cast<std::size_t>(std::ranges::count(network.calls, task, &Network::Call::task));
}

ProgramServer::ProgramServer(std::size_t processes)
    : pool_(installed_servers(processes), kLimitS),
      // Has no name, so nothing stays behind however this process ends.
      tasks_(memfd_create("sluice-opbench-tasks", MFD_CLOEXEC)),
      knows_(processes, true) {
  if (!tasks_) throw base::RunError(fmt::format("memfd_create: {}", std::strerror(errno)));
  try {
    tvm_ = ask_for({{"do", "hello"}}).at("tvm");
  } catch (const ServerLost&) {
    throw;
  } catch (const base::RunError& error) {
    throw base::UsageError(error.what());  // TVM is not installed
  }
}

void ProgramServer::fill(const std::vector<json>& requests, std::vector<json>& answers) {
  try {
    load_where_unknown();
  } catch (const base::RunError& error) {
    throw NetworkLost(error.what());
  }
  std::exception_ptr failure;
  std::size_t next = 0;
  while (true) {
    for (; next < requests.size() && !failure; ++next) {
      if (!answers[next].is_null()) continue;
      const std::size_t worker = pool_.idle();
      if (worker == pool_.size()) break;
      submit(worker, requests[next], answers[next], failure);
    }
    if (pool_.busy() == 0) break;
    (void)wait_for_answer({&pool_}, 1);
  }
  if (failure) std::rethrow_exception(failure);
}

void ProgramServer::load_where_unknown() {
  std::vector<json> answers(pool_.size());
  std::exception_ptr failure;
  for (std::size_t worker = 0; worker < pool_.size(); ++worker) {
    if (!knows_[worker]) submit(worker, load_, answers[worker], failure);
  }
  while (pool_.busy() > 0) (void)wait_for_answer({&pool_}, 1);
  for (std::size_t worker = 0; worker < pool_.size(); ++worker) {
    if (answers[worker].is_object()) knows_[worker] = true;
  }
  if (failure) std::rethrow_exception(failure);
}

void ProgramServer::submit(std::size_t worker, json request, json& answer,
                           std::exception_ptr& failure) {
  request["id"] = ++last_id_;
  const std::string what = request.at("do");
  pool_.submit(worker, request.dump(), [&, worker, what](const WorkerAnswer& given) {
    try {
      answer = checked(what, given);
    } catch (const ServerLost&) {
      answer = kLost;
      knows_[worker] = load_.is_null();
      if (!failure) failure = std::current_exception();
    } catch (const std::exception&) {
      if (!failure) failure = std::current_exception();
    }
  });
}

std::vector<json> ProgramServer::ask_past_losses(const std::vector<json>& requests) {
  std::vector<json> answers(requests.size());
  for (int fatal = 0;;) {
    try {
      fill(requests, answers);
      return answers;
    } catch (const ServerLost&) {
      // Each of these is asked for again, alone.
    }
    for (std::size_t i = 0; i < requests.size(); ++i) {
      if (answers[i] != kLost) continue;
      try {
        answers[i] = ask_for(requests[i]);
      } catch (const ServerLost& lost) {
        if (++fatal > kMostFatal) throw;
        report_left_out(lost, requests[i]);
        answers[i] = nullptr;
        answers[i]["programs"][0]["error"] = lost.what();
      }
    }
  }
}

json ProgramServer::ask_for(const json& request) {
  std::vector<json> answers(1);
  fill(std::vector{request}, answers);
  return answers.front();
}

ImportedNetwork ProgramServer::import_network(const std::string& source, const std::string& name,
                                              std::int64_t batch, const std::string& target) {
  load_ = nullptr;  // A process that ends during the import must not load the network before.
  knows_.assign(pool_.size(), true);
  const std::string file = fmt::format("/proc/{}/fd/{}", getpid(), tasks_.get());
  const json answer = ask_for({{"do", "import"},
                               {"source", source},
                               {"name", name},
                               {"batch", batch},
                               {"target", target},
                               {"save", file}});
  load_ = {{"do", "import"}, {"tasks", file}, {"target", target}};
  knows_.assign(pool_.size(), false);
  knows_.front() = true;  // Of idle processes, the first one gets a request.
  ImportedNetwork imported;
  imported.network = std::get<Network>(pack_entry(answer.at("network")));
  for (const json& task : answer.at("tasks")) {
    imported.tasks.push_back(std::get<Task>(pack_entry(task)));
  }
  return imported;
}

std::vector<std::optional<Program>> ProgramServer::apply(const std::string& task,
                                                         const std::vector<std::uint64_t>& indices,
                                                         const std::vector<std::string>& want) {
  std::vector<json> requests;
  // One program a request: they take 0.05 to several seconds, and no process waits for another.
  for (const std::uint64_t index : indices) {
    requests.push_back({{"do", "apply"}, {"task", task}, {"indices", {index}}, {"want", want}});
  }
  std::vector<std::optional<Program>> programs;
  for (const json& answer : ask_past_losses(requests)) {
    for (const json& program : answer.at("programs")) programs.push_back(program_of(program));
  }
  return programs;
}

std::optional<Program> ProgramServer::default_program(const std::string& task) {
  const json request = {{"do", "default"}, {"task", task}};
  try {
    return program_of(ask_for(request).at("program"));
  } catch (const ServerLost& lost) {
    report_left_out(lost, request);
    return std::nullopt;
  }
}

bool ProgramServer::write_reference(const std::string& task, const std::string& folder) {
  try {
    (void)ask_for({{"do", "reference"}, {"task", task}, {"seed", 0}, {"folder", folder}});
    return true;
  } catch (const NetworkLost&) {
    throw;
  } catch (const base::RunError& error) {
    fmt::print(stderr, "sluice opbench: {}\n", error.what());
    return false;
  }
}

ProgramServer::Times ProgramServer::time(const std::string& task, std::uint64_t index,
                                         int threads) {
  const json answer = ask_for({{"do", "time"},
                               {"task", task},
                               {"index", index},
                               {"threads", threads},
                               {"repeats", 5},
                               {"min_ms", 2}});
  return {answer.at("seconds"), answer.at("correct")};
}

}  // namespace sluice::profiler
