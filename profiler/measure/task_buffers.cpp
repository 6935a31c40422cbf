#include "profiler/measure/task_buffers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

namespace sluice::profiler {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kAlignment = 512;
constexpr std::size_t kPatternNumbers = std::size_t{1} << 20;
constexpr std::size_t kPatternBytes = kPatternNumbers * sizeof(float);
constexpr unsigned char kUnwritten = 0x7f;
/// Of an output, at most so many parts of such a length are compared.
constexpr std::size_t kParts = 64;
constexpr std::size_t kPartBytes = std::size_t{1} << 16;
constexpr double kTolerance = 1e-3;

/// Where the compared parts of a buffer begin, and how long they are.
std::vector<std::pair<std::size_t, std::size_t>> parts_of(std::size_t bytes) {
  if (bytes <= kParts * kPartBytes) return {{0, bytes}};
  std::vector<std::pair<std::size_t, std::size_t>> parts;
  const std::size_t last = bytes - kPartBytes;
  for (std::size_t i = 0; i < kParts; ++i) {
    const std::size_t begin = last / (kParts - 1) * i / kAlignment * kAlignment;
    parts.emplace_back(i + 1 < kParts ? begin : last, kPartBytes);
  }
  return parts;
}

template <class Number>
std::vector<Number> numbers_of(const std::vector<char>& bytes) {
  std::vector<Number> numbers(bytes.size() / sizeof(Number));
  std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(Number));
  return numbers;
}

bool is_same(double expected, double found, double tolerance) {
  if (std::isnan(expected)) return std::isnan(found);
  if (std::isinf(expected)) return expected == found;
  return std::abs(expected - found) <= tolerance;
}

template <class Number>
std::string number_difference(const std::vector<char>& expected, const std::vector<char>& found) {
  const auto a = numbers_of<Number>(expected);
  const auto b = numbers_of<Number>(found);
  double largest = 0;
  for (const Number number : a) {
    if (std::isfinite(number)) largest = std::max(largest, std::abs(static_cast<double>(number)));
  }
  for (std::size_t i = 0; i < a.size(); ++i) {
    const bool same = is_same(a[i], b[i], kTolerance * largest);
    if (!same) return fmt::format("{} instead of {} at {}", b[i], a[i], i);
  }
  return "";
}

std::string difference_of(const std::string& dtype, const std::vector<char>& expected,
                          const std::vector<char>& found) {
  if (expected.size() != found.size()) return "another size";
  if (dtype == "float32") return number_difference<float>(expected, found);
  if (dtype == "float64") return number_difference<double>(expected, found);
  return expected == found ? "" : "other bytes";
}

bool is_float(const std::string& dtype) { return dtype.find("float") != std::string::npos; }

fs::path file_of(const std::string& reference, const Task& task, std::size_t buffer) {
  return fs::path(reference) / task.id / (std::to_string(buffer) + ".bin");
}

