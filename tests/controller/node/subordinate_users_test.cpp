// Whose ids the ids of user namespaces are.
#include "controller/subordinate_users.hpp"

#include <gtest/gtest.h>

#include "tests/support/temp_folder.hpp"

namespace sluice::controller {
namespace {

SubordinateUsers load(const std::string& text) {
  const test::TempFolder folder;
  return SubordinateUsers::load(folder.write("subuid", text));
}

TEST(SubordinateUsers, AnIdBelongsToTheUserOfItsRange) {
  const SubordinateUsers users = load("4711:100000:10\ndaemon:200000:5\n4711:300000:1\n");
  EXPECT_EQ(users.owner_of(99'999), 99'999U);
  EXPECT_EQ(users.owner_of(100'000), 4711U);
  EXPECT_EQ(users.owner_of(100'009), 4711U);
  EXPECT_EQ(users.owner_of(100'010), 100'010U);
  EXPECT_EQ(users.owner_of(200'004), 1U) << "users may have names";
  EXPECT_EQ(users.owner_of(300'000), 4711U) << "a user may have several ranges";
}

// Prevents: a program in a namespace of root has the rights of root.
TEST(SubordinateUsers, IdsOfRootAreTheirOwnUsers) {
  EXPECT_EQ(load("root:100000:10\n0:200000:10\n").owner_of(100'000), 100'000U);
}

// Prevents: a mistake in the file takes the rights of root away.
TEST(SubordinateUsers, RootIsNobodysSubordinate) {
  EXPECT_EQ(load("4711:0:4294967295\n").owner_of(0), 0U);
}

TEST(SubordinateUsers, BadLinesAndUnknownUsersAreLeftOut) {
  const SubordinateUsers users =
      load("\n#x\nno-such-user:1:9\n4711:5\n4711:x:9\n4711:6;9\n:7:9\n4711:20:5");
  for (uid_t uid = 1; uid < 20; ++uid) EXPECT_EQ(users.owner_of(uid), uid);
  EXPECT_EQ(users.owner_of(20), 4711U);
  EXPECT_EQ(SubordinateUsers::load("/no/such/file").owner_of(7), 7U);
}

}  // namespace
}  // namespace sluice::controller
