#include "profiler/packs/xz_lines.hpp"

#include <lzma.h>

#include <algorithm>
#include <array>

#include "base/error.hpp"

namespace sluice::profiler {
namespace {

constexpr std::size_t kChunk = 1 << 16;
constexpr std::uint32_t kPreset = 6;

const std::uint8_t* bytes(const char* text) { return reinterpret_cast<const std::uint8_t*>(text); }

}  // namespace

struct XzLineReader::Decoder {
  Decoder() {
    if (lzma_stream_decoder(&stream, UINT64_MAX, LZMA_CONCATENATED) != LZMA_OK) {
      throw base::RunError("no memory to read xz");
    }
  }
  ~Decoder() { lzma_end(&stream); }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  lzma_stream stream = LZMA_STREAM_INIT;
  std::array<char, kChunk> input{};
  bool ended = false;
};

XzLineReader::XzLineReader(std::string file)
    : file_(std::move(file)), in_(file_, std::ios::binary), decoder_(std::make_unique<Decoder>()) {
  if (!in_) throw base::UsageError(file_ + ": cannot be read");
}

XzLineReader::~XzLineReader() = default;

bool XzLineReader::decode_more() {
  lzma_stream& stream = decoder_->stream;
  if (decoder_->ended || torn_) return false;
  if (stream.avail_in == 0 && in_) {
    in_.read(decoder_->input.data(), kChunk);
    stream.next_in = bytes(decoder_->input.data());
    stream.avail_in = static_cast<std::size_t>(in_.gcount());
  }
  std::array<std::uint8_t, kChunk> output;
  stream.next_out = output.data();
  stream.avail_out = output.size();
  const lzma_ret status = lzma_code(&stream, in_ ? LZMA_RUN : LZMA_FINISH);
  text_.append(reinterpret_cast<const char*>(output.data()), output.size() - stream.avail_out);
  decoder_->ended = status == LZMA_STREAM_END;
  torn_ = status == LZMA_BUF_ERROR;
  if (status == LZMA_OK || decoder_->ended || torn_) return true;
  throw base::UsageError(
      file_ + ": after line " + std::to_string(line_) + ": " +
      (status == LZMA_FORMAT_ERROR ? "not an xz file" : "the xz data is damaged"));
}

std::optional<std::string> XzLineReader::next() {
  std::size_t end = text_.find('\n', at_);
  while (end == std::string::npos) {
    text_.erase(0, at_);
    at_ = 0;
    const std::size_t searched = text_.size();
    if (!decode_more()) break;
    end = text_.find('\n', searched);
  }
  if (end == std::string::npos && (torn_ || at_ == text_.size())) return std::nullopt;
  ++line_;
  end = std::min(end, text_.size());
  std::string line = text_.substr(at_, end - at_);
  at_ = std::min(end + 1, text_.size());
  return line;
}

struct XzLineWriter::Encoder {
  Encoder() {
    if (lzma_easy_encoder(&stream, kPreset, LZMA_CHECK_CRC64) != LZMA_OK) {
      throw base::RunError("no memory to write xz");
    }
  }
  ~Encoder() { lzma_end(&stream); }
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;

  lzma_stream stream = LZMA_STREAM_INIT;
};

XzLineWriter::XzLineWriter(std::string file)
    : file_(std::move(file)),
      out_(file_, std::ios::binary | std::ios::trunc),
      encoder_(std::make_unique<Encoder>()) {
  if (!out_) throw base::RunError(file_ + ": cannot be created");
}

XzLineWriter::~XzLineWriter() = default;

void XzLineWriter::write(const std::string& line) { encode(line + '\n', false); }

void XzLineWriter::close() {
  encode("", true);
  out_.flush();
  if (!out_) throw base::RunError(file_ + ": cannot be written");
}

void XzLineWriter::encode(const std::string& text, bool last) {
  lzma_stream& stream = encoder_->stream;
  stream.next_in = bytes(text.data());
  stream.avail_in = text.size();
  std::array<std::uint8_t, kChunk> output;
  lzma_ret status = LZMA_OK;
  do {
    stream.next_out = output.data();
    stream.avail_out = output.size();
    status = lzma_code(&stream, last ? LZMA_FINISH : LZMA_RUN);
    out_.write(reinterpret_cast<const char*>(output.data()),
               static_cast<std::streamsize>(output.size() - stream.avail_out));
  } while (status == LZMA_OK && (last || stream.avail_in > 0));
  if (status != LZMA_OK && status != LZMA_STREAM_END) {
    throw base::RunError(file_ + ": cannot be compressed");
  }
  if (!out_) throw base::RunError(file_ + ": cannot be written");
}

}  // namespace sluice::profiler
