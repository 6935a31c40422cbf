#include "hostile.hpp"

int main(int argc, char** argv) {
  if (argc < 2 || std::string(argv[1]) == "list") {
    for (const auto& [name, fn] : cases()) std::puts(name.c_str());
    return 0;
  }
  const auto found = cases().find(argv[1]);
  if (found == cases().end()) {
    std::fprintf(stderr, "no case %s\n", argv[1]);
    return 2;
  }
  return found->second(Args(argv + 2, argv + argc));
}