std::vector<char> read_bytes(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace

std::string difference(const Task& task, const Outputs& expected, const Outputs& found) {
  std::size_t at = 0;
  for (std::size_t i = 0; i < task.buffers.size(); ++i) {
    if (!task.buffers[i].output) continue;
    const auto what = difference_of(task.buffers[i].dtype, expected.buffers[at], found.buffers[at]);
    if (!what.empty()) return fmt::format("buffer {}: {}", i, what);
    ++at;
  }
  return "";
}

namespace {

std::size_t bytes_of(const Outputs& outputs) {
  std::size_t bytes = 0;
  for (const auto& buffer : outputs.buffers) bytes += buffer.size();
  return bytes;
}

}  // namespace

const Outputs* ExpectedOutputs::find(const std::string& task) const {
  const auto found = by_task_.find(task);
  return found == by_task_.end() ? nullptr : &found->second;
}

void ExpectedOutputs::add(const std::string& task, Outputs outputs) {
  if (by_task_.contains(task)) return;
  bytes_ += bytes_of(outputs);
  by_task_.emplace(task, std::move(outputs));
  oldest_first_.push_back(task);
  while (bytes_ > most_bytes_ && oldest_first_.size() > 1) {
    const auto oldest = by_task_.extract(oldest_first_.front());
    bytes_ -= bytes_of(oldest.mapped());
    oldest_first_.pop_front();
  }
}

void TaskBuffers::place(const std::vector<std::size_t>& sizes) {
  std::vector<std::size_t> offsets;
  std::size_t end = 0;
  for (const std::size_t size : sizes) {
    offsets.push_back(end);
    end += (size + kAlignment - 1) / kAlignment * kAlignment;
  }
  if (end > room_) {
    memory_.reset();
    filled_for_.clear();
    room_ = 0;
    CUdeviceptr address = 0;
    SLUICE_CUDA(cuMemAlloc(&address, end));
    memory_ = std::make_unique<engine::CudaMemory>(address);
    room_ = end;
  }
  addresses_.clear();
  for (const std::size_t offset : offsets) addresses_.push_back(memory_->get() + offset);
}

void TaskBuffers::prepare(const Task& task, const Program& program, const std::string& reference) {
  std::vector<std::size_t> sizes;
  for (const Buffer& buffer : task.buffers) sizes.push_back(buffer.bytes());
  sizes.insert(sizes.end(), program.extra.begin(), program.extra.end());
  place(sizes);
  if (filled_for_ != task.id) fill_inputs(task, reference);
  filled_for_ = task.id;
  for (std::size_t i = 0; i < task.buffers.size(); ++i) {
    if (!task.buffers[i].output) continue;
    SLUICE_CUDA(cuMemsetD8(addresses_[i], kUnwritten, task.buffers[i].bytes()));
  }
}

void TaskBuffers::fill_inputs(const Task& task, const std::string& reference) {
  for (std::size_t i = 0; i < task.buffers.size(); ++i) {
    const Buffer& buffer = task.buffers[i];
    if (buffer.output) continue;
    const fs::path file = file_of(reference, task, i);
    if (!reference.empty() && fs::exists(file)) {
      const auto bytes = read_bytes(file);
      if (bytes.size() != buffer.bytes()) {
        throw base::RunError(
            fmt::format("{}: {} bytes instead of {}", file.string(), bytes.size(), buffer.bytes()));
      }
      SLUICE_CUDA(cuMemcpyHtoD(addresses_[i], bytes.data(), bytes.size()));
    } else if (is_float(buffer.dtype)) {
      fill_randomly(addresses_[i], buffer.bytes(), i);
    } else {
      SLUICE_CUDA(cuMemsetD8(addresses_[i], 0, buffer.bytes()));
    }
  }
}

void TaskBuffers::fill_randomly(CUdeviceptr to, std::size_t bytes, std::size_t seed) {
  if (!pattern_) {
    std::vector<float> numbers(kPatternNumbers);
    std::mt19937 random(1);
    for (float& number : numbers) {
      number = static_cast<float>(random()) / static_cast<float>(std::mt19937::max()) * 2 - 1;
    }
    CUdeviceptr address = 0;
    SLUICE_CUDA(cuMemAlloc(&address, kPatternBytes));
    pattern_ = std::make_unique<engine::CudaMemory>(address);
    SLUICE_CUDA(cuMemcpyHtoD(address, numbers.data(), kPatternBytes));
  }
  // Each buffer begins elsewhere in the pattern, so that no two inputs are equal.
  std::size_t from = seed * 4096 * sizeof(float) % kPatternBytes;
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t part = std::min(bytes - done, kPatternBytes - from);
    SLUICE_CUDA(cuMemcpyDtoD(to + done, pattern_->get() + from, part));
    done += part;
    from = 0;
  }
}

Outputs TaskBuffers::outputs(const Task& task) const {
  Outputs outputs;
  for (std::size_t i = 0; i < task.buffers.size(); ++i) {
    if (!task.buffers[i].output) continue;
    auto& bytes = outputs.buffers.emplace_back();
    for (const auto& [begin, length] : parts_of(task.buffers[i].bytes())) {
      const std::size_t at = bytes.size();
      bytes.resize(at + length);
      SLUICE_CUDA(cuMemcpyDtoH(bytes.data() + at, addresses_[i] + begin, length));
    }
  }
  return outputs;
}

std::optional<Outputs> reference_outputs(const Task& task, const std::string& reference) {
  if (reference.empty()) return std::nullopt;
  Outputs outputs;
  for (std::size_t i = 0; i < task.buffers.size(); ++i) {
    if (!task.buffers[i].output) continue;
    const fs::path file = file_of(reference, task, i);
    if (!fs::exists(file)) return std::nullopt;
    const auto whole = read_bytes(file);
    if (whole.size() != task.buffers[i].bytes()) return std::nullopt;
    auto& bytes = outputs.buffers.emplace_back();
    for (const auto& [begin, length] : parts_of(whole.size())) {
      bytes.insert(bytes.end(), whole.begin() + static_cast<long>(begin),
                   whole.begin() + static_cast<long>(begin + length));
    }
  }
  return outputs;
}

}  // namespace sluice::profiler
