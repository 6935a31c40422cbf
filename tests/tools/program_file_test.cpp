// What `sluice exec` reads in the file of a program. Prevents: a program that runs ungated, or does
// not start, without a word.
#include "tools/exec/program_file.hpp"

#include <elf.h>
#include <fcntl.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "base/fd.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::tools {
namespace {

using Kind = ProgramFile::Kind;

/// A file with an ELF header, one header of another part, and PT_INTERP if there is a `loader`.
struct SmallElf {
  Elf64_Ehdr head{};
  std::string loader;

  SmallElf() {
    std::memcpy(head.e_ident, ELFMAG, SELFMAG);
    head.e_ident[EI_CLASS] = ELFCLASS64;
    head.e_ident[EI_DATA] = ELFDATA2LSB;
    head.e_machine = EM_X86_64;
    head.e_phoff = sizeof(Elf64_Ehdr);
    head.e_phentsize = sizeof(Elf64_Phdr);
  }
  [[nodiscard]] std::string bytes() const {
    std::array<Elf64_Phdr, 2> parts{};
    parts[0].p_type = PT_LOAD;
    parts[1].p_type = PT_INTERP;
    parts[1].p_offset = sizeof(head) + sizeof(parts);
    parts[1].p_filesz = loader.size() + 1;
    Elf64_Ehdr told = head;
    told.e_phnum = loader.empty() ? 1 : 2;
    std::string all(sizeof(told) + sizeof(parts), '\0');
    std::memcpy(all.data(), &told, sizeof(told));
    std::memcpy(all.data() + sizeof(told), parts.data(), sizeof(parts));
    return all + loader + '\0';
  }
};

class ProgramFileTest : public ::testing::Test {
 protected:
  std::string put(const std::string& name, const std::string& bytes) {
    return folder_.write(name, bytes);
  }
  ProgramFile read(const std::string& bytes) {
    const base::Fd file(open(put("program", bytes).c_str(), O_RDONLY | O_CLOEXEC));
    return read_program_file(file.get());
  }

  test::TempFolder folder_;
};

TEST_F(ProgramFileTest, OfADynamicProgramNamesItsLoader) {
  SmallElf elf;
  elf.loader = "/lib64/ld-linux-x86-64.so.2";
  const ProgramFile program = read(elf.bytes());
  EXPECT_EQ(program.kind, Kind::kElf);
  EXPECT_TRUE(program.own_class);
  EXPECT_EQ(program.machine, EM_X86_64);
  EXPECT_EQ(program.interpreter, elf.loader);
}

TEST_F(ProgramFileTest, OfAStaticProgramHasNone) {
  EXPECT_EQ(read(SmallElf().bytes()).kind, Kind::kElf);
  EXPECT_EQ(read(SmallElf().bytes()).interpreter, "");
}

TEST_F(ProgramFileTest, OfAScriptNamesTheFileAfterTheMark) {
  for (const char* line : {"#!/bin/sh", "#! /bin/sh -e\nx", "#!\t/bin/sh\targument\n"}) {
    EXPECT_EQ(read(line).kind, Kind::kScript) << line;
    EXPECT_EQ(read(line).interpreter, "/bin/sh") << line;
  }
  EXPECT_EQ(read("#!").interpreter, "");
}

TEST_F(ProgramFileTest, ThatIsDamagedOrSomethingElseIsReadToItsEndOnly) {
  EXPECT_EQ(read("").kind, Kind::kOther);
  EXPECT_EQ(read("echo hello").kind, Kind::kOther);
  SmallElf elf;
  elf.loader = "/lib64/ld-linux-x86-64.so.2";
  const std::string whole = elf.bytes();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const ProgramFile program = read(whole.substr(0, size));
    EXPECT_EQ(program.kind, size < sizeof(Elf64_Ehdr) ? Kind::kOther : Kind::kElf);
  }
  elf.head.e_phoff = ~std::uint64_t{0} - 8;
  EXPECT_EQ(read(elf.bytes()).interpreter, "");
  elf.head.e_phoff = sizeof(Elf64_Ehdr);
  elf.head.e_phentsize = 0;  // each record is the first one
  EXPECT_EQ(read(elf.bytes()).interpreter, "");
}

