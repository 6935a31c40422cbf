#include "engine/torch/torch_error.hpp"

#include <c10/util/Exception.h>

#include <sstream>

namespace sluice::engine {
namespace {

std::string text_of(const std::exception& error) {
  const auto* torch = dynamic_cast<const c10::Error*>(&error);
  return torch != nullptr ? torch->what_without_backtrace() : error.what();
}

std::string without_prefix(std::string line) {
  line.erase(0, line.find_first_not_of(" \t"));
  for (const std::string prefix : {"RuntimeError: ", "torch.OutOfMemoryError: "}) {
    if (line.starts_with(prefix)) line.erase(0, prefix.size());
  }
  return line;
}

bool says_out_of_memory(const std::string& text) {
  return text.find("out of memory") != std::string::npos;
}

}  // namespace

std::string one_line(const std::exception& error) {
  std::istringstream lines(text_of(error));
  std::string first;
  std::string last_error;
  for (std::string line; std::getline(lines, line);) {
    if (line.find_first_not_of(" \t") == std::string::npos) continue;
    if (first.empty()) first = line;
    // The line that the TorchScript interpreter prints after its trace.
    if (line.starts_with("RuntimeError: ") || line.starts_with("torch.")) last_error = line;
    if (says_out_of_memory(line)) return without_prefix(line);
  }
  return without_prefix(last_error.empty() ? first : last_error);
}

void rethrow_torch_error(const std::exception& error, const std::string& what) {
  const std::string line = what + ": " + one_line(error);
  if (says_out_of_memory(text_of(error))) throw OutOfMemory(line);
  throw base::RunError(line);
}

}  // namespace sluice::engine
