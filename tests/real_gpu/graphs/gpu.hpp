#pragma once
#include <cuda.h>

#include <cstdint>
#include <stdexcept>
#include <string>

namespace sluice::graphs {

/// A driver call failed that the case needs.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// This machine lacks what the case tests.
class Skip : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

[[nodiscard]] std::string name_of(CUresult result);

/// Throws Failure unless `result` is CUDA_SUCCESS.
void must(CUresult result, const char* call, const char* file, int line);

/// The driver's entry of this name and version; null if it has none.
[[nodiscard]] void* look_up(const char* name, int version);

/// An optional driver entry. Calling it skips the case if the driver lacks it.
template <class Function>
class Entry {
 public:
  Entry(const char* name, int version)
      : name_(name), function_(reinterpret_cast<Function>(look_up(name, version))) {}

  template <class... Arguments>
  CUresult operator()(const Arguments&... arguments) const {
    if (function_ == nullptr) throw Skip(std::string("the driver has no ") + name_);
    return function_(arguments...);
  }

 private:
  const char* name_;
  Function function_;
};

struct Newer {
#define SLUICE_NEWER(name, form, version) Entry<decltype(&::form)> name{#name, version};
#include "tests/real_gpu/graphs/newer.def"
#undef SLUICE_NEWER
};

/// The optional entries, looked up once after cuInit.
[[nodiscard]] const Newer& newer();

/// Owner of a driver handle. Ignores a failure to destroy, which nobody could handle.
template <class Handle, CUresult (*Destroy)(Handle)>
class Object {
 public:
  Object() = default;
  explicit Object(Handle handle) : handle_(handle) {}
  Object(Object&& other) noexcept : handle_(other.release()) {}
  Object& operator=(Object&& other) noexcept {
    reset(other.release());
    return *this;
  }
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  ~Object() { reset(); }

  // Implicit, so that the object can be passed to every driver call.
  operator Handle() const { return handle_; }  // NOLINT(google-explicit-constructor)
  [[nodiscard]] Handle get() const { return handle_; }
  /// The place for a new handle from a call.
  [[nodiscard]] Handle* out() {
    reset();
    return &handle_;
  }
  void reset(Handle handle = nullptr) {
    if (handle_ != nullptr) Destroy(handle_);
    handle_ = handle;
  }
  [[nodiscard]] Handle release() {
    Handle handle = handle_;
    handle_ = nullptr;
    return handle;
  }

 private:
  Handle handle_ = nullptr;
};

using Stream = Object<CUstream, cuStreamDestroy>;
using Event = Object<CUevent, cuEventDestroy>;
using Graph = Object<CUgraph, cuGraphDestroy>;
using Exec = Object<CUgraphExec, cuGraphExecDestroy>;

[[nodiscard]] Stream new_stream(unsigned flags = CU_STREAM_NON_BLOCKING);
[[nodiscard]] Event new_event();

/// Makes the first device's primary context current in the calling thread.
void enter_device();

[[nodiscard]] int attribute(CUdevice_attribute which);

}  // namespace sluice::graphs

/// SLUICE_MUST(cuStreamSynchronize(stream)): makes the call and throws Failure with its position if
/// it fails.
#define SLUICE_MUST(call) ::sluice::graphs::must((call), #call, __FILE__, __LINE__)
