#include "intercept/driver/channel_groups.hpp"

#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstring>

namespace sluice::intercept {
namespace {

// As the kernel module of driver 580 reads them. The open kernel modules have the names.
struct Allocation {  // NVOS64_PARAMETERS
  std::uint32_t client;
  std::uint32_t parent;
  std::uint32_t object;
  std::uint32_t object_class;
  std::uint64_t parameters;
  std::uint64_t rights;
  std::uint32_t parameters_size;
  std::uint32_t flags;
  std::uint32_t status;
};
struct Control {  // NVOS54_PARAMETERS
  std::uint32_t client;
  std::uint32_t object;
  std::uint32_t command;
  std::uint32_t flags;
  std::uint64_t parameters;
  std::uint32_t parameters_size;
  std::uint32_t status;
};
struct Release {  // NVOS00_PARAMETERS
  std::uint32_t client;
  std::uint32_t parent;
  std::uint32_t object;
  std::uint32_t status;
};
static_assert(sizeof(Allocation) == 48 && sizeof(Control) == 32 && sizeof(Release) == 16);

constexpr std::uint32_t kGroupClass = 0xa06c;
constexpr std::uint32_t kSetSlice = 0xa06c'0103;
constexpr std::uint32_t kGetSlice = 0xa06c'0104;
/// NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS::engineType of the engine that runs kernels.
constexpr std::size_t kEngineAt = 12;
constexpr std::uint32_t kComputeEngine = 1;

constexpr unsigned long size_in(unsigned long request) noexcept { return request >> 16U & 0x3fffU; }

constexpr std::uint64_t key_of(std::uint32_t client, std::uint32_t object) noexcept {
  return std::uint64_t{client} << 32U | object;
}
constexpr std::uint32_t client_of(std::uint64_t key) noexcept {
  return static_cast<std::uint32_t>(key >> 32U);
}

/// The device on which the calling thread makes a context now.
constinit thread_local CUdevice t_makes_on = -1;

}  // namespace

/// Past our own hook: a system call of ours is nobody else's business.
bool ChannelGroups::ask_kernel(int fd, std::uint32_t client, std::uint32_t object, bool sets,
                               std::uint64_t& us) noexcept {
  Control request{
      client,    object, sets ? kSetSlice : kGetSlice, 0, std::bit_cast<std::uint64_t>(&us),
      sizeof us, 0};
  const int saved_errno = errno;
  const long result = syscall(SYS_ioctl, fd, _IOWR('F', 0x2a, Control), &request);
  errno = saved_errno;
  return result == 0 && request.status == 0;
}

void ChannelGroups::begins_context(CUdevice device) noexcept { t_makes_on = device; }

void ChannelGroups::ends_context(CUdevice device) noexcept {
  t_makes_on = -1;
  changed(device);
}

void ChannelGroups::saw(int fd, unsigned long request, const void* argument) noexcept {
  if (argument == nullptr) return;
  const unsigned long size = size_in(request);
  const unsigned long number = request & 0xffffU;
  if (number == kAllocate && size == sizeof(Allocation)) {
    Allocation asked;
    std::memcpy(&asked, argument, sizeof asked);
    if (asked.object_class != kGroupClass || asked.status != 0 || asked.parameters == 0) return;
    std::uint32_t engine = 0;
    std::memcpy(&engine, std::bit_cast<const std::byte*>(asked.parameters) + kEngineAt,
                sizeof engine);
    if (engine == kComputeEngine) made(fd, asked.client, asked.parent, asked.object);
  } else if (number == kControl && size == sizeof(Control)) {
    Control asked;
    std::memcpy(&asked, argument, sizeof asked);
    if (asked.command != kSetSlice || asked.status != 0) return;
    for (const Group& group : groups_) {
      if (group.key.load() == key_of(asked.client, asked.object)) changed(group.device.load());
    }
  } else if (number == kRelease && size == sizeof(Release)) {
    Release asked;
    std::memcpy(&asked, argument, sizeof asked);
    if (asked.status == 0) released(asked.client, asked.object);
  }
}

void ChannelGroups::made(int fd, std::uint32_t client, std::uint32_t parent,
                         std::uint32_t object) noexcept {
  const CUdevice device = device_of(key_of(client, parent));
  if (device < 0) return;
  constexpr std::uint64_t kTaken = 1;  // no handle is that small
  for (Group& group : groups_) {
    std::uint64_t free = 0;
    if (!group.key.compare_exchange_strong(free, kTaken)) continue;
    group.fd.store(fd);
    group.parent.store(parent);
    group.device.store(device);
    group.own_us.store(0);
    group.key.store(key_of(client, object));
    return changed(device);
  }
}

/// That of the context which the calling thread makes, or else what is known of the parent. The
/// program's graphics libraries have groups of the same kind, with parents of their own.
CUdevice ChannelGroups::device_of(std::uint64_t parent) noexcept {
  for (Parent& known : parents_) {
    std::uint64_t key = 0;
    const bool is_new = t_makes_on >= 0 && known.key.compare_exchange_strong(key, parent);
    if (is_new) known.device.store(t_makes_on);
    if (is_new || known.key.load() == parent) {
      if (t_makes_on >= 0) known.device.store(t_makes_on);
      return known.device.load();
    }
  }
  return t_makes_on;
}

/// A client object takes all its objects with it, a parent its children.
void ChannelGroups::released(std::uint32_t client, std::uint32_t object) noexcept {
  for (Group& group : groups_) {
    std::uint64_t key = group.key.load();
    if (client_of(key) != client) continue;
    const bool ends = static_cast<std::uint32_t>(key) == object || client == object ||
                      group.parent.load() == object;
    if (ends) group.key.compare_exchange_strong(key, 0);
  }
  for (Parent& parent : parents_) {
    std::uint64_t key = parent.key.load();
    const bool ends =
        client_of(key) == client && (static_cast<std::uint32_t>(key) == object || client == object);
    if (ends) parent.key.compare_exchange_strong(key, 0);
  }
}

void ChannelGroups::changed(CUdevice device) noexcept {
  const auto index = static_cast<std::size_t>(device);
  if (index < changes_.size()) changes_[index].fetch_add(1);
}

std::uint32_t ChannelGroups::changes(CUdevice device) const noexcept {
  const auto index = static_cast<std::size_t>(device);
  return index < changes_.size() ? changes_[index].load() : 0;
}

/// A group that ends meanwhile is none: its handle is then refused.
ChannelGroups::Result ChannelGroups::set(CUdevice device, std::uint32_t us) noexcept {
  Result result = Result::kNone;
  for (Group& group : groups_) {
    const std::uint64_t key = group.key.load();
    if (client_of(key) == 0 || group.device.load() != device) continue;
    const Result of_group = set(group, key, us);
    if (group.key.load() != key) continue;
    if (of_group == Result::kRefused) return of_group;
    result = of_group;
  }
  return result;
}

ChannelGroups::Result ChannelGroups::set(Group& group, std::uint64_t key,
                                         std::uint32_t us) noexcept {
  const int fd = group.fd.load();
  const std::uint32_t client = client_of(key);
  const auto object = static_cast<std::uint32_t>(key);
  std::uint64_t value = 0;
  if (group.own_us.load() == 0) {
    if (!ask_(fd, client, object, false, value) || value == 0) return Result::kRefused;
    group.own_us.store(value);
  }
  const std::uint64_t wanted = us == 0 ? group.own_us.load() : us;
  value = wanted;
  if (!ask_(fd, client, object, true, value)) return Result::kRefused;
  value = 0;
  return ask_(fd, client, object, false, value) && value == wanted ? Result::kSet
                                                                   : Result::kRefused;
}

}  // namespace sluice::intercept
