#include "intercept/driver/dlsym.hpp"

#include <dlfcn.h>

#include <cstdlib>

#include "intercept/driver/machine.hpp"

// glibc resolves RTLD_DEFAULT (0) and RTLD_NEXT (-1) from the return address, so the
// real dlsym must see the address of our caller. If we called it and returned, a second interposer
// that asks for RTLD_NEXT would find itself. So these two leave by a jump, and only lookups in a
// handle are substituted.
#ifdef __x86_64__
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
#else
asm(R"(
    .text
    .globl dlsym
    .type dlsym, %function
dlsym:
    .cfi_startproc
    hint #34
    add x9, x0, #1
    cmp x9, #1
    b.hi 2f
    adrp x16, sluice_real_dlsym
    ldr x16, [x16, :lo12:sluice_real_dlsym]
    cbz x16, 1f
    br x16
1:  stp x29, x30, [sp, #-32]!
    .cfi_def_cfa_offset 32
    .cfi_offset x29, -32
    .cfi_offset x30, -24
    stp x0, x1, [sp, #16]
    bl sluice_find_real_dlsym
    mov x16, x0
    ldp x0, x1, [sp, #16]
    ldp x29, x30, [sp], #32
    .cfi_restore x29
    .cfi_restore x30
    .cfi_def_cfa_offset 0
    br x16
2:  b sluice_dlsym_of_handle
    .cfi_endproc
    .size dlsym, .-dlsym
)");
#endif

extern "C" {

using DlsymFunction = void* (*)(void*, const char*);

// Hidden, so that the assembly above reaches it without relocation. All writers store the same
// pointer, so a race is harmless.
__attribute__((visibility("hidden"))) constinit DlsymFunction sluice_real_dlsym = nullptr;

__attribute__((visibility("hidden"))) DlsymFunction sluice_find_real_dlsym() {
  auto found = reinterpret_cast<DlsymFunction>(dlvsym(RTLD_NEXT, "dlsym", SLUICE_FIRST_GLIBC));
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

bool is_real_dlsym(const void* address) noexcept {
  return address != nullptr && address == reinterpret_cast<const void*>(__atomic_load_n(
                                              &sluice_real_dlsym, __ATOMIC_ACQUIRE));
}

}  // namespace sluice::intercept
