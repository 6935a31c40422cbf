#include "tests/real_gpu/graphs/kernels.hpp"

#include <string>

namespace sluice::graphs {
namespace {

constexpr const char* kHeader = R"(.version 7.8
.target $TARGET
.address_size 64
)";

constexpr const char* kSpin = R"(
  ld.param.u64 %length, [ns];
  mov.u64 %begin, %globaltimer;
again:
  mov.u64 %now, %globaltimer;
  sub.u64 %now, %now, %begin;
  setp.lt.u64 %busy, %now, %length;
  @%busy bra again;
)";

// The simulated GPU takes a kernel's duration from its name and first argument; a real GPU runs it.
constexpr const char* kStep = R"(
.visible .entry $NAME(.param .u64 ns, .param .u64 x, .param .u32 words, .param .u32 a,
                      .param .u32 b) {
  .reg .u64 %begin, %now, %length, %at, %offset;
  .reg .u32 %index, %block, %threads, %words, %value, %a, %b;
  .reg .pred %busy, %outside;
  $BEFORE
  mov.u32 %block, %ctaid.x;
  mov.u32 %threads, %ntid.x;
  mov.u32 %index, %tid.x;
  mad.lo.u32 %index, %block, %threads, %index;
  ld.param.u32 %words, [words];
  setp.ge.u32 %outside, %index, %words;
  @%outside ret;
  ld.param.u64 %at, [x];
  cvta.to.global.u64 %at, %at;
  mul.wide.u32 %offset, %index, 4;
  add.u64 %at, %at, %offset;
  ld.volatile.global.u32 %value, [%at];
  $SPIN
  ld.param.u32 %a, [a];
  ld.param.u32 %b, [b];
  add.u32 %b, %b, %index;
  mad.lo.u32 %value, %value, %a, %b;
  st.volatile.global.u32 [%at], %value;
  ret;
}
)";

constexpr const char* kProgrammatic = R"(griddepcontrol.launch_dependents;
  griddepcontrol.wait;)";

constexpr const char* kCombine = R"(
.visible .entry sluice_spin_combine(.param .u64 ns, .param .u64 to, .param .u64 from,
                                    .param .u32 words, .param .u32 a) {
  .reg .u64 %begin, %now, %length, %to, %from, %offset;
  .reg .u32 %index, %block, %threads, %words, %value, %a, %other;
  .reg .pred %busy, %outside;
  mov.u32 %block, %ctaid.x;
  mov.u32 %threads, %ntid.x;
  mov.u32 %index, %tid.x;
  mad.lo.u32 %index, %block, %threads, %index;
  ld.param.u32 %words, [words];
  setp.ge.u32 %outside, %index, %words;
  @%outside ret;
  ld.param.u64 %to, [to];
  ld.param.u64 %from, [from];
  cvta.to.global.u64 %to, %to;
  cvta.to.global.u64 %from, %from;
  mul.wide.u32 %offset, %index, 4;
  add.u64 %to, %to, %offset;
  add.u64 %from, %from, %offset;
  ld.volatile.global.u32 %value, [%to];
  ld.volatile.global.u32 %other, [%from];
  $SPIN
  ld.param.u32 %a, [a];
  mad.lo.u32 %value, %value, %a, %other;
  st.volatile.global.u32 [%to], %value;
  ret;
}
)";

constexpr const char* kDecide = R"(
.extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);
.visible .entry sluice_spin_decide(.param .u64 ns, .param .u64 handle, .param .u64 counter,
                                   .param .u32 limit) {
  .reg .u64 %begin, %now, %length, %counter, %handle;
  .reg .u32 %count, %limit, %value;
  .reg .pred %busy, %below;
  $SPIN
  ld.param.u64 %counter, [counter];
  ld.param.u64 %handle, [handle];
  ld.param.u32 %limit, [limit];
  cvta.to.global.u64 %counter, %counter;
  ld.volatile.global.u32 %count, [%counter];
  add.u32 %count, %count, 1;
  st.volatile.global.u32 [%counter], %count;
  setp.lt.u32 %below, %count, %limit;
  selp.u32 %value, 1, 0, %below;
  {
    .param .b64 which;
    .param .b32 to;
    st.param.b64 [which], %handle;
    st.param.b32 [to], %value;
    call.uni cudaGraphSetConditional, (which, to);
  }
  ret;
}
)";

std::string filled(std::string text, const std::string& mark, const std::string& with) {
  for (auto at = text.find(mark); at != std::string::npos; at = text.find(mark, at)) {
    text.replace(at, mark.size(), with);
  }
  return text;
}

std::string header(const std::string& target) { return filled(kHeader, "$TARGET", target); }
std::string step(const std::string& name, const std::string& before) {
  return filled(filled(filled(kStep, "$NAME", name), "$BEFORE", before), "$SPIN", kSpin);
}

