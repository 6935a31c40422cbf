// Served models on a real GPU: tests/real_gpu/blocks.sh runs this, alone and under the interposer.
#include <ATen/Functions.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sluice/sluice.h>

#include <atomic>
#include <chrono>
#include <future>
#include <set>
#include <thread>

#include "base/clock.hpp"
#include "engine/torch/captured_model.hpp"
#include "engine/torch/cuda_device.hpp"
#include "engine/torch/direct_model.hpp"
#include "engine/torch/gpu_stream.hpp"
#include "engine/torch/load_parts.hpp"
#include "engine/torch/train/release.hpp"
#include "tests/engine/torch/served_fixture.hpp"

namespace sluice::engine {
namespace {

using test::begin;
using test::Bytes;
using test::bytes_of;
using test::Input;
using test::run_blocks;

class Captured : public test::ServedTest {
 protected:
  void SetUp() override {
    ServedTest::SetUp();
    ASSERT_TRUE(gpu()) << "runs on a GPU only: tests/real_gpu/blocks.sh";
  }

  static ModelParts parts_of(const std::string& model, std::size_t max_batch = 2,
                             std::vector<std::size_t> cuts = {}) {
    const c10::InferenceMode inference;
    const StoredModel found = stored(model);
    const c10::Device device = torch_device(gpu());
    ModelParts parts =
        script_parts(load_graph(found, device), found, device, {gpu(), max_batch, std::move(cuts)});
    synchronise_stream();
    parts.stream = std::make_shared<GpuStream>(device);
    return parts;
  }
  static std::unique_ptr<ServedModel> captured_of(ModelParts parts) {
    return captured_model(std::move(parts), GraphWorkspace::shared(torch_device(gpu())));
  }
  /// What LibTorch has taken from the GPU.
  static std::int64_t reserved_bytes() {
    constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    return c10::cuda::CUDACachingAllocator::getDeviceStats(
               static_cast<c10::DeviceIndex>(gpu().value()))
        .reserved_bytes[kAll]
        .current;
  }
  /// What LibTorch has taken, segment by segment.
  static std::string segments() {
    std::string text = "; LibTorch has:";
    for (const auto& segment : c10::cuda::CUDACachingAllocator::snapshot().segments) {
      text += fmt::format(
          "\n  {} bytes, {} of them allocated, stream {}, pool {}.{}", segment.total_size,
          segment.allocated_size, static_cast<const void*>(segment.stream),
          segment.owner_private_pool_id.first, segment.owner_private_pool_id.second);
    }
    return text;
  }
};

/// A job as the server has them; nothing without the interposer.
class Job {
 public:
  explicit Job(bool announced) {
    constexpr auto kAhead = std::chrono::milliseconds(2);
    std::uint64_t id = 0;
    if (announced) {
      const std::chrono::nanoseconds ahead = kAhead;
      id = sluice_job_announce(base::monotonic_ns() + static_cast<std::uint64_t>(ahead.count()));
      std::this_thread::sleep_for(kAhead);
    }
    job_ = sluice_job_begin(id);
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job() { sluice_job_end(job_); }

 private:
  std::uint64_t job_ = 0;
};

TEST_F(Captured, ReplayIsTheEagerRunToTheBit) {
  for (const std::string name : {"resnet18", "bert_tiny"}) {
    const auto captured = captured_of(parts_of(name, 4));
    const auto eager = direct_model(parts_of(name, 4));
    // Three items are padded to four.
    for (const std::size_t items : {1U, 3U, 4U}) {
      const std::vector<Input> input{Input(captured->inputs()[0], items, 7)};
      const Bytes wanted = run_blocks(*eager, input);
      EXPECT_TRUE(run_blocks(*captured, input) == wanted) << name << " " << items;
      for (const bool announced : {false, true}) {
        const Job job(announced);
        EXPECT_TRUE(run_blocks(*captured, input) == wanted) << name << " " << items << announced;
      }
    }
  }
  const bool wanted = std::getenv("SLUICE_TEST_ATTACHED") != nullptr;
  EXPECT_EQ(sluice_attached(), wanted ? 1 : 0);
}

// The server answers from the staged copy: the request's own memory is gone by then.
TEST_F(Captured, StagedRequestsGiveTheSameBits) {
  const auto model = captured_of(parts_of("bert_tiny", 4));
  const Input first(model->inputs()[0], 1, 7);
  const Input second(model->inputs()[0], 2, 8);
  const Bytes wanted = run_blocks(*model, {first, second});
  std::vector<std::vector<Tensor>> requests{first.request(), second.request()};
  std::vector<std::shared_ptr<const void>> staged;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const auto* const before = requests[i][0].data.data();
    staged.push_back(model->stage(requests[i]));
    ASSERT_NE(staged.back(), nullptr);
    EXPECT_NE(requests[i][0].data.data(), before);
  }
  const auto batch = model->begin(requests);
  batch->launch(0, model->blocks());
  EXPECT_TRUE(bytes_of(*batch) == wanted);
}

TEST_F(Captured, EveryModelHasAStreamOfItsOwn) {
  // LibTorch's pool would give the 33rd model the stream of the first.
  std::vector<std::unique_ptr<GpuStream>> streams;
  std::set<void*> distinct;
  for (int i = 0; i < 40; ++i) {
    streams.push_back(std::make_unique<GpuStream>(torch_device(gpu())));
    distinct.insert(streams.back()->get().stream());
  }
  EXPECT_EQ(distinct.size(), streams.size());
}

TEST_F(Captured, ServesWhileOtherModelsAreLoadedAndUnloaded) {
  const auto served = captured_of(parts_of("bert_tiny", 2));
  const std::vector<Input> input{Input(served->inputs()[0], 2, 1)};
  const Bytes wanted = run_blocks(*served, input);
  std::atomic<bool> stop{false};
  std::atomic<int> right{0};
  std::atomic<int> wrong{0};
  std::thread requests([&] {
    while (!stop) {
      try {
        ++(run_blocks(*served, input) == wanted ? right : wrong);
      } catch (const std::exception& error) {
        ADD_FAILURE() << error.what();
        return;
      }
    }
  });
  for (const std::string name :
       {"resnet18", "residual", "waits", "resnet18", "waits", "residual"}) {
    try {
      static_cast<void>(captured_of(parts_of(name)));
      EXPECT_NE(name, "waits");
    } catch (const base::RunError& error) {
      EXPECT_EQ(name, "waits") << error.what();
    }
  }
  stop = true;
  requests.join();
  EXPECT_GT(right, 0);
  EXPECT_EQ(wrong, 0);
}

TEST_F(Captured, FailedCaptureLeavesTheNextModelLoadable) {
  for (int i = 0; i < 2; ++i) {
    try {
      static_cast<void>(captured_of(parts_of("waits")));
      ADD_FAILURE() << "a model that waits for the GPU was captured";
    } catch (const base::RunError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("cannot be captured into CUDA graphs"));
    }
    const auto next = captured_of(parts_of("residual"));
    const std::vector<Input> input{Input(next->inputs()[0], 2, 1)};
    EXPECT_TRUE(run_blocks(*next, input) == run_blocks(*direct_model(parts_of("residual")), input));
  }
}

TEST_F(Captured, UnloadGivesAllMemoryBack) {
  for (const std::string name : {"resnet18", "waits", "detector"}) {
    const auto load_and_run = [&] {
      try {
        const auto model = load(name, name == "detector" ? 1 : 4);
        static_cast<void>(run_blocks(*model, {Input(model->inputs()[0], 1, 1)}));
        EXPECT_GT(reserved_bytes(), 0);
      } catch (const base::RunError&) {
        EXPECT_EQ(name, "waits");
      }
    };
    load_and_run();
    const std::int64_t before = reserved_bytes();
    load_and_run();
    EXPECT_EQ(reserved_bytes(), before) << name;
    EXPECT_LT(before, 1 << 20) << name;
  }
}

/// A model whose weights come and go.
std::unique_ptr<ServedModel> evictable(const std::string& model, std::optional<int> gpu,
                                       const StoredModel& found, std::vector<std::size_t> cuts,
                                       Placement placement) {
  const c10::InferenceMode inference;
  const c10::Device device = torch_device(gpu);
  const ServeOptions options{gpu, 2, std::move(cuts), placement};
  const auto graph = load_graph(found, device);
  auto weights = move_weights(*graph, found, device, options);
  ModelParts parts = script_parts(graph, found, device, options);
  parts.weights = std::move(weights);
  auto made = serve(std::move(parts), options);
  EXPECT_NE(made->weights(), nullptr) << model;
  return made;
}

TEST_F(Captured, GraphsSurviveTheEvictionOfTheirWeights) {
  for (const std::string name : {"resnet18", "bert_tiny"}) {
    const auto all = cuts_of(name);
    const std::vector<std::size_t> cuts{all.at(all.size() / 3), all.at(2 * all.size() / 3)};
    const auto model = evictable(name, gpu(), stored(name), cuts, Placement::kFixed);
    const auto other = evictable("residual", gpu(), stored("residual"), {}, Placement::kFixed);
    const std::vector<Input> input{Input(model->inputs()[0], 2, 3)};
    const Bytes wanted = run_blocks(*captured_of(parts_of(name, 2, cuts)), input);
    EXPECT_TRUE(run_blocks(*model, input) == wanted) << name;
    const std::vector<Input> other_input{Input(other->inputs()[0], 2, 3)};
    const Bytes other_wanted = run_blocks(*other, other_input);
    for (int i = 0; i < 10; ++i) {
      model->weights()->evict();
      other->weights()->evict();
      // The pages of one become the pages of the other.
      other->weights()->load();
      model->weights()->load();
      // The blocks are launched at once: each waits for its own weights.
      EXPECT_TRUE(run_blocks(*model, input) == wanted) << name << " " << i;
      EXPECT_TRUE(run_blocks(*other, other_input) == other_wanted) << name << " " << i;
    }
  }
}

TEST_F(Captured, ModelsShareTheWorkspaceOfTheirGraphs) {
  // cuBLAS alone takes 32 MiB for each stream.
  constexpr std::int64_t kOfOneModel = 8 << 20;
  std::vector<std::unique_ptr<ServedModel>> models;
  const auto load_another = [&] {
    models.push_back(evictable("resnet18", gpu(), stored("resnet18"), {}, Placement::kFixed));
    static_cast<void>(run_blocks(*models.back(), {Input(models.back()->inputs()[0], 1, 1)}));
  };
  load_another();
  const std::int64_t first = reserved_bytes();
  for (int i = 0; i < 4; ++i) load_another();
  EXPECT_LT(reserved_bytes() - first, 4 * kOfOneModel) << "the first took " << first;
}

// Prevents: the graph of one model overwriting the activations of another.
TEST_F(Captured, ModelsInOneWorkspaceRunInTurns) {
  const auto answers_of = [](const std::string& name) {
    const auto model = captured_of(parts_of(name));
    const std::vector<Input> input{Input(model->inputs()[0], 2, 3)};
    const Bytes wanted = run_blocks(*direct_model(parts_of(name)), input);
    int wrong = 0;
    for (int i = 0; i < 200; ++i) wrong += run_blocks(*model, input) == wanted ? 0 : 1;
    return wrong;
  };
  std::vector<std::future<int>> wrong;
  for (const std::string name : {"resnet18", "densenet121", "bert_tiny"}) {
    wrong.push_back(std::async(std::launch::async, answers_of, name));
  }
  for (auto& of_model : wrong) EXPECT_EQ(of_model.get(), 0);
}

// Weights that LibTorch also keeps would cost their memory twice, and eviction would free nothing.
TEST_F(Captured, EvictedWeightsGiveTheirMemoryBack) {
  const auto free_bytes = [] {
    std::size_t free = 0;
    std::size_t total = 0;
    cudaMemGetInfo(&free, &total);
    return static_cast<std::int64_t>(free);
  };
  release_unused_memory();
  const std::int64_t before = reserved_bytes();
  std::int64_t with_weights = 0;
  {
    const auto whole = captured_of(parts_of("resnet18"));
    with_weights = reserved_bytes() - before;
  }
  const auto model = evictable("resnet18", gpu(), stored("resnet18"), {}, Placement::kFixed);
  const auto weights = static_cast<std::int64_t>(model->weights()->bytes());
  const std::int64_t without = reserved_bytes() - before;
  // The workspaces and activations of both are the same. A few small tensors share segments.
  EXPECT_LE(without, with_weights - weights * 9 / 10) << "weights " << weights << segments();
  const std::int64_t loaded = free_bytes();
  model->weights()->evict();
  EXPECT_GE(free_bytes() - loaded, weights) << "weights " << weights << segments();
  model->weights()->load();
  EXPECT_LE(free_bytes() - loaded, 0) << segments();
}

// A training that gives back more than it was asked for takes milliseconds for each GiB, twice.
TEST_F(Captured, UnusedMemoryIsGivenBackDownToALimit) {
  const c10::Device device = torch_device(gpu());
  for (const int variant : {0, 1, 2, 3}) {
    const bool in_pieces = variant % 2 == 1;
    c10::CachingAllocator::setAllocatorSettings(variant < 2 ? "expandable_segments:False"
                                                            : "expandable_segments:True");
    at::empty({1}, at::TensorOptions(device));  // the first allocation prepares the device
    release_unused_memory();
    const auto floor = static_cast<std::uint64_t>(reserved_bytes());
    std::vector<at::Tensor> kept;
    {
      const auto bytes = at::TensorOptions(device).dtype(at::kByte);
      std::vector<at::Tensor> dropped;
      for (int i = 0; i < 16; ++i) {
        dropped.push_back(at::empty({128 << 20}, bytes));
        if (in_pieces) kept.push_back(at::empty({32 << 20}, bytes));
      }
      // One block that is larger than all that cannot be given back.
      dropped.push_back(at::empty({2L << 30}, bytes));
    }
    const auto all = static_cast<std::uint64_t>(reserved_bytes());
    const std::uint64_t most = all - (500 << 20);
    release_down_to(most, device);
    const auto left = static_cast<std::uint64_t>(reserved_bytes());
    EXPECT_LE(left, most) << variant;
    // Else only whole blocks can be given back, and the parts that are kept lie in all of them.
    if (variant >= 2) {
      EXPECT_GT(left, most - (300 << 20)) << variant;
    }
    release_down_to(most, device);
    EXPECT_EQ(static_cast<std::uint64_t>(reserved_bytes()), left) << "nothing exceeds the limit";
    release_down_to(0, device);
    EXPECT_LE(static_cast<std::uint64_t>(reserved_bytes()), floor + (kept.size() * 60 << 20));
  }
  c10::CachingAllocator::setAllocatorSettings("expandable_segments:False");
}

TEST_F(Captured, WeightsWithoutAFixedAddressWork) {
  const auto model = evictable("resnet18", gpu(), stored("resnet18"), {}, Placement::kAnywhere);
  const auto other = evictable("residual", gpu(), stored("residual"), {}, Placement::kAnywhere);
  const std::vector<Input> input{Input(model->inputs()[0], 2, 3)};
  const Bytes wanted = run_blocks(*direct_model(parts_of("resnet18", 2)), input);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(run_blocks(*model, input) == wanted) << i;
    model->weights()->evict();
    other->weights()->evict();
    other->weights()->load();
    model->weights()->load();
  }
}

