#include "intercept/driver/channel_groups.hpp"

#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <new>

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

/// In place of a key while the other words of a place are written: no handle is that small.
constexpr std::uint64_t kTaken = 1;

/// The device on which the calling thread makes a context now.
constinit thread_local CUdevice t_makes_on = -1;

constexpr std::uint64_t bit_of(CUdevice device) noexcept {
  return device >= 0 && device < 64 ? std::uint64_t{1} << static_cast<unsigned>(device) : 0;
}

}  // namespace

template <class Visit>
void ChannelGroups::for_each_group(Visit visit) noexcept {
  for (Block* block = &groups_; block != nullptr; block = block->next.load()) {
    for (Group& group : block->groups) visit(group);
  }
}

/// Null if there is no memory for another block. The memory is the kernel's, because the program's
/// allocator may be what calls ioctl.
ChannelGroups::Group* ChannelGroups::take_place() noexcept {
  for (Block* block = &groups_;;) {
    for (Group& group : block->groups) {
      std::uint64_t free = 0;
      if (group.key.compare_exchange_strong(free, kTaken)) return &group;
    }
    if (Block* const next = block->next.load(); next != nullptr) {
      block = next;
      continue;
    }
    void* const memory =
        mmap(nullptr, sizeof(Block), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    auto* const made = new (memory) Block;
    Block* other = nullptr;
    if (!block->next.compare_exchange_strong(other, made)) munmap(memory, sizeof(Block));
    block = block->next.load();
  }
}

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
    if (asked.command != kSetSlice || asked.status != 0 || asked.parameters == 0) return;
    std::uint64_t us = 0;
    if (asked.parameters_size != sizeof us) return;
    std::memcpy(&us, std::bit_cast<const std::byte*>(asked.parameters), sizeof us);
    for_each_group([&](Group& group) {
      if (group.key.load() != key_of(asked.client, asked.object)) return;
      group.own_us.store(us);
      changed(group.device.load());
    });
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
  Group* const group = take_place();
  if (group == nullptr) {
    unknown_on_.fetch_or(bit_of(device));
    return changed(device);
  }
  group->fd.store(fd);
  group->parent.store(parent);
  group->device.store(device);
  group->own_us.store(0);
  group->key.store(key_of(client, object));
  changed(device);
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

/// A client object takes all its objects with it, a parent its children. The kernel module has
/// freed a group some time before its release is seen, and a setting in between was refused. So the
/// release counts as a change: whoever was refused asks again.
void ChannelGroups::released(std::uint32_t client, std::uint32_t object) noexcept {
  for_each_group([&](Group& group) {
    std::uint64_t key = group.key.load();
    if (client_of(key) != client) return;
    const bool ends = static_cast<std::uint32_t>(key) == object || client == object ||
                      group.parent.load() == object;
    const CUdevice device = group.device.load();
    if (ends && group.key.compare_exchange_strong(key, 0)) changed(device);
  });
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
  bool any = (unknown_on_.load() & bit_of(device)) != 0;
  bool all = !any;
  Slice longest = any ? Slice{} : Slice{0, true};
  for_each_group([&](Group& group) {
    const std::uint64_t key = group.key.load();
    if (client_of(key) == 0 || group.device.load() != device) return;
    Slice has;
    const bool is_set = set(group, key, us, has);
    if (group.key.load() != key) return;
    any = true;
    all = all && is_set;
    if (has.us >= longest.us) longest = has;
  });
  longest_us_ = longest.is_drivers ? 0 : static_cast<std::uint32_t>(longest.us);
  if (!any) return Result::kNone;
  return all ? Result::kSet : Result::kRefused;
}

/// Returns whether the group has the slice, by what the kernel module said. `has`: the slice that
/// it has in fact.
bool ChannelGroups::set(Group& group, std::uint64_t key, std::uint32_t us, Slice& has) noexcept {
  const int fd = group.fd.load();
  const std::uint32_t client = client_of(key);
  const auto object = static_cast<std::uint32_t>(key);
  std::uint64_t value = 0;
  std::uint64_t own_us = group.own_us.load();
  if (own_us == 0) {
    if (us == 0) return true;  // nobody has changed it
    if (!ask_(fd, client, object, false, value) || value == 0) return false;
    // Unless libcuda has set it meanwhile.
    if (group.own_us.compare_exchange_strong(own_us, value)) own_us = value;
  }
  const std::uint64_t wanted = us == 0 ? own_us : us;
  value = wanted;
  ask_(fd, client, object, true, value);
  value = 0;
  if (!ask_(fd, client, object, false, value)) return false;
  has = {value, value == own_us};
  return value == wanted;
}

}  // namespace sluice::intercept
