#pragma once
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "tests/support/process.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::profiler {

/// `sluice opbench` with a stand-in for TVM, in a folder of its own.
class OpbenchRun : public testing::Test {
 protected:
  base::Captured opbench(std::vector<std::string> args) {
    args.insert(args.begin(), {SLUICE_TEST_PROGRAM, "opbench"});
    return test::Process(args, {.environment = {"SLUICE_TVM_PYTHON=" SLUICE_TEST_FAKE_PROGRAMS},
                                .folder = folder_.path()})
        .finish();
  }

  [[nodiscard]] std::string file(const std::string& name) const { return folder_.file(name); }
  /// How each server came to know the network `counted`.
  [[nodiscard]] std::string servers() const { return test::read_file(file("servers")); }

  const test::TempFolder folder_;
};

}  // namespace sluice::profiler
