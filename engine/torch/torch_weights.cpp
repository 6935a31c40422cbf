#include "engine/torch/torch_weights.hpp"

#include <ATen/Functions.h>

#include <algorithm>

#include "engine/torch/script_weights.hpp"

namespace sluice::engine {
namespace {

/// As LibTorch's allocator: kernels are chosen by the alignment of their operands.
constexpr std::uint64_t kAlignment = 512;

std::uint64_t aligned(std::uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// The whole memory that a tensor is in.
at::Tensor memory_of(const at::Tensor& tensor) {
  return at::empty({0}, tensor.options().dtype(at::kByte))
      .set_(tensor.storage(), 0, {static_cast<std::int64_t>(tensor.storage().nbytes())}, {1});
}

}  // namespace

TorchWeights::Layout TorchWeights::lay_out(const ScriptGraph& graph,
                                           const std::vector<std::size_t>& cuts) {
  Layout layout;
  layout.block_ends.assign(cuts.size() + 1, 0);
  std::uint64_t end = 0;
  for (const GraphConstant& constant : graph.constants()) {
    const at::Tensor tensor = constant.tensor();
    // Tensors that share memory go on sharing it.
    if (tensor.nbytes() == 0 || layout.slots.contains(tensor.storage().data())) continue;
    const auto bytes = tensor.storage().nbytes();
    c10::Storage storage(c10::Storage::use_byte_size_t(), bytes,
                         at::DataPtr(nullptr, tensor.device()));
    layout.slots.emplace(tensor.storage().data(), Slot{memory_of(tensor), std::move(storage), end});
    end += aligned(bytes);
    const auto block = std::ranges::upper_bound(cuts, constant.first_use) - cuts.begin();
    layout.block_ends[static_cast<std::size_t>(block)] = end;
  }
  // A block without weights of its own.
  for (std::size_t i = 1; i < layout.block_ends.size(); ++i) {
    layout.block_ends[i] = std::max(layout.block_ends[i], layout.block_ends[i - 1]);
  }
  return layout;
}

TorchWeights::TorchWeights(std::shared_ptr<const DeviceContext> context, Placement placement,
                           const c10::Device& device, ScriptGraph& graph,
                           const std::vector<std::size_t>& cuts, const std::string& key)
    : TorchWeights(std::move(context), placement, device, graph, lay_out(graph, cuts), key) {}

TorchWeights::TorchWeights(std::shared_ptr<const DeviceContext> context, Placement placement,
                           const c10::Device& device, ScriptGraph& graph, const Layout& layout,
                           const std::string& key)
    : ArenaWeights(std::move(context), placement, layout.block_ends), device_(device) {
  fill(key, [&](std::span<std::byte> copy) {
    for (const auto& [address, slot] : layout.slots) {
      at::from_blob(copy.data() + slot.offset, slot.old.sizes(), at::kByte).copy_(slot.old);
    }
  });
  for (const auto& [address, slot] : layout.slots)
    storages_.emplace_back(slot.storage, slot.offset);
  load();
  wait();
  graph.replace_constants([&](const at::Tensor& old) -> at::Tensor {
    const auto found = layout.slots.find(old.storage().data());
    if (old.nbytes() == 0 || found == layout.slots.end()) return {};
    return at::empty({0}, old.options())
        .set_(found->second.storage, old.storage_offset(), old.sizes(), old.strides());
  });
}

void TorchWeights::load() {
  ArenaWeights::load();
  point_to_arena();
}

/// Changes nothing if the arena's address is fixed.
void TorchWeights::point_to_arena() {
  for (auto& [storage, offset] : storages_) {
    storage.unsafeGetStorageImpl()->set_data_ptr_noswap(
        at::DataPtr(reinterpret_cast<void*>(address() + offset), device_));
  }
}

}  // namespace sluice::engine
