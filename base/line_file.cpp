#include "base/line_file.hpp"

#include <cerrno>
#include <cstring>

#include "base/error.hpp"

namespace sluice::base {

LineFile::LineFile(std::string path)
    : path_(std::move(path)), file_(std::fopen(path_.c_str(), "we")) {
  if (!file_) throw RunError(path_ + ": cannot be created: " + std::strerror(errno));
}

void LineFile::write(const std::string& text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), file_.get()) == text.size() &&
                       std::fflush(file_.get()) == 0;
  if (!written) {
    throw RunError(path_ + ": cannot be written: " + std::strerror(errno));
  }
}

}  // namespace sluice::base
