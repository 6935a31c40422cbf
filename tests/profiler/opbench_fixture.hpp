#pragma once
#include <gmock/gmock.h>

#include <map>
#include <string>
#include <vector>

#include "profiler/compile/nvrtc.hpp"
#include "profiler/packs/pack.hpp"
#include "profiler/records/record.hpp"
#include "tests/support/end_to_end_test.hpp"
#include "tests/support/process.hpp"

/// What the tests of `sluice opbench measure` and `compile` share: made-up packs, measured on the
/// simulated GPU.
namespace sluice::profiler {

inline constexpr const char* kTask = "00000000000000aa";
/// A binary that the simulated GPU takes: every name is in it.
inline const std::string kBinary =
    "\x7f"
    "ELF and so on";

inline Task made_up_task() {
  return {.id = kTask,
          .name = "fused_add",
          .workload_key = "[]",
          .flop = 1024,
          .buffers = {{{1024}, "float32", false}, {{1024}, "float32", true}},
          .sketches = {{{.name = "unroll", .type = "ot", .values = {0, 16}}}}};
}

/// `kernel`: its name decides what the simulated GPU does.
inline Program program_of(const std::string& id, const std::string& kernel) {
  Program program{
      .id = id,
      .task = kTask,
      .entity = {{"unroll", "ot", 16}},
      .kernels = {{.name = kernel, .grid = {8, 1, 1}, .block = {128, 1, 1}, .args = {0, 1}}}};
  program.cubins["sm_90"] = kBinary;
  return program;
}

class Opbench : public test::SessionTest {
 protected:
  std::string pack_of(const std::vector<Program>& programs,
                      const std::string& target = "cuda -arch=sm_90",
                      const std::string& name = "test.programs") {
    const std::string file = own_session_.file(name);
    PackWriter pack(file);
    pack.add(PackHeader{target, "0.27.0.post1", "0.1.14.post0", 0});
    pack.add(made_up_task());
    for (const Program& program : programs) pack.add(program);
    pack.close();
    return file;
  }

  [[nodiscard]] std::string records_file() const { return own_session_.file("records.jsonl"); }

  base::Captured measure(std::vector<std::string> args, std::vector<std::string> environment = {}) {
    args.insert(args.begin(), {SLUICE_TEST_PROGRAM, "opbench", "measure", "-o", records_file()});
    environment.emplace_back("LD_LIBRARY_PATH=" SLUICE_TEST_SIMGPU_FOLDER);
    return test::Process(args, {.environment = environment}).finish();
  }

  /// By the program's id; the last one counts.
  [[nodiscard]] std::map<std::string, Record> records() const {
    std::map<std::string, Record> found;
    for (const Record& record : read_records(records_file()).records) {
      found[record.details->program] = record;
    }
    return found;
  }
};

class OpbenchCompiler : public Opbench {
 protected:
  inline static const std::string kGood =
      "extern \"C\" __global__ void add(float* a, float* b) { *b = *a; }";
  // Recursive instances without end for the compiler's front end, as a giant of unrolling is for
  // its back end.
  inline static const std::string kEndless =
      "template <int N, int M> struct S { static constexpr int v = S<N - 1, M>::v + "
      "S<N - 1, M + (1 << N)>::v; };\n"
      "template <int M> struct S<0, M> { static constexpr int v = 1; };\n"
      "extern \"C\" __global__ void add(float* a, float* b) { b[0] = S<24, 0>::v; }";

  void SetUp() override {
    if (!has_nvrtc()) GTEST_SKIP() << "no NVRTC on this machine";
  }
  static Program with_source(const std::string& id, const std::string& source) {
    Program program = program_of(id, "add");
    program.cubins.clear();
    program.source = source;
    return program;
  }
};

}  // namespace sluice::profiler
