#include "intercept/trace/trace_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace sluice::intercept {
namespace {

/// Allocates disk space for the file up to `end`. Without it, a write into the mapping would raise
/// SIGBUS in the program, and growth beyond the size limit SIGXFSZ.
bool give_room(int fd, std::uint64_t begin, std::uint64_t end) noexcept {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      end > limit.rlim_cur) {
    errno = EFBIG;
    return false;
  }
  errno = posix_fallocate(fd, static_cast<off_t>(begin), static_cast<off_t>(end - begin));
  return errno == 0;
}

/// The absolute path, because the program may change its working directory.
std::string from_root(const std::string& path) noexcept {
  std::array<char, PATH_MAX> buffer{};
  return realpath(path.c_str(), buffer.data()) == nullptr ? path : buffer.data();
}

/// Opens the file with a descriptor above 2: a program that has closed its standard output may
/// still write to descriptor 1.
int open_aside(const std::string& path, int flags) noexcept {
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0666);
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  const int aside = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int why = errno;
  close(fd);
  errno = why;
  return aside;
}

}  // namespace

TraceFile* TraceFile::create(const std::string& path, const shm::TraceHeader& header,
                             std::uint64_t limit) noexcept {
  // Replaces an existing file: it may be a link, or a trace that another process still writes.
  unlink(path.c_str());
  const int fd = open_aside(path, O_CREAT | O_EXCL);
  if (fd < 0) return nullptr;
  // Maps the limit at once; only the part that has disk space is ever touched.
  void* mapping = give_room(fd, 0, shm::kTraceHeaderSize)
                      ? mmap(nullptr, limit, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                      : MAP_FAILED;
  if (mapping == MAP_FAILED) {
    const int why = errno;
    close(fd);
    errno = why;
    return nullptr;
  }
  // Never destroyed: threads of the program may write until the process ends.
  std::unique_ptr<TraceFile> file(new TraceFile(path, fd, mapping, limit));
  *file->header_ = header;
  std::memcpy(static_cast<char*>(mapping) + shm::kTraceSchemaOffset, shm::kTraceSchema.data(),
              shm::kTraceSchema.size());
  file->tend();
  return file.release();
}

TraceFile::TraceFile(const std::string& path, int fd, void* mapping, std::uint64_t limit) noexcept
    : path_(from_root(path)),
      fd_(fd),
      header_(static_cast<shm::TraceHeader*>(mapping)),
      records_(
          reinterpret_cast<shm::TraceRecord*>(static_cast<char*>(mapping) + shm::kTraceHeaderSize)),
      limit_((limit - shm::kTraceHeaderSize) / sizeof(shm::TraceRecord)),
      file_(fd) {}

bool TraceFile::has_descriptor() noexcept {
  if (file_.is_at(fd_)) return true;
  // A program that closes all descriptors closes this one too. The number may belong to the program
  // now.
  fd_ = open_aside(path_, 0);
  if (file_.is_at(fd_)) return true;
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
  return false;
}

shm::TraceRecord* TraceFile::reserve() noexcept {
  const std::uint64_t index = next_.fetch_add(1, std::memory_order_relaxed);
  if (index < ready_.load(std::memory_order_acquire)) return &records_[index];
  lost_.fetch_add(1, std::memory_order_relaxed);
  return nullptr;
}

void TraceFile::write(shm::TraceKind kind, const shm::TraceRecord& record) noexcept {
  shm::TraceRecord* place = reserve();
  if (place == nullptr) return;
  place->flags = record.flags;
  place->thread = record.thread;
  place->begin_ns = record.begin_ns;
  place->end_ns = record.end_ns;
  place->correlation = record.correlation;
  place->stream = record.stream;
  place->a = record.a;
  place->b = record.b;
  place->name = record.name;
  // The kind is stored last, so that a reader sees the whole record or none.
  place->kind.store(static_cast<std::uint16_t>(kind), std::memory_order_release);
}

void TraceFile::write_name(std::uint64_t name, const char* text) noexcept {
  const std::size_t length = std::min(std::strlen(text), kMaxName);
  for (std::size_t part = 0; part * shm::kTraceNamePiece < length; ++part) {
    shm::TraceRecord* place = reserve();
    if (place == nullptr) return;
    auto& piece = reinterpret_cast<shm::TraceName&>(*place);
    std::array<char, shm::kTraceNamePiece> bytes{};
    const std::size_t from = part * shm::kTraceNamePiece;
    std::memcpy(bytes.data(), text + from, std::min(bytes.size(), length - from));
    piece.part = static_cast<std::uint16_t>(part);
    std::memcpy(piece.text.data(), bytes.data(), piece.text.size());
    std::memcpy(piece.text_goes_on.data(), bytes.data() + piece.text.size(),
                piece.text_goes_on.size());
    piece.length = length;
    piece.name = name;
    piece.kind.store(static_cast<std::uint16_t>(shm::TraceKind::kName), std::memory_order_release);
  }
}

void TraceFile::tend() noexcept {
  const std::uint64_t next = next_.load();
  // Writers that found no space have counted on: the places that they passed stay zero and count as
  // lost.
  std::uint64_t ready = std::max(ready_.load(), next / kChunkRecords * kChunkRecords);
  while (full_ == nullptr && ready < next + kAhead * kChunkRecords) {
    if (ready + kChunkRecords > limit_) {
      full_ = "it has reached its limit";
    } else if (!has_descriptor()) {
      full_ = "the program closed its descriptor, and its name is gone";
    } else if (!give_room(
                   fd_, shm::kTraceHeaderSize + ready * sizeof(shm::TraceRecord),
                   shm::kTraceHeaderSize + (ready + kChunkRecords) * sizeof(shm::TraceRecord))) {
      full_ = std::strerror(errno);
    } else {
      ready += kChunkRecords;
      ready_.store(ready, std::memory_order_release);
    }
  }
  // The pages stay in the file. A thread that is still writing to one gets it back.
  const std::uint64_t behind = next > kChunkRecords ? next - kChunkRecords : 0;
  while (dropped_ + kChunkRecords <= std::min(behind, limit_)) {
    madvise(reinterpret_cast<char*>(header_) + kChunkBytes * (dropped_ / kChunkRecords),
            kChunkBytes, MADV_DONTNEED);
    dropped_ += kChunkRecords;
  }
  const std::uint64_t lost = lost_.exchange(0);
  if (lost == 0) return;
  header_->lost += lost;
}

}  // namespace sluice::intercept
