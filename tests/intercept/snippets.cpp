#include "tests/intercept/snippets.hpp"

#include <dlfcn.h>

#include <type_traits>

namespace sluice::intercept::test {
namespace {

template <class Handle>
Handle invented(std::uintptr_t value) {
  return reinterpret_cast<Handle>(value);
}

const CUfunction kFunction = invented<CUfunction>(0xf000);
const CUstream kStream = invented<CUstream>(0x5000);
const CUgraph kGraph = invented<CUgraph>(0x6000);
const CUgraphNode kNode = invented<CUgraphNode>(0xd000);
const CUgraphExec kExec = invented<CUgraphExec>(0xe000);
const CUcontext kContext = invented<CUcontext>(0xc000);
const CUgreenCtx kGreen = invented<CUgreenCtx>(0xc100);
const CUevent kEvent = invented<CUevent>(0xee00);
const CUmodule kModule = invented<CUmodule>(0xc200);
const CUlibrary kLibrary = invented<CUlibrary>(0xc300);
const CUmemoryPool kPool = invented<CUmemoryPool>(0xc400);
void** const kParams = invented<void**>(0xa000);
void** const kExtra = invented<void**>(0xb000);

CUlaunchConfig g_config{};
std::array<CUDA_LAUNCH_PARAMS, 2> g_kernels{};
std::array<char, 8> g_host{};
CUgraph g_graph_out;
CUgraphExec g_exec_out;
CUgraphNode g_node_out;
CUcontext g_context_out;
CUDA_GRAPH_INSTANTIATE_PARAMS g_instantiate{};
CUgraphNodeParams g_node_params{};
void* g_found;
CUdriverProcAddressQueryResult g_query;
CUdeviceptr g_address_out;
CUmemoryPool g_pool_out;
CUmemPoolProps g_pool_props;
std::size_t g_pitch_out;
std::size_t g_free_out;
std::size_t g_total_out;
CUmemGenericAllocationHandle g_handle_out;
CUmemAllocationProp g_allocation{};
CUevent g_event_out;
const CUipcMemHandle kIpcMemory{};
const CUipcEventHandle kIpcEvent{};

template <class Argument>
std::uint64_t word(Argument argument) {
  if constexpr (std::is_pointer_v<Argument>) {
    return reinterpret_cast<std::uint64_t>(argument);
  } else if constexpr (std::is_null_pointer_v<Argument> || std::is_class_v<Argument>) {
    return 0;  // the stand-in cannot tell the contents of an object either
  } else {
    return static_cast<std::uint64_t>(argument);
  }
}

template <class... Args>
std::vector<std::uint64_t> words(Args... args) {
  return {word(args)...};
}

/// A hook without a line in snippets.def has no specialisation that is defined.
template <fake::Id id>
Snippet snippet();

#define SLUICE_SNIPPET(entry, ...)                                                \
  template <>                                                                     \
  Snippet snippet<fake::Id::entry>() {                                            \
    return {#entry, fake::Id::entry,                                              \
            [](void* function) {                                                  \
              return reinterpret_cast<decltype(&::entry)>(function)(__VA_ARGS__); \
            },                                                                    \
            [] { return ::entry(__VA_ARGS__); }, words(__VA_ARGS__)};             \
  }
#include "tests/intercept/snippets.def"
#undef SLUICE_SNIPPET

}  // namespace

std::span<const Snippet> snippets() {
  static const std::vector<Snippet> kAll{
#define SLUICE_HOOK(name, kind) snippet<fake::Id::name>(),
#include "intercept/driver/hooks.def"
#undef SLUICE_HOOK
  };
  return kAll;
}

std::string check_call(const Snippet& snippet, void* function) {
  fake::clear();
  fake::answer(snippet.id, kAnswer);
  const CUresult result = function == nullptr ? snippet.call_linked() : snippet.call(function);
  fake::answer(snippet.id, CUDA_SUCCESS);
  const std::string name(snippet.name);
  const std::size_t calls = fake::count(snippet.id);
  if (calls != 1) return name + " reached the driver " + std::to_string(calls) + " times; ";
  if (result != kAnswer) return name + " answered " + std::to_string(result) + "; ";
  for (const fake::Call& call : fake::calls()) {
    if (call.id != snippet.id) continue;
    for (std::size_t i = 0; i < snippet.arguments.size(); ++i) {
      if (call.arguments[i] != snippet.arguments[i]) {
        return name + " changed argument " + std::to_string(i) + "; ";
      }
    }
  }
  return {};
}

std::string object_of(const void* address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0) return "no object";
  const std::string path = info.dli_fname;
  return path.substr(path.rfind('/') + 1);
}

}  // namespace sluice::intercept::test
