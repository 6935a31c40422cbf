// Prevents: a library that is preloaded twice, a user's preload or labels that get lost, and labels
// that the interposer would refuse. Needs no Slurm.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "shm/board.hpp"
#include "shm/labels.hpp"

extern "C" {
#include "slurm/task_environment.h"
}

namespace {

std::string text_of(char* value) {
  const std::unique_ptr<char, decltype(&std::free)> owner(value, std::free);
  return value == nullptr ? "no memory" : value;
}

std::string preload(const char* list) { return text_of(sluice_preload_once(list, "/s/lib.so")); }

std::string label(const std::string& labels, const std::string& user) {
  return text_of(sluice_label_user(labels.c_str(), user.c_str()));
}

TEST(PreloadOnce, PutsTheLibraryInFront) {
  EXPECT_EQ(preload(nullptr), "/s/lib.so");
  EXPECT_EQ(preload(""), "/s/lib.so");
  EXPECT_EQ(preload("/a.so b.so"), "/s/lib.so:/a.so b.so");
}

TEST(PreloadOnce, LeavesAListThatHasIt) {
  for (const char* list :
       {"/s/lib.so", "/a.so:/s/lib.so", "/a.so /s/lib.so /b.so", ":/s/lib.so:"}) {
    EXPECT_EQ(preload(list), list);
  }
}

TEST(PreloadOnce, APartOfANameIsNotTheLibrary) {
  EXPECT_EQ(preload("/s/lib.so.1:/x/s/lib.so"), "/s/lib.so:/s/lib.so.1:/x/s/lib.so");
}

TEST(LabelUser, AddsTheUserToTheLabels) {
  EXPECT_EQ(text_of(sluice_label_user(nullptr, "ann")), "user=ann");
  EXPECT_EQ(label("", "ann"), "user=ann");
  EXPECT_EQ(label("team=vision,superuser=x", "ann"), "team=vision,superuser=x,user=ann");
}

TEST(LabelUser, LeavesTheUsersOwn) { EXPECT_EQ(label("user=bob,a=b", "ann"), "user=bob,a=b"); }

TEST(LabelUser, NeverMakesLabelsThatTheInterposerRefuses) {
  EXPECT_EQ(label("a=b", "ann,priority=9"), "a=b");
  EXPECT_EQ(label("a=b", "DOMAIN\\ann"), "a=b");
  for (std::size_t size = 1; size < 2 * sluice::shm::kLabelSize; ++size) {
    const std::string longest = "a=" + std::string(size, 'x');
    const bool fits = sluice::shm::check_labels(longest + ",user=ann").empty();
    EXPECT_EQ(label(longest, "ann"), fits ? longest + ",user=ann" : longest) << size;
    const std::string user(size, 'u');
    EXPECT_EQ(label("", user),
              sluice::shm::check_labels("user=" + user).empty() ? "user=" + user : "")
        << size;
  }
}

TEST(LabelUser, AllowsTheCharactersOfALabel) {
  for (int c = 1; c < 128; ++c) {
    const std::string user = std::string("a") + static_cast<char>(c);
    const std::string wanted =
        sluice::shm::check_labels("user=" + user).empty() ? "user=" + user : "";
    EXPECT_EQ(label("", user), c == ',' ? "" : wanted) << c;
  }
}

}  // namespace
