#pragma once
#include <array>
#include <cstdint>

namespace sluice::intercept {

/// Finds loaded libraries whose calls reach the driver past the hooks: those that were opened with
/// RTLD_DEEPBIND, which bind to the libraries below them first, and a second copy of the driver,
/// which dlmopen makes. g_process.unhooked learns of them.
///
/// Takes the loader's lock for a moment, so it needs a thread that nobody waits for.
class LoadedLibraries {
 public:
  /// Looks again if a library was loaded since the last look, or if a function that a library has
  /// not called yet may be bound by now. Returns whether it has found something new.
  bool look() noexcept;

  /// Around a fork: see Process::forks.
  static void before_fork() noexcept;
  static void after_fork() noexcept;

 private:
  struct Look;
  bool look_now() noexcept;
  void note(const char* path) noexcept;

  unsigned long long loaded_ = 0;  ///< How many libraries were ever loaded, at the last look.
  bool unbound_ = false;           ///< A library may still bind past us.
  int looks_to_skip_ = 0;
  std::array<std::uint64_t, 8> noted_{};  ///< Hashes of what was noted.
};

}  // namespace sluice::intercept