TEST_F(Captured, AColdModelAnswersRightAndInThisTime) {
  const auto all = cuts_of("resnet18");
  const std::vector<std::size_t> cuts{all.at(all.size() / 3), all.at(2 * all.size() / 3)};
  const auto model = evictable("resnet18", gpu(), stored("resnet18"), cuts, Placement::kFixed);
  const std::vector<Input> input{Input(model->inputs()[0], 1, 3)};
  const Bytes wanted = run_blocks(*model, input);
  const auto ms = [](std::uint64_t since) {
    return static_cast<double>(base::monotonic_ns() - since) / 1e6;
  };
  for (int i = 0; i < 5; ++i) {
    std::uint64_t begin_ns = base::monotonic_ns();
    static_cast<void>(run_blocks(*model, input));
    const double warm = ms(begin_ns);
    begin_ns = base::monotonic_ns();
    model->weights()->evict();
    const double evict = ms(begin_ns);
    begin_ns = base::monotonic_ns();
    model->weights()->load();
    const double load = ms(begin_ns);
    EXPECT_TRUE(run_blocks(*model, input) == wanted);
    std::printf("resnet18: warm %.3f ms, evict %.3f, load() %.3f, cold with its first run %.3f\n",
                warm, evict, load, ms(begin_ns));
  }
}

