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

#define CU(call)                                                                                   \
  do {                                                                                             \
    CUresult cu_result = (call);                                                                   \
    if (cu_result != CUDA_SUCCESS) {                                                               \
      const char* cu_name = nullptr;                                                               \
      cuGetErrorName(cu_result, &cu_name);                                                         \
      std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cu_name ? cu_name : "?"); \
      std::fflush(stderr);                                                                         \
      _exit(3);                                                                                    \
    }                                                                                              \
  } while (0)

inline double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
inline void sleep_ms(double ms) {
  std::this_thread::sleep_for(std::chrono::microseconds(static_cast<long>(ms * 1000)));
}
inline std::uint64_t fnv(const void* data, std::size_t bytes,
                         std::uint64_t h = 0xcbf29ce484222325u) {
  const auto* p = static_cast<const unsigned char*>(data);
  for (std::size_t i = 0; i < bytes; ++i) h = (h ^ p[i]) * 0x100000001b3u;
  return h;
}
inline int report(std::uint64_t sum, double steps, double seconds, const std::string& note = "") {
  std::printf("sum=%016llx rate=%.2f %s\n", static_cast<unsigned long long>(sum), steps / seconds,
              note.c_str());
  std::fflush(stdout);
  return 0;
}
[[noreturn]] inline void die(const std::string& why) {
  std::fprintf(stderr, "hostile: %s\n", why.c_str());
  std::fflush(stderr);
  _exit(4);
}

extern char** environ;
/// Starts this binary anew with other arguments, and with these variables set.
inline pid_t spawn_self(const Args& args,
                        const std::vector<std::pair<std::string, std::string>>& set = {},
                        bool empty_environment = false) {
  std::vector<std::string> env;
  for (char** e = environ; *e != nullptr && !empty_environment; ++e) {
    bool replaced = false;
    for (const auto& [key, value] : set) replaced |= std::string(*e).rfind(key + "=", 0) == 0;
    if (!replaced) env.emplace_back(*e);
  }
  if (empty_environment && getenv("CUDA_VISIBLE_DEVICES"))
    env.push_back(std::string("CUDA_VISIBLE_DEVICES=") + getenv("CUDA_VISIBLE_DEVICES"));
  if (empty_environment && getenv("LD_LIBRARY_PATH"))
    env.push_back(std::string("LD_LIBRARY_PATH=") + getenv("LD_LIBRARY_PATH"));
  for (const auto& [key, value] : set) env.push_back(key + "=" + value);
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
inline void write_all(int fd, const void* data, std::size_t bytes) {
  if (write(fd, data, bytes) != static_cast<ssize_t>(bytes)) die("write");
}
inline void read_all(int fd, void* data, std::size_t bytes) {
  auto* p = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = read(fd, p, bytes);
    if (got <= 0) die("read: the other end is gone");
    p += got, bytes -= static_cast<std::size_t>(got);
  }
}
/// Two ends that survive an exec.
inline void make_pipe(int fds[2]) {
  if (pipe(fds) != 0) die("pipe");
}
