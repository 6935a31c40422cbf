#pragma once
#include <filesystem>
#include <string_view>

/// The files of this installation. The build tree and the install tree have the same shape, so
/// every file is found relative to the running program, never through a configured path.
namespace sluice::base {

class Install {
 public:
  explicit Install(std::filesystem::path root) : root_(std::move(root)) {}

  /// The installation of the running program, found through /proc/self/exe. For programs in bin/
  /// and libexec/sluice/. Throws std::filesystem::filesystem_error without /proc.
  static Install of_this_program();

  [[nodiscard]] const std::filesystem::path& root() const { return root_; }
  /// libexec/sluice/NAME: a program that users do not start themselves.
  [[nodiscard]] std::filesystem::path program(std::string_view name) const;
  /// libexec/sluice/sluice-NAME: the program behind `sluice NAME`.
  [[nodiscard]] std::filesystem::path subcommand(std::string_view name) const;
  /// The folder of the installed recordings.
  [[nodiscard]] std::filesystem::path recordings() const;
  /// The folder of the package `sluice`, for PYTHONPATH.
  [[nodiscard]] std::filesystem::path python() const;
  /// The library for LD_PRELOAD.
  [[nodiscard]] std::filesystem::path interposer() const;
  /// The library of an engine of `sluice serve`.
  [[nodiscard]] std::filesystem::path engine(std::string_view name) const;
  /// The folder of the simulated libcuda.so.1, for LD_LIBRARY_PATH.
  [[nodiscard]] std::filesystem::path simgpu_folder() const;

 private:
  std::filesystem::path root_;
};

}  // namespace sluice::base