TEST_F(Captured, AnswerOutlivesItsModel) {
  std::unique_ptr<Batch> batch;
  Bytes wanted;
  {
    const auto model = captured_of(parts_of("bert_tiny"));
    const std::vector<Input> input{Input(model->inputs()[0], 1, 1)};
    wanted = run_blocks(*model, input);
    batch = begin(*model, input);
    batch->launch(0, 1);
    static_cast<void>(bytes_of(*batch));
  }
  Bytes found;
  for (const Tensor& output : batch->outputs()) {
    found.insert(found.end(), output.data.begin(), output.data.end());
  }
  EXPECT_TRUE(found == wanted);
}

/// Each of these must run in a process of its own.
class Lost : public Captured {
 protected:
  /// Indexes far outside of the table. The model computes its ids, so nothing checks them.
  static void lose(ServedModel& model) {
    Input input(model.inputs()[0], 1, 1);
    Bytes data(input.tensor().data.size(), std::byte{0x3f});
    input.tensor().data = data;
    const auto batch = begin(model, {input});
    batch->launch(0, 1);
    while (!batch->done()) {
    }
  }
};

TEST_F(Lost, ContextOfACapturedModel) {
  const auto model = captured_of(parts_of("shifted"));
  const auto other = captured_of(parts_of("residual"));
  EXPECT_THROW(lose(*model), ContextLost);
  EXPECT_THROW(run_blocks(*other, {Input(other->inputs()[0], 1, 1)}), ContextLost);
}

TEST_F(Lost, ContextOfAModelThatRunsUncaptured) {
  const auto model = direct_model(parts_of("shifted"));
  EXPECT_THROW(lose(*model), ContextLost);
}

}  // namespace
}  // namespace sluice::engine
