#pragma once

#include <optional>
#include <vector>

#include "simgpu/channel/layout.hpp"
#include "simgpu/channel/mps_folder.hpp"
#include "simgpu/driver/api.hpp"
#include "simgpu/driver/connection.hpp"

namespace sluice::simgpu {

// What MPS is for this process.
class Mps {
 public:
  // Joins the daemon that the environment names. A process that finds none runs without MPS, as the
  // manual page of nvidia-cuda-mps-control says: "If the connection attempt fails, the program
  // continues to run as it normally would without MPS". Returns CUDA_ERROR_MPS_SERVER_NOT_READY
  // after a fault, while a faulted client lives.
  CUresult join(Connection& connection);

  [[nodiscard]] bool joined() const { return joined_; }
  // How many this process may use.
  [[nodiscard]] unsigned multiprocessors() const { return multiprocessors_; }
  // CUDA_VISIBLE_DEVICES of the daemon, if it has the variable. A client counts the devices that
  // are left.
  [[nodiscard]] const std::optional<std::string>& visible_devices() const {
    return visible_devices_;
  }

 private:
  bool joined_ = false;
  unsigned multiprocessors_ = kMultiprocessors;
  std::optional<std::string> visible_devices_;
};

}  // namespace sluice::simgpu
