// A folder whose simulated GPU all users share.
#pragma once
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/simgpu/gpu_socket.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::simgpu::test {

/// The folder of SLUICE_SIMGPU_DIR in this process and its children. Create it before the first
/// driver call.
class SharedFolder {
 public:
  SharedFolder() {
    EXPECT_EQ(chmod(path().c_str(), 01777), 0);
    setenv("SLUICE_SIMGPU_DIR", path().c_str(), 1);
  }
  ~SharedFolder() { unsetenv("SLUICE_SIMGPU_DIR"); }
  SharedFolder(const SharedFolder&) = delete;
  SharedFolder& operator=(const SharedFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return folder_.path(); }
  [[nodiscard]] std::string file(const std::string& name) const { return folder_.file(name); }

  [[nodiscard]] std::vector<std::string> sockets() const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(path())) {
      if (entry.is_socket()) found.push_back(entry.path());
    }
    return found;
  }
  /// The GPU processes that answer.
  [[nodiscard]] std::vector<pid_t> gpus() const {
    std::vector<pid_t> found;
    for (const std::string& path : sockets()) {
      if (const pid_t pid = pid_behind(path); pid != 0) found.push_back(pid);
    }
    return found;
  }
  /// The one that answers; 0 if there is none or several.
  [[nodiscard]] pid_t gpu() const {
    const std::vector<pid_t> found = gpus();
    return found.size() == 1 ? found.front() : 0;
  }
  [[nodiscard]] bool is_left_empty() const {
    return sluice::test::eventually([this] { return sockets().empty(); },
                                    sluice::test::kProgramPatience);
  }

 private:
  const sluice::test::TempFolder folder_;
};

}  // namespace sluice::simgpu::test
