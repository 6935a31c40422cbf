// The memory of a client, as the GPU process sees it. A client can send any numbers, and one GPU
// process serves clients of several users: no request may end it.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <limits>

#include "simgpu/gpu/address_space.hpp"

namespace {

using sluice::simgpu::AddressSpace;

constexpr std::uint64_t kAddress = 1U << 20;

// Prevents: a small mapping that counts as a large one, so that the next access is out of it.
TEST(AddressSpaces, RefuseASizeThatOverflows) {
  const sluice::base::Fd file(memfd_create("test", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(file.get(), 8192), 0);
  AddressSpace memory(getpid());
  EXPECT_FALSE(memory.map(kAddress, std::numeric_limits<std::size_t>::max() - 100, 200, file));
  std::uint64_t value = 0;
  EXPECT_FALSE(memory.load(kAddress + (1U << 16), 8, value));
  EXPECT_TRUE(memory.map(kAddress, 4096, 200, file));
  EXPECT_TRUE(memory.load(kAddress, 8, value));
}

// Prevents: a read of 200 bytes into the place for a word.
TEST(AddressSpaces, LoadAndStoreOnlyWords) {
  struct {
    std::array<std::uint64_t, 32> from{};
    std::uint64_t value = 0;
    std::array<std::uint64_t, 32> behind{};
  } words;
  words.from.fill(7);
  AddressSpace memory(getpid());
  const auto address = reinterpret_cast<std::uint64_t>(words.from.data());
  EXPECT_FALSE(memory.load(address, 200, words.value));
  EXPECT_EQ(words.behind.front(), 0U);
  EXPECT_FALSE(memory.store(address, 200, 1));
  EXPECT_TRUE(memory.load(address, 8, words.value));
  EXPECT_EQ(words.value, 7U);
}

TEST(AddressSpaces, ReachTheMemoryOfTheirProcessOnly) {
  const int byte = 0;
  EXPECT_TRUE(AddressSpace(getpid()).reaches(reinterpret_cast<std::uint64_t>(&byte)));
  EXPECT_FALSE(AddressSpace(getpid()).reaches(64));
}

}  // namespace
