#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/standins/fakecuda/fakecuda.hpp"

namespace sluice::intercept::test {

/// One call of a hooked entry, ready to be made through any pointer to it.
struct Snippet {
  std::string_view name;
  fake::Id id;
  CUresult (*call)(void* function);  ///< Through a pointer that the program looked up.
  CUresult (*call_linked)();         ///< Through the symbol that this object was linked against.
  std::vector<std::uint64_t> arguments;
};

/// One per line of hooks.def, in its order; a line without a snippet does not compile.
std::span<const Snippet> snippets();

/// What every snippet's driver entry answers in check_call(): no hook would make that up.
inline constexpr CUresult kAnswer = CUDA_ERROR_ILLEGAL_INSTRUCTION;

/// Makes the call and says what is wrong with it, or nothing: it must reach the driver exactly
/// once, with every argument untouched, and the driver's answer must come back.
/// `function` null: the linked symbol.
std::string check_call(const Snippet& snippet, void* function);

/// The file name of the object that holds the code at `address`, without its folder.
std::string object_of(const void* address);

inline constexpr std::string_view kInterposer = "libsluice_intercept.so";

}  // namespace sluice::intercept::test
