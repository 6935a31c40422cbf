#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// The labels of a client: what its user wants to find it by, as "team=vision,job=4711".
namespace sluice::shm {

using Labels = std::vector<std::pair<std::string, std::string>>;

/// The form that check_labels() accepts, for help and error messages.
inline constexpr std::string_view kLabelForm =
    "KEY=VALUE, KEY of letters, digits and _, VALUE of letters, digits and _.-/:@";

/// What is wrong with labels as a user wrote them; empty if nothing is wrong. No key is used twice,
/// and all labels together fit a slot. Empty text is valid: no labels.
[[nodiscard]] std::string check_labels(const std::string& text);

/// The labels in `text`. Skips parts that are no label: text on a board may be anything.
[[nodiscard]] Labels parse_labels(std::string_view text);

/// `text` with one label more. Returns `text` if the key is in use or the result is invalid.
[[nodiscard]] std::string with_label(const std::string& text, const std::string& key,
                                     const std::string& value);

}  // namespace sluice::shm
