#pragma once
// What differs between x86-64 and aarch64 (GH200, GB200), but for dlsym itself.

/// SLUICE_FIRST_GLIBC is the version name of what the first glibc of the machine had,
/// SLUICE_GLIBC_2_12 of what came with 2.12. SLUICE_JUMP_TO(SLOT): jumps to where the variable
/// points; all arguments and the return address stay.
#if defined(__x86_64__)
#define SLUICE_FIRST_GLIBC "GLIBC_2.2.5"
#define SLUICE_GLIBC_2_12 "GLIBC_2.12"
#define SLUICE_JUMP_TO(slot) "endbr64\njmp *" slot "(%rip)\n"
#elif defined(__aarch64__)
#define SLUICE_FIRST_GLIBC "GLIBC_2.17"
#define SLUICE_GLIBC_2_12 SLUICE_FIRST_GLIBC
#define SLUICE_JUMP_TO(slot) \
  "hint #34\nadrp x16, " slot "\nldr x16, [x16, :lo12:" slot "]\nbr x16\n"
#else
#error "the interposer has assembly for x86-64 and aarch64 only"
#endif

namespace sluice::intercept {

/// For loops that wait for another thread without sleeping.
inline void pause_processor() noexcept {
#ifdef __x86_64__
  __builtin_ia32_pause();
#else
  asm volatile("yield");
#endif
}

}  // namespace sluice::intercept

/// An exported function that is nothing but the jump.
#define SLUICE_EXPORT_JUMP(name, slot)                           \
  asm(".text\n.globl " name "\n.type " name ", %function\n" name \
      ":\n" SLUICE_JUMP_TO(slot) ".size " name ", .-" name "\n");
