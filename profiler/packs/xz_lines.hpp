#pragma once
#include <cstdint>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

/// Text files that are compressed by xz and read or written line by line.
namespace sluice::profiler {

class XzLineReader {
 public:
  /// Throws base::UsageError if the file cannot be read.
  explicit XzLineReader(std::string file);
  ~XzLineReader();
  XzLineReader(const XzLineReader&) = delete;
  XzLineReader& operator=(const XzLineReader&) = delete;

  /// The next line without its end; nothing at the end of the file. Throws base::UsageError if the
  /// file is damaged.
  [[nodiscard]] std::optional<std::string> next();
  /// The file is cut off behind the lines so far, as a pack is that is still being made.
  [[nodiscard]] bool torn() const { return torn_; }
  /// The number of the line that next() returned last, from 1.
  [[nodiscard]] std::size_t line() const { return line_; }

 private:
  struct Decoder;
  [[nodiscard]] bool decode_more();

  std::string file_;
  std::ifstream in_;
  std::unique_ptr<Decoder> decoder_;
  std::string text_;  ///< Decoded text that was not returned yet, from `at_`.
  std::size_t at_ = 0;
  std::size_t line_ = 0;
  bool torn_ = false;
};

class XzLineWriter {
 public:
  /// Throws base::RunError if the file cannot be created.
  explicit XzLineWriter(std::string file);
  ~XzLineWriter();
  XzLineWriter(const XzLineWriter&) = delete;
  XzLineWriter& operator=(const XzLineWriter&) = delete;

  void write(const std::string& line);
  /// Writes what is left. Without it the file is cut off. Throws base::RunError.
  void close();

 private:
  struct Encoder;
  void encode(const std::string& text, bool last);

  std::string file_;
  std::ofstream out_;
  std::unique_ptr<Encoder> encoder_;
};

}  // namespace sluice::profiler
