#include "tests/real_gpu/graphs/bench.hpp"

#include <array>
#include <cstdio>

namespace sluice::graphs {
namespace {

constexpr std::uint64_t kFnvStart = 0xcbf2'9ce4'8422'2325;

std::uint64_t hashed(std::uint64_t hash, std::span<const std::uint32_t> words) {
  constexpr std::uint64_t kFnvPrime = 0x100'0000'01b3;
  for (const std::uint32_t word : words) hash = (hash ^ word) * kFnvPrime;
  return hash;
}

CUgraphNode add(CUgraph graph, const std::vector<CUgraphNode>& behind, Call& call) {
  const CUDA_KERNEL_NODE_PARAMS params = call.node_params();
  CUgraphNode node = nullptr;
  SLUICE_MUST(cuGraphAddKernelNode(&node, graph, behind.data(), behind.size(), &params));
  return node;
}

}  // namespace

Bench::Bench(std::span<const CUdeviceptr, 3> buffers, unsigned round, bool lose)
    : buffers_(buffers), round_(round), lose_(lose), hash_(kFnvStart) {
  SLUICE_MUST(cuCtxSynchronize());
  std::uint32_t value = 0x2545'f491;
  for (const CUdeviceptr buffer : buffers_) {
    std::vector<std::uint32_t> words(kWords);
    for (std::uint32_t& word : words) word = value = value * 1'664'525 + 1'013'904'223;
    SLUICE_MUST(cuMemcpyHtoD(buffer, words.data(), words.size() * sizeof(words[0])));
  }
  first_ = hash_of_buffers();
}

std::uint64_t Bench::hash_of_buffers() const {
  std::uint64_t hash = kFnvStart;
  std::vector<std::uint32_t> words(kWords);
  for (const CUdeviceptr buffer : buffers_) {
    SLUICE_MUST(cuMemcpyDtoH(words.data(), buffer, words.size() * sizeof(words[0])));
    hash = hashed(hash, words);
  }
  return hash;
}

void Bench::note(const std::string& what, CUresult result) {
  notes_ += " " + what + "=" + name_of(result);
}

void Bench::note(const std::string& what, std::size_t count) {
  notes_ += " " + what + "=" + std::to_string(count);
}

void Bench::look() {
  SLUICE_MUST(cuCtxSynchronize());
  const std::uint64_t found = hash_of_buffers();
  changed_ = changed_ || found != first_;
  const std::array<std::uint32_t, 2> halves{static_cast<std::uint32_t>(found),
                                            static_cast<std::uint32_t>(found >> 32U)};
  hash_ = hashed(hash_, halves);
}

void Bench::launch(CUgraphExec exec, CUstream stream) {
  constexpr int kLost = 3;
  if (++launches_ == kLost && lose_) return;
  SLUICE_MUST(cuGraphLaunch(exec, stream));
}

void Bench::launch(CUgraphExec exec, CUstream stream, int times) {
  for (int i = 0; i < times; ++i) launch(exec, stream);
}

std::string Bench::result() const {
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(hash_));
  return text.data() + notes_;
}

Step link(CUdeviceptr x, std::uint32_t seed, std::uint32_t number) {
  constexpr std::array kOrder{Kernel::kShort, Kernel::kMid,   Kernel::kShort, Kernel::kMid,
                              Kernel::kMixed, Kernel::kShort, Kernel::kLong,  Kernel::kMixed};
  Step step{kOrder.at(number % kOrder.size()), x, 2 * (seed * 7 + number) + 3, seed * 131 + number};
  if (number % kOrder.size() == kOrder.size() - 1) step.ns = 500'000;
  return step;
}

void chain(CUstream stream, CUdeviceptr x, std::uint32_t seed, std::uint32_t count) {
  for (std::uint32_t i = 0; i < count; ++i) launch(stream, link(x, seed, i));
}

void launch(CUstream stream, const Step& step) { SLUICE_MUST(Call(step).launch(stream)); }
void launch(CUstream stream, const Combine& combine) { SLUICE_MUST(Call(combine).launch(stream)); }

void begin(CUstream stream, CUstreamCaptureMode mode) {
  SLUICE_MUST(cuStreamBeginCapture(stream, mode));
}

Graph end(CUstream stream) {
  Graph graph;
  SLUICE_MUST(cuStreamEndCapture(stream, graph.out()));
  return graph;
}

Content content_of(CUgraph graph) {
  Content content;
  std::size_t count = 0;
  SLUICE_MUST(cuGraphGetNodes(graph, nullptr, &count));
  content.nodes.resize(count);
  SLUICE_MUST(cuGraphGetNodes(graph, content.nodes.data(), &count));
  SLUICE_MUST(newer().cuGraphGetEdges(graph, nullptr, nullptr, nullptr, &count));
  std::vector<CUgraphNode> from(count);
  std::vector<CUgraphNode> to(count);
  std::vector<CUgraphEdgeData> data(count);
  SLUICE_MUST(newer().cuGraphGetEdges(graph, from.data(), to.data(), data.data(), &count));
  for (std::size_t i = 0; i < count; ++i) content.edges.insert({from[i], to[i], data[i].type});
  return content;
}

void must_be(CUgraph graph, const Content& content) {
  if (content_of(graph) != content) throw Failure("a graph is not as the program made it");
}

Graph captured(CUdeviceptr x, std::uint32_t seed, std::uint32_t count) {
  const Stream stream = new_stream();
  begin(stream);
  chain(stream, x, seed, count);
  return end(stream);
}

Exec instantiate(CUgraph graph, unsigned long long flags) {
  Exec exec;
  const Content before = content_of(graph);
  SLUICE_MUST(cuGraphInstantiate(exec.out(), graph, flags));
  must_be(graph, before);
  return exec;
}

void join(CUstream to, CUstream from) {
  const Event event = new_event();
  SLUICE_MUST(cuEventRecord(event, from));
  SLUICE_MUST(cuStreamWaitEvent(to, event, CU_EVENT_WAIT_DEFAULT));
}

CUgraphNode add(CUgraph graph, const std::vector<CUgraphNode>& behind, const Step& step) {
  Call call(step);
  return add(graph, behind, call);
}

CUgraphNode add(CUgraph graph, const std::vector<CUgraphNode>& behind, const Combine& combine) {
  Call call(combine);
  return add(graph, behind, call);
}

std::vector<CUgraphNode> nodes_of(CUgraph graph, CUgraphNodeType type) {
  std::size_t count = 0;
  SLUICE_MUST(cuGraphGetNodes(graph, nullptr, &count));
  std::vector<CUgraphNode> nodes(count);
  SLUICE_MUST(cuGraphGetNodes(graph, nodes.data(), &count));
  std::erase_if(nodes, [type](CUgraphNode node) {
    CUgraphNodeType found{};
    SLUICE_MUST(cuGraphNodeGetType(node, &found));
    return found != type;
  });
  return nodes;
}

}  // namespace sluice::graphs
