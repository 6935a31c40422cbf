// Libraries whose launches pass by the hooks. Prevents: "0 bypassed" of a program most of whose
// launches were made by a library that was opened with RTLD_DEEPBIND.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/intercept/session.hpp"

namespace sluice::intercept::test {
namespace {

class Passing : public Session {
 protected:
  static void* open(const char* library, int flags) {
    void* const opened = dlopen(library, flags);
    EXPECT_NE(opened, nullptr) << dlerror();
    return opened;
  }
  static CUresult launch_in(void* library, const char* how) {
    return reinterpret_cast<CUresult (*)()>(dlsym(library, how))();
  }
  std::string what_passes() {
    const bool any = eventually([&] { return slot().unhooked_lookups.load() != 0; });
    return any ? slot().unhooked_name.data() : "nothing";
  }
};

TEST_F(Passing, ALibraryThatIsOpenedDeepIsNamedAndOneThatIsNotIsNot) {
  attach("gate");
  catch_errors();
  const std::uint64_t before = launches();
  void* const plain = open(SLUICE_PLAIN_LIBRARY, RTLD_NOW);
  for (const char* how : {"launch_by_call", "launch_by_lookup"}) {
    EXPECT_EQ(launch_in(plain, how), CUDA_SUCCESS);
  }
  EXPECT_EQ(launches(), before + 2);
  void* const deep = open(SLUICE_DEEP_LIBRARY, RTLD_NOW | RTLD_DEEPBIND);
  for (const char* how : {"launch_by_call", "launch_by_lookup"}) {
    EXPECT_EQ(launch_in(deep, how), CUDA_SUCCESS);
  }
  EXPECT_EQ(launches(), before + 2) << "is hooked now: then say nothing of it";
  EXPECT_EQ(what_passes(), "libdeep.so");
  EXPECT_EQ(slot().unhooked_lookups.load(), 1U);
  EXPECT_TRUE(eventually([&] {
    return errors().find("may pass by the gate: libdeep.so was opened") != std::string::npos;
  })) << errors();
}

// Before its first call, a function of a library that binds late leads nowhere.
TEST_F(Passing, ALibraryThatBindsLateIsNamed) {
  attach("gate");
  void* const deep = open(SLUICE_DEEP_LIBRARY, RTLD_LAZY | RTLD_DEEPBIND);
  EXPECT_EQ(launch_in(deep, "launch_by_lookup"), CUDA_SUCCESS);
  EXPECT_EQ(what_passes(), "libdeep.so");
}

TEST_F(Passing, ASecondCopyOfTheDriverIsSeen) {
  attach("gate");
  void* const apart = dlmopen(LM_ID_NEWLM, SLUICE_DEEP_LIBRARY, RTLD_NOW);
  ASSERT_NE(apart, nullptr) << dlerror();
  EXPECT_EQ(what_passes(), "libcuda.so");
}

// Prevents: launches by an entry of a newer driver that nobody holds, counts or names, because the
// program links it and looks nothing up.
TEST_F(Passing, ALinkedLaunchWithoutAHookIsNamed) {
  attach("gate");
  catch_errors();
  EXPECT_EQ(launch_in(open(SLUICE_FUTURE_LIBRARY, RTLD_NOW), "launch_by_call"), CUDA_SUCCESS);
  EXPECT_EQ(what_passes(), fake::kFutureLaunch);
  EXPECT_TRUE(eventually([&] {
    return errors().find("cuLaunchFutureKernel has no hook") != std::string::npos;
  })) << errors();
}

}  // namespace
}  // namespace sluice::intercept::test
