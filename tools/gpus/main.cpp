// `sluice gpus`: lists the GPUs. No other program decides between the real and the simulated GPU.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/command_line.hpp"
#include "base/install.hpp"
#include "base/json_text.hpp"
#include "tools/gpus/driver.hpp"

namespace sluice::tools {
namespace {

struct Answer {
  GpuInventory inventory;
  std::string why_simulated;  ///< For auto: why there is no real GPU.
};

GpuInventory ask_real(const base::Install& install) {
  GpuInventory inventory = ask_driver("libcuda.so.1", install.simgpu_folder());
  if (inventory.simulated) {
    throw base::RunError(
        "the libcuda.so.1 found first is the simulated one (LD_LIBRARY_PATH names it)");
  }
  return inventory;
}

GpuInventory ask_simulated(const base::Install& install) {
  const std::filesystem::path library = install.simgpu_folder() / "libcuda.so.1";
  if (!std::filesystem::exists(library)) {
    throw base::RunError("the simulated GPU is missing, build or install it again: " +
                         library.string());
  }
  return ask_driver(library, install.simgpu_folder());
}

Answer choose(base::GpuChoice choice, const base::Install& install) {
  if (choice == base::GpuChoice::kSim) return {ask_simulated(install), "asked for by --gpu sim"};
  try {
    return {ask_real(install), ""};
  } catch (const base::RunError& error) {
    if (choice == base::GpuChoice::kReal) throw;
    return {ask_simulated(install), error.what()};
  }
}

void print_json(const Answer& answer) {
  const GpuInventory& inventory = answer.inventory;
  nlohmann::ordered_json json;
  json["kind"] = inventory.simulated ? "simulated" : "real";
  json["library"] = inventory.library;
  json["driver_version"] = inventory.driver_version;
  if (inventory.simulated) json["why_simulated"] = answer.why_simulated;
  json["devices"] = nlohmann::json::array();
  for (const GpuDevice& device : inventory.devices) {
    json["devices"].push_back({{"index", device.index},
                               {"name", device.name},
                               {"uuid", device.uuid},
                               {"arch", device.arch},
                               {"compute_mode", device.compute_mode},
                               {"memory_bytes", device.memory_bytes},
                               {"sms", device.sms},
                               {"mps", device.mps}});
  }
  // The path of a library may have any bytes.
  std::cout << base::json_text(json, 2) << '\n';
}

void print_text(const Answer& answer) {
  const GpuInventory& inventory = answer.inventory;
  std::cout << (inventory.simulated ? "simulated GPU" : "real GPU") << ", driver for CUDA "
            << inventory.driver_version << ", " << inventory.library << '\n';
  if (inventory.simulated) std::cout << "why simulated: " << answer.why_simulated << '\n';
  for (const GpuDevice& device : inventory.devices) {
    std::cout << "  " << device.index << "  " << device.name << ", " << (device.memory_bytes >> 30U)
              << " GiB, " << device.uuid << '\n';
  }
}

int gpus(int argc, char** argv) {
  CLI::App app("List the GPUs, and say whether they are real or simulated.", "sluice gpus");
  base::GpuChoice choice = base::GpuChoice::kAuto;
  bool json = false;
  base::add_gpu_option(app, choice);
  app.add_flag("--json", json, "Print JSON");
  app.footer(
      "Exit code 1: there is no such GPU.\n\nExamples:\n"
      "  sluice gpus              the real GPUs, or the simulated GPU and why\n"
      "  sluice gpus --gpu real   fails if no NVIDIA driver finds a device");
  if (const auto exit_code = base::parse(app, argc, argv)) return *exit_code;
  const Answer answer = choose(choice, base::Install::of_this_program());
  if (json) {
    print_json(answer);
  } else {
    print_text(answer);
  }
  return base::kExitFine;
}

}  // namespace
}  // namespace sluice::tools

int main(int argc, char** argv) {
  return sluice::base::run_program("sluice gpus", [&] { return sluice::tools::gpus(argc, argv); });
}
