#include "server/api/compression.hpp"

#include <gtest/gtest.h>

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

TEST(Compression, ABombStopsAtTheLimit) {
  const auto bomb = deflate(std::string(64 << 20, '\0'), Encoding::kGzip);
  EXPECT_EQ(refusal([&] { (void)inflate(bomb, 1 << 20); }),
            "the inflated body has more than 1048576 bytes");
}

}  // namespace
}  // namespace sluice::server::api
