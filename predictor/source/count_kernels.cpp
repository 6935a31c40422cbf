#include "predictor/source/count_kernels.hpp"

#include <fmt/format.h>

#include <optional>
#include <string>

#include "base/error.hpp"
#include "predictor/source/kernel_reader.hpp"

namespace sluice::predictor {
namespace {

/// The source without comments: TVM writes each number twice, the second time in a comment.
std::string without_comments(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  std::size_t at = 0;
  while (at < source.size()) {
    const std::size_t begin = source.find("/*", at);
    text += source.substr(at, begin - at);
    if (begin == std::string_view::npos) break;
    const std::size_t end = source.find("*/", begin);
    if (end == std::string_view::npos) break;
    at = end + 2;
  }
  return text;
}

/// TVM's longest kernel has 2,219. The time for many variables is the square of their number.
constexpr std::size_t kMostLines = 20'000;

std::vector<std::string_view> lines_of(std::string_view body) {
  std::vector<std::string_view> lines;
  std::size_t begin = 0;
  while (begin < body.size() && lines.size() < kMostLines) {
    const std::size_t end = std::min(body.find('\n', begin), body.size());
    std::string_view line = body.substr(begin, end - begin);
    while (line.starts_with(' ')) line.remove_prefix(1);
    while (line.ends_with(' ')) line.remove_suffix(1);
    lines.push_back(line);
    begin = end + 1;
  }
  return lines;
}

/// A kernel in the source: "NAME(PARAMETERS) {\nBODY\n}\n".
struct Definition {
  std::string_view signature;
  std::string_view body;
};

std::optional<Definition> definition_of(std::string_view source, const std::string& name) {
  for (std::size_t at = source.find(name + "("); at != std::string_view::npos;
       at = source.find(name + "(", at + 1)) {
    if (at > 0 && is_name(source[at - 1])) continue;  // of a longer name
    const std::size_t close = source.find(')', at);
    if (close == std::string_view::npos) break;
    // The prototype ends in a semicolon.
    if (!source.substr(close).starts_with(") {\n")) continue;
    const std::size_t begin = close + 4;
    const std::size_t end = std::min(source.find("\n}\n", begin), source.size());
    const std::size_t open = at + name.size() + 1;
    return Definition{source.substr(open, close - open), source.substr(begin, end - begin)};
  }
  return std::nullopt;
}

}  // namespace

std::vector<KernelCounts> count_kernels(const profiler::Program& program) {
  const std::string source = without_comments(program.source);
  std::vector<KernelCounts> counts;
  for (const profiler::Kernel& kernel : program.kernels) {
    if (kernel.threads() == 0 || kernel.blocks() == 0) {
      throw base::UsageError(
          fmt::format("program {}: kernel {} has no threads", program.id, kernel.name));
    }
    const auto found = definition_of(source, kernel.name);
    if (!found) {
      throw base::UsageError(fmt::format("program {}: its source has no kernel {} as TVM writes it",
                                         program.id, kernel.name));
    }
    const auto lines = lines_of(found->body);
    counts.push_back(KernelReader(kernel, found->signature, lines).read());
  }
  return counts;
}

}  // namespace sluice::predictor
