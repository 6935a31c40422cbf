#pragma once
#include <memory>
#include <optional>

#include "tools/top/frame.hpp"

namespace sluice::tools {

/// The whole terminal. The destructor restores it.
class Screen {
 public:
  /// Null if this terminal cannot be drawn on (TERM), or the build has no curses.
  static std::unique_ptr<Screen> open();

  virtual ~Screen() = default;
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  [[nodiscard]] virtual FrameSize size() const = 0;
  virtual void show(const Frame& frame) = 0;
  /// The next key that the user has typed; nothing if there is none.
  virtual std::optional<Key> key() = 0;

 protected:
  Screen() = default;
};

}  // namespace sluice::tools
