#include "intercept/driver/dlsym.hpp"

#include <dlfcn.h>

#include <cstdlib>

#ifndef __x86_64__
#error "dlsym.cpp holds the tail jump for x86-64 only"
#endif

// glibc resolves RTLD_DEFAULT (0) and RTLD_NEXT (-1) from the return address on the stack, so the
// real dlsym must see the address of our caller. If we called it and returned, a second interposer
// that asks for RTLD_NEXT would find itself. So these two leave by a jump, and only lookups in a
// handle are substituted.
asm(R"(
    .text
    .globl dlsym
    .type dlsym, @function
dlsym:
    .cfi_startproc
    endbr64
    leaq 1(%rdi), %rax
    cmpq $1, %rax
    ja 2f
    movq sluice_real_dlsym(%rip), %rax
    testq %rax, %rax
    je 1f
    jmp *%rax
1:  pushq %rdi
    .cfi_adjust_cfa_offset 8
    pushq %rsi
    .cfi_adjust_cfa_offset 8
    subq $8, %rsp
    .cfi_adjust_cfa_offset 8
    call sluice_find_real_dlsym
    addq $8, %rsp
    .cfi_adjust_cfa_offset -8
    popq %rsi
    .cfi_adjust_cfa_offset -8
    popq %rdi
    .cfi_adjust_cfa_offset -8
    jmp *%rax
2:  jmp sluice_dlsym_of_handle
    .cfi_endproc
    .size dlsym, .-dlsym
)");

extern "C" {

using DlsymFunction = void* (*)(void*, const char*);

// Hidden, so that the assembly above reaches it without relocation. All writers store the same
// pointer, so a race is harmless.
__attribute__((visibility("hidden"))) constinit DlsymFunction sluice_real_dlsym = nullptr;

__attribute__((visibility("hidden"))) DlsymFunction sluice_find_real_dlsym() {
  auto found = reinterpret_cast<DlsymFunction>(dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5"));
  if (found == nullptr) std::abort();  // an unknown glibc, on which nothing here can work
  __atomic_store_n(&sluice_real_dlsym, found, __ATOMIC_RELEASE);
  return found;
}
}

namespace sluice::intercept {

void* real_dlsym(void* handle, const char* name) noexcept {
  DlsymFunction real = __atomic_load_n(&sluice_real_dlsym, __ATOMIC_ACQUIRE);
  if (real == nullptr) real = sluice_find_real_dlsym();
  return real(handle, name);
}

}  // namespace sluice::intercept
