// sluice-compile: a compile worker. Reads a request in JSON per line, {"source", "arch"}, and
// answers with {"cubin"} in base64. A process of its own, because NVRTC can neither be
// stopped nor run twice at once in a process: one program took 70 s.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.hpp"
#include "base/json_text.hpp"
#include "profiler/compile/nvrtc.hpp"
#include "profiler/packs/base64.hpp"

int main() {
  using nlohmann::json;
  std::string line;
  while (std::getline(std::cin, line)) {
    json answer{{"ok", true}};
    try {
      const json request = json::parse(line);
      answer["cubin"] = sluice::profiler::to_base64(
          sluice::profiler::compile_cuda(request.at("source"), request.at("arch")));
    } catch (const std::exception& error) {
      answer = {{"ok", false}, {"error", error.what()}};
    }
    std::cout << sluice::base::json_text(answer) << std::endl;
  }
  return sluice::base::kExitFine;
}
