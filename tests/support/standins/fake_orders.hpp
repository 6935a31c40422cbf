#pragma once
#include <cstdint>

/// The stand-in for the interposer's memory functions; fake_orders.cpp says what it does. A program
/// that links it uses it as if it were preloaded.
extern "C" {
int sluice_fake_launch();
void sluice_fake_give(unsigned kind);
void sluice_fake_grant(std::uint64_t bytes);
void sluice_fake_held(std::uint64_t bytes);
void sluice_fake_refuse_memory();
void sluice_fake_void_order();
void sluice_fake_plan(std::uint64_t seed, std::uint64_t orders, std::uint64_t every,
                      std::uint64_t launches, const char* kinds);
/// given, refused, waits, mistakes, base, slope, pending.
std::uint64_t sluice_fake_count(int which);
}

namespace sluice::test {
enum FakeCount { kGiven, kRefused, kWaits, kMistakes, kBase, kSlope, kPending };
}
