// remap (R7): does a captured graph read the right data after the pages behind its addresses were
// unmapped and replaced? The graph's kernel adds the words of a mapped buffer to another one.
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "tests/real_gpu/graphs/kernels.hpp"
#include "tests/real_gpu/memory/finding.hpp"

namespace sluice::memory {
namespace {

using graphs::Call;
using graphs::Combine;
using graphs::kWords;
constexpr std::size_t kUsed = kWords * sizeof(std::uint32_t);

/// A reserved range with pages that come and go.
class Arena {
 public:
  explicit Arena(std::size_t bytes) : bytes_(bytes) {
    SLUICE_MUST(cuMemAddressReserve(&address_, bytes, 0, 0, 0));
  }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  [[nodiscard]] CUdeviceptr address() const { return address_; }

  void map() {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    SLUICE_MUST(cuMemCreate(&page_, bytes_, &properties, 0));
    SLUICE_MUST(cuMemMap(address_, bytes_, 0, page_, 0));
    CUmemAccessDesc access{};
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    SLUICE_MUST(cuMemSetAccess(address_, bytes_, &access, 1));
  }
  void unmap() {
    SLUICE_MUST(cuMemUnmap(address_, bytes_));
    SLUICE_MUST(cuMemRelease(page_));
  }

 private:
  std::size_t bytes_;
  CUdeviceptr address_ = 0;
  CUmemGenericAllocationHandle page_ = 0;
};

std::vector<std::uint32_t> data(std::uint32_t round) {
  std::vector<std::uint32_t> words(kWords);
  std::iota(words.begin(), words.end(), round * 7919U);
  return words;
}

graphs::Exec capture(CUstream stream, CUdeviceptr to, CUdeviceptr from) {
  graphs::Graph graph;
  graphs::Exec exec;
  SLUICE_MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  Call call(Combine{to, from});
  SLUICE_MUST(call.launch(stream));
  SLUICE_MUST(cuStreamEndCapture(stream, graph.out()));
  SLUICE_MUST(cuGraphInstantiate(exec.out(), graph, 0));
  return exec;
}

/// Whether a replay into a zeroed buffer gives these words.
bool replay_gives(const std::vector<std::uint32_t>& words, CUgraphExec exec, CUstream stream,
                  CUdeviceptr out) {
  std::vector<std::uint32_t> seen(kWords);
  SLUICE_MUST(cuMemsetD32Async(out, 0, kWords, stream));
  SLUICE_MUST(cuGraphLaunch(exec, stream));
  SLUICE_MUST(cuStreamSynchronize(stream));
  SLUICE_MUST(cuMemcpyDtoH(seen.data(), out, kUsed));
  return seen == words;
}

/// Pages of `bytes`, replaced `rounds` times. `taken`: another allocation takes each page's place,
/// so that the next one is elsewhere.
void replace_pages(std::size_t bytes, unsigned rounds, bool taken) {
  CUdeviceptr out = 0;
  SLUICE_MUST(cuMemAlloc(&out, kUsed));
  const graphs::Stream stream = graphs::new_stream();
  Arena arena(bytes);
  std::vector<CUdeviceptr> takers;
  arena.map();
  SLUICE_MUST(cuMemcpyHtoD(arena.address(), data(0).data(), kUsed));
  const graphs::Exec exec = capture(stream, out, arena.address());
  SLUICE_MUST(cuGraphUpload(exec, stream));
  const bool first = replay_gives(data(0), exec, stream, out);
  unsigned wrong = 0;
  for (unsigned round = 1; round <= rounds; ++round) {
    arena.unmap();
    if (taken && round <= 16) SLUICE_MUST(cuMemAlloc(&takers.emplace_back(), bytes));
    arena.map();
    SLUICE_MUST(cuMemcpyHtoD(arena.address(), data(round).data(), kUsed));
    if (!replay_gives(data(round), exec, stream, out)) ++wrong;
  }
  // A graph that read nothing would also pass if this comparison could not fail.
  const bool check_fails = !replay_gives(data(rounds + 1), exec, stream, out);
  for (const CUdeviceptr taker : takers) SLUICE_MUST(cuMemFree(taker));
  Finding("R7", "graph over replaced pages of " + std::to_string(bytes >> 20U) + " MiB")
      .with("pages_elsewhere", taken)
      .with("first_right", first)
      .with("rounds", static_cast<double>(rounds))
      .with("wrong", static_cast<double>(wrong))
      .with("check_can_fail", check_fails);
}

}  // namespace

void run() {
  graphs::enter_device();
  graphs::load_kernels();
  for (const std::size_t mib : {2, 64}) {
    for (const bool taken : {false, true}) replace_pages(mib << 20U, 100, taken);
  }
}

}  // namespace sluice::memory

int main() {
  try {
    sluice::memory::run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "remap: %s\n", error.what());
    return 1;
  }
  return 0;
}
