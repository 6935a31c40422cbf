#include "tools/top/controls.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "shm/policy_text.hpp"

namespace sluice::tools {

Controls::Action Controls::press(Key key, const View& view) {
  if (key == kNoKey) return Action::kNone;
  message_.clear();
  if (mode_ == Mode::kFilter || mode_ == Mode::kPolicy) return press_in_question(key);
  if (mode_ == Mode::kHelp && key != 'q' && key != 'Q') {
    mode_ = Mode::kList;
    return Action::kNone;
  }
  return press_in_list(key, view);
}

Controls::Action Controls::press_in_list(Key key, const View& view) {
  switch (key) {
    case 'q':
    case 'Q':
      return Action::kQuit;
    case '?':
      mode_ = Mode::kHelp;
      break;
    case 's':
      sort_ = next(sort_);
      break;
    case 'f':
    case '/':
      mode_ = Mode::kFilter;
      break;
    case kUp:
      select(view, -1);
      break;
    case kDown:
      select(view, 1);
      break;
    case 'p':
      select(view, 0);
      if (!selected_) break;
      client_ = *selected_;
      typed_.clear();
      mode_ = Mode::kPolicy;
      break;
    default:
      break;
  }
  return Action::kNone;
}

Controls::Action Controls::press_in_question(Key key) {
  std::string& text = mode_ == Mode::kFilter ? filter_ : typed_;
  if (key == kEnter) return answer();
  if (key == kEscape) {
    text.clear();
    mode_ = Mode::kList;
  } else if (key == kBackspace) {
    if (!text.empty()) text.pop_back();
  } else if (key >= ' ' && key < kBackspace) {
    text += static_cast<char>(key);
  }
  return Action::kNone;
}

Controls::Action Controls::answer() {
  const bool is_policy = mode_ == Mode::kPolicy;
  if (is_policy) message_ = shm::check_policy(typed_);
  if (!message_.empty()) return Action::kNone;  // the user corrects what is typed
  mode_ = Mode::kList;
  return is_policy ? Action::kSetPolicy : Action::kNone;
}

std::optional<std::size_t> Controls::selected(const View& view) const {
  if (!selected_) return std::nullopt;
  const std::vector<std::size_t> shown = rows(view);
  const auto found = std::find_if(shown.begin(), shown.end(), [&](std::size_t i) {
    return shm::same_client(view.now.clients[i], *selected_);
  });
  if (found == shown.end()) return std::nullopt;
  return static_cast<std::size_t>(found - shown.begin());
}

void Controls::select(const View& view, std::ptrdiff_t step) {
  const std::vector<std::size_t> shown = rows(view);
  const auto now = selected(view);
  selected_.reset();
  if (shown.empty()) return;
  const std::ptrdiff_t wanted = now ? static_cast<std::ptrdiff_t>(*now) + step : 0;
  const auto last = static_cast<std::ptrdiff_t>(shown.size()) - 1;
  const std::ptrdiff_t row = std::clamp<std::ptrdiff_t>(wanted, 0, last);
  selected_ = view.now.clients[shown[static_cast<std::size_t>(row)]];
}

std::string_view Controls::keys() const {
  if (mode_ == Mode::kHelp) return "any key: back   q quit";
  if (mode_ == Mode::kFilter) return "Enter: keep the filter   Esc: show all";
  if (mode_ == Mode::kPolicy) return "Enter: change the policy   Esc: leave it";
  return "? help   up/down select   p policy   s sort   / filter   q quit";
}

std::vector<std::string> Controls::lines() const {
  std::vector<std::string> shown;
  if (mode_ == Mode::kFilter) shown.push_back("filter: " + filter_ + "_");
  if (mode_ == Mode::kPolicy) {
    shown.push_back(fmt::format("policy of {}, pid {} (now {}): {}_", client_.name, client_.pid,
                                client_.policy, typed_));
  }
  if (!message_.empty()) shown.push_back(message_);
  return shown;
}

}  // namespace sluice::tools
