// The hook of ioctl, by which libcuda asks the kernel module for channel groups
// (driver/channel_groups.hpp). Every program calls ioctl, and shells inherit the preload: what is
// no request of that kind leaves by a jump.
#include <dlfcn.h>

#include <atomic>
#include <cerrno>

#include "intercept/driver/dlsym.hpp"
#include "intercept/driver/process.hpp"

namespace sluice::intercept {
namespace {

using Ioctl = int (*)(int, unsigned long, void*);

int first_ioctl(int fd, unsigned long request, void* argument);

/// That of the next library, which may be another preloaded one.
constinit std::atomic<Ioctl> next_ioctl{&first_ioctl};

int first_ioctl(int fd, unsigned long request, void* argument) {
  const int saved_errno = errno;
  const auto found = reinterpret_cast<Ioctl>(real_dlsym(RTLD_NEXT, "ioctl"));
  errno = saved_errno;
  if (found == nullptr) {
    errno = ENOSYS;
    return -1;
  }
  next_ioctl.store(found, std::memory_order_relaxed);
  return found(fd, request, argument);
}

__attribute__((noinline)) int shown_ioctl(int fd, unsigned long request, void* argument) {
  const int result = next_ioctl.load(std::memory_order_relaxed)(fd, request, argument);
  if (result == 0 && !in_forked_child()) {
    g_process.channel_groups.saw(fd, request, argument);
  }
  return result;
}

}  // namespace
}  // namespace sluice::intercept

/// Not declared by <sys/ioctl.h> here: on the processors that we know, an argument behind `...` is
/// where a named one would be.
extern "C" __attribute__((visibility("default"))) int ioctl(int fd, unsigned long request,
                                                            void* argument) {
  using namespace sluice::intercept;
  if (ChannelGroups::matters(request)) [[unlikely]]
    return shown_ioctl(fd, request, argument);
  return next_ioctl.load(std::memory_order_relaxed)(fd, request, argument);
}
