#pragma once
#include <c10/core/Device.h>

#include <cstdint>
#include <string>

namespace sluice::engine {

/// Settings of LibTorch's allocator that give back single pages, and large ones: giving back 2 GiB
/// takes 0.6 times as long in pages of 64 MiB as in LibTorch's of 20 MiB (docs/results/memory.md).
/// `said`: the user's settings, which count more; may be empty.
[[nodiscard]] std::string allocator_settings(const std::string& said);

/// Gives unused memory of LibTorch's allocator back to the driver until it holds at most `most`
/// bytes, or until it holds what is in use only. Not more than that: an H200 takes 2.6 ms to take
/// back a GiB, and as long to give it again. Without expandable segments it may give all of it
/// back. Throws LibTorch's error.
void release_down_to(std::uint64_t most, const c10::Device& device);

}  // namespace sluice::engine
