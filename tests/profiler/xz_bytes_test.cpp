// What is compressed is read as it was, and what is damaged is refused: the bits of a predictor
// would decide times.
#include "profiler/packs/xz_bytes.hpp"

#include <gmock/gmock.h>

#include <random>

#include "base/error.hpp"

namespace sluice::profiler {
namespace {

std::string random_bytes(std::mt19937_64& random, std::size_t size) {
  std::string bytes(size, '\0');
  // Few values, so that some of it is compressed.
  for (char& byte : bytes) byte = static_cast<char>(random() % 11);
  return bytes;
}

TEST(XzBytes, AreReadAsTheyWere) {
  std::mt19937_64 random(1);
  for (const std::size_t size : {0U, 1U, 65535U, 65536U, 65537U, 300000U}) {
    const std::string bytes = random_bytes(random, size);
    const std::string compressed = to_xz(bytes);
    EXPECT_TRUE(is_xz(compressed));
    EXPECT_EQ(from_xz(compressed), bytes) << size;
  }
}

TEST(XzBytes, AreSmaller) {
  std::mt19937_64 random(2);
  EXPECT_LT(to_xz(random_bytes(random, 100000)).size(), 60000U);
}

TEST(XzBytes, AnyDamageIsRefused) {
  std::mt19937_64 random(3);
  const std::string bytes = random_bytes(random, 2000);
  const std::string whole = to_xz(bytes);
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string flipped = whole;
    flipped[at] = static_cast<char>(flipped[at] ^ (1 << random() % 8));
    EXPECT_THROW((void)from_xz(flipped), base::UsageError) << "bit of byte " << at;
    EXPECT_THROW((void)from_xz(whole.substr(0, at)), base::UsageError) << at << " bytes";
  }
  EXPECT_THROW((void)from_xz(whole + 'x'), base::UsageError);
  EXPECT_THROW((void)from_xz(whole + whole), base::UsageError);
}

TEST(XzBytes, OtherFilesAreNotTakenForXz) {
  EXPECT_FALSE(is_xz(""));
  EXPECT_FALSE(is_xz("\3757zXZ"));
  EXPECT_FALSE(is_xz("\242dkind"));  // the beginning of a CBOR map
}

}  // namespace
}  // namespace sluice::profiler
