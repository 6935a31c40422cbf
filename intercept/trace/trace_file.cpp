#include "intercept/trace/trace_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

namespace sluice::intercept {
namespace {

/// Gives the file room up to `end`. Writing into a mapping of a file without room would raise
/// SIGBUS in the program, and going beyond its size limit SIGXFSZ.
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

}  // namespace

TraceFile* TraceFile::create(const std::string& path, const shm::TraceHeader& header,
                             std::uint64_t limit) noexcept {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return nullptr;
  // All of it at once: only what the file has room for is ever touched.
  void* mapping = give_room(fd, 0, shm::kTraceHeaderSize)
                      ? mmap(nullptr, limit, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                      : MAP_FAILED;
  if (mapping == MAP_FAILED) {
    const int why = errno;
    close(fd);
    errno = why;
    return nullptr;
  }
  // Never destroyed: threads of the program may write until the very end.
  std::unique_ptr<TraceFile> file(new TraceFile(fd, mapping, limit));
  *file->header_ = header;
  std::memcpy(static_cast<char*>(mapping) + shm::kTraceSchemaOffset, shm::kTraceSchema.data(),
              shm::kTraceSchema.size());
  file->tend();
  return file.release();
}

TraceFile::TraceFile(int fd, void* mapping, std::uint64_t limit) noexcept
    : fd_(fd),
      header_(static_cast<shm::TraceHeader*>(mapping)),
      records_(
          reinterpret_cast<shm::TraceRecord*>(static_cast<char*>(mapping) + shm::kTraceHeaderSize)),
      limit_((limit - shm::kTraceHeaderSize) / sizeof(shm::TraceRecord)) {}

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
  // Last, so that a reader sees the whole record or none.
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
  // Writers that found no room went on counting: what they passed stays zeros, and counts as lost.
  std::uint64_t ready = std::max(ready_.load(), next / kChunkRecords * kChunkRecords);
  while (full_ == nullptr && ready < next + kAhead * kChunkRecords) {
    if (ready + kChunkRecords > limit_) {
      full_ = "it has reached its limit";
    } else if (!give_room(
                   fd_, shm::kTraceHeaderSize + ready * sizeof(shm::TraceRecord),
                   shm::kTraceHeaderSize + (ready + kChunkRecords) * sizeof(shm::TraceRecord))) {
      full_ = std::strerror(errno);
    } else {
      ready += kChunkRecords;
      ready_.store(ready, std::memory_order_release);
    }
  }
  // The pages stay in the file; a thread that is still writing there gets its page back.
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
