// `sluice opbench compile` with a real compiler, and its packs on a simulated GPU. Prevents: packs
// that the GPU machine compiles once more, programs that are lost or there twice, and half a pack
// in place of a whole one.
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "profiler/workers/gpu_workers.hpp"
#include "tests/profiler/opbench_fixture.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::profiler {
namespace {

using test::Process;
using testing::ElementsAre;
using testing::HasSubstr;

const std::vector<std::string> kNoCompiler{"SLUICE_NVRTC=/nowhere"};

Program not_compiled(const std::string& id) {
  Program program = program_of(id, "add");
  program.cubins.clear();
  program.source = "a source";
  return program;
}

template <class Fixture>
class Compiling : public Fixture {
 protected:
  [[nodiscard]] std::string out() const { return this->own_session_.file("out.programs"); }

  base::Captured compile(std::vector<std::string> args,
                         const std::vector<std::string>& environment = {}) {
    args.insert(args.begin(), {SLUICE_TEST_PROGRAM, "opbench", "compile", "-o", out()});
    return Process(args, {.environment = environment}).finish();
  }

  /// All lines of the new pack.
  [[nodiscard]] std::vector<PackEntry> lines() const {
    std::vector<PackEntry> found;
    PackReader pack(out());
    while (auto entry = pack.next()) found.push_back(std::move(*entry));
    return found;
  }

  [[nodiscard]] std::vector<Program> programs() const {
    std::vector<Program> found;
    for (const PackEntry& entry : lines()) {
      if (const auto* program = std::get_if<Program>(&entry)) found.push_back(*program);
    }
    return found;
  }

  [[nodiscard]] std::vector<std::string> ids() const {
    std::vector<std::string> found;
    for (const Program& program : programs()) found.push_back(program.id);
    return found;
  }

  [[nodiscard]] bool wrote_anything() const {
    return std::filesystem::exists(out()) || left_a_part();
  }

