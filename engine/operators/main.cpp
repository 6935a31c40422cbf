// sluice-operators: the operators of a PyTorch model, for `sluice opbench run --executor torch`.
#include <fmt/format.h>

#include <filesystem>

#include "base/command_line.hpp"
#include "base/install.hpp"
#include "engine/operators/options.hpp"
#include "engine/torch/operator_profile.hpp"
#include "engine/torch/served_torch.hpp"

namespace sluice::engine {
namespace {

namespace fs = std::filesystem;

void print_summary(const OperatorTarget& target, const std::vector<OperatorTimes>& operators) {
  std::size_t kernels = 0;
  double ms = 0;
  double few_ms = 0;
  for (const OperatorTimes& times : operators) {
    kernels += times.kernels.size();
    ms += times.ms;
    few_ms += few_blocks_ms(times, target.sms);
  }
  fmt::print("{} at batch {} on {}: {} operators, {:.3f} ms", target.model, target.batch,
             target.gpu, operators.size(), ms);
  if (target.sms > 0) {
    fmt::print(", {} kernels; {:.1f} % of the time in kernels with fewer blocks than the {} SMs",
               kernels, ms > 0 ? few_ms / ms * 100 : 0, target.sms);
  }
  fmt::print("\n");
}

int work(int argc, char** argv) {
  OperatorOptions options;
  if (const auto exit_code = parse_operator_options(argc, argv, options)) return *exit_code;
  // Before anything uses the GPU.
  std::optional<KernelCollection> kernels;
  if (options.gpu) {
    const fs::path folder = base::Install::of_this_program().interposer().parent_path();
    kernels.emplace(folder / "libsluice_cupti.so");
  }
  const StoredModel stored =
      find_script(model_store(options.store), options.model, SLUICE_TORCH_VERSION);
  use_threads(options.threads);
  const OperatorTarget target{.model = options.model,
                              .batch = options.batch,
                              .gpu = torch_device_name(options.gpu),
                              .sms = options.gpu ? sm_count(*options.gpu) : 0};
  const auto operators =
      profile_operators(stored, ServeOptions{options.gpu, options.batch, {}},
                        static_cast<int>(options.repeats), kernels ? &*kernels : nullptr);
  const fs::path folder = fs::path(options.out) / fmt::format("{}-b{}", target.model, target.batch);
  fs::create_directories(folder);
  write_operators((folder / "op.csv").string(), target, operators);
  print_summary(target, operators);
  fmt::print("written: {}\n", (folder / "op.csv").string());
  return base::kExitFine;
}

}  // namespace
}  // namespace sluice::engine

int main(int argc, char** argv) {
  return sluice::base::run_program("sluice opbench",
                                   [&] { return sluice::engine::work(argc, argv); });
}
