#define NCURSES_NOMACROS  // NOLINT(readability-identifier-naming): the name is of ncurses
#include <curses.h>

#include <cstdio>
#include <cstdlib>

#include "tools/top/screen.hpp"

namespace sluice::tools {
namespace {

enum Pair : short { kGreen = 1, kYellow, kRed };

class CursesScreen : public Screen {
 public:
  explicit CursesScreen(SCREEN* screen) : screen_(screen) {
    cbreak();  // keys at once; Ctrl-C and Ctrl-Z stay signals
    noecho();
    curs_set(0);
    keypad(stdscr, TRUE);
    nodelay(stdscr, TRUE);
    set_escdelay(25);  // ms; the default lets the Escape key wait for a second
    if (std::getenv("NO_COLOR") != nullptr || !has_colors()) return;
    start_color();
    use_default_colors();
    init_pair(kGreen, COLOR_GREEN, -1);
    init_pair(kYellow, COLOR_YELLOW, -1);
    init_pair(kRed, COLOR_RED, -1);
    colors_ = true;
  }

  ~CursesScreen() override {
    endwin();
    delscreen(screen_);
  }

  [[nodiscard]] FrameSize size() const override {
    return {static_cast<std::size_t>(getmaxx(stdscr)), static_cast<std::size_t>(getmaxy(stdscr))};
  }

  void show(const Frame& frame) override {
    erase();
    for (std::size_t row = 0; row < frame.size(); ++row) {
      const chtype selected = frame[row].selected ? A_REVERSE : A_NORMAL;
      const auto attributes = static_cast<attr_t>(attributes_of(frame[row].style) | selected);
      attron(static_cast<int>(attributes));
      mvaddstr(static_cast<int>(row), 0, frame[row].text.c_str());
      attroff(static_cast<int>(attributes));
    }
    refresh();
  }

  std::optional<Key> key() override {
    switch (const int typed = getch()) {
      case ERR:
        return std::nullopt;
      case KEY_UP:
        return kUp;
      case KEY_DOWN:
        return kDown;
      case KEY_ENTER:
      case '\r':
        return kEnter;
      case KEY_BACKSPACE:
      case '\b':
        return kBackspace;
      default:
        return typed < kUp ? typed : kNoKey;  // a resize comes as a key too
    }
  }

 private:
  [[nodiscard]] chtype attributes_of(Style style) const {
    switch (style) {
      case Style::kTitle:
        return A_BOLD;
      case Style::kHeader:
        return A_REVERSE;
      case Style::kActive:
        return colors_ ? COLOR_PAIR(kGreen) : A_BOLD;
      case Style::kHeld:
        return colors_ ? COLOR_PAIR(kYellow) : A_NORMAL;
      case Style::kWarning:
        return colors_ ? COLOR_PAIR(kRed) | A_BOLD : A_BOLD;
      case Style::kFaint:
        return A_DIM;
      case Style::kPlain:
        break;
    }
    return A_NORMAL;
  }

  SCREEN* screen_;
  bool colors_ = false;
};

}  // namespace

std::unique_ptr<Screen> Screen::open() {
  // initscr() would end the process if TERM is not known.
  SCREEN* screen = newterm(nullptr, stdout, stdin);
  if (screen == nullptr) return nullptr;
  return std::make_unique<CursesScreen>(screen);
}

}  // namespace sluice::tools
