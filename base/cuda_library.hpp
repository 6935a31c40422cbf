#pragma once
#include <string>

#include "base/error.hpp"

namespace sluice::base {

/// A CUDA driver that is loaded when the program runs, so that the program also starts on a machine
/// without one. Stays loaded: CUDA does not support unloading it. Needs no header of CUDA.
class CudaLibrary {
 public:
  /// `file`: a path, or a bare name for the dynamic linker. Throws RunError in one line.
  explicit CudaLibrary(const std::string& file = "libcuda.so.1");

  /// The file that the dynamic linker found.
  [[nodiscard]] const std::string& path() const { return path_; }

  /// `name`: as the library exports it. Throws RunError if the driver is too old to have it.
  template <class Entry>
  [[nodiscard]] Entry* get(const char* name) const {
    return reinterpret_cast<Entry*>(find(name));
  }

  /// The driver's name for an error; its number, if it has none.
  [[nodiscard]] std::string name_of(int error) const;

 private:
  [[nodiscard]] void* find(const char* name) const;

  void* handle_;
  std::string path_;
};

}  // namespace sluice::base
