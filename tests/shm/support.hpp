#pragma once
#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

/// What the tests of shm/ share: child processes, shared memory, names nobody else has.
namespace sluice::shm::test {

/// A forked child that runs `body` and exits with its result. Killed and reaped with the object.
class Child {
 public:
  explicit Child(const std::function<int()>& body);
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child();

  [[nodiscard]] pid_t pid() const { return pid_; }
  void kill();
  /// Its exit status, or 128 + signal.
  int wait();

 private:
  pid_t pid_;
  bool reaped_ = false;
};

/// Says "ready" between processes: each step is passed once by whoever waits for it.
class Signal {
 public:
  Signal();
  Signal(const Signal&) = delete;
  Signal& operator=(const Signal&) = delete;
  ~Signal();
  void raise() const;
  /// False if it is not raised within 10 s.
  [[nodiscard]] bool wait() const;

 private:
  int fd_;
};

/// A zeroed T in memory that forked children share.
template <class T>
class Shared;

void* map_shared(std::size_t size);
void unmap_shared(void* memory, std::size_t size);

template <class T>
class Shared {
 public:
  Shared() : object_(new (map_shared(sizeof(T))) T{}) {}
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  ~Shared() { unmap_shared(object_, sizeof(T)); }
  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }

 private:
  T* object_;
};

/// A session of this test's own; its board is removed at the end.
class Session {
 public:
  Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session();
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::string board_path() const;
  [[nodiscard]] bool has_board() const;

 private:
  std::string name_;
};

/// Polls until `condition` holds, at most 10 s.
bool eventually(const std::function<bool()>& condition);

}  // namespace sluice::shm::test
