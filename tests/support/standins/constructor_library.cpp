// A library that uses the driver in its constructor, before main().
#include "tests/support/standins/constructor_library.hpp"

#include <dlfcn.h>

#include "tests/intercept/snippets.hpp"

namespace sluice::intercept::test {
namespace {

struct AtLoad {
  std::string complaints;
  int calls = 0;

  AtLoad() {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW);
    for (const Snippet& snippet : snippets()) {
      void* found = dlsym(driver, snippet.name.data());
      if (object_of(found) != kInterposer) complaints += object_of(found) + " has it; ";
      complaints += check_call(snippet, found);
      complaints += check_call(snippet, nullptr);
      calls += 2;
    }
  }
};

const AtLoad kAtLoad;

}  // namespace

std::string complaints_of_constructor() { return kAtLoad.complaints; }
int calls_of_constructor() { return kAtLoad.calls; }

}  // namespace sluice::intercept::test
