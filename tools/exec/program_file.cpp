#include "tools/exec/program_file.hpp"

#include <elf.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string_view>

#include "base/error.hpp"
#include "base/fd.hpp"

namespace sluice::tools {
namespace {

namespace fs = std::filesystem;

/// As in the kernel: a script may be run by a script, and so on.
constexpr int kMostScripts = 5;
constexpr std::size_t kScriptLine = 256;
constexpr std::uint64_t kMostOfSection = std::uint64_t{64} << 20U;
#ifdef __x86_64__
constexpr std::uint16_t kOwnMachine = EM_X86_64;
#else
constexpr std::uint16_t kOwnMachine = EM_AARCH64;
#endif

/// Up to `size` bytes of the file at `offset`, as far as it has them.
std::string bytes_at(int file, std::uint64_t offset, std::size_t size) {
  std::string bytes(size, '\0');
  const bool possible = offset <= static_cast<std::uint64_t>(INT64_MAX);
  const ssize_t got =
      possible ? pread(file, bytes.data(), size, static_cast<off_t>(offset)) : ssize_t{0};
  bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(0, got)));
  return bytes;
}

template <class Record>
std::optional<Record> record_at(int file, std::uint64_t offset) {
  Record record;
  const std::string bytes = bytes_at(file, offset, sizeof(record));
  if (bytes.size() != sizeof(record)) return std::nullopt;
  std::memcpy(&record, bytes.data(), sizeof(record));
  return record;
}

std::string loader_of(int file, const Elf64_Ehdr& head) {
  for (std::uint64_t i = 0; i < head.e_phnum; ++i) {
    const auto part = record_at<Elf64_Phdr>(file, head.e_phoff + i * head.e_phentsize);
    if (!part) return {};
    if (part->p_type != PT_INTERP) continue;
    const std::string path =
        bytes_at(file, part->p_offset, std::min<std::uint64_t>(part->p_filesz, PATH_MAX));
    return path.substr(0, path.find('\0'));
  }
  return {};
}

bool uses_musl(const ProgramFile& program) {
  return program.interpreter.find("/ld-musl-") != std::string::npos;
}

std::string script_interpreter(std::string_view line) {
  constexpr std::string_view kBlanks = " \t";
  line = line.substr(0, line.find('\n'));
  line.remove_prefix(std::min(line.find_first_not_of(kBlanks), line.size()));
  return std::string(line.substr(0, line.find_first_of(kBlanks)));
}

/// By its path: a program need not be readable.
std::string grant_of_file(const std::string& path) {
  struct stat about {};
  struct statvfs place {};
  if (stat(path.c_str(), &about) != 0) return {};
  const bool ignored = statvfs(path.c_str(), &place) == 0 && (place.f_flag & ST_NOSUID) != 0;
  if (ignored) return {};
  const bool has_capabilities = getxattr(path.c_str(), "security.capability", nullptr, 0) > 0;
  const Caller caller{getuid(), getgid(), prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1};
  return grant_of(about, has_capabilities, caller);
}

/// Why the interposer does not reach the program; empty if it does.
std::string fault_of(const ProgramFile& program, const std::string& path) {
  if (const std::string grant = grant_of_file(path); !grant.empty()) {
    return grant + ", so the loader ignores LD_PRELOAD, also for the programs that it starts";
  }
  if (program.kind != ProgramFile::Kind::kElf) return {};
  if (!program.own_class || program.machine != kOwnMachine) {
    return "is a program for another machine (" +
           std::string(program.own_class ? "" : "32 bits, ") + "ELF machine " +
           std::to_string(program.machine) + ")";
  }
  if (program.interpreter.empty()) {
    return "is a static program, which loads no library; the programs that it starts are gated";
  }
  if (uses_musl(program)) {
    return "uses musl, where the interposer does not load; the programs that it starts run "
           "ungated, too";
  }
  return {};
}

bool runnable(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored) && access(path.c_str(), X_OK) == 0;
}

}  // namespace

