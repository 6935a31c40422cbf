// Lets a library that is preloaded into programs of any image run on glibc 2.31, whatever it is
// built on: functions that newer versions have or have under newer version names. Hidden, and
// linked in front of glibc's for our code and for the static libstdc++ and libgcc. A build proof
// checks that none is forgotten.
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>

#include "intercept/driver/machine.hpp"

// The function `name` of this library. Headers declare the same with attributes that differ between
// versions, hence a C++ name of its own.
#define SLUICE_HIDDEN(result, name, parameters)                                         \
  __attribute__((visibility("hidden"))) result sluice_new_##name parameters asm(#name); \
  result sluice_new_##name parameters

// Calls the old version of `name`, in libpthread.so.0 or libdl.so.2 before glibc 2.34.
#define SLUICE_OLD(version, result, name, parameters, arguments) \
  asm(".symver sluice_old_" #name ", " #name "@" version);       \
  result sluice_old_##name parameters;                           \
  SLUICE_HIDDEN(result, name, parameters) { return sluice_old_##name arguments; }
#define SLUICE_FIRST_VERSION(...) SLUICE_OLD(SLUICE_FIRST_GLIBC, __VA_ARGS__)

extern "C" {

using ThreadMain = void* (*)(void*);
using Callback = void (*)();
using Destructor = void (*)(void*);

// clang-format off
SLUICE_FIRST_VERSION(int, pthread_create, (pthread_t* t, const pthread_attr_t* a, ThreadMain m, void* p), (t, a, m, p))
SLUICE_FIRST_VERSION(int, pthread_join, (pthread_t t, void** result), (t, result))
SLUICE_FIRST_VERSION(int, pthread_detach, (pthread_t t), (t))
SLUICE_FIRST_VERSION(int, pthread_once, (pthread_once_t* once, Callback f), (once, f))
SLUICE_FIRST_VERSION(int, __pthread_key_create, (pthread_key_t* key, Destructor f), (key, f))
SLUICE_FIRST_VERSION(int, pthread_mutex_trylock, (pthread_mutex_t* m), (m))
SLUICE_FIRST_VERSION(int, pthread_mutexattr_init, (pthread_mutexattr_t* a), (a))
SLUICE_FIRST_VERSION(int, pthread_mutexattr_destroy, (pthread_mutexattr_t* a), (a))
SLUICE_FIRST_VERSION(int, pthread_mutexattr_setpshared, (pthread_mutexattr_t* a, int shared), (a, shared))
SLUICE_FIRST_VERSION(int, pthread_sigmask, (int how, const sigset_t* set, sigset_t* old), (how, set, old))
SLUICE_FIRST_VERSION(void*, dlopen, (const char* file, int mode), (file, mode))
SLUICE_FIRST_VERSION(char*, dlerror, (), ())
SLUICE_FIRST_VERSION(int, dladdr, (const void* address, Dl_info* info), (address, info))
SLUICE_FIRST_VERSION(void*, dlvsym, (void* handle, const char* name, const char* version), (handle, name, version))
// clang-format on
#ifdef SLUICE_OLD_GLIBC_DLSYM  // the interposer has a dlsym of its own
SLUICE_FIRST_VERSION(int, dlclose, (void* handle), (handle))
SLUICE_FIRST_VERSION(void*, dlsym, (void* handle, const char* name), (handle, name))
#endif

SLUICE_OLD(SLUICE_GLIBC_2_12, int, pthread_setname_np, (pthread_t t, const char* name), (t, name))
SLUICE_OLD(SLUICE_GLIBC_2_12, int, pthread_mutex_consistent, (pthread_mutex_t * m), (m))
SLUICE_OLD(SLUICE_GLIBC_2_12, int, pthread_mutexattr_setrobust,
           (pthread_mutexattr_t * a, int robust), (a, robust))

// In librt.so.1 before glibc 2.34. As there, not a cancellation point. The kernel refuses a name
// that is cut here.
static void to_path(const char* name, char (&path)[512]) {
  snprintf(path, sizeof(path), "/dev/shm/%s", *name == '/' ? name + 1 : name);
}
SLUICE_HIDDEN(int, shm_open, (const char* name, int flags, mode_t mode)) {
  char path[512];
  to_path(name, path);
  flags |= O_NOFOLLOW | O_CLOEXEC;
  return static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}
SLUICE_HIDDEN(int, shm_unlink, (const char* name)) {
  char path[512];
  to_path(name, path);
  return static_cast<int>(syscall(SYS_unlinkat, AT_FDCWD, path, 0));
}

// Names that the headers of glibc 2.38 give these functions in C++. They read 0b... too, which
// nothing here depends on.
#define SLUICE_C23_NUMBER(result, name)                                              \
  result sluice_plain_##name(const char*, char**, int) asm(#name);                   \
  SLUICE_HIDDEN(result, __isoc23_##name, (const char* text, char** end, int base)) { \
    return sluice_plain_##name(text, end, base);                                     \
  }
SLUICE_C23_NUMBER(long, strtol)
SLUICE_C23_NUMBER(unsigned long, strtoul)
SLUICE_C23_NUMBER(long long, strtoll)
SLUICE_C23_NUMBER(unsigned long long, strtoull)
int sluice_plain_vsscanf(const char*, const char*, va_list) asm("vsscanf");
SLUICE_HIDDEN(int, __isoc23_sscanf, (const char* text, const char* format, ...)) {
  va_list values;
  va_start(values, format);
  const int read = sluice_plain_vsscanf(text, format, values);
  va_end(values);
  return read;
}

// Inline functions of <sys/stat.h> before glibc 2.33. The kernel's structure is that of glibc on
// 64-bit machines.
SLUICE_HIDDEN(int, fstatat, (int folder, const char* path, struct stat* out, int flags)) {
  return static_cast<int>(syscall(SYS_newfstatat, folder, path, out, flags));
}
SLUICE_HIDDEN(int, stat, (const char* path, struct stat* out)) {
  return static_cast<int>(syscall(SYS_newfstatat, AT_FDCWD, path, out, 0));
}
SLUICE_HIDDEN(int, lstat, (const char* path, struct stat* out)) {
  return static_cast<int>(syscall(SYS_newfstatat, AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW));
}
SLUICE_HIDDEN(int, fstat, (int descriptor, struct stat* out)) {
  return static_cast<int>(syscall(SYS_fstat, descriptor, out));
}

// Libstdc++ leaves out atomic instructions if it is not 0.
__attribute__((visibility("hidden"))) char sluice_new_single_threaded asm(
    "__libc_single_threaded") = 0;

#ifdef DLFO_STRUCT_HAS_EH_DBASE
// For the unwinder, as libgcc itself did it before glibc 2.35.
SLUICE_HIDDEN(int, _dl_find_object, (void* address, dl_find_object* out)) {
  struct Search {
    ElfW(Addr) address;
    dl_find_object* out;
  } search{reinterpret_cast<ElfW(Addr)>(address), out};
  const auto look = [](dl_phdr_info* object, size_t, void* data) {
    const Search& wanted = *static_cast<Search*>(data);
    bool inside = false;
    void* unwind_table = nullptr;
    for (const ElfW(Phdr)* part = object->dlpi_phdr; part != object->dlpi_phdr + object->dlpi_phnum;
         ++part) {
      const ElfW(Addr) begin = object->dlpi_addr + part->p_vaddr;
      if (part->p_type == PT_LOAD && wanted.address - begin < part->p_memsz) inside = true;
      if (part->p_type == PT_GNU_EH_FRAME) unwind_table = reinterpret_cast<void*>(begin);
    }
    if (!inside || unwind_table == nullptr) return 0;
    *wanted.out = {};
    wanted.out->dlfo_eh_frame = unwind_table;
    return 1;
  };
  return dl_iterate_phdr(look, &search) == 1 ? 0 : -1;
}
#endif
}
