#pragma once
#include <string>

namespace sluice::intercept::test {

/// What went wrong with the calls that the library's constructor made; empty if nothing.
__attribute__((visibility("default"))) std::string complaints_of_constructor();
__attribute__((visibility("default"))) int calls_of_constructor();

}  // namespace sluice::intercept::test
