#include "tools/top/frame.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "tools/common/text.hpp"
#include "tools/status/format.hpp"
#include "tools/top/columns.hpp"

namespace sluice::tools {
namespace {

/// Begins with the bad news: the end of the line may be cut.
Line controller_line(const shm::Snapshot& snapshot) {
  const std::string beat = format_duration(snapshot.heartbeat_age_ns);
  if (snapshot.controller_lives) {
    return {fmt::format("controller pid {}, heartbeat {} ago", snapshot.controller_pid, beat), {}};
  }
  if (snapshot.controller_pid == 0) {
    return {"new clients run ungated: no controller (it left)", Style::kWarning};
  }
  return {fmt::format("new clients run ungated: controller pid {} is dead or stopped for {}",
                      snapshot.controller_pid, beat),
          Style::kWarning};
}

Style style_of(const shm::ClientSnapshot& client) {
  const std::string state = shm::state_name(client);
  if (state == "held") return Style::kHeld;
  if (state == "active") return Style::kActive;
  return state == "dead" ? Style::kWarning : Style::kPlain;
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

void add_notes(const shm::Snapshot& snapshot, const shm::ClientSnapshot& client, Frame& notes) {
  auto add = [&](const std::string& text) {
    notes.push_back({fmt::format("pid {} {}", client.pid, text), Style::kWarning});
  };
  if (fell_back(client)) {
    add("* " + policy_note(client));
  }
  if (const std::string note = ungated_note(snapshot, client); !note.empty()) add(note);
  if (const std::string why = target_warning(client); !why.empty()) add(why);
  if (client.max_hold_opened != 0) {
    add("was let go by max_hold " + counted(client.max_hold_opened, "time", "times"));
  }
  if (const std::string note = skipped_waits_note(client); !note.empty()) add(note);
  if (client.unhooked_lookups != 0) {
    add(unhooked_note(client));
  }
}

/// How much the best-effort clients are held on average, and the slowest critical client.
std::string totals_of(const View& view) {
  double held = 0;
  std::size_t best_effort = 0;
  std::uint64_t max_ns = 0;
  for (std::size_t i = 0; i < view.now.clients.size(); ++i) {
    if (view.now.clients[i].priority > 0) {
      max_ns = std::max(max_ns, view.rates[i].max_ns);
    } else {
      held += view.rates[i].held_share;
      ++best_effort;
    }
  }
  const std::string share =
      best_effort == 0 ? "-"
                       : fmt::format("{:.0f}%", held * 100 / static_cast<double>(best_effort));
  return fmt::format("best effort held {}, longest critical job {}", share,
                     max_ns == 0 ? "-" : short_duration(max_ns));
}

std::string title_of(const View& view, const std::string& session, const Controls& controls) {
  std::string title = fmt::format("sluice top: session {}, {}", session,
                                  counted(view.now.clients.size(), "client", "clients"));
  if (controls.sort() != Sort::kPriority)
    title += fmt::format(", by {}", to_string(controls.sort()));
  if (!controls.filter().empty()) {
    title += fmt::format(", {} with '{}'", controls.rows(view).size(), controls.filter());
  }
  return title;
}

Frame head_of(const View& view, const std::string& session, const Controls& controls,
              std::size_t columns) {
  Frame head{{title_of(view, session, controls), Style::kTitle}, controller_line(view.now)};
  for (const shm::DeviceSnapshot& device : view.now.devices) {
    head.push_back({fmt::format("GPU {}: {}", device.index, device.name)});
  }
  for (const std::string& note : gain_notes(view.now, columns)) head.push_back({note});
  head.push_back({totals_of(view)});
  const std::vector<std::string> lines = controls.lines();
  if (lines.empty()) head.push_back({});
  for (std::string_view line : lines) {
    const std::size_t width = std::max<std::size_t>(columns, 1);
    for (; !line.empty(); line.remove_prefix(std::min(width, line.size()))) {
      head.push_back({std::string(line.substr(0, width)), Style::kTitle});
    }
  }
  return head;
}

/// The clients in the rows that `room` has, scrolled to the selected client.
void add_clients(const View& view, const Controls& controls, std::size_t columns, std::size_t room,
                 Frame& frame) {
  const std::vector<Column> chosen = choose_columns(view, columns);
  const std::vector<std::size_t> rows = controls.rows(view);
  const auto selected = controls.selected(view);
  const bool all = rows.size() <= room;
  const std::size_t shown = all ? rows.size() : room - std::min<std::size_t>(room, 1);
  const std::size_t first = selected && *selected >= shown ? *selected + 1 - shown : 0;
  for (std::size_t row = first; row < first + shown; ++row) {
    frame.push_back(client_line(chosen, view.now.clients[rows[row]], view.rates[rows[row]]));
    frame.back().selected = row == selected;
  }
  if (!all) frame.push_back({fmt::format("... and {} more", rows.size() - shown)});
}

Frame about_client(const shm::ClientSnapshot& client) {
  Frame lines{{fmt::format("pid {}: {}", client.pid, client.command), Style::kFaint}};
  std::vector<std::string> about = usage_notes(client);
  for (std::string note :
       {target_note(client), give_note(client), close_note(client), steps_note(client)}) {
    if (!note.empty()) about.push_back(std::move(note));
  }
  for (const std::string& note : about) lines.push_back({"  " + note, Style::kFaint});
  return lines;
}

/// In the rows that are left: more about those clients that are not selected.
void add_others(const View& view, const Controls& controls, std::size_t room, Frame& frame) {
  const auto selected = controls.selected(view);
  const std::vector<std::size_t> rows = controls.rows(view);
  bool first = true;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const Frame about = about_client(view.now.clients[rows[row]]);
    if (row == selected || about.size() == 1) continue;
    if (frame.size() + about.size() + (first ? 1 : 0) > room) return;
    if (std::exchange(first, false)) frame.push_back({});
    frame.insert(frame.end(), about.begin(), about.end());
  }
}

Frame notes_of(const View& view, const Controls& controls, std::size_t columns) {
  Frame notes{{}};
  const std::vector<std::size_t> rows = controls.rows(view);
  if (const auto selected = controls.selected(view)) {
    const Frame about = about_client(view.now.clients[rows[*selected]]);
    notes.insert(notes.end(), about.begin(), about.end());
  }
  for (const std::string& note : outside_notes(view.now, columns))
    notes.push_back({note, Style::kWarning});
  for (const std::size_t row : rows) add_notes(view.now, view.now.clients[row], notes);
  if (notes.size() == 1) notes.clear();
  return notes;
}

Frame help_frame() {
  Frame frame{{"sluice top: keys", Style::kTitle}};
  for (const char* line :
       {"", "?           this page; any key leaves it", "up, down    select a client",
        "p           change the policy of the selected client",
        "s           sort by priority, name, held, launches, max",
        "f or /      show only clients whose name, command or pid contains a text",
        "Esc         leave a question; for the filter: show all clients", "q, Ctrl-C   quit", "",
        "HELD     share of the last interval: had work and was held",
        "BY       who holds it: pid, + for several",
        "GPU%     share of the interval that its work took on the GPU, an estimate",
        "MEM      device memory that it holds / may hold; !: it has been ordered to free some",
        "TARGET   its target, and the share of its jobs that kept it",
        "P50, MAX durations of the last N jobs, at most 64",
        "HISTORY  durations of the last jobs"}) {
    frame.push_back({line});
  }
  return frame;
}

/// Where there is no room for much, the keys go first.
bool has_footer(FrameSize size) { return size.rows >= 12; }

/// The rows for all but the keys.
std::size_t body_rows(FrameSize size) { return size.rows - (has_footer(size) ? 1 : 0); }

void add_footer(Frame& frame, FrameSize size, const Controls& controls) {
  if (!has_footer(size)) return;
  frame.resize(body_rows(size));
  frame.push_back({std::string(controls.keys()), Style::kHeader});
}

void fit_all(Frame& frame, FrameSize size) {
  if (size.rows != 0 && frame.size() > size.rows) frame.resize(size.rows);
  for (Line& line : frame) line.text = fit(line.text, size.columns);
}

}  // namespace

Frame make_frame(const View& view, const std::string& session, FrameSize size,
                 const Controls& controls) {
  Frame frame = controls.help() ? help_frame() : head_of(view, session, controls, size.columns);
  if (!controls.help() && view.now.clients.empty()) {
    frame.push_back({"no clients: a program appears at its first call to the driver"});
  } else if (!controls.help()) {
    frame.push_back(header_line(choose_columns(view, size.columns)));
    const std::size_t rows = body_rows(size);
    const std::size_t room = rows > frame.size() ? rows - frame.size() : 0;
    add_clients(view, controls, size.columns, size.rows == 0 ? shm::kSlots : room, frame);
    const Frame notes = notes_of(view, controls, size.columns);
    frame.insert(frame.end(), notes.begin(), notes.end());
    if (has_footer(size)) add_others(view, controls, rows, frame);
  }
  add_footer(frame, size, controls);
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
