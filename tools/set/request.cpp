#include "tools/set/request.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/clock.hpp"
#include "base/command_line.hpp"
#include "base/node_service.hpp"
#include "shm/give.hpp"
#include "shm/mapping.hpp"
#include "shm/messages.hpp"
#include "shm/session.hpp"
#include "tools/common/sessions.hpp"
#include "tools/set/choice.hpp"

namespace sluice::tools {
namespace {

constexpr int kAnswerMs = 2000;

base::UsageError ended(const shm::ClientSnapshot& client) {
  return base::UsageError("the client has ended: " + describe(client));
}

std::optional<shm::ClientSnapshot> look_for(const std::string& session, std::uint64_t board_id,
                                            const shm::ClientSnapshot& client) {
  const shm::BoardMapping mapping = shm::BoardMapping::inspect(session);
  const shm::Snapshot now = shm::take_snapshot(mapping.board(), base::monotonic_ns());
  if (now.board_id != board_id) return std::nullopt;
  for (const shm::ClientSnapshot& candidate : now.clients) {
    if (shm::same_client(candidate, client)) return candidate;
  }
  return std::nullopt;
}

/// A client gets event:2 in place of `device` if its GPU does not support stream waits.
bool fell_back(const shm::ClientSnapshot& client) {
  return client.requested_policy.starts_with("device") && client.policy == "event:2";
}

}  // namespace

void ask_for(const std::string& session, std::uint64_t board_id, const shm::ClientSnapshot& client,
             const Settings& settings) {
  shm::Request request;
  request.kind = shm::RequestKind::kSet;
  request.slot = client.slot;
  request.generation = client.generation;
  request.board_id = board_id;
  request.priority =
      settings.priority ? static_cast<std::uint32_t>(*settings.priority) : shm::kKeepPriority;
  request.policy = settings.policy ? settings.policy->pack() : shm::kKeepPolicy;
  request.target = settings.target ? settings.target->pack() : shm::kKeepTarget;
  request.slice = settings.slice.value_or(shm::kKeepSlice);
  request.memory = settings.memory.value_or(shm::kKeepMemory);
  request.weight = settings.weight.value_or(shm::kKeepWeight);
  request.give = settings.give ? shm::say_give(*settings.give) : shm::kKeepGive;
  const int connection = shm::connect_patiently(shm::socket_path(session).c_str(), kAnswerMs);
  if (connection < 0 && session == base::kNodeSession) throw no_session(session);
  if (connection < 0) {
    throw base::RunError("session " + session +
                         " has no controller, so nothing can be changed; start one: sluice "
                         "controller --session " +
                         session);
  }
  shm::Reply reply;
  const int error = shm::ask(connection, request, reply, kAnswerMs);
  close(connection);
  if (error != 0) {
    throw base::RunError("the controller of session " + session +
                         " does not answer (is it stopped?): look with sluice status whether the "
                         "change was made");
  }
  if (reply.status != shm::ReplyStatus::kOk) {
    const std::string line = std::string("the controller refuses: ") + reply.text.data();
    if (reply.status == shm::ReplyStatus::kWrongVersion) throw base::RunError(line);
    throw base::UsageError(line);
  }
}

std::optional<shm::ClientSnapshot> wait_until_taken(const std::string& session,
                                                    std::uint64_t board_id,
                                                    const shm::ClientSnapshot& client,
                                                    int patience_ms) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const auto patience = std::chrono::milliseconds(patience_ms);
  // A client whose old policy was event:2 also shows event:2 until it looks, within 20 ms.
  constexpr std::chrono::milliseconds kFellBack{200};
  for (;;) {
    const auto now = look_for(session, board_id, client);
    if (!now || now->state == shm::SlotState::kDead || now->state == shm::SlotState::kLeaving) {
      throw ended(client);
    }
    const auto waited = Clock::now() - begin;
    const bool has_target = now->target.text == now->target.requested;
    const bool fell = fell_back(*now) && waited > kFellBack;
    if (has_target && (now->policy == now->requested_policy || fell)) return now;
    if (waited > patience) return std::nullopt;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace sluice::tools
