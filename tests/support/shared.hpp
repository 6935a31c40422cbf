#pragma once
#include <sys/mman.h>

#include <new>

namespace sluice::test {

/// A zeroed T in memory that forked children share.
template <class T>
class Shared {
 public:
  Shared() {
    void* memory =
        mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    object_ = new (memory) T{};
  }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  ~Shared() { munmap(object_, sizeof(T)); }
  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }

 private:
  T* object_;
};

}  // namespace sluice::test
