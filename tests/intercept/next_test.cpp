// A second interposer must find its successor, never itself, whichever of us is preloaded first:
// the C library resolves RTLD_NEXT from the return address, which our dlsym must not disturb.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tests/intercept/snippets.hpp"
#include "tests/support/standins/second_interposer.hpp"

namespace sluice::intercept::test {
namespace {

bool second_is_first() {
  const std::string preload = std::getenv("LD_PRELOAD");
  return preload.find("libsluice_second") < preload.find("libsluice_intercept.so");
}

void* of_second(const char* name) { return dlsym(RTLD_DEFAULT, name); }

TEST(Next, FindsTheSuccessor) {
  auto* next = reinterpret_cast<decltype(&second_next)>(of_second("second_next"));
  const std::string_view expected = second_is_first() ? kInterposer : "libcuda.so.1";
  for (const Snippet& snippet : snippets()) {
    EXPECT_EQ(object_of(next(snippet.name.data())), expected) << snippet.name;
  }
  EXPECT_EQ(object_of(next("dlsym")), second_is_first() ? kInterposer : "libc.so.6");
  EXPECT_EQ(next("sluice_no_such_symbol"), nullptr);
}

TEST(Next, ALaunchPassesEachOfUsOnce) {
  auto* launches = reinterpret_cast<decltype(&second_launches)>(of_second("second_launches"));
  const Snippet& launch = snippets().front();
  EXPECT_EQ(check_call(launch, nullptr), "");
  EXPECT_EQ(launches(), second_is_first() ? 1 : 0) << "we call the driver itself";
}

// A handle of the driver must lead to a hook, and through it to the driver, without a loop.
TEST(Next, AHandleStillLeadsToAHook) {
  const Snippet& launch = snippets().front();
  void* found = dlsym(dlopen("libcuda.so.1", RTLD_NOW), launch.name.data());
  EXPECT_EQ(object_of(found), kInterposer);
  EXPECT_EQ(check_call(launch, found), "");
}

}  // namespace
}  // namespace sluice::intercept::test
