#pragma once
#include <string>

namespace sluice::intercept::test {

/// The faults of the calls that the library's constructor made. Empty if there were none.
__attribute__((visibility("default"))) std::string complaints_of_constructor();
__attribute__((visibility("default"))) int calls_of_constructor();

}  // namespace sluice::intercept::test