std::string find_program(const base::Install& install, const std::string& name) {
  if (name.find('/') != std::string::npos) {
    if (runnable(name)) return name;
    std::error_code ignored;
    throw base::UsageError(fs::exists(name, ignored) ? "'" + name + "' is not an executable file"
                                                     : "no such program: '" + name + "'");
  }
  const char* search = std::getenv("PATH");
  std::istringstream folders(search != nullptr ? search : "/usr/local/bin:/usr/bin:/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const fs::path candidate = fs::path(folder.empty() ? "." : folder) / name;
    if (runnable(candidate)) return candidate;
  }
  const fs::path example = install.program(name);
  if (name.starts_with("sluice-example-") && runnable(example)) return example;
  throw base::UsageError("no such program: '" + name + "' (not in any folder of PATH)");
}

ProgramFile read_program_file(int file) {
  ProgramFile program;
  const std::string line = bytes_at(file, 0, kScriptLine);
  if (line.starts_with("#!")) {
    program.kind = ProgramFile::Kind::kScript;
    program.interpreter = script_interpreter(std::string_view(line).substr(2));
    return program;
  }
  // The classes differ after these fields only.
  const auto head = record_at<Elf64_Ehdr>(file, 0);
  if (!head || std::memcmp(head->e_ident, ELFMAG, SELFMAG) != 0) return program;
  program.kind = ProgramFile::Kind::kElf;
  program.own_class =
      head->e_ident[EI_CLASS] == ELFCLASS64 && head->e_ident[EI_DATA] == ELFDATA2LSB;
  program.machine = head->e_machine;
  if (program.own_class) program.interpreter = loader_of(file, *head);
  return program;
}

std::string starter_of(const std::string& program) {
  const base::Fd file(open(program.c_str(), O_RDONLY | O_CLOEXEC));
  return file ? read_program_file(file.get()).interpreter : std::string();
}

bool defines_symbol(int file, const std::string& name) {
  if (!read_program_file(file).own_class) return false;
  const auto head = record_at<Elf64_Ehdr>(file, 0);
  const auto section = [&](std::uint64_t number) {
    return record_at<Elf64_Shdr>(file, head->e_shoff + number * head->e_shentsize);
  };
  for (std::uint64_t i = 0; i < head->e_shnum; ++i) {
    const auto symbols = section(i);
    if (!symbols || symbols->sh_type != SHT_DYNSYM) continue;
    const auto names = section(symbols->sh_link);
    if (!names || std::max(names->sh_size, symbols->sh_size) > kMostOfSection) return false;
    const std::string texts = bytes_at(file, names->sh_offset, names->sh_size);
    const std::string table = bytes_at(file, symbols->sh_offset, symbols->sh_size);
    for (std::size_t at = 0; at + sizeof(Elf64_Sym) <= table.size(); at += sizeof(Elf64_Sym)) {
      Elf64_Sym symbol;
      std::memcpy(&symbol, table.data() + at, sizeof(symbol));
      const bool fits = symbol.st_shndx != SHN_UNDEF && symbol.st_name < texts.size();
      if (fits && name == texts.c_str() + symbol.st_name) return true;
    }
  }
  return false;
}

std::string grant_of(const struct stat& about, bool has_capabilities, const Caller& caller) {
  if (caller.no_new_privileges) return {};
  if ((about.st_mode & S_ISUID) != 0 && about.st_uid != caller.uid) return "is setuid";
  // Without the right to execute, the setgid bit means something else.
  constexpr mode_t kSetgid = S_ISGID | S_IXGRP;
  if ((about.st_mode & kSetgid) == kSetgid && about.st_gid != caller.gid) return "is setgid";
  // Root has all capabilities already.
  if (has_capabilities && caller.uid != 0) return "has file capabilities";
  return {};
}

Reach reach_of(const std::string& path) {
  std::string next = path;
  for (int scripts = 0; scripts <= kMostScripts; ++scripts) {
    const base::Fd file(open(next.c_str(), O_RDONLY | O_CLOEXEC));
    const ProgramFile program = file ? read_program_file(file.get()) : ProgramFile{};
    if (program.kind == ProgramFile::Kind::kScript) {
      next = program.interpreter;
      continue;
    }
    const std::string fault = fault_of(program, next);
    if (fault.empty()) return {};
    const std::string who = next == path ? "it" : "its interpreter " + next;
    return {path + " runs ungated: " + who + " " + fault, !uses_musl(program)};
  }
  return {};
}

}  // namespace sluice::tools
