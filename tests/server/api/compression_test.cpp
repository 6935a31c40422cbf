#include "server/api/compression.hpp"

#include <gtest/gtest.h>

#include <random>

#include "codec_text.hpp"

namespace sluice::server::api {
namespace {

using test::refusal;

TEST(Compression, InflatesWhatItDeflated) {
  std::string plain;
  for (int i = 0; i < 100'000; ++i) plain += std::to_string(i);
  for (const auto encoding : {Encoding::kGzip, Encoding::kDeflate}) {
    const auto packed = deflate(plain, encoding);
    EXPECT_LT(packed.size(), plain.size());
    EXPECT_EQ(inflate(packed, plain.size()), plain);
    EXPECT_NE(refusal([&] { (void)inflate(packed, plain.size() - 1); }), "");
    EXPECT_EQ(refusal([&] { (void)inflate(packed.substr(0, packed.size() / 2), plain.size()); }),
              "the body is not valid gzip or deflate data");
  }
  EXPECT_EQ(refusal([&] { (void)inflate("nonsense", 100); }),
            "the body is not valid gzip or deflate data");
  EXPECT_EQ(refusal([&] { (void)inflate("", 100); }), "the body is not valid gzip or deflate data");
}

// RFC 1952, 2.2: pigz, bgzip and writers that flush write a member for each part.
TEST(Compression, AGzipFileHasMembers) {
  std::mt19937 random(11);
  for (int round = 0; round < 100; ++round) {
    std::string plain;
    std::string packed;
    for (int member = 0; member < 1 + round % 20; ++member) {
      const std::string part(random() % 40'000 * (random() % 2), static_cast<char>(random()));
      plain += part;
      packed += deflate(part, Encoding::kGzip);
    }
    ASSERT_EQ(inflate(packed, plain.size()), plain);
    if (!plain.empty()) {
      EXPECT_FALSE(inflated_within(packed, plain.size() - 1)) << "the limit is that of all members";
    }
    const std::string damaged = "the body is not valid gzip or deflate data";
    for (const std::string& behind :
         {std::string("garbage"), std::string("\x1f"), std::string("\x1f\x8b\x08"),
          std::string(8, '\0'), deflate("zlib", Encoding::kDeflate)}) {
      EXPECT_EQ(refusal([&] { (void)inflate(packed + behind, plain.size() + 100); }), damaged);
    }
    packed[packed.size() - 8] ^= 1;
    EXPECT_EQ(refusal([&] { (void)inflate(packed, plain.size()); }), damaged) << "its checksum";
  }
  EXPECT_NE(refusal([&] {
              const auto one = deflate("a", Encoding::kDeflate);
              (void)inflate(one + one, 100);
            }),
            "")
      << "deflate has no members";
}

// Prevents: many small members of a body that clear the memory of the whole for each.
TEST(Compression, ManyMembersTakeNoMoreTimeThanTheirBytes) {
  std::string packed = deflate(std::string(30 << 20, 'x'), Encoding::kGzip);
  const std::string empty = deflate("", Encoding::kGzip);
  for (int i = 0; i < 50'000; ++i) packed += empty;
  EXPECT_EQ(inflate(packed, 64 << 20).size(), std::size_t{30} << 20);
}

TEST(Compression, ABombStopsAtTheLimit) {
  const auto bomb = deflate(std::string(64 << 20, '\0'), Encoding::kGzip);
  EXPECT_EQ(refusal([&] { (void)inflate(bomb, 1 << 20); }),
            "the inflated body has more than 1048576 bytes");
}

}  // namespace
}  // namespace sluice::server::api
