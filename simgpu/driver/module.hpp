#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "simgpu/driver/api.hpp"

namespace sluice::simgpu {

struct Context;

/// What a program sets before cuLaunch, cuLaunchGrid or cuLaunchGridAsync.
struct LaunchSetup {
  std::array<unsigned, 3> block{1, 1, 1};
  std::vector<std::byte> parameters;
};

struct Function {
  std::string name;
  std::uint32_t name_index = 0;
  bool length_in_argument = false;  // the name begins with sluice_spin
  bool faults = false;              // the name begins with sluice_fault
  CUmodule module = nullptr;
  std::shared_ptr<Context> context;
  std::mutex mutex;  // guards the setup
  LaunchSetup setup;
};

struct Module {
  std::shared_ptr<Context> context;
  std::set<std::string> entries;
  bool any_name = false;  // a binary image, whose names are not read: every name is accepted
  std::mutex mutex;
  std::map<std::string, CUfunction> functions;
};

}  // namespace sluice::simgpu
