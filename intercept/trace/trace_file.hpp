#pragma once
#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "shm/trace_format.hpp"

namespace sluice::intercept {

/// The file of a traced process, written through mappings: what is written outlives a SIGKILL.
/// Threads write records at the same time and never wait; tend() keeps room ahead of them.
class TraceFile {
 public:
  /// The file grows by so many records: 4 MiB.
  static constexpr std::uint64_t kChunkRecords = 65536;

  /// A file of at most `limit` bytes. Null where it cannot be made; errno says why.
  static TraceFile* create(const std::string& path, const shm::TraceHeader& header,
                           std::uint64_t limit) noexcept;

  /// Writes one record, its kind last. Counted as lost where there is no room for it yet.
  void write(shm::TraceKind kind, const shm::TraceRecord& record) noexcept;
  /// A name in as many pieces as it takes, at most kMaxName bytes of it.
  void write_name(std::uint64_t name, const char* text) noexcept;

  /// For one thread, many times a second: makes room ahead of the writers, and gives back the
  /// memory of what is written. Blocks on the disk.
  void tend() noexcept;

  /// Changes the header, which readers look at when the process has ended.
  [[nodiscard]] shm::TraceHeader& header() noexcept { return *header_; }
  /// Why there will be no more room, or null.
  [[nodiscard]] const char* full() const noexcept { return full_; }

 private:
  static constexpr std::uint64_t kChunkBytes = kChunkRecords * sizeof(shm::TraceRecord);
  static constexpr std::uint64_t kAhead = 2;
  static constexpr std::size_t kMaxName = 1000;

  TraceFile(const std::string& path, int fd, void* mapping, std::uint64_t limit) noexcept;
  [[nodiscard]] bool leads_here(int fd) const noexcept;
  /// Whether there is a descriptor of the file; opens it again if the program has closed it.
  bool has_descriptor() noexcept;
  /// A place for one record, or null.
  shm::TraceRecord* reserve() noexcept;

  std::string path_;
  int fd_;
  dev_t device_;
  ino_t inode_;
  shm::TraceHeader* header_;
  shm::TraceRecord* records_;
  std::uint64_t limit_;  ///< Records.
  const char* full_ = nullptr;
  std::atomic<std::uint64_t> next_{0};
  std::atomic<std::uint64_t> ready_{0};  ///< Records for which the file has room.
  std::atomic<std::uint64_t> lost_{0};
  std::uint64_t dropped_ = 0;  ///< Records that are out of this process's memory; tend() alone.
};

}  // namespace sluice::intercept
