#pragma once
#include <filesystem>
#include <string_view>

/// Where the parts of this installation lie. Build tree and install tree have the same shape, so
/// everything is found relative to the running program and nothing relative to a configured path.
namespace sluice::base {

class Install {
 public:
  explicit Install(std::filesystem::path root) : root_(std::move(root)) {}

  /// The installation of the running program, from /proc/self/exe. For programs in bin/ and in
  /// libexec/sluice/. Throws std::filesystem::filesystem_error without /proc.
  static Install of_this_program();

  [[nodiscard]] const std::filesystem::path& root() const { return root_; }
  /// libexec/sluice/NAME: a program of ours that is not meant to be typed.
  [[nodiscard]] std::filesystem::path program(std::string_view name) const;
  /// libexec/sluice/sluice-NAME: what `sluice NAME` runs.
  [[nodiscard]] std::filesystem::path subcommand(std::string_view name) const;
  /// The library to preload.
  [[nodiscard]] std::filesystem::path interposer() const;
  /// The folder of the simulated libcuda.so.1, for LD_LIBRARY_PATH.
  [[nodiscard]] std::filesystem::path simgpu_folder() const;

 private:
  std::filesystem::path root_;
};

}  // namespace sluice::base
