#include "profiler/packs/xz_bytes.hpp"

#include <lzma.h>

#include <array>
#include <cstdint>

#include "base/error.hpp"

namespace sluice::profiler {
namespace {

constexpr std::string_view kMagic{"\3757zXZ\0", 6};
constexpr std::uint32_t kPreset = 6 | LZMA_PRESET_EXTREME;

const std::uint8_t* octets(std::string_view text) {
  return reinterpret_cast<const std::uint8_t*>(text.data());
}

}  // namespace

bool is_xz(std::string_view bytes) { return bytes.starts_with(kMagic); }

std::string to_xz(std::string_view bytes) {
  std::string compressed(lzma_stream_buffer_bound(bytes.size()), '\0');
  std::size_t used = 0;
  if (lzma_easy_buffer_encode(kPreset, LZMA_CHECK_CRC64, nullptr, octets(bytes), bytes.size(),
                              reinterpret_cast<std::uint8_t*>(compressed.data()), &used,
                              compressed.size()) != LZMA_OK) {
    throw base::RunError("no memory to write xz");
  }
  compressed.resize(used);
  return compressed;
}

std::string from_xz(std::string_view bytes) {
  lzma_stream stream = LZMA_STREAM_INIT;
  if (lzma_stream_decoder(&stream, UINT64_MAX, 0) != LZMA_OK) {
    throw base::RunError("no memory to read xz");
  }
  stream.next_in = octets(bytes);
  stream.avail_in = bytes.size();
  std::string text;
  std::array<std::uint8_t, 1 << 16> output;
  lzma_ret status = LZMA_OK;
  while (status == LZMA_OK) {
    stream.next_out = output.data();
    stream.avail_out = output.size();
    status = lzma_code(&stream, LZMA_FINISH);
    text.append(reinterpret_cast<const char*>(output.data()), output.size() - stream.avail_out);
  }
  const bool whole = status == LZMA_STREAM_END && stream.avail_in == 0;
  lzma_end(&stream);
  if (!whole) throw base::UsageError("the xz data is damaged");
  return text;
}

}  // namespace sluice::profiler
