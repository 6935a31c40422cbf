// `sluice serve`: this process finds out where the models run, and becomes the server, under
// `sluice exec` if that is a GPU.
#include <fmt/format.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/gpus.hpp"
#include "server/program/serve.hpp"

namespace sluice::server {
namespace {

constexpr const char* kName = "sluice serve";
constexpr std::string_view kPlaceOption = "--place";

template <class Is>
bool any_on_gpu(const std::vector<ModelConfig>& models, Is is) {
  return std::ranges::any_of(
      models, [is](const ModelConfig& model) { return model.device != "cpu" && is(model); });
}

/// A GPU that a model names, and that does not exist, is a mistake in the configuration.
void check_gpus(const ServeOptions& options, const base::Gpus& gpus, const std::string& why_none) {
  const auto check = [](const std::string& whose, int gpu, std::size_t count,
                        const std::string& none) {
    if (static_cast<std::size_t>(gpu) < count) return;
    const std::string there = count == 0   ? none
                              : count == 1 ? "there is only GPU 0"
                                           : fmt::format("there are only GPUs 0 to {}", count - 1);
    throw base::UsageError(fmt::format("{}: found GPU {}, but {}", whose, gpu, there));
  };
  for (const ModelConfig& model : options.models) {
    const std::size_t count = gpus.simulated && needs_torch(model) ? 0 : gpus.names.size();
    for (const int gpu : model.gpus) {
      check(fmt::format("model {}: device", model.name), gpu, count, why_none);
    }
  }
  if (!gpus.names.empty()) check("--device", options.device, gpus.names.size(), "");
}

/// The real GPU if there is one; else the simulated one, which only recordings can use; else the
/// CPU.
Place find_place(const ServeOptions& options, const base::Install& install) {
  const bool torch = any_on_gpu(options.models, needs_torch);
  const bool recordings = any_on_gpu(
      options.models, [](const ModelConfig& model) { return model.engine == "recording"; });
  if (!torch && !recordings) return Place::kCpu;
  const bool sim_asked = std::any_of(options.models.begin(), options.models.end(),
                                     [](const ModelConfig& m) { return m.device == "sim"; });
  std::string choice = sim_asked ? "sim" : "auto";
  if (options.gpu == base::GpuChoice::kReal) choice = "real";
  if (options.gpu == base::GpuChoice::kSim) choice = "sim";
  const base::Gpus gpus = base::query_gpus(install, choice, options.session);
  const std::string why = gpus.why_simulated.empty() ? choice : gpus.why_simulated;
  check_gpus(options, gpus, "there is no real one (" + why + ")");
  if (!gpus.simulated) return Place::kRealGpu;
  if (torch) {
    base::print_error(
        kName, "no real GPU (" + why + "): PyTorch models run on the CPU, and nothing is gated");
  }
  return recordings ? Place::kSimulatedGpu : Place::kCpu;
}

/// Replaces this process by the server with the interposer, which begins and announces its jobs.
/// The server gives way to nobody, so its policy is none. A name that `sluice exec` gave it stays.
[[noreturn]] void become_gated(const ServeOptions& options, const base::Install& install,
                               Place place, int argc, char** argv) {
  const std::string gpu = place == Place::kRealGpu ? "real" : "sim";
  const char* name = std::getenv("SLUICE_NAME");
  std::vector<std::string> args{install.subcommand("exec"),
                                "--priority",
                                "1",
                                "--policy",
                                "none",
                                "--name",
                                name != nullptr && *name != '\0' ? name : "serve",
                                "--gpu",
                                gpu,
                                "--session",
                                options.session,
                                "--",
                                install.subcommand("serve")};
  args.insert(args.end(), argv + 1, argv + argc);
  args.insert(args.end(), {std::string(kPlaceOption), gpu});
  std::vector<char*> pointers;
  for (std::string& arg : args) pointers.push_back(arg.data());
  pointers.push_back(nullptr);
  execv(pointers.front(), pointers.data());
  throw base::RunError("cannot run " + args.front() + ": " + std::strerror(errno));
}

/// The memory of a large body or tensor goes back to the system as soon as it is free. By default
/// glibc keeps up to 64 MB of it for each of its arenas, in addition to --max-queue-mb. Not that of
/// 16 images (9.6 MB): mapping it anew for each request costs 5 ms on a virtual machine.
void give_memory_back() {
  mallopt(M_MMAP_THRESHOLD, 16 << 20);
  mallopt(M_TRIM_THRESHOLD, 32 << 20);
}

int start(int argc, char** argv) {
  give_memory_back();
  ServeOptions options;
  if (const auto exit_code = parse_serve_options(argc, argv, options)) return *exit_code;
  const base::Install install = base::Install::of_this_program();
  choose_engines(install, engine::model_store(options.store), options.models);
  const Place place = options.place == "real"  ? Place::kRealGpu
                      : options.place == "sim" ? Place::kSimulatedGpu
                                               : find_place(options, install);
  if (options.place.empty() && place != Place::kCpu) {
    become_gated(options, install, place, argc, argv);
  }
  for (ModelConfig& model : options.models) settle_gpus(place, options.device, model);
  return serve(options, place);
}

}  // namespace
}  // namespace sluice::server

int main(int argc, char** argv) {
  return sluice::base::run_program(sluice::server::kName,
                                   [&] { return sluice::server::start(argc, argv); });
}
