#include "base/install.hpp"

#include <string>

namespace sluice::base {

Install Install::of_this_program() {
  const std::filesystem::path folder =
      std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const bool in_libexec = folder.filename() == "sluice";
  return Install(in_libexec ? folder.parent_path().parent_path() : folder.parent_path());
}

std::filesystem::path Install::program(std::string_view name) const {
  return root_ / "libexec/sluice" / name;
}

std::filesystem::path Install::subcommand(std::string_view name) const {
  return program("sluice-" + std::string(name));
}

std::filesystem::path Install::interposer() const {
  return root_ / "lib/sluice/libsluice_intercept.so";
}

std::filesystem::path Install::recordings() const { return root_ / "share/sluice/recordings"; }

std::filesystem::path Install::python() const { return root_ / "share/sluice/python"; }

std::filesystem::path Install::engine(std::string_view name) const {
  return root_ / "lib/sluice" / ("libsluice_serve_" + std::string(name) + ".so");
}

std::filesystem::path Install::simgpu_folder() const { return root_ / "lib/sluice/simgpu"; }

}  // namespace sluice::base
