// The folders that others must not be able to write to, and the locks on folders.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.hpp"
#include "base/node_service.hpp"
#include "base/output.hpp"
#include "base/session.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::base {
namespace {

namespace fs = std::filesystem;

std::string fault_of(const std::string& folder) {
  try {
    ensure_private_folder(folder);
  } catch (const std::runtime_error& error) {
    return std::string(error.what()).substr(folder.size());
  }
  return {};
}

// Prevents: sockets in a folder in which another user can replace them.
TEST(PrivateFolder, IsOursAlone) {
  const test::TempFolder root;
  const std::string folder = root.file("private");
  ensure_private_folder(folder);
  struct stat found {};
  ASSERT_EQ(stat(folder.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 07777U, 0700U);
  EXPECT_EQ(fault_of(folder), "") << "the second time";
  for (const mode_t open : {0710U, 0701U, 0740U, 0777U}) {
    chmod(folder.c_str(), open);
    EXPECT_EQ(fault_of(folder), " belongs to another user or is open to others; remove it") << open;
  }
  chmod(folder.c_str(), 0700);
  fs::create_directory_symlink(folder, root.file("link"));
  EXPECT_EQ(fault_of(root.file("link")), " is not a folder; remove it");
  EXPECT_EQ(fault_of(root.write("file", "")), " is not a folder; remove it");
  EXPECT_THROW(ensure_private_folder(root.file("none/inner")), std::runtime_error);
  if (geteuid() != 0) return;
  ASSERT_EQ(chown(folder.c_str(), 4711, 4711), 0);
  EXPECT_EQ(fault_of(folder), " belongs to another user or is open to others; remove it");
}

// Prevents: a node service that any user can put in the place of root's.
TEST(NodeFolder, IsTrustedIfOnlyRootOrWeCanWriteToIt) {
  const test::TempFolder root;
  const std::string folder = root.file("node");
  fs::create_directory(folder);
  const std::string socket = folder + "/node.sock";
  chmod(folder.c_str(), 0755);
  EXPECT_EQ(trusted_node_owner(socket), geteuid());
  for (const mode_t open : {0775U, 0757U}) {
    chmod(folder.c_str(), open);
    EXPECT_EQ(trusted_node_owner(socket), std::nullopt) << open;
  }
  chmod(folder.c_str(), 0755);
  fs::create_directory_symlink(folder, root.file("link"));
  EXPECT_EQ(trusted_node_owner(root.file("link/node.sock")), std::nullopt);
  EXPECT_EQ(trusted_node_owner(root.file("none/node.sock")), std::nullopt);
  EXPECT_EQ(trusted_node_owner("node.sock"), std::nullopt);
  EXPECT_EQ(trusted_node_owner("/" + std::string(5000, 'x') + "/node.sock"), std::nullopt);
  if (geteuid() != 0) return;
  ASSERT_EQ(chown(folder.c_str(), 4711, 4711), 0);
  EXPECT_EQ(trusted_node_owner(socket), std::nullopt);
}

TEST(NodeFolder, IsTheChosenOneIfItIsAbsolute) {
  const char* const before = std::getenv("SLUICE_NODE_DIR");
  const std::string restored = before == nullptr ? "" : before;
  unsetenv("SLUICE_NODE_DIR");
  EXPECT_EQ(node_socket(), "/run/sluice/node.sock");
  setenv("SLUICE_NODE_DIR", "/a/b", 1);
  EXPECT_EQ(node_socket(), "/a/b/node.sock");
  EXPECT_EQ(find_node_service(), NodeService::kAbsent);
  EXPECT_EQ(default_session(), "default");
  setenv("SLUICE_NODE_DIR", "a/b", 1);
  EXPECT_EQ(node_socket(), "");
  EXPECT_TRUE(is_node_socket("/a/node.sock"));
  EXPECT_FALSE(is_node_socket("/a/default.sock"));
  unsetenv("SLUICE_NODE_DIR");
  if (before != nullptr) setenv("SLUICE_NODE_DIR", restored.c_str(), 1);
}

// Prevents: two runs write to one folder; or a folder stays locked after its run.
TEST(FolderLock, IsOneAtATime) {
  const test::TempFolder folder;
  const std::string path = folder.path();
  {
    const FolderLock first(path, "sluice run");
    try {
      const FolderLock second(path, "sluice sweep");
      ADD_FAILURE() << "two locks";
    } catch (const UsageError& error) {
      EXPECT_EQ(std::string(error.what()), path + " is in use by another `sluice sweep`, pid " +
                                               std::to_string(getpid()) +
                                               "; choose another folder with --out");
    }
  }
  EXPECT_FALSE(fs::exists(folder.file("run.lock")));
  const FolderLock third(path, "sluice run");
  EXPECT_TRUE(fs::exists(folder.file("run.lock")));
}

}  // namespace
}  // namespace sluice::base
