#pragma once
#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <string>

#include "base/install.hpp"

/// The file of a program: where it is, and what it says about how the kernel and the loader will
/// start it.
namespace sluice::tools {

/// The file that execvp would run for `name`, else an example program of this installation. Throws
/// base::UsageError. The search comes first, so that a misspelt name starts no controller.
[[nodiscard]] std::string find_program(const base::Install& install, const std::string& name);

struct ProgramFile {
  enum class Kind { kOther, kScript, kElf };
  Kind kind = Kind::kOther;
  bool own_class = false;     ///< Of an ELF file: 64 bits and little-endian, as this program is.
  std::uint16_t machine = 0;  ///< e_machine of an ELF file.
  /// The file after `#!`, or the loader in PT_INTERP. An ELF file without one is static.
  std::string interpreter;
};

/// Never fails: a file that cannot be read, or that is damaged, is of kind kOther or has no
/// interpreter.
[[nodiscard]] ProgramFile read_program_file(int file);

/// The file that starts the program: the interpreter of a script, the loader of an ELF file. Empty
/// if none is known.
[[nodiscard]] std::string starter_of(const std::string& program);

/// Whether a shared library has a function or an object of this name for others. False for what is
/// no library of this machine.
[[nodiscard]] bool defines_symbol(int file, const std::string& name);

/// What this process brings to an exec.
struct Caller {
  uid_t uid = 0;
  gid_t gid = 0;
  bool no_new_privileges = false;  ///< The kernel then ignores what a file grants.
};

/// What a file grants to the process that runs it: "is setuid", "is setgid", "has file
/// capabilities". Empty if the kernel will not ask the loader for secure execution.
[[nodiscard]] std::string grant_of(const struct stat& about, bool has_capabilities,
                                   const Caller& caller);

/// How far the interposer reaches a program.
struct Reach {
  /// One line that says why the program runs ungated; empty if nothing is known against it.
  std::string warning;
  /// False: the program would not start with the preload.
  bool preload = true;
};

/// Looks at the file at `path`, and at the interpreter of a script.
[[nodiscard]] Reach reach_of(const std::string& path);

}  // namespace sluice::tools
