// `sluice split`: divides a model of the store into evenly long blocks.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <iostream>

#include "base/command_line.hpp"
#include "engine/split/measured.hpp"
#include "engine/store/splits.hpp"
#include "engine/torch/served_torch.hpp"

namespace sluice::engine {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

/// The GPU to measure on; none: the CPU.
std::optional<int> chosen_gpu(const SplitOptions& options) {
  if (options.cpu || options.list_cuts) return std::nullopt;
  if (options.device || torch_gpus() > 0) return options.device.value_or(0);
  std::fputs("sluice split: LibTorch finds no GPU here: measuring on the CPU\n", stderr);
  return std::nullopt;
}

void print_cuts(const SplitTarget& target, const SplitOptions& options) {
  const auto& cuts = target.cuts();
  const auto single = std::ranges::count(cuts, std::size_t{1}, &Cut::tensors);
  if (!options.json) {
    fmt::print("{}: {} nodes, {} cuts, {} of them with one tensor\n", options.model, target.nodes(),
               cuts.size(), single);
    return;
  }
  ordered_json list = ordered_json::array();
  for (const Cut& cut : cuts) list.push_back({{"node", cut.node}, {"tensors", cut.tensors}});
  const ordered_json result{{"model", options.model},
                            {"nodes", target.nodes()},
                            {"one_tensor", single},
                            {"cuts", std::move(list)}};
  fmt::print("{}\n", result.dump());
}

void require_enough_cuts(const SplitTarget& target, const SplitOptions& options) {
  const std::size_t most = target.cuts().size() + 1;
  if (*options.blocks <= most) return;
  throw base::UsageError(fmt::format(
      "-c: {} can be cut at {} places, so into {} at most, not {}", options.model, most - 1,
      most == 1 ? "one block" : fmt::format("{} blocks", most), *options.blocks));
}

fs::path results_path(const SplitOptions& options) {
  const std::string tag = options.tag.empty() ? "" : "-" + options.tag;
  return fs::path(options.out) /
         fmt::format("results-{}_{}{}.csv", options.model, *options.blocks, tag);
}

void print_result(const SplitOptions& options, const Split& split, const Candidate& best,
                  const MeasuredSplit& measured, const fs::path& model_json) {
  if (options.json) {
    const ordered_json result{{"model", options.model},
                              {"blocks", split.blocks},
                              {"cuts", split.cuts},
                              {"batch", split.batch},
                              {"ms", split.ms},
                              {"whole_ms", split.whole_ms},
                              {"overhead", best.overhead},
                              {"deviation_ms", best.deviation_ms},
                              {"gpu", split.gpu},
                              {"torch", split.torch},
                              {"candidates", measured.times().size()},
                              {"rated_by_sums", measured.rated()},
                              {"ended", measured.ended()},
                              {"results", results_path(options).string()}};
    fmt::print("{}\n", result.dump());
    return;
  }
  fmt::print("{} in {} blocks at batch {}, on {}: cuts {}\n", options.model, split.blocks,
             split.batch, split.gpu, fmt::join(split.cuts, ", "));
  fmt::print("  blocks {:.3f} ms, whole {:.3f} ms, overhead {:.1f} %, deviation {:.3f} ms\n",
             fmt::join(split.ms, ", "), split.whole_ms, best.overhead * 100, best.deviation_ms);
  const std::string rated =
      measured.rated() > 0 ? fmt::format(" of {} rated by summed times", measured.rated()) : "";
  fmt::print("  {} candidates measured{}, ended by: {}\n", measured.times().size(), rated,
             measured.ended());
  fmt::print("written: {}, {}\n", model_json.string(), results_path(options).string());
}

void split_model(const SplitTarget& target, const SplitOptions& options, const StoredModel& stored,
                 const std::optional<int>& gpu, const fs::path& model_json) {
  require_enough_cuts(target, options);
  const MeasuredTarget described{.file = stored.file,
                                 .file_bytes = fs::file_size(stored.file),
                                 .nodes = target.nodes(),
                                 .gpu = torch_device_name(gpu),
                                 .torch = SLUICE_TORCH_VERSION,
                                 .batch = options.batch};
  const fs::path log = fs::path(options.out) / "log/split-log.json";
  std::error_code ignored;  // the files below name the folder in their errors
  fs::create_directories(log.parent_path(), ignored);
  MeasuredSplit measured(target, options, described.gpu,
                         options.use_cache ? read_log(log, described) : CandidateTimes{});
  ResultsFile results(results_path(options), options.model);
  const Candidate best = measured.search(results);
  const Split split{.blocks = *options.blocks,
                    .cuts = best.cuts,
                    .batch = options.batch,
                    .ms = best.ms,
                    .whole_ms = best.whole_ms,
                    .gpu = described.gpu,
                    .torch = described.torch};
  write_log(log, described, options.tag, measured.times());
  save_split(model_json, split);
  print_result(options, split, best, measured, model_json);
}

int work(int argc, char** argv) {
  SplitOptions options;
  if (const auto exit_code = parse_split_options(argc, argv, options)) return *exit_code;
  const ModelStore store = model_store(options.store);
  const StoredModel stored = find_script(store, options.model, SLUICE_TORCH_VERSION);
  const auto gpu = chosen_gpu(options);
  if (options.threads) use_threads(*options.threads);
  const SplitTarget target(stored, ServeOptions{gpu, options.batch, {}});
  if (options.list_cuts) {
    print_cuts(target, options);
  } else {
    split_model(target, options, stored, gpu, store.folder / options.model / "model.json");
  }
  return base::kExitFine;
}

}  // namespace
}  // namespace sluice::engine

int main(int argc, char** argv) {
  return sluice::base::run_program("sluice split",
                                   [&] { return sluice::engine::work(argc, argv); });
}
