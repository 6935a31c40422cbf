// What separates a process from the other programs of the machine. Prevents: two containers on one
// GPU whose programs run ungated next to each other, and nothing says so.
#include "base/container.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/temp_folder.hpp"

namespace sluice::base {
namespace {

namespace fs = std::filesystem;

class Container : public testing::Test {
 protected:
  Container() {
    process("self", 20);
    process("20", 10);
    process("10", 1);
    process("1", 0);
    link("ns/pid", "pid:[4026531836]");
    link("ns/ipc", "ipc:[4026531839]");
  }
  /// With a root of its own, which has /dev/shm of the file system that `shm` is on.
  void process(const std::string& pid, int parent, const std::string& shm = {}) {
    const fs::path folder = proc_.path() / pid;
    fs::remove_all(folder);
    fs::create_directories(folder / "ns");
    fs::create_directories(folder / "root/dev");
    static_cast<void>(
        proc_.write(pid + "/status", "Name:\tx\nPPid:\t" + std::to_string(parent) + "\n"));
    fs::create_directory_symlink(shm.empty() ? proc_.path() : fs::path(shm),
                                 folder / "root/dev/shm");
  }
  void link(const std::string& name, const std::string& target) {
    fs::remove(proc_.path() / "self" / name);
    fs::create_symlink(target, proc_.path() / "self" / name);
  }
  [[nodiscard]] std::string found() const { return separation_in(proc_.path()); }

  test::TempFolder proc_;
};

TEST_F(Container, TheMachineItselfSeparatesNothing) { EXPECT_EQ(found(), ""); }

TEST_F(Container, NamespacesOfItsOwnSeparate) {
  link("ns/pid", "pid:[4026532170]");
  EXPECT_EQ(found(), "a pid namespace of its own");
  link("ns/pid", "pid:[4026531836]");
  link("ns/ipc", "ipc:[4026532169]");
  EXPECT_EQ(found(), "an ipc namespace of its own");
}

TEST_F(Container, AnotherShmThanThatOfAnAncestorSeparates) {
  for (const char* ancestor : {"20", "10", "1"}) {
    const int parent = ancestor == std::string("20") ? 10 : ancestor == std::string("10") ? 1 : 0;
    process(ancestor, parent, "/proc");  // another file system than that of temporary files
    EXPECT_EQ(found(), "a /dev/shm of its own") << ancestor;
    process(ancestor, parent);
    EXPECT_EQ(found(), "");
  }
}

TEST_F(Container, WhatCannotBeReadIsNoSeparation) {
  fs::remove_all(proc_.path() / "self/ns");
  fs::remove_all(proc_.path() / "20");
  EXPECT_EQ(found(), "");
  EXPECT_EQ(separation_in("/nonexistent"), "");
  process("self", 20);
  process("20", 20);  // in a circle, as no system has it
  EXPECT_EQ(found(), "");
}

}  // namespace
}  // namespace sluice::base
