#pragma once
#include <cstdio>
#include <memory>
#include <string>

namespace sluice::base {

/// A file that is written line by line. When write() returns, the kernel has the text, so a SIGKILL
/// loses nothing. Throws RunError if the file cannot be created or written.
class LineFile {
 public:
  explicit LineFile(std::string path);
  void write(const std::string& text);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace sluice::base