struct Usual {
  const char* name;
  std::uint64_t ns;
};
constexpr std::array<Usual, kKernels> kUsual{{{"sluice_spin_short", 4'000},
                                              {"sluice_spin_mid", 60'000},
                                              {"sluice_spin_long", 400'000},
                                              {"sluice_spin_mixed", 20'000},
                                              {"sluice_spin_unseen", 30'000},
                                              {"sluice_spin_programmatic", 40'000}}};

const Usual& usual(Kernel kernel) { return kUsual.at(static_cast<std::size_t>(kernel)); }

/// Functions of the only context. Modules live as long as the process.
struct Functions {
  std::array<CUfunction, kKernels> step{};
  CUfunction combine = nullptr;
  CUfunction decide = nullptr;
  std::string no_decide;  ///< Why there is no `decide`.
};

Functions& functions() {
  static Functions instance;
  return instance;
}

CUmodule load(const std::string& text) {
  CUmodule module = nullptr;
  SLUICE_MUST(cuModuleLoadData(&module, text.c_str()));
  return module;
}

CUfunction find(CUmodule module, const char* name) {
  CUfunction function = nullptr;
  SLUICE_MUST(cuModuleGetFunction(&function, module, name));
  return function;
}

}  // namespace

void load_kernels() {
  Functions& known = functions();
  const bool hopper = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) >= 9;
  for (std::size_t i = 0; i < kKernels; ++i) {
    const bool programmatic = i == static_cast<std::size_t>(Kernel::kProgrammatic);
    if (programmatic && !hopper) continue;
    const std::string name = kUsual.at(i).name;
    const std::string text = programmatic ? header("sm_90") + step(name, kProgrammatic)
                                          : header("sm_70") + step(name, "");
    known.step.at(i) = find(load(text), name.c_str());
  }
  known.combine =
      find(load(header("sm_70") + filled(kCombine, "$SPIN", kSpin)), "sluice_spin_combine");
  // A driver without conditional nodes cannot load this kernel.
  CUmodule module = nullptr;
  const CUresult loaded =
      cuModuleLoadData(&module, (header("sm_70") + filled(kDecide, "$SPIN", kSpin)).c_str());
  if (loaded == CUDA_SUCCESS) {
    known.decide = find(module, "sluice_spin_decide");
  } else {
    known.no_decide = "no kernel that sets a condition: " + name_of(loaded);
  }
}

void warm_up(CUdeviceptr scratch) {
  const Stream stream = new_stream();
  constexpr int kRounds = 80;
  for (int round = 0; round < kRounds; ++round) {
    for (const Kernel kernel : {Kernel::kShort, Kernel::kMid, Kernel::kLong, Kernel::kMixed}) {
      const bool long_one = kernel == Kernel::kMixed && round % 2 == 1;
      Step next{kernel, scratch, 1, 0};
      if (long_one) next.ns = 700'000;
      SLUICE_MUST(Call(next).launch(stream));
    }
    SLUICE_MUST(Call(Combine{scratch, scratch}).launch(stream));
    SLUICE_MUST(cuStreamSynchronize(stream));
  }
}

Call::Call(const Step& step)
    : function_(functions().step.at(static_cast<std::size_t>(step.kernel))),
      blocks_(kWords / step.threads),
      threads_(step.threads),
      ns_(step.ns == 0 ? usual(step.kernel).ns : step.ns),
      wide_{step.x, 0},
      narrow_{kWords, step.a, step.b},
      arguments_{&ns_, &wide_[0], &narrow_[0], &narrow_[1], &narrow_[2], nullptr} {
  if (function_ == nullptr) throw Skip("the GPU is older than sm_90");
}

Call::Call(const Combine& combine)
    : function_(functions().combine),
      blocks_(kWords / 256),
      threads_(256),
      ns_(10'000),
      wide_{combine.to, combine.from},
      narrow_{kWords, combine.a, 0},
      arguments_{&ns_, &wide_[0], &wide_[1], &narrow_[0], &narrow_[1], nullptr} {}

Call::Call(const Decide& decide)
    : function_(functions().decide),
      ns_(2'000),
      wide_{decide.handle, decide.counter},
      narrow_{decide.limit, 0, 0},
      arguments_{&ns_, &wide_[0], &wide_[1], &narrow_[0], nullptr, nullptr} {
  if (function_ == nullptr) throw Skip(functions().no_decide);
}

CUresult Call::launch(CUstream stream) {
  return cuLaunchKernel(function_, blocks_, 1, 1, threads_, 1, 1, 0, stream, arguments_.data(),
                        nullptr);
}

CUresult Call::launch_cooperative(CUstream stream) {
  return cuLaunchCooperativeKernel(function_, blocks_, 1, 1, threads_, 1, 1, 0, stream,
                                   arguments_.data());
}

CUlaunchConfig Call::config(CUstream stream) const {
  CUlaunchConfig config{};
  config.gridDimX = blocks_;
  config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = threads_;
  config.blockDimY = config.blockDimZ = 1;
  config.hStream = stream;
  return config;
}

CUresult Call::launch_programmatic(CUstream stream) {
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  attribute.value.programmaticStreamSerializationAllowed = 1;
  CUlaunchConfig how = config(stream);
  how.attrs = &attribute;
  how.numAttrs = 1;
  return cuLaunchKernelEx(&how, function_, arguments_.data(), nullptr);
}

CUresult Call::launch_with_event(CUstream stream, CUevent event) {
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT;
  attribute.value.programmaticEvent.event = event;
  CUlaunchConfig how = config(stream);
  how.attrs = &attribute;
  how.numAttrs = 1;
  return cuLaunchKernelEx(&how, function_, arguments_.data(), nullptr);
}

CUDA_KERNEL_NODE_PARAMS Call::node_params() {
  CUDA_KERNEL_NODE_PARAMS params{};
  params.func = function_;
  params.gridDimX = blocks_;
  params.gridDimY = params.gridDimZ = 1;
  params.blockDimX = threads_;
  params.blockDimY = params.blockDimZ = 1;
  params.kernelParams = arguments_.data();
  return params;
}

std::uint32_t addend_of(const CUDA_KERNEL_NODE_PARAMS& params) {
  return params.kernelParams == nullptr ? 0 : *static_cast<std::uint32_t*>(params.kernelParams[4]);
}

}  // namespace sluice::graphs
