// The exported functions. Each is a jump to Export<...>::call, which runs the hook of the entry's
// kind (exports.hpp, exports_graph.hpp). At the end, the C API of sluice.h.
#include "intercept/hooks/exports.hpp"

#include "intercept/driver/machine.hpp"
#include "intercept/hooks/exports_graph.hpp"
#include "intercept/hooks/exports_memory.hpp"
#include "shm/target.hpp"

namespace sluice::intercept {
namespace {

template <Entry entry, Kind kind, auto member>
struct Export;
template <Entry entry, Kind kind, class... Args, CUresult (*Driver::*member)(Args...)>
struct Export<entry, kind, member> {
  static CUresult call(Args... args) {
    if constexpr (kind == Kind::kLaunch) {
      return hook<entry, member>(Of<kind>{}, args...);
    } else {
      driver();  // without a driver, the call returns that it is not supported
      return hook<entry>(Of<kind>{}, &(g_process.driver.*member), args...);
    }
  }
};

}  // namespace
}  // namespace sluice::intercept

#define SLUICE_HOOK(name, kind)                                                                    \
  extern "C" {                                                                                     \
  extern const decltype(&::name) sluice_hook_##name;                                               \
  constinit const decltype(&::name) sluice_hook_##name =                                           \
      &sluice::intercept::Export<sluice::intercept::Entry::name, sluice::intercept::Kind::k##kind, \
                                 &sluice::intercept::Driver::name>::call;                          \
  }                                                                                                \
  SLUICE_EXPORT_JUMP(#name, "sluice_hook_" #name)
#include "intercept/driver/hooks.def"
#undef SLUICE_HOOK

// --- The C API of sluice.h ----------------------------------------------------------------------

#define SLUICE_EXPORT extern "C" __attribute__((visibility("default")))

using sluice::intercept::g_process;
using sluice::intercept::if_memory_lasts;
using sluice::intercept::in_forked_child;
using sluice::intercept::Interposer;
using sluice::intercept::JobBook;

namespace {

/// The id that `mark` returns, which gets the book of the jobs of a device, or of all devices
/// (JobBook::kAll).
template <class Mark>
std::uint64_t mark_job(CUdevice device, Mark mark) noexcept {
  if (in_forked_child()) return 0;
  g_process.explicit_jobs.store(true);
  std::uint64_t job = 0;
  if_memory_lasts([&] {
    Interposer& self = Interposer::instance();
    self.client_here(true);  // does nothing if the thread has no context
    JobBook* const book = device == JobBook::kAll ? &self.jobs().all() : self.jobs().of(device);
    if (book != nullptr) job = mark(*book);
  });
  return job;
}

std::uint64_t announce(CUdevice device, std::uint64_t start_ns) noexcept {
  if (!in_forked_child()) g_process.announced_jobs.store(true);
  return mark_job(device, [start_ns](JobBook& book) { return book.announce(start_ns); });
}

std::uint64_t begin(CUdevice device, std::uint64_t announced) noexcept {
  return mark_job(device, [announced](JobBook& book) { return book.begin(announced); });
}

}  // namespace

SLUICE_EXPORT std::uint64_t sluice_v1_job_announce(std::uint64_t start_ns) {
  return announce(JobBook::kAll, start_ns);
}

SLUICE_EXPORT std::uint64_t sluice_v1_job_announce_on(int device, std::uint64_t start_ns) {
  return device < 0 ? 0 : announce(device, start_ns);
}

SLUICE_EXPORT void sluice_v1_job_cancel(std::uint64_t announced) {
  Interposer* const self = Interposer::existing();
  if (self != nullptr && !in_forked_child()) self->jobs().cancel(announced);
}

SLUICE_EXPORT std::uint64_t sluice_v1_job_begin(std::uint64_t announced) {
  return begin(JobBook::kAll, announced);
}

SLUICE_EXPORT std::uint64_t sluice_v1_job_begin_on(int device, std::uint64_t announced) {
  return device < 0 ? 0 : begin(device, announced);
}

SLUICE_EXPORT void sluice_v1_job_end(std::uint64_t job) {
  Interposer* const self = Interposer::existing();
  if (self != nullptr && !in_forked_child()) self->jobs().end(job);
}

SLUICE_EXPORT int sluice_v1_set_target(const char* text) {
  const auto target = sluice::shm::parse_target(text != nullptr ? text : "");
  if (!target || in_forked_child()) return 0;
  return if_memory_lasts([&] { Interposer::instance().set_target(*target); }) ? 1 : 0;
}

SLUICE_EXPORT int sluice_v1_attached() {
  Interposer* const self = Interposer::existing();
  return self != nullptr && self->attached() ? 1 : 0;
}

// Memory. Without a client there is no limit and nothing to obey.

namespace {

sluice::intercept::Orders* orders() noexcept {
  if (in_forked_child()) return nullptr;
  sluice::intercept::Client* client = nullptr;
  if_memory_lasts([&] { client = Interposer::instance().client_of_memory(); });
  return client == nullptr ? nullptr : &client->orders();
}

}  // namespace

SLUICE_EXPORT std::uint64_t sluice_v1_memory_grant() {
  auto* const own = orders();
  return own == nullptr ? sluice::shm::kNoLimit : own->grant();
}

SLUICE_EXPORT std::uint64_t sluice_v1_memory_held() {
  auto* const own = orders();
  if (own != nullptr) Interposer::instance().refresh_pools();
  return own == nullptr ? 0 : own->held();
}

SLUICE_EXPORT std::uint64_t sluice_v1_memory_held_on(int device) {
  Interposer* const self = Interposer::existing();
  auto* const client = self == nullptr ? nullptr : self->client_on(device, false);
  if (client != nullptr) self->refresh_pools();
  return client == nullptr ? 0 : client->orders().held();
}

SLUICE_EXPORT std::uint64_t sluice_v1_memory_refused() {
  auto* const own = orders();
  return own == nullptr ? 0 : own->refused_allocations();
}

SLUICE_EXPORT void sluice_v1_memory_fit(std::uint64_t base, std::uint64_t slope) {
  if (auto* const own = orders()) own->fit(base, slope);
}

SLUICE_EXPORT std::uint64_t sluice_v1_order() {
  auto* const own = orders();
  return own == nullptr ? 0 : own->pending();
}

SLUICE_EXPORT void sluice_v1_order_done(std::uint64_t order) {
  if (auto* const own = orders()) own->done(order);
}

SLUICE_EXPORT int sluice_v1_wait_resume(std::uint32_t timeout_ms) {
  constexpr std::uint64_t kNsPerMs = 1'000'000;
  auto* const own = orders();
  return own == nullptr || own->wait_resume(timeout_ms * kNsPerMs) ? 1 : 0;
}

SLUICE_EXPORT void sluice_v1_critical(int begin) {
  if (auto* const own = orders()) own->critical(begin != 0);
}
