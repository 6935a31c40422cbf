#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/top/view.hpp"

namespace sluice::tools {

/// A key: a character, or one of these.
using Key = int;
inline constexpr Key kEnter = '\n';
inline constexpr Key kEscape = 0x1b;
inline constexpr Key kBackspace = 0x7f;
inline constexpr Key kUp = 0x100;
inline constexpr Key kDown = 0x101;
inline constexpr Key kNoKey = 0x102;  ///< The terminal was resized.

/// What the user has chosen with keys. Knows nothing of the terminal.
class Controls {
 public:
  enum class Action : std::uint8_t { kNone, kQuit, kSetPolicy };

  /// Takes a key, typed while the user saw `view`. After kSetPolicy, policy() is the policy that
  /// the user asked for, and client() the client that gets it.
  Action press(Key key, const View& view);

  [[nodiscard]] const std::string& policy() const { return typed_; }
  [[nodiscard]] const shm::ClientSnapshot& client() const { return client_; }

  /// Shows a line until the next key.
  void say(std::string message) { message_ = std::move(message); }

  [[nodiscard]] bool help() const { return mode_ == Mode::kHelp; }
  [[nodiscard]] Sort sort() const { return sort_; }
  [[nodiscard]] const std::string& filter() const { return filter_; }
  [[nodiscard]] std::vector<std::size_t> rows(const View& view) const {
    return rows_of(view, sort_, filter_);
  }
  /// The position of the selected client in rows(view).
  [[nodiscard]] std::optional<std::size_t> selected(const View& view) const;
  /// What the keys do now.
  [[nodiscard]] std::string_view keys() const;
  /// The question that the user answers, and the message.
  [[nodiscard]] std::vector<std::string> lines() const;

 private:
  enum class Mode : std::uint8_t { kList, kHelp, kFilter, kPolicy };

  Action press_in_list(Key key, const View& view);
  Action press_in_question(Key key);
  Action answer();
  /// Selects the client `step` rows below the selected one, or the first.
  void select(const View& view, std::ptrdiff_t step);

  Mode mode_ = Mode::kList;
  Sort sort_ = Sort::kPriority;
  std::string filter_;
  std::string typed_;                            ///< The policy so far.
  std::string message_;                          ///< Until the next key.
  std::optional<shm::ClientSnapshot> selected_;  ///< As it was when it was selected.
  shm::ClientSnapshot client_;                   ///< The client of the last question for a policy.
};

}  // namespace sluice::tools
