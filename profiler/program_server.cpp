#include "profiler/program_server.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/install.hpp"

namespace sluice::profiler {

using nlohmann::json;

namespace {

constexpr double kLimitS = 600;  ///< Importing a large network takes minutes.

std::vector<std::string> installed_server() {
  return {base::Install::of_this_program().subcommand("programs"), "serve"};
}

}  // namespace

std::size_t ImportedNetwork::weight(const std::string& task) const {
  return static_cast<std::size_t>(std::ranges::count(network.calls, task, &NetworkCall::task));
}

ProgramServer::ProgramServer() : ProgramServer(installed_server()) {}

ProgramServer::ProgramServer(std::vector<std::string> command)
    : pool_({std::move(command)}, kLimitS) {
  tvm_ = ask_for({{"do", "hello"}}).at("tvm");
}

json ProgramServer::ask_for(json request) {
  if (std::exchange(lost_, false) && request.at("do") != "import") (void)ask_for(last_import_);
  request["id"] = ++last_id_;
  const std::string what = request.at("do");
  const WorkerAnswer given = ask(pool_, 0, request.dump());
  lost_ = given.how != WorkerAnswer::How::kAnswered && !last_import_.is_null();
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

ImportedNetwork ProgramServer::import_network(const std::string& source, const std::string& name,
                                              std::int64_t batch, const std::string& target) {
  last_import_ = {
      {"do", "import"}, {"source", source}, {"name", name}, {"batch", batch}, {"target", target}};
  const json answer = ask_for(last_import_);
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
  const json answer =
      ask_for({{"do", "apply"}, {"task", task}, {"indices", indices}, {"want", want}});
  std::vector<std::optional<Program>> programs;
  for (const json& program : answer.at("programs")) {
    if (program.contains("error")) {
      programs.emplace_back();
    } else {
      programs.emplace_back(std::get<Program>(pack_entry(program)));
    }
  }
  return programs;
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
