#include "intercept/jobs/wait_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "intercept/driver/log.hpp"
#include "intercept/driver/process.hpp"

namespace sluice::intercept {
namespace {

using Words = std::array<std::atomic<std::uint64_t>, 2>;

/// Null if the file cannot be made or mapped; errno has the reason.
void* map_words(const std::string& path) noexcept {
  unlink(path.c_str());  // of an earlier process with this pid
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return nullptr;
  // Space that the file does not have would be a SIGBUS in the program.
  errno = posix_fallocate(fd, 0, sizeof(Words));
  void* const mapping =
      errno == 0 ? mmap(nullptr, sizeof(Words), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                 : MAP_FAILED;
  const int why = errno;
  close(fd);
  errno = why;
  return mapping == MAP_FAILED ? nullptr : mapping;
}

}  // namespace

void WaitFile::start(const std::string& folder) {
  const std::string path = folder + "/" + std::to_string(getpid());
  void* const mapping = map_words(path);
  if (mapping == nullptr) {
    Line(Level::kWarn) << "waits are not counted: " << path << ": " << std::strerror(errno);
    return;
  }
  // Neither is ever destroyed: threads of the program may wait until the process ends.
  auto* const words = static_cast<std::atomic<std::uint64_t>*>(mapping);
  g_process.wait_file.store(std::make_unique<WaitFile>(words).release());
}

}  // namespace sluice::intercept
