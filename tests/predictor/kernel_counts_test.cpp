// Kernels that were counted by hand. A count that is wrong teaches a predictor nothing, and no
// error of a prediction would show why.
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.hpp"
#include "predictor/source/count_kernels.hpp"
#include "predictor/source/index_value.hpp"

namespace sluice::predictor {
namespace {

/// A kernel with the parameters `out_ptr` and `in_ptr`, in the form of TVM's CUDA C.
KernelCounts counted(const std::string& body, unsigned threads = 64, unsigned blocks = 4,
                     const std::string& type = "float") {
  profiler::Program program;
  program.kernels.push_back(
      {.name = "main_kernel", .grid = {blocks, 1, 1}, .block = {threads, 1, 1}});
  const std::string head = "extern \"C\" __global__ void __launch_bounds__(64) main_kernel(" +
                           type + "* __restrict__ out_ptr, " + type + "* __restrict__ in_ptr)";
  program.source = head + ";\n" + head + " {\n" + body + "}\n";
  return count_kernels(program).at(0);
}

TEST(KernelCounts, NeighboursShareTheirSectors) {
  const auto c = counted(
      "  out_ptr[((((int)blockIdx.x) * 64) + ((int)threadIdx.x))] = "
      "(in_ptr[((((int)blockIdx.x) * 64) + ((int)threadIdx.x))] + 0x1p+0f/*1.000000e+00*/);\n");
  // 32 lanes of 4 bytes: 128 bytes, 4 sectors, one line.
  EXPECT_EQ(c.global_loads, 1);
  EXPECT_EQ(c.global_load_sectors, 4);
  EXPECT_EQ(c.global_load_lines, 1);
  EXPECT_EQ(c.global_stores, 1);
  EXPECT_EQ(c.global_store_sectors, 4);
  EXPECT_EQ(c.float_ops, 1);
  EXPECT_EQ(c.fma, 0);
  EXPECT_EQ(c.statements, 1);
}

TEST(KernelCounts, ElementsHaveTheSizeOfTheirType) {
  for (const auto& [type, sectors] : {std::pair{"double", 8},
                                      {"int64_t", 8},
                                      {"float", 4},
                                      {"half", 2},
                                      {"bool", 1},
                                      {"int8_t", 1},
                                      {"unsigned char", 1}}) {
    const auto c =
        counted("  int k = (((int)threadIdx.x) * 1);\n  out_ptr[k] = in_ptr[k];\n", 64, 4, type);
    EXPECT_EQ(c.global_load_sectors, sectors) << type;
    EXPECT_EQ(c.unread, 0);
  }
}

TEST(KernelCounts, AStrideTouchesASectorForEachLane) {
  const auto c = counted("  out_ptr[((int)threadIdx.x)] = in_ptr[(((int)threadIdx.x) * 16)];\n");
  EXPECT_EQ(c.global_load_sectors, 32) << "64 bytes from lane to lane";
  EXPECT_EQ(c.global_load_lines, 16);
  const auto all_one = counted("  out_ptr[((int)threadIdx.x)] = in_ptr[((int)blockIdx.x)];\n");
  EXPECT_EQ(all_one.global_load_sectors, 1);
}

TEST(KernelCounts, LanesThatMeetInABankWait) {
  const auto with_stride = [](const std::string& stride) {
    return counted(
        "  __shared__ alignas(64) float s_ptr[4096];\n  s_ptr[((int)threadIdx.x)] = "
        "0x0p+0f/*0.000000e+00*/;\n  __syncthreads();\n  out_ptr[((int)threadIdx.x)] = "
        "s_ptr[(((int)threadIdx.x) * " +
        stride + ")];\n");
  };
  EXPECT_EQ(with_stride("1").shared_load_wavefronts, 1);
  EXPECT_EQ(with_stride("2").shared_load_wavefronts, 2);
  EXPECT_EQ(with_stride("32").shared_load_wavefronts, 32);
  EXPECT_EQ(with_stride("33").shared_load_wavefronts, 1);
  EXPECT_EQ(with_stride("0").shared_load_wavefronts, 1) << "one word for all";
  const auto c = with_stride("1");
  EXPECT_EQ(c.shared_stores, 1);
  EXPECT_EQ(c.syncs, 1);
  EXPECT_EQ(c.shared_bytes, 4 * 4096);
}

TEST(KernelCounts, ConditionsMaskLanesAndWarps) {
  const auto c = counted(
      "  if (((int)threadIdx.x) < 8) {\n    out_ptr[((int)threadIdx.x)] = "
      "in_ptr[((int)threadIdx.x)];\n  } else {\n    out_ptr[((int)threadIdx.x)] = "
      "0x0p+0f/*0.000000e+00*/;\n  }\n",
      32);
  EXPECT_EQ(c.global_loads, 1);
  EXPECT_EQ(c.global_load_sectors, 1) << "8 lanes of 4 bytes";
  EXPECT_EQ(c.global_stores, 2);
  EXPECT_EQ(c.global_store_sectors, 1 + 3);
  EXPECT_EQ(c.branches, 1);
  const auto never =
      counted("  if (64 <= ((int)threadIdx.x)) {\n    out_ptr[0] = in_ptr[0];\n  }\n");
  EXPECT_EQ(never.global_loads, 0);
  EXPECT_EQ(never.statements, 0);
  EXPECT_EQ(never.text, 1);
  // 40 threads: the second warp has 8.
  const auto partial = counted("  out_ptr[((int)threadIdx.x)] = 0x0p+0f;\n", 40);
  EXPECT_LT(partial.global_store_sectors, 4);
  EXPECT_GE(partial.global_store_sectors, 1);
}

TEST(KernelCounts, ALoadLeavesTheLoopsThatItDoesNotVaryWith) {
  const std::string loops =
      "  float local_ptr[1];\n  for (int k = 0; k < 10; ++k) {\n    for (int j = 0; j < 5; ++j) {\n"
      "      local_ptr[0] = (local_ptr[0] + (in_ptr[((k * 32) + ((int)threadIdx.x))] * "
      "in_ptr[((int)threadIdx.x)]));\n";
  const auto c = counted(loops + "    }\n  }\n");
  EXPECT_EQ(c.fma, 50);
  EXPECT_EQ(c.float_ops, 0);
  EXPECT_EQ(c.written_global_loads, 100);
  EXPECT_EQ(c.global_loads, 10 + 1) << "one varies with k, one with nothing";
  EXPECT_EQ(c.branches, 10 + 50);
  EXPECT_EQ(c.hot_text, 1);
  EXPECT_EQ(c.hot_trips, 50);
  EXPECT_EQ(c.local_loads, 50);
  EXPECT_EQ(c.local_accesses, 2) << "a load and a store, once the loops are over";
  const auto waits = counted(loops + "    }\n    __syncthreads();\n  }\n");
  EXPECT_EQ(waits.global_loads, 10 + 10) << "nothing moves across a wait for the block";
}

TEST(KernelCounts, AnAddressIsLoadedOnceForAllStatements) {
  const auto c = counted(
      "  float local_ptr[2];\n  local_ptr[0] = in_ptr[((int)threadIdx.x)];\n  local_ptr[1] = "
      "(in_ptr[((int)threadIdx.x)] + in_ptr[(((int)threadIdx.x) + 32)]);\n");
  EXPECT_EQ(c.written_global_loads, 3);
  EXPECT_EQ(c.global_loads, 2);
  // What another thread wrote in between is loaded again.
  const auto shared = counted(
      "  __shared__ float s_ptr[64];\n  float local_ptr[2];\n  for (int k = 0; k < 4; ++k) {\n    "
      "local_ptr[0] = s_ptr[0];\n    __syncthreads();\n    local_ptr[1] = s_ptr[0];\n    "
      "__syncthreads();\n  }\n");
  EXPECT_EQ(shared.shared_loads, 8);
}

TEST(KernelCounts, ADoubleBufferIsReadAndWrittenInEachStep) {
  const auto c = counted(
      "  __shared__ alignas(64) float s_ptr[128];\n  s_ptr[((int)threadIdx.x)] = "
      "in_ptr[((int)threadIdx.x)];\n  tvm_builtin_ptx_cp_async_commit_group_async_commit_group();\n"
      "  for (int k = 0; k < 7; ++k) {\n    __syncthreads();\n    s_ptr[((((k + 1) & 1) * 64) + "
      "((int)threadIdx.x))] = in_ptr[(((k + 1) * 64) + ((int)threadIdx.x))];\n    "
      "tvm_builtin_ptx_cp_async_wait_group_async_wait_group_1();\n    __syncthreads();\n    "
      "out_ptr[((k * 64) + ((int)threadIdx.x))] = s_ptr[(((k & 1) * 64) + ((int)threadIdx.x))];\n"
      "  }\n");
  EXPECT_EQ(c.global_loads, 1 + 7);
  EXPECT_EQ(c.shared_stores, 1 + 7);
  EXPECT_EQ(c.shared_loads, 7);
  EXPECT_EQ(c.shared_load_wavefronts, 7);
  EXPECT_EQ(c.syncs, 14);
}

TEST(KernelCounts, AVectorIsOneRequest) {
  const auto c = counted(
      "  __shared__ alignas(64) float s_ptr[256];\n  int4 v_1 = make_int4((((int)threadIdx.x) * "
      "4)+(1*0), (((int)threadIdx.x) * 4)+(1*1), (((int)threadIdx.x) * 4)+(1*2), "
      "(((int)threadIdx.x) * 4)+(1*3));\n  *(float4*)(s_ptr + (((int)threadIdx.x) * 4)) = "
      "make_float4(in_ptr[v_1.x],in_ptr[v_1.y],in_ptr[v_1.z],in_ptr[v_1.w]);\n  *(float4*)(out_ptr "
      "+ (((int)threadIdx.x) * 4)) = *(float4*)(s_ptr + (((int)threadIdx.x) * 4));\n",
      32);
  EXPECT_EQ(c.shared_stores, 1);
  EXPECT_EQ(c.shared_store_wavefronts, 4) << "512 bytes";
  EXPECT_EQ(c.global_store_sectors, 16);
  EXPECT_EQ(c.global_loads, 4);
  EXPECT_EQ(c.global_load_sectors, 4 * 16) << "each element has a stride of 16 bytes";
  EXPECT_EQ(c.unread, 0);
}

TEST(KernelCounts, LoopsThatIndexAnArrayOfTheThreadAreUnrolled) {
  const auto c = counted(
      "  float local_ptr[96];\n  for (int k = 0; k < 3; ++k) {\n    for (int i = 0; i < 12; ++i) "
      "{\n"
      "      for (int j = 0; j < 8; ++j) {\n        local_ptr[((i * 8) + j)] = (local_ptr[((i * 8) "
      "+ "
      "j)] + in_ptr[k]);\n      }\n    }\n  }\n");
  EXPECT_EQ(c.unrolled, 96) << "not 288: nothing is indexed by k";
  EXPECT_EQ(c.local_bytes, 4 * 96);
  EXPECT_EQ(c.local_accesses, 2 * 288) << "in memory, each is left";
}

TEST(KernelCounts, EachKernelHasItsOwn) {
  profiler::Program program;
  for (const char* name : {"k", "k_1"}) {
    program.kernels.push_back({.name = name, .block = {32, 1, 1}});
  }
  program.source =
      "extern \"C\" __global__ void other_k(float* a_ptr) {\n}\n\nextern \"C\" __global__ void "
      "k(float* a_ptr) {\n  a_ptr[0] = 0x0p+0f;\n}\n\nextern \"C\" __global__ void "
      "k_1(float* a_ptr) {\n  a_ptr[0] = a_ptr[1];\n  a_ptr[1] = expf(a_ptr[2]);\n}\n";
  const auto counts = count_kernels(program);
  ASSERT_EQ(counts.size(), 2U);
  EXPECT_EQ(counts[0].global_stores, 1);
  EXPECT_EQ(counts[1].global_stores, 2);
  EXPECT_EQ(counts[1].functions, 1);
  EXPECT_EQ(KernelCounts::of(counts[1].numbers()).numbers(), counts[1].numbers());
  // A kernel that is not found must not count as one that does nothing.
  program.kernels.push_back({.name = "missing", .block = {32, 1, 1}});
  EXPECT_THROW((void)count_kernels(program), base::UsageError);
  program.kernels = {{.name = "k", .block = {32, 0, 1}}};
  EXPECT_THROW((void)count_kernels(program), base::UsageError);
}

// A pack may have any text as a source. It must not end the program, nor take minutes, nor give a
// number that spoils a training.
TEST(KernelCounts, AnyTextHasCounts) {
  const auto repeated = [](const std::string& text, int times) {
    std::string all;
    for (int i = 0; i < times; ++i) all += text;
    return all;
  };
  const std::string endless =
      "int x = (x + 1);\nint4 v = make_int4(0, 0, 0, 0);\nv.x = (v.x + 1);\n";
  for (const std::string& body :
       {endless + "out_ptr[x] = in_ptr[v.x];\n",
        "out_ptr[" + repeated("(", 2000) + "1" + repeated(")", 2000) + "] = 0x0p+0f;\n",
        "out_ptr[" + repeated("(", 1000) + "a" + repeated(" + 1)", 600) + "] = 0x0p+0f;\n",
        "out_ptr[" + repeated("-", 3000) + "1] = in_ptr[" + repeated("a[", 1500) + ";\n",
        repeated("for (int i = 0; i < 99999999999; ++i) {\n", 100) + "out_ptr[i] = in_ptr[i];\n",
        repeated("for (int i = 0; i < inf; ++i) {\n", 3) + "float a_ptr[1e308];\na_ptr[i] = 1;\n",
        std::string(
            "out_ptr[(9223372036854775807 + 9)] = in_ptr[((-9223372036854775807 - 1) / -1)];\n"
            "out_ptr[(1 << 70)] = in_ptr[(9223372036854775807 * 9)];\n"
            "out_ptr[(-9223372036854775807 - 1)] = in_ptr[((-9223372036854775807 - 1) % -1)];\n"),
        repeated("}\n", 5) + "} else {\n> = >;\n= \nint  x\nconst  = ;\nif ( {\nalignas(\n",
        repeated("out_ptr[0] = " + repeated("*(a", 1300) + ";\n", 50),
        "out_ptr[0] = " + repeated("*(a", 400'000) + ";\n",
        repeated("for (;;) {\n", 15'000) + repeated("__syncthreads();\n", 15'000)}) {
    for (const double number : counted(body).numbers()) {
      EXPECT_TRUE(std::isfinite(number) && number >= 0) << body.substr(0, 100);
    }
  }
}

TEST(Indices, HaveThePrecedenceOfC) {
  Indices indices;
  IndexValue three;
  three.lanes.fill(3);
  three.loops = 4;
  indices.set("x", three);
  indices.define("y", "((x * 2) + 1)");
  const auto value = [&](std::string_view text) { return indices.value(text).lanes[0]; };
  EXPECT_EQ(value("1 + 2 * 3"), 7);
  EXPECT_EQ(value("(10 - 4 - 3)"), 3);
  EXPECT_EQ(value("((17 % 5) << 2)"), 8);
  EXPECT_EQ(value("((x < 4) && (y == 7))"), 1);
  EXPECT_EQ(value("(1 & 3 | 4)"), 5);
  EXPECT_EQ(value("min(max(x, 5), y)"), 5);
  EXPECT_EQ(value("((x != 3) ? 10 : 20)"), 20);
  EXPECT_EQ(value("(-x + ((int64_t)8))"), 5);
  EXPECT_EQ(indices.value("(y + 1)").loops, 4U);
  three.lanes.fill(4);
  indices.set("x", three);
  EXPECT_EQ(value("(y + 1)"), 10) << "not what it was before";
  EXPECT_THROW((void)indices.value("a_ptr[x]"), NotAnIndex);
  EXPECT_THROW((void)indices.value("(x + "), NotAnIndex);
}

}  // namespace
}  // namespace sluice::predictor
