#include "tools/top/frame.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "tools/status/format.hpp"
#include "tools/top/columns.hpp"
#include "tools/top/text.hpp"

namespace sluice::tools {
namespace {

/// The bad news first: the end of the line may be cut.
Line controller_line(const shm::Snapshot& snapshot) {
  const std::string beat = format_duration(snapshot.heartbeat_age_ns);
  if (snapshot.controller_lives) {
    return {fmt::format("controller pid {}, heartbeat {} ago", snapshot.controller_pid, beat), {}};
  }
  if (snapshot.controller_pid == 0) {
    return {"clients run ungated: no controller (it left)", Style::kWarning};
  }
  return {fmt::format("clients run ungated: controller pid {} is dead or stopped for {}",
                      snapshot.controller_pid, beat),
          Style::kWarning};
}

Style style_of(const shm::ClientSnapshot& client) {
  const std::string state = shm::state_name(client);
  if (state == "held") return Style::kHeld;
  if (state == "active") return Style::kActive;
  return state == "failed open" || state == "dead" ? Style::kWarning : Style::kPlain;
}

Line client_line(const std::vector<Column>& columns, const shm::ClientSnapshot& client,
                 const ClientRates& rates) {
  std::string text;
  for (const Column& column : columns) {
    text += fit(column.cell(client, rates), column.width, column.right) + " ";
  }
  return {text, style_of(client)};
}

Line header_line(const std::vector<Column>& columns) {
  std::string text;
  for (const Column& column : columns) text += fit(column.title, column.width, column.right) + " ";
  return {text, Style::kHeader};
}

/// Who outranks whom shows from top to bottom.
std::vector<std::size_t> order_of(const std::vector<shm::ClientSnapshot>& clients) {
  std::vector<std::size_t> order(clients.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::pair(clients[a].device, -clients[a].priority) <
           std::pair(clients[b].device, -clients[b].priority);
  });
  return order;
}

void add_notes(const shm::ClientSnapshot& client, Frame& notes) {
  auto add = [&](const std::string& text) {
    notes.push_back({fmt::format("pid {} {}", client.pid, text), Style::kWarning});
  };
  if (client.state == shm::SlotState::kFailedOpen) add("runs ungated: " + client.fail_reason);
  if (fell_back(client)) {
    add("* " + policy_note(client));
  }
  if (client.max_hold_opened != 0) {
    add(fmt::format("was let go by max_hold {} times", client.max_hold_opened));
  }
  if (client.unhooked_lookups != 0) {
    add(fmt::format("asked for a work entry that is not hooked: {}", client.unhooked_name));
  }
}

Frame head_of(const View& view, const std::string& session) {
  const std::size_t clients = view.now.clients.size();
  Frame head{{fmt::format("sluice top: session {}, {} client{}", session, clients,
                          clients == 1 ? "" : "s"),
              Style::kTitle},
             controller_line(view.now)};
  for (const shm::DeviceSnapshot& device : view.now.devices) {
    head.push_back({fmt::format("GPU {}: {}, {}", device.index, device.name, device.uuid), {}});
  }
  head.push_back({});
  return head;
}

void fit_all(Frame& frame, FrameSize size) {
  if (size.rows != 0 && frame.size() > size.rows) frame.resize(size.rows);
  for (Line& line : frame) line.text = fit(line.text, size.columns);
}

}  // namespace

Frame make_frame(const View& view, const std::string& session, FrameSize size) {
  Frame frame = head_of(view, session);
  const std::vector<shm::ClientSnapshot>& clients = view.now.clients;
  if (clients.empty()) {
    frame.push_back({"no clients: a program shows up at its first call to the driver", {}});
  } else {
    const std::vector<Column> columns = choose_columns(view, size.columns);
    frame.push_back(header_line(columns));
    const std::size_t room = size.rows > frame.size() ? size.rows - frame.size() : 0;
    const bool all = size.rows == 0 || clients.size() <= room;
    const std::size_t shown = all ? clients.size() : room - std::min<std::size_t>(room, 1);
    Frame notes;
    std::size_t drawn = 0;
    for (const std::size_t i : order_of(clients)) {
      add_notes(clients[i], notes);
      if (drawn++ < shown) frame.push_back(client_line(columns, clients[i], view.rates[i]));
    }
    if (!all) frame.push_back({fmt::format("... and {} more", clients.size() - shown), {}});
    if (!notes.empty()) notes.insert(notes.begin(), Line{});
    frame.insert(frame.end(), notes.begin(), notes.end());
  }
  fit_all(frame, size);
  return frame;
}

Frame make_message(const std::string& session, const std::string& why, FrameSize size) {
  Frame frame{
      {fmt::format("sluice top: session {}", session), Style::kTitle}, {}, {why, Style::kWarning}};
  fit_all(frame, size);
  return frame;
}

std::string plain_text(const Frame& frame) {
  std::string text;
  for (const Line& line : frame) {
    const std::size_t end = line.text.find_last_not_of(' ');
    text += line.text.substr(0, end == std::string::npos ? 0 : end + 1) + "\n";
  }
  return text;
}

}  // namespace sluice::tools
