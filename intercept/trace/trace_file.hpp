#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/file_id.hpp"
#include "shm/trace_format.hpp"

namespace sluice::intercept {

/// The file of a traced process. It is written through a mapping, so the records outlive a SIGKILL.
/// Threads write records at the same time and never wait; tend() keeps disk space ahead of them.
class TraceFile {
 public:
  /// The file grows by this many records, 4 MiB, at a time.
  static constexpr std::uint64_t kChunkRecords = 65536;

  /// A file of at most `limit` bytes. Null if it cannot be made; errno has the reason.
  static TraceFile* create(const std::string& path, const shm::TraceHeader& header,
                           std::uint64_t limit) noexcept;

  /// Writes one record, its kind last. Counts it as lost if there is no space for it yet.
  void write(shm::TraceKind kind, const shm::TraceRecord& record) noexcept;
  /// Writes a name in pieces, at most kMaxName bytes of it.
  void write_name(std::uint64_t name, const char* text) noexcept;

  /// For one thread, many times a second: allocates space ahead of the writers, and releases the
  /// memory of written pages. Blocks on the disk.
  void tend() noexcept;

  /// The header, which readers use when the process has ended.
  [[nodiscard]] shm::TraceHeader& header() noexcept { return *header_; }
  /// Why the file will not grow any more, or null.
  [[nodiscard]] const char* full() const noexcept { return full_; }

 private:
  static constexpr std::uint64_t kChunkBytes = kChunkRecords * sizeof(shm::TraceRecord);
  static constexpr std::uint64_t kAhead = 2;
  static constexpr std::size_t kMaxName = 1000;

  TraceFile(const std::string& path, int fd, void* mapping, std::uint64_t limit) noexcept;
  /// Whether there is a descriptor of the file. Opens the file again if the program has closed it.
  bool has_descriptor() noexcept;
  /// Space for one record, or null.
  shm::TraceRecord* reserve() noexcept;

  std::string path_;
  int fd_;
  shm::TraceHeader* header_;
  shm::TraceRecord* records_;
  std::uint64_t limit_;  ///< Records.
  base::FileId file_;    ///< Behind fd_, unless the program has closed that.
  const char* full_ = nullptr;
  std::atomic<std::uint64_t> next_{0};
  std::atomic<std::uint64_t> ready_{0};  ///< Records for which the file has space.
  std::atomic<std::uint64_t> lost_{0};
  std::uint64_t dropped_ = 0;  ///< Records whose memory was released; used by tend() only.
};

}  // namespace sluice::intercept
