#pragma once
#include <array>
#include <atomic>
#include <cstdint>

#include "intercept/driver/entries.hpp"

/// The channel groups of this process that run kernels, and their time slices.
///
/// libcuda asks the kernel module for a channel group (class a06c) of the compute engine whenever
/// it makes a context, and sets the group's slice. A process may set the slice of its own groups,
/// and the GPU obeys at once, also in the middle of a kernel. So the ioctl hook (hooks/ioctl.cpp)
/// shows us what libcuda asks for, and we use the same descriptor and handles. Of the interface
/// between libcuda and the kernel module, which is private and has no stated layout, only three
/// requests are read (allocation, release, control), and only in the sizes that are known. Whatever
/// looks different means that there is no group.
///
/// Under MPS the groups belong to the server, and a client has none.
namespace sluice::intercept {

class ChannelGroups {
 public:
  /// Places for groups in one block. More blocks are made when they are needed.
  static constexpr std::size_t kMost = 64;
  /// Asks the kernel module to set (`sets`) or tell the slice of a group, in microseconds. Returns
  /// whether it did.
  using Ask = bool (*)(int fd, std::uint32_t client, std::uint32_t object, bool sets,
                       std::uint64_t& us) noexcept;

  constexpr ChannelGroups() noexcept = default;
  /// For tests: in place of the kernel module.
  explicit constexpr ChannelGroups(Ask ask) noexcept : ask_(ask) {}

  enum class Result : std::uint8_t {
    kSet,      ///< The kernel module has the slice, and says so when it is asked.
    kNone,     ///< This process has no group on the device.
    kRefused,  ///< The kernel module, or a filter in front of it, refuses for a group at least.
  };

  /// For a hook whose call may make contexts on `device`: call before and after it. A group that is
  /// made in no such call belongs to the device whose contexts had groups of the same parent
  /// object.
  static void begins_context(CUdevice device) noexcept;
  void ends_context(CUdevice device) noexcept;

  /// For the ioctl hook: a request of type 'F' that has succeeded.
  void saw(int fd, unsigned long request, const void* argument) noexcept;
  /// Whether `request` has to be shown to saw().
  [[nodiscard]] static constexpr bool matters(unsigned long request) noexcept {
    const unsigned long number = request & 0xffffU;
    return number - kRelease <= kAllocate - kRelease;
  }

  /// Changes when a group was made or released on the device, or when libcuda has set a slice.
  [[nodiscard]] std::uint32_t changes(CUdevice device) const noexcept;
  /// Sets the slice of all groups of the device, in microseconds; 0: what libcuda had set. Goes on
  /// after a refusal: the group may have ended, or the next one may be set. Takes 0.2 to 0.3 ms a
  /// context, and longer while a process makes a context. For one thread at a time. Makes no driver
  /// call, except on the simulated GPU.
  Result set(CUdevice device, std::uint32_t us) noexcept;
  /// The longest slice that a group of the device had after the last set(), as the kernel module
  /// said, in microseconds; 0: what libcuda had set, also of a group that gave no answer.
  [[nodiscard]] std::uint32_t longest_us() const noexcept { return longest_us_; }

 private:
  // _IOC type and number.
  static constexpr unsigned long kRelease = 0x4629;
  static constexpr unsigned long kControl = 0x462a;
  static constexpr unsigned long kAllocate = 0x462b;

  /// `key` says which group it is, and is written last.
  struct Group {
    std::atomic<std::uint64_t> key{0};
    std::atomic<int> fd{-1};
    std::atomic<std::uint32_t> parent{0};
    std::atomic<CUdevice> device{-1};
    std::atomic<std::uint64_t> own_us{0};  ///< What libcuda had set; 0: not read yet.
  };
  /// The device of a parent object.
  struct Parent {
    std::atomic<std::uint64_t> key{0};
    std::atomic<CUdevice> device{-1};
  };

  /// What a group has, as it was read back; of a group that gave no answer, as the driver sets it.
  struct Slice {
    std::uint64_t us = 2'000;
    bool is_drivers = true;
  };
  /// Blocks stay for the life of the process: a hook may be reading one.
  struct Block {
    std::array<Group, kMost> groups{};
    std::atomic<Block*> next{nullptr};
  };

  template <class Visit>
  void for_each_group(Visit visit) noexcept;
  [[nodiscard]] Group* take_place() noexcept;
  void made(int fd, std::uint32_t client, std::uint32_t parent, std::uint32_t object) noexcept;
  [[nodiscard]] CUdevice device_of(std::uint64_t parent) noexcept;
  void released(std::uint32_t client, std::uint32_t object) noexcept;
  void changed(CUdevice device) noexcept;
  bool set(Group& group, std::uint64_t key, std::uint32_t us, Slice& has) noexcept;
  static bool ask_kernel(int fd, std::uint32_t client, std::uint32_t object, bool sets,
                         std::uint64_t& us) noexcept;

  Ask ask_ = &ask_kernel;
  Block groups_{};
  std::array<Parent, 64> parents_{};
  /// The devices on which a group was made for which there was no memory.
  std::atomic<std::uint64_t> unknown_on_{0};
  std::uint32_t longest_us_ = 0;
  std::array<std::atomic<std::uint32_t>, 64> changes_{};
};

}  // namespace sluice::intercept
