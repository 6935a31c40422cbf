#include "runner/layout.hpp"

#include "runner/config_error.hpp"

namespace sluice::runner {

Layout Layout::of_this_program() {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) throw RunError("cannot read /proc/self/exe: " + error.message());
  return Layout(self.parent_path().parent_path().parent_path());
}

}  // namespace sluice::runner
