#include "shm/node_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <new>

#include "shm/board_error.hpp"
#include "shm/board_format.hpp"

namespace sluice::shm {
namespace {

/// Without them a client could shorten the file, and every other client would die by SIGBUS.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

[[noreturn]] void fail(const char* what) {
  throw BoardError(std::string("cannot make the node's board: ") + what + ": " +
                   std::strerror(errno));
}

}  // namespace

base::Fd make_node_memory() {
  base::Fd memory(memfd_create(kNodeMemory, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory) fail("memfd_create");
  // A memfd has mode 0777: anybody with a descriptor for reading could open it for writing.
  if (fchmod(memory.get(), 0600) != 0) fail("fchmod");
  if (ftruncate(memory.get(), sizeof(Board)) != 0) fail("ftruncate");
  void* const pages =
      mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  if (pages == MAP_FAILED) fail("mmap");
  initialise(*new (pages) Board{});
  munmap(pages, sizeof(Board));
  if (fcntl(memory.get(), F_ADD_SEALS, kSeals) != 0) fail("seals");
  return memory;
}

base::Fd read_only(int memory) {
  const std::string path = "/proc/self/fd/" + std::to_string(memory);
  return base::Fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
}

std::string memory_fault(int memory, uid_t owner) {
  struct stat found {};
  if (fstat(memory, &found) != 0) return "cannot be examined";
  if (!S_ISREG(found.st_mode)) return "is not memory";
  if (found.st_uid != owner) return "belongs to uid " + std::to_string(found.st_uid);
  const int seals = fcntl(memory, F_GET_SEALS);  // -1, all bits set, if the file has no seals
  if (seals < 0 || (seals & kSeals) != kSeals) return "is not sealed";
  if (found.st_size != sizeof(Board)) return size_fault(static_cast<std::uint64_t>(found.st_size));
  return {};
}

}  // namespace sluice::shm
