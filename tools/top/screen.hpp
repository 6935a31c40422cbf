#pragma once
#include <memory>

#include "tools/top/frame.hpp"

namespace sluice::tools {

/// The whole terminal, from open() until it is destroyed: then it is as it was before.
class Screen {
 public:
  enum class Key { kNone, kQuit, kRedraw };

  /// Null where this terminal cannot be drawn on (TERM), or the build has no curses.
  static std::unique_ptr<Screen> open();

  virtual ~Screen() = default;
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  [[nodiscard]] virtual FrameSize size() const = 0;
  virtual void show(const Frame& frame) = 0;
  /// What the user has typed, kNone when there is nothing more.
  virtual Key key() = 0;

 protected:
  Screen() = default;
};

}  // namespace sluice::tools
