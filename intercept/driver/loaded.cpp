#include "intercept/driver/loaded.hpp"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/fd.hpp"
#include "intercept/driver/dlsym.hpp"
#include "intercept/driver/process.hpp"
#include "intercept/driver/threads.hpp"

namespace sluice::intercept {
namespace {

constexpr int kUnboundLooks = 10;  ///< One look in so many is for functions that were not bound.
constexpr std::string_view kDriver = "libcuda.so";
/// What every library that looks launches up by name contains.
constexpr std::string_view kLaunch = "cuLaunchKernel";
/// More than this is not searched: it is taken for a library that launches.
constexpr std::size_t kMostSearched = std::size_t{64} << 20U;

#ifdef __x86_64__
constexpr std::array<std::uint32_t, 3> kSlotTypes{R_X86_64_JUMP_SLOT, R_X86_64_GLOB_DAT,
                                                  R_X86_64_64};
#else
constexpr std::array<std::uint32_t, 3> kSlotTypes{R_AARCH64_JUMP_SLOT, R_AARCH64_GLOB_DAT,
                                                  R_AARCH64_ABS64};
#endif

std::string_view base_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return hash;
}

/// Whether it is the real function behind a hook of ours.
bool is_behind_a_hook(const void* address) {
  if (address == nullptr) return false;
  if (is_real_dlsym(address)) return true;
#define SLUICE_HOOK(name, kind) \
  if (address == reinterpret_cast<void*>(g_process.driver.name)) return true;
#include "intercept/driver/hooks.def"
#undef SLUICE_HOOK
  return false;
}

/// A library as the loader has it in memory.
class Library {
 public:
  explicit Library(const dl_phdr_info& info) : info_(info) {
    for (int i = 0; i < info.dlpi_phnum; ++i) {
      if (info.dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
      const auto* entry =
          reinterpret_cast<const ElfW(Dyn)*>(info.dlpi_addr + info.dlpi_phdr[i].p_vaddr);
      for (; entry->d_tag != DT_NULL; ++entry) take(*entry);
    }
  }

  /// A launch that the library calls and that has no hook: one of a newer driver than our cuda.h.
  /// Empty if there is none. Ends with a null character.
  [[nodiscard]] std::string_view unhooked_launch() const {
    for (std::uint32_t i = 1; names_ != nullptr && i < undefined(); ++i) {
      if (gives_work(name_of(i)) && !is_hooked(name_of(i))) return name_of(i);
    }
    return {};
  }

  enum class Binding { kNone, kToUs, kUnbound, kPastUs };

  /// How the library has bound what it calls of the driver, or dlsym.
  [[nodiscard]] Binding binding() const {
    if (symbols_ == nullptr || names_ == nullptr || undefined() == 0) return Binding::kNone;
    Binding found = Binding::kNone;
    for (const auto& [first, count] : {table(calls_), table(others_)}) {
      for (std::size_t i = 0; i < count; ++i) found = std::max(found, binding_of(first[i]));
    }
    return found;
  }

  /// Whether it can launch work: it calls the driver, or has the name of a launch.
  [[nodiscard]] bool launches() const {
    for (std::uint32_t i = 1; i < undefined(); ++i) {
      if (name_of(i).starts_with("cu") && concerns_us(name_of(i))) return true;
    }
    for (int i = 0; i < info_.dlpi_phnum; ++i) {
      const ElfW(Phdr)& part = info_.dlpi_phdr[i];
      if (part.p_type != PT_LOAD || (part.p_flags & (PF_R | PF_W)) != PF_R) continue;
      if (part.p_filesz > kMostSearched) return true;
      const auto* const begin = reinterpret_cast<const void*>(info_.dlpi_addr + part.p_vaddr);
      if (memmem(begin, part.p_filesz, kLaunch.data(), kLaunch.size()) != nullptr) return true;
    }
    return false;
  }

 private:
  struct Table {
    ElfW(Addr) begin = 0;
    std::size_t bytes = 0;
  };
  struct Slots {
    const ElfW(Rela) * first;
    std::size_t count;
  };

  void take(const ElfW(Dyn) & entry) {
    // Of the vDSO, the loader has not made addresses of the offsets.
    const ElfW(Addr) at =
        entry.d_un.d_ptr < info_.dlpi_addr ? entry.d_un.d_ptr + info_.dlpi_addr : entry.d_un.d_ptr;
    if (entry.d_tag == DT_SYMTAB) symbols_ = reinterpret_cast<const ElfW(Sym)*>(at);
    if (entry.d_tag == DT_STRTAB) names_ = reinterpret_cast<const char*>(at);
    if (entry.d_tag == DT_GNU_HASH) hash_ = reinterpret_cast<const std::uint32_t*>(at);
    if (entry.d_tag == DT_JMPREL) calls_.begin = at;
    if (entry.d_tag == DT_PLTRELSZ) calls_.bytes = entry.d_un.d_val;
    if (entry.d_tag == DT_RELA) others_.begin = at;
    if (entry.d_tag == DT_RELASZ) others_.bytes = entry.d_un.d_val;
  }

  static Slots table(const Table& table) {
    return {reinterpret_cast<const ElfW(Rela)*>(table.begin),
            table.begin == 0 ? 0 : table.bytes / sizeof(ElfW(Rela))};
  }

  /// The symbols before this index are those that the library takes from others.
  [[nodiscard]] std::uint32_t undefined() const { return hash_ == nullptr ? 0 : hash_[1]; }
  [[nodiscard]] std::string_view name_of(std::uint32_t symbol) const {
    return names_ + symbols_[symbol].st_name;
  }
  static bool concerns_us(std::string_view name) {
    return name == "dlsym" || name.starts_with("cuLaunch") || name.starts_with("cuGraphLaunch") ||
           name.starts_with("cuGetProcAddress");
  }

  [[nodiscard]] Binding binding_of(const ElfW(Rela) & slot) const {
    const auto type = static_cast<std::uint32_t>(ELF64_R_TYPE(slot.r_info));
    const auto symbol = static_cast<std::uint32_t>(ELF64_R_SYM(slot.r_info));
    const bool wanted = symbol != 0 && symbol < undefined() &&
                        std::find(kSlotTypes.begin(), kSlotTypes.end(), type) != kSlotTypes.end();
    if (!wanted || !concerns_us(name_of(symbol))) return Binding::kNone;
    const void* bound = nullptr;
    std::memcpy(&bound, reinterpret_cast<const void*>(info_.dlpi_addr + slot.r_offset),
                sizeof(bound));
    if (is_behind_a_hook(bound)) return Binding::kPastUs;
    return has(bound) ? Binding::kUnbound : Binding::kToUs;
  }

  /// Before its first call, a function leads back into its own library.
  [[nodiscard]] bool has(const void* address) const {
    const auto at = reinterpret_cast<ElfW(Addr)>(address) - info_.dlpi_addr;
    for (int i = 0; i < info_.dlpi_phnum; ++i) {
      const ElfW(Phdr)& part = info_.dlpi_phdr[i];
      if (part.p_type == PT_LOAD && at - part.p_vaddr < part.p_memsz) return true;
    }
    return false;
  }

  const dl_phdr_info& info_;
  const ElfW(Sym) * symbols_ = nullptr;
  const char* names_ = nullptr;
  const std::uint32_t* hash_ = nullptr;
  Table calls_;
  Table others_;
};

/// How often the loader has the driver, in all namespaces. dl_iterate_phdr shows only one of them.
int copies_of_driver() {
  const base::Fd maps(open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
  std::array<char, 4096> text{};
  std::size_t kept = 0;
  int copies = 0;
  for (;;) {
    const ssize_t got = read(maps.get(), text.data() + kept, text.size() - kept);
    if (got <= 0) return copies;
    std::string_view left(text.data(), kept + static_cast<std::size_t>(got));
    for (std::size_t end = left.find('\n'); end != left.npos; end = left.find('\n')) {
      const std::string_view line = left.substr(0, end);
      // "begin-end rights offset device inode path": the first part of a file has offset 0.
      if (line.find(" 00000000 ") != line.npos && base_name(line).starts_with(kDriver)) ++copies;
      left.remove_prefix(end + 1);
    }
    kept = left.size() < text.size() ? left.size() : 0;
    std::memmove(text.data(), left.data(), kept);
  }
}

}  // namespace

/// What one look carries through the loader's list.
struct LoadedLibraries::Look {
  LoadedLibraries& all;
  bool changed = false;
  bool again = false;  ///< Also without a change.
  bool first = true;

