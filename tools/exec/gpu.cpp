#include "tools/exec/gpu.hpp"

#include "base/child.hpp"
#include "base/command_line.hpp"
#include "tools/exec/environment.hpp"

namespace sluice::tools {

void use_simulated_gpu(const base::Install& install) {
  const std::filesystem::path driver = install.simgpu_folder() / "libcuda.so.1";
  if (!std::filesystem::exists(driver)) {
    throw base::RunError("the simulated GPU is missing, build or install it again: " +
                         driver.string());
  }
  set_simulated_gpu(install, true);
}

void use_real_gpu(const base::Install& install) {
  set_simulated_gpu(install, false);
  const base::Captured answer = base::capture({install.subcommand("gpus"), "--gpu", "real"});
  if (answer.exit_code == 0) return;
  const std::string why = base::printed_error("sluice gpus", answer.err);
  throw base::RunError(why.empty() ? "sluice gpus could not be run; build or install it again"
                                   : why + "; --gpu sim takes the simulated one");
}

}  // namespace sluice::tools
