#pragma once
#include <exception>
#include <string>

#include "base/error.hpp"
#include "engine/out_of_memory.hpp"

namespace sluice::engine {

/// The line of a LibTorch error that names the cause, without stack traces and source excerpts.
[[nodiscard]] std::string one_line(const std::exception& error);

/// Rethrows a LibTorch error as base::RunError or OutOfMemory. `what` comes first in the message.
[[noreturn]] void rethrow_torch_error(const std::exception& error, const std::string& what);

/// Runs `work`; an error of LibTorch becomes base::RunError, with `what` in front.
template <class Work>
auto in_torch(const std::string& what, const Work& work) {
  try {
    return work();
  } catch (const base::RunError&) {
    throw;
  } catch (const base::UsageError&) {
    throw;
  } catch (const std::exception& error) {
    rethrow_torch_error(error, what);
  }
}

}  // namespace sluice::engine