  static int visit(dl_phdr_info* info, std::size_t, void* self) {
    auto& look = *static_cast<Look*>(self);
    if (std::exchange(look.first, false)) {
      look.changed = std::exchange(look.all.loaded_, info->dlpi_adds) != info->dlpi_adds;
      if (!look.changed && !look.again) return 1;
      look.all.unbound_ = false;
    }
    const Library library(*info);
    const Library::Binding binding = library.binding();
    if (binding == Library::Binding::kUnbound) look.all.unbound_ = true;
    const bool ours = base_name(info->dlpi_name).starts_with("libsluice");
    if (binding == Library::Binding::kPastUs && !ours && library.launches()) {
      look.all.note(info->dlpi_name);
    }
    if (const std::string_view launch = library.unhooked_launch(); !launch.empty()) {
      look.all.note(launch.data());
    }
    return 0;
  }
};

/// Bounded: who forks may have the loader's lock, for which a look waits.
void LoadedLibraries::before_fork() noexcept {
  constexpr std::uint64_t kMostNs = 100'000'000;
  g_process.forks.fetch_add(1);
  nap_while([] { return g_process.looks_at_libraries.load(); }, kMostNs);
}

void LoadedLibraries::after_fork() noexcept { g_process.forks.fetch_sub(1); }

bool LoadedLibraries::look() noexcept {
  const NoCancel whole;
  g_process.looks_at_libraries.store(true);
  const bool found = g_process.forks.load() == 0 && look_now();
  g_process.looks_at_libraries.store(false);
  return found;
}

bool LoadedLibraries::look_now() noexcept {
  const auto before = noted_;
  Look look{*this};
  look.again = unbound_ && --looks_to_skip_ < 0;
  if (look.again) looks_to_skip_ = kUnboundLooks;
  dl_iterate_phdr(&Look::visit, &look);
  if (look.changed && copies_of_driver() > 1) note(kDriver.data());
  return noted_ != before;
}

void LoadedLibraries::note(const char* path) noexcept {
  const std::string_view name = base_name(path);
  const std::uint64_t hash = hash_of(name);
  const auto place = std::find_if(noted_.begin(), noted_.end(),
                                  [hash](std::uint64_t each) { return each == 0 || each == hash; });
  if (place == noted_.end() || *place == hash) return;
  *place = hash;
  g_process.unhooked.note(name.empty() ? "the program" : name);
}

}  // namespace sluice::intercept
