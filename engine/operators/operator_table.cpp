#include "engine/operators/operator_table.hpp"

#include <cxxabi.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>

#include "base/error.hpp"
#include "base/output.hpp"

namespace sluice::engine {
namespace {

/// Numbers first, so that a reader of these needs no quotes.
constexpr const char* kHead =
    "model,batch,gpu,node,ms,kernels,few_blocks_ms,sm_ms,grid,block,registers,shared_bytes,"
    "operator,"
    "inputs,kernel";
constexpr std::size_t kReadColumns = 5;

std::string readable(const std::string& mangled) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status), std::free);
  return status == 0 ? text.get() : mangled;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + '"';
}

std::string shape(const std::array<std::uint32_t, 3>& of) {
  return fmt::format("{}x{}x{}", of[0], of[1], of[2]);
}

/// Of the longest kernel.
std::string kernel_columns(const OperatorTimes& times) {
  if (times.kernels.empty()) return ",,,";
  const auto& kernel = *std::ranges::max_element(times.kernels, {}, &KernelTimes::ms);
  return fmt::format("{},{},{},{}", shape(kernel.grid), shape(kernel.block), kernel.registers,
                     kernel.shared_bytes);
}

std::string kernel_name(const OperatorTimes& times) {
  if (times.kernels.empty()) return "";
  return quoted(readable(std::ranges::max_element(times.kernels, {}, &KernelTimes::ms)->name));
}

template <class Number>
Number number_of(const std::string& text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) {
    throw base::UsageError("'" + text + "' is no number");
  }
  return number;
}

void add_line(NodeTimes& found, const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> columns(kReadColumns);
  for (std::string& column : columns) {
    if (!std::getline(in, column, ',')) throw base::UsageError("too few columns");
  }
  const OperatorTarget target{columns[0], number_of<std::size_t>(columns[1]), columns[2]};
  if (found.ms.empty()) found.target = target;
  if (target.model != found.target.model || target.batch != found.target.batch ||
      target.gpu != found.target.gpu) {
    throw base::UsageError("another model, batch or GPU than in the lines before");
  }
  found.ms.emplace_back(number_of<std::size_t>(columns[3]), number_of<double>(columns[4]));
}

}  // namespace

double few_blocks_ms(const OperatorTimes& times, std::uint32_t sms) {
  double sum = 0;
  for (const KernelTimes& kernel : times.kernels) {
    if (kernel.blocks() < sms) sum += kernel.ms;
  }
  return sum;
}

double sm_ms(const OperatorTimes& times, std::uint32_t sms) {
  double sum = 0;
  for (const KernelTimes& kernel : times.kernels) {
    sum += kernel.ms * std::min(1.0, static_cast<double>(kernel.blocks()) / sms);
  }
  return sum;
}

void write_operators(const std::string& file, const OperatorTarget& target,
                     const std::vector<OperatorTimes>& operators) {
  base::LineFile out(file);
  out.write(std::string(kHead) + '\n');
  for (const OperatorTimes& times : operators) {
    out.write(fmt::format("{},{},{},{},{:.6g},{},{:.6g},{:.6g},{},{},{},{}\n", target.model,
                          target.batch, target.gpu, times.node, times.ms, times.kernels.size(),
                          few_blocks_ms(times, target.sms), sm_ms(times, target.sms),
                          kernel_columns(times), times.name, times.inputs, kernel_name(times)));
  }
}

double NodeTimes::before(std::size_t node) const {
  double sum = 0;
  for (const auto& [at, time] : ms) sum += at < node ? time : 0;
  return sum;
}

NodeTimes read_operators(const std::string& file) {
  std::ifstream in(file);
  if (!in) throw base::UsageError(file + " cannot be read");
  std::string line;
  if (!std::getline(in, line) || line != kHead) {
    throw base::UsageError(file + ": line 1: not an op.csv of sluice opbench run --executor torch");
  }
  NodeTimes found;
  for (std::size_t number = 2; std::getline(in, line); ++number) {
    try {
      add_line(found, line);
    } catch (const base::UsageError& error) {
      throw base::UsageError(fmt::format("{}: line {}: {}", file, number, error.what()));
    }
  }
  return found;
}

}  // namespace sluice::engine