  [[nodiscard]] bool left_a_part() const {
    const auto files =
        std::filesystem::directory_iterator(std::filesystem::path(out()).parent_path());
    return std::any_of(begin(files), end(files),
                       [](const auto& file) { return file.path().extension() == ".part"; });
  }
};

/// Packs whose programs need no compiler.
using OpbenchCompile = Compiling<Opbench>;
using OpbenchCompileSources = Compiling<OpbenchCompiler>;

TEST_F(OpbenchCompileSources, TheNewPackIsMeasuredWithoutACompiler) {
  Program featured = with_source("p2", kGood);
  featured.features = {std::vector<float>(164, 1)};
  featured.position = {0};
  const std::string pack = pack_of({with_source("p1", kGood), featured});
  const auto compiled = compile({pack});
  ASSERT_EQ(compiled.exit_code, 0) << compiled.err;
  EXPECT_THAT(compiled.out, HasSubstr("2 programs with a binary"));
  EXPECT_THAT(compiled.out, HasSubstr("2 compiled in"));
  ASSERT_THAT(ids(), ElementsAre("p1", "p2"));
  for (const Program& program : programs()) {
    EXPECT_TRUE(program.source.empty());
    EXPECT_THAT(program.cubins.at("sm_90"), testing::StartsWith("\x7f"
                                                                "ELF"));
  }
  EXPECT_EQ(programs()[1].features, featured.features) << "sluice predict reads them";
  EXPECT_EQ(programs()[1].position, featured.position);

  EXPECT_EQ(measure({pack}, kNoCompiler).exit_code, 1)
      << "there is a compiler, so nothing is shown";
  const auto measured = measure({out()}, kNoCompiler);
  ASSERT_EQ(measured.exit_code, 0) << measured.err;
  EXPECT_TRUE(records().at("p1").good() && records().at("p2").good());
  EXPECT_THAT(measure({pack}, kNoCompiler).out, HasSubstr("2 known")) << "ids are the same";
}

TEST_F(OpbenchCompileSources, AProgramWithoutABinaryIsNamedAndLeftOut) {
  const auto ran = compile({pack_of({with_source("bad", "int add( {"),
                                     with_source("endless", kEndless), with_source("good", kGood)}),
                            "-j", "1", "--compile-limit-s", "2"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("program bad: program.cu(1): error:"));
  EXPECT_THAT(ran.err, HasSubstr("program endless: compiled longer than 2 s"));
  EXPECT_THAT(ran.out, HasSubstr("1 programs with a binary"));
  EXPECT_THAT(ran.out, HasSubstr("left out: 1 not compiled, 1 compiled too long"));
  EXPECT_THAT(ids(), ElementsAre("good"));
  const auto measured = measure({out()}, kNoCompiler);
  ASSERT_EQ(measured.exit_code, 0) << measured.err;
  EXPECT_EQ(records().size(), 1U) << "the others do not count as measured";
}

TEST_F(OpbenchCompileSources, TheOrderIsThatOfThePacks) {
  // The second is finished first.
  ASSERT_EQ(compile({pack_of({with_source("p1", kGood), program_of("p2", "add")})}).exit_code, 0);
  EXPECT_THAT(ids(), ElementsAre("p1", "p2"));
}

TEST_F(OpbenchCompileSources, IfNothingCompilesThereIsNoPack) {
  const auto ran = compile({pack_of({with_source("bad", "int add( {")})});
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_THAT(ran.err, HasSubstr("no program has a binary"));
  EXPECT_FALSE(wrote_anything());
}

TEST_F(OpbenchCompile, ABinaryIsNotCompiledAgain) {
  Program both = program_of("p1", "add");
  both.source = "int add( {";
  const auto ran = compile({pack_of({both, program_of("p2", "add")})}, kNoCompiler);
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("0 compiled in"));
  EXPECT_THAT(ran.out, HasSubstr("2 had one"));
  ASSERT_THAT(ids(), ElementsAre("p1", "p2"));
  for (const Program& program : programs()) {
    EXPECT_EQ(program.cubins.at("sm_90"), kBinary);
    EXPECT_TRUE(program.source.empty());
  }
}

TEST_F(OpbenchCompile, WhatTwoPacksHaveIsThereOnce) {
  const auto pack = [&](const std::string& name, const std::vector<Program>& programs) {
    const std::string file = own_session_.file(name);
    PackWriter writer(file);
    writer.add(PackHeader{"cuda -arch=sm_90", "t", "f", 0});
    writer.add(Network{"net", 1, {{kTask, {}}}});
    writer.add(made_up_task());
    for (const Program& program : programs) writer.add(program);
    writer.close();
    return file;
  };
  const std::string a = pack("a", {program_of("p1", "add"), program_of("p1", "add")});
  const std::string b =
      pack("b", {program_of("p1", "add"), program_of("p2", "add"), program_of("p3", "add")});
  ASSERT_EQ(compile({a, b}).exit_code, 0);
  EXPECT_THAT(ids(), ElementsAre("p1", "p2", "p3"));
  EXPECT_EQ(lines().size(), 6U) << "a header, a network and a task";
  ASSERT_EQ(compile({a, b, "--per-task", "2"}).exit_code, 0);
  EXPECT_THAT(ids(), ElementsAre("p1", "p2"));
}

TEST_F(OpbenchCompile, AnotherTargetIsRefused) {
  const auto refused = [&](const std::vector<std::string>& args, const std::string& why) {
    const auto ran = compile(args);
    EXPECT_EQ(ran.exit_code, 2);
    EXPECT_THAT(ran.err, HasSubstr(why));
    EXPECT_EQ(std::ranges::count(ran.err, '\n'), 1) << ran.err;
    EXPECT_FALSE(wrote_anything());
  };
  const std::string good = pack_of({program_of("p", "add")});
  const std::string llvm = pack_of({program_of("p", "add")}, "llvm -num-cores=2", "llvm");
  const std::string older = pack_of({program_of("p", "add")}, "cuda -arch=sm_75", "older");
  refused({llvm}, "llvm: programs for 'llvm -num-cores=2', not for a GPU");
  refused({good, older}, "older: programs for sm_75, not for sm_90");
  refused({good, "--arch", "sm_75"}, "test.programs: programs for sm_90, not for sm_75");
  refused({good, pack_of({}, "cuda -arch=sm_90 -max_threads_per_block=512", "other")},
          "other: of target");
}

TEST_F(OpbenchCompile, AnotherTargetIsFoundBeforeAnythingIsCompiled) {
  // The second program waits for the first, which finds no compiler.
  const std::string sources = pack_of({not_compiled("p1"), not_compiled("p2")});
  const std::string older = pack_of({}, "cuda -arch=sm_75", "older");
  const auto ran = compile({sources, older, "-j", "1"}, kNoCompiler);
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.err, HasSubstr("older: programs for sm_75, not for sm_90"));
}

