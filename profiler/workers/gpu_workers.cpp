#include "profiler/workers/gpu_workers.hpp"

#include <fmt/format.h>

#include "base/cuda_library.hpp"
#include "base/error.hpp"
#include "base/install.hpp"
#include "profiler/packs/base64.hpp"

namespace sluice::profiler {

using nlohmann::json;

std::vector<std::vector<std::string>> compiler_commands(std::size_t jobs) {
  const std::string program = base::Install::of_this_program().program("sluice-compile");
  return std::vector<std::vector<std::string>>(jobs, {program});
}

std::vector<std::vector<std::string>> gpu_commands(const std::vector<int>& devices) {
  // Else the loader's line about a library is all that a user sees of it.
  try {
    const base::CudaLibrary driver;
  } catch (const base::RunError& error) {
    throw base::RunError(error.what() + std::string(": use a machine with a GPU, or programs for "
                                                    "this CPU (target llvm)"));
  }
  const std::string program = base::Install::of_this_program().program("sluice-measure");
  std::vector<std::vector<std::string>> commands;
  for (const int device : devices) commands.push_back({program, std::to_string(device)});
  return commands;
}

std::string arch_of(const std::string& pack, const PackHeader& header) {
  const std::string& target = header.target;
  constexpr std::string_view kArch = "-arch=";
  const std::size_t at = target.find(kArch);
  if (!target.starts_with("cuda") || at == std::string::npos) {
    throw base::UsageError(
        fmt::format("{}: programs for '{}', not for a GPU (cuda -arch=sm_90)", pack, target));
  }
  const std::string arch = target.substr(at + kArch.size());
  return arch.substr(0, arch.find(' '));
}

void require_arch(const std::string& pack, const PackHeader& header, const std::string& arch) {
  const std::string wanted = arch_of(pack, header);
  if (wanted == arch) return;
  throw base::UsageError(fmt::format(
      "{}: programs for {}, but the GPU is {}; choose another GPU, or make a pack for this one",
      pack, wanted, arch));
}

void report_torn(const std::string& pack) {
  fmt::print(stderr, "sluice opbench: {}: the last part is cut off: dropped\n", pack);
}

bool keep_what_measures(Program& program, const std::string& arch) {
  program.features.clear();
  const bool has_binary = program.cubins.contains(arch);
  if (has_binary) program.source.clear();
  return has_binary;
}

std::string compile_request(const Program& program, const std::string& arch) {
  return json{{"source", program.source}, {"arch", arch}}.dump();
}

std::string take_binary(Program& program, const std::string& arch, const std::string& answer) {
  const json result = json::parse(answer);
  if (!result.at("ok")) {
    std::string why = result.at("error");
    if (why.find("NVRTC") != std::string::npos) throw base::RunError(why);
    return why;
  }
  program.cubins[arch] = from_base64(result.at("cubin").get_ref<const std::string&>());
  program.source.clear();
  return "";
}

}  // namespace sluice::profiler
