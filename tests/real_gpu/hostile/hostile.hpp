// What all cases share. Each case prints one line: sum=HEX rate=STEPS_PER_SECOND [notes].
#pragma once
#include <cuda.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

using Args = std::vector<std::string>;
using CaseFn = int (*)(const Args&);
inline std::map<std::string, CaseFn>& cases() {
  static std::map<std::string, CaseFn> all;
  return all;
}
struct Register {
  Register(const char* name, CaseFn fn) { cases()[name] = fn; }
};
#define CASE(name)                                \
  static int case_##name(const Args& args);       \
  static Register reg_##name(#name, case_##name); \
  static int case_##name([[maybe_unused]] const Args& args)

[[noreturn]] inline void failed(const char* file, int line, const char* call, const char* error) {
  std::fprintf(stderr, "%s:%d: %s: %s\n", file, line, call, error ? error : "?");
  std::fflush(stderr);
  _exit(3);
}
inline void check(CUresult result, const char* file, int line, const char* call) {
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  cuGetErrorName(result, &name);
  failed(file, line, call, name);
}
/// Ends the program where a call of CUDA fails. runtime.cuh has check() for the runtime's errors.
#define CU(call) check((call), __FILE__, __LINE__, #call)

constexpr unsigned kN = 4096;  // words of the data of a case
constexpr std::uint64_t kFnvBegin = 0xcbf29ce484222325u;

inline double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
inline void sleep_ms(double ms) {
  std::this_thread::sleep_for(std::chrono::microseconds(static_cast<long>(ms * 1000)));
}
inline std::uint64_t fnv(const void* data, std::size_t bytes, std::uint64_t h) {
  const auto* p = static_cast<const unsigned char*>(data);
  for (std::size_t i = 0; i < bytes; ++i) h = (h ^ p[i]) * 0x100000001b3u;
  return h;
}
/// The first argument of a case: how many steps it makes.
inline int count_of(const Args& args, int otherwise) {
  return args.empty() ? otherwise : std::atoi(args[0].c_str());
}
struct Run {
  double steps, seconds;
};
/// Makes step(0) to step(count - 1) and then finish().
template <class Finish, class Step>
Run timed(int count, Finish finish, Step step) {
  const double begin = now_s();
  for (int i = 0; i < count; ++i) step(i);
  finish();
  return {static_cast<double>(count), now_s() - begin};
}
template <class Step>
Run timed(int count, Step step) {
  return timed(
      count, [] {}, step);
}
/// The line of a case; run.py and pairs.py read it.
inline int report(std::uint64_t sum, const Run& run, const std::string& note = "") {
  std::printf("sum=%016llx rate=%.2f %s\n", static_cast<unsigned long long>(sum),
              run.steps / run.seconds, note.c_str());
  std::fflush(stdout);
  return 0;
}
[[noreturn]] inline void die(const std::string& why) {
  std::fprintf(stderr, "hostile: %s\n", why.c_str());
  std::fflush(stderr);
  _exit(4);
}

extern char** environ;
using Variables = std::vector<std::string>;
/// Starts this binary anew with other arguments, and with these variables, as in "NAME=VALUE".
inline pid_t spawn_self(const Args& args, Variables env = {}, bool empty_environment = false) {
  for (char** e = environ; *e != nullptr; ++e) {  // of two with one name, getenv finds the first
    const std::string each = *e;
    if (!empty_environment || each.rfind("CUDA_VISIBLE_DEVICES=", 0) == 0 ||
        each.rfind("LD_LIBRARY_PATH=", 0) == 0)
      env.push_back(each);
  }
  std::vector<char*> argv{const_cast<char*>("hostile")};
  for (const auto& a : args) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  std::vector<char*> envp;
  for (auto& e : env) envp.push_back(e.data());
  envp.push_back(nullptr);
  pid_t pid = 0;
  if (posix_spawn(&pid, "/proc/self/exe", nullptr, nullptr, argv.data(), envp.data()) != 0)
    die("posix_spawn");
  return pid;
}
inline int wait_for(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}
inline void expect_success(pid_t child) {
  if (wait_for(child) != 0) die("a child failed");
}
inline void expect_success(const std::vector<pid_t>& children) {
  for (const pid_t child : children) expect_success(child);
}

/// The other one of two processes that run the same case, behind a pipe in each direction. The
/// parent starts the child; in the child, the arguments of the case name the pipes.
class Peer {
 public:
  static bool is_child(const Args& args) { return args.size() > 2; }
  Peer(const char* name, const Args& args, const Variables& set = {}) {
    if (is_child(args)) {
      in_ = std::atoi(args[0].c_str()), out_ = std::atoi(args[1].c_str());
      return;
    }
    int to[2], from[2];
    if (pipe(to) != 0 || pipe(from) != 0) die("pipe");
    in_ = from[0], out_ = to[1];
    child_ = spawn_self({name, std::to_string(to[0]), std::to_string(from[1]), "child"}, set);
  }
  template <class T>
  void send(const T& value) const {
    if (write(out_, &value, sizeof value) != sizeof value) die("write");
  }
  template <class T>
  T receive() const {
    T value;
    auto* at = reinterpret_cast<char*>(&value);
    for (std::size_t left = sizeof value; left > 0;) {
      const ssize_t got = read(in_, at, left);
      if (got <= 0) die("read: the other end is gone");
      at += got, left -= static_cast<std::size_t>(got);
    }
    return value;
  }
  void join() const { expect_success(child_); }

 private:
  int in_, out_;
  pid_t child_ = 0;
};