TEST_F(OpbenchCompile, AnInputIsNeitherReplacedNorRemoved) {
  const std::string pack = pack_of({program_of("p1", "add"), not_compiled("p2")});
  const std::string before = test::read_file(pack);
  std::filesystem::create_hard_link(pack, out());
  const auto ran = compile({pack}, kNoCompiler);
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.err, HasSubstr("choose another name for -o"));
  EXPECT_EQ(test::read_file(pack), before);
  EXPECT_EQ(test::read_file(out()), before);

  const std::string part = pack_of({program_of("p1", "add")}, "cuda -arch=sm_90",
                                   std::filesystem::path(out() + ".part").filename());
  EXPECT_EQ(compile({part}).exit_code, 0);
  EXPECT_TRUE(std::filesystem::exists(part));
  EXPECT_THAT(ids(), ElementsAre("p1"));
}

TEST_F(OpbenchCompile, ARunThatFailsLeavesTheOlderPack) {
  ASSERT_EQ(compile({pack_of({program_of("p1", "add")})}).exit_code, 0);
  const std::string before = test::read_file(out());
  const auto ran = compile({pack_of({program_of("p1", "add"), not_compiled("p2")})}, kNoCompiler);
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_THAT(ran.err, HasSubstr("no NVRTC found"));
  EXPECT_EQ(test::read_file(out()), before);
  EXPECT_FALSE(left_a_part());
}

TEST_F(OpbenchCompile, ATornPackGivesItsWholePart) {
  const std::string file = pack_of({program_of("p1", "add")});
  const std::string second =
      test::read_file(pack_of({program_of("p2", "add")}, "cuda -arch=sm_90", "second"));
  std::ofstream(file, std::ios::app) << second.substr(0, second.size() / 2);
  const auto ran = compile({file});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("test.programs: the last part is cut off: dropped"));
  EXPECT_THAT(ids(), ElementsAre("p1"));
}

TEST_F(OpbenchCompile, ProgramsWithNeitherSourceNorBinaryAreRefused) {
  Program bare = program_of("p1", "add");
  bare.cubins.clear();
  const auto ran = compile({pack_of({bare})});
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.err, HasSubstr("1 programs have neither a source nor a binary"));
  EXPECT_FALSE(wrote_anything());
  const auto some = compile({pack_of({bare, program_of("p2", "add")})});
  EXPECT_EQ(some.exit_code, 0) << some.err;
  EXPECT_THAT(some.out, HasSubstr("1 without a source"));
}

TEST_F(OpbenchCompile, ABareProgramDoesNotHideItsBinaryInALaterPack) {
  Program bare = program_of("p1", "add");
  bare.cubins.clear();
  const std::string first = pack_of({bare}, "cuda -arch=sm_90", "first");
  const std::string second = pack_of({bare, program_of("p1", "add"), program_of("p2", "add")});
  const auto ran = compile({first, second, "--per-task", "1"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ids(), ElementsAre("p1"));
  EXPECT_THAT(ran.out, testing::Not(HasSubstr("without a source")));
  const auto measured = measure({first, second, "--per-task", "1"});
  ASSERT_EQ(measured.exit_code, 0) << measured.err;
  ASSERT_EQ(records().size(), 1U);
  EXPECT_TRUE(records().at("p1").good());
  EXPECT_THAT(measured.out, testing::Not(HasSubstr("source")));
}

// Prevents: a source of megabytes that goes through a pipe to be thrown away.
TEST(KeepWhatMeasures, ASourceStaysOnlyIfItIsCompiled) {
  Program program = program_of("p", "add");
  program.source = "a source";
  program.features = {{1}};
  Program other = program;
  EXPECT_FALSE(keep_what_measures(other, "sm_75"));
  EXPECT_EQ(other.source, "a source");
  EXPECT_TRUE(other.features.empty());
  EXPECT_TRUE(keep_what_measures(program, "sm_90"));
  EXPECT_TRUE(program.source.empty());
}

}  // namespace
}  // namespace sluice::profiler
