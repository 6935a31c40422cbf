// A library whose constructor calls the program that opens it, and so with the loader's lock held.
extern "C" void sluice_test_in_constructor();

namespace {

struct AtLoad {
  AtLoad() { sluice_test_in_constructor(); }
};
const AtLoad kAtLoad;

}  // namespace