TEST_F(ProgramFileTest, NothingIsSaidOfAProgramThatIsReached) {
  SmallElf elf;
  elf.loader = "/lib64/ld-linux-x86-64.so.2";
  const std::string path = put("reached", elf.bytes());
  for (const std::string& program :
       {path, put("script", "#!" + path + "\n"), put("shell", "echo"), std::string("/no/such")}) {
    const Reach reach = reach_of(program);
    EXPECT_EQ(reach.warning, "");
    EXPECT_TRUE(reach.preload);
  }
}

TEST_F(ProgramFileTest, AStaticProgramIsSaidAlsoBehindAScript) {
  const std::string path = put("static", SmallElf().bytes());
  EXPECT_EQ(reach_of(path).warning,
            path +
                " runs ungated: it is a static program, which loads no library; the programs "
                "that it starts are gated");
  EXPECT_TRUE(reach_of(path).preload);
  const std::string inner = put("inner", "#!" + path + "\n");
  const std::string outer = put("outer", "#! " + inner + "\n");
  EXPECT_TRUE(reach_of(outer).warning.starts_with(outer + " runs ungated: its interpreter " + path +
                                                  " is a static program"))
      << reach_of(outer).warning;
  const std::string itself = put("itself", "#!" + folder_.file("itself"));
  EXPECT_EQ(reach_of(itself).warning, "");
}

TEST_F(ProgramFileTest, AnotherMachineIsSaid) {
  SmallElf elf;
  elf.head.e_machine = EM_RISCV;
  EXPECT_NE(reach_of(put("risc", elf.bytes())).warning.find("another machine (ELF machine 243)"),
            std::string::npos);
  elf.head.e_machine = EM_386;
  elf.head.e_ident[EI_CLASS] = ELFCLASS32;
  EXPECT_NE(
      reach_of(put("old", elf.bytes())).warning.find("another machine (32 bits, ELF machine 3)"),
      std::string::npos);
}

// Prevents: exit code 127 and "Error relocating" in place of the program.
TEST_F(ProgramFileTest, AProgramOfMuslGetsNoPreload) {
  SmallElf elf;
  elf.loader = "/lib/ld-musl-x86_64.so.1";
  const Reach reach = reach_of(put("musl", elf.bytes()));
  EXPECT_FALSE(reach.preload);
  EXPECT_NE(reach.warning.find("it uses musl"), std::string::npos) << reach.warning;
}

// Prevents: another interposer that silently sees no launch, because ours calls the driver itself.
TEST_F(ProgramFileTest, ALibraryThatHooksLaunchesIsNamed) {
  const auto defines = [](const std::string& path, const std::string& name) {
    const base::Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    return defines_symbol(file.get(), name);
  };
  EXPECT_TRUE(defines(SLUICE_TEST_SECOND_INTERPOSER, "cuLaunchKernel"));
  EXPECT_FALSE(defines(SLUICE_TEST_SECOND_INTERPOSER, "cuLaunch"));
  EXPECT_FALSE(defines(SLUICE_TEST_CLIENT, "cuLaunchKernel")) << "it only calls it";
  EXPECT_FALSE(defines("/nonexistent", "cuLaunchKernel"));
  std::string bytes = test::read_file(SLUICE_TEST_SECOND_INTERPOSER);
  for (std::size_t size = 0; size < bytes.size(); size += 1 + size / 7) {
    EXPECT_NO_THROW(defines(put("cut", bytes.substr(0, size)), "cuLaunchKernel"));
  }
}

TEST(GrantOf, IsWhatMakesTheLoaderIgnoreThePreload) {
  const Caller user{1000, 1000, false};
  struct stat plain {};
  plain.st_mode = S_IFREG | 0755;
  plain.st_uid = 0;
  plain.st_gid = 0;
  struct stat setuid = plain;
  setuid.st_mode |= S_ISUID;
  struct stat setgid = plain;
  setgid.st_mode |= S_ISGID;
  EXPECT_EQ(grant_of(plain, false, user), "");
  EXPECT_EQ(grant_of(setuid, false, user), "is setuid");
  EXPECT_EQ(grant_of(setgid, false, user), "is setgid");
  EXPECT_EQ(grant_of(plain, true, user), "has file capabilities");
  // What changes nothing for this caller.
  EXPECT_EQ(grant_of(setuid, true, {0, 0, false}), "");
  EXPECT_EQ(grant_of(setgid, false, {1000, 0, false}), "");
  EXPECT_EQ(grant_of(setuid, true, {1000, 1000, true}), "");
  setgid.st_mode &= ~mode_t{S_IXGRP};
  EXPECT_EQ(grant_of(setgid, false, user), "");
}

}  // namespace
}  // namespace sluice::tools
