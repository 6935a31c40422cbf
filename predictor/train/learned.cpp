#include "predictor/train/learned.hpp"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDAFunctions.h>
#include <torch/serialize.h>
#include <torch/version.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.hpp"
#include "base/json_node.hpp"
#include "predictor/math/box_cox.hpp"
#include "predictor/math/features.hpp"
#include "predictor/train/training.hpp"

namespace sluice::predictor {
namespace {

using nlohmann::ordered_json;

constexpr int kVersion = 2;
/// Leaves for which there is room at least, so that a predictor reads programs of other packs.
constexpr std::size_t kLeastRoom = 5;
constexpr std::size_t kPredictedAtOnce = 4096;

/// Writes FILE.part. Returns its name.
std::filesystem::path write_part(const std::filesystem::path& file, const std::string& text) {
  const std::filesystem::path part = file.string() + ".part";
  std::ofstream out(part, std::ios::binary);
  out << text;
  if (out.flush()) return part;
  out.close();
  std::error_code ignored;
  std::filesystem::remove(part, ignored);
  throw base::RunError("cannot write " + part.string());
}

torch::Device device_of(const std::string& name) {
  if (name == "cpu") return torch::kCPU;
  const bool gpu = c10::cuda::device_count() > 0;
  if (name == "cuda" && !gpu) {
    throw base::RunError("--device cuda: LibTorch finds no GPU; use --device cpu");
  }
  return gpu ? torch::Device(torch::kCUDA, 0) : torch::Device(torch::kCPU);
}

/// What to do about a folder without a predictor. A training of several models leaves one in a
/// folder for each.
std::string where_one_is(const std::filesystem::path& folder) {
  std::vector<std::string> inside;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
    if (std::filesystem::exists(entry.path() / "predictor.json")) inside.push_back(entry.path());
  }
  if (inside.empty()) return "`sluice predict train` makes one";
  std::ranges::sort(inside);
  std::string text = "choose one of " + inside[0];
  for (std::size_t i = 1; i < inside.size(); ++i) text += ", " + inside[i];
  return text;
}

class Learned : public LearnedModel {
 public:
  Learned(Config config, TrainOptions options)
      : config_(std::move(config)),
        options_(std::move(options)),
        where_(device_of(options_.device)) {
    torch::manual_seed(options_.seed);
    at::set_num_threads(options_.threads);
  }

  void fit(const Lesson& lesson) override {
    if (!network_) learn_scales(lesson);
    const Samples source = samples(lesson, lesson.train);
    const Batch other = batch(lesson.data, lesson.devices, lesson.unlabelled);
    Training(network_, config_, options_, *this)
        .run("train", config_.epochs, source, nullptr,
             lesson.unlabelled.empty() ? nullptr : &other);
    if (!lesson.tune.empty()) tune(lesson);
  }

  void tune(const Lesson& lesson) override {
    std::vector<double> seconds;
    for (const Label& label : lesson.tune) seconds.push_back(label.seconds);
    labels_.widen(seconds);
    const Samples few = samples(lesson, lesson.tune);
    const Samples source = lesson.train.empty() ? few : samples(lesson, lesson.train);
    const Batch other = batch(lesson.data, lesson.devices, lesson.unlabelled);
    Training(network_, config_, options_, *this)
        .run("tune", config_.tune_epochs, source, lesson.train.empty() ? nullptr : &few,
             lesson.unlabelled.empty() ? nullptr : &other);
  }

  [[nodiscard]] std::vector<double> predict(const Dataset& data,
                                            const std::vector<DeviceInfo>& devices,
                                            std::span<const Query> queries) const override {
    const torch::NoGradGuard no_gradients;
    network_->eval();
    std::vector<double> seconds;
    seconds.reserve(queries.size());
    for (std::size_t begin = 0; begin < queries.size(); begin += kPredictedAtOnce) {
      const auto some = queries.subspan(begin, std::min(kPredictedAtOnce, queries.size() - begin));
      const auto labels =
          network_->decode(network_->latent(batch(data, devices, some))).cpu().contiguous();
      const float* first = labels.const_data_ptr<float>();
      for (std::size_t i = 0; i < some.size(); ++i) seconds.push_back(labels_.to_seconds(first[i]));
    }
    return seconds;
  }

  [[nodiscard]] const Config& config() const override { return config_; }
  void save(const std::filesystem::path& folder, const ordered_json& more) const override;
  void load(const std::filesystem::path& folder, const nlohmann::json& json);

 private:
  void learn_scales(const Lesson& lesson);
  [[nodiscard]] Batch batch(const Dataset& data, const std::vector<DeviceInfo>& devices,
                            std::span<const Query> queries) const;
  [[nodiscard]] Samples samples(const Lesson& lesson, std::span<const Label> labels) const;

  Config config_;
  TrainOptions options_;
  torch::Device where_;
  LabelScale labels_;
  FeatureScale features_;
  std::shared_ptr<LabelNetwork> network_;
};

void Learned::learn_scales(const Lesson& lesson) {
  std::vector<Label> labels(lesson.train.begin(), lesson.train.end());
  labels.insert(labels.end(), lesson.tune.begin(), lesson.tune.end());
  std::vector<double> seconds;
  for (const Label& label : labels) seconds.push_back(label.seconds);
  labels_ = LabelScale(label_kind(config_.labels), seconds);
  features_ = FeatureScale(lesson.data, queries_of(labels));
  network_ = make_network(
      config_, static_cast<std::int64_t>(std::max(lesson.data.most_leaves(), kLeastRoom)));
  network_->to(where_);
}

Batch Learned::batch(const Dataset& data, const std::vector<DeviceInfo>& devices,
                     std::span<const Query> queries) const {
  const auto room = static_cast<std::size_t>(network_->leaves());
  const auto count = static_cast<std::int64_t>(queries.size());
  Batch batch{torch::zeros({count, network_->leaves(), static_cast<std::int64_t>(kFeatures)}),
              torch::empty({count}, torch::kLong),
              torch::empty({count, static_cast<std::int64_t>(kDeviceNumbers)})};
  float* leaves = batch.leaves.mutable_data_ptr<float>();
  auto* counts = batch.counts.mutable_data_ptr<std::int64_t>();
  float* numbers = batch.device.mutable_data_ptr<float>();
  for (std::size_t i = 0; i < queries.size(); ++i) {
    const Program& program = data.programs[queries[i].program];
    if (program.leaves.size() > room) {
      throw base::RunError("program " + program.id + " has " +
                           std::to_string(program.leaves.size()) +
                           " leaves, the predictor has room for " + std::to_string(room) +
                           "; train it with such programs");
    }
    counts[i] = static_cast<std::int64_t>(program.leaves.size());
    float* at = leaves + i * room * kFeatures;
    for (const Leaf& leaf : encode(program, features_, config_.positions)) {
      at = std::copy(leaf.begin(), leaf.end(), at);
    }
    const auto device = device_numbers(devices[queries[i].device]);
    std::copy(device.begin(), device.end(), numbers + i * kDeviceNumbers);
  }
  return batch.to(where_);
}

Samples Learned::samples(const Lesson& lesson, std::span<const Label> labels) const {
  std::vector<float> values;
  values.reserve(labels.size());
  for (const Label& label : labels) {
    values.push_back(static_cast<float>(labels_.to_label(label.seconds)));
  }
  return {batch(lesson.data, lesson.devices, queries_of(labels)), torch::tensor(values).to(where_)};
}

void Learned::save(const std::filesystem::path& folder, const ordered_json& more) const {
  std::filesystem::create_directories(folder);
  torch::serialize::OutputArchive archive;
  network_->save(archive);
  std::ostringstream network;
  archive.save_to(network);
  ordered_json json{{"version", kVersion},
                    {"torch", TORCH_VERSION},
                    {"leaves", network_->leaves()},
                    {"config", to_json(config_)},
                    {"labels",
                     {{"kind", to_text(labels_.kind())},
                      {"lambda", labels_.lambda()},
                      {"mean", labels_.mean()},
                      {"deviation", labels_.deviation()},
                      {"shift", labels_.shift()},
                      {"least_s", labels_.least()},
                      {"most_s", labels_.most()}}},
                    {"features", {{"low", features_.low()}, {"high", features_.high()}}}};
  if (!more.empty()) json.update(more);
  // Whatever ends this, the folder has both files of one training, or no predictor.json.
  const auto network_part = write_part(folder / "predictor.pt", network.str());
  const auto json_part = write_part(folder / "predictor.json", json.dump(1) + '\n');
  std::filesystem::remove(folder / "predictor.json");
  std::filesystem::rename(network_part, folder / "predictor.pt");
  std::filesystem::rename(json_part, folder / "predictor.json");
}

void Learned::load(const std::filesystem::path& folder, const nlohmann::json& json) {
  const auto& labels = json.at("labels");
  labels_ = LabelScale(label_kind(labels.at("kind")), labels.at("lambda"), labels.at("mean"),
                       labels.at("deviation"), labels.at("shift"), labels.at("least_s"),
                       labels.at("most_s"));
  features_ = FeatureScale(json.at("features").at("low").get<std::vector<float>>(),
                           json.at("features").at("high").get<std::vector<float>>());
  network_ = make_network(config_, json.at("leaves").get<std::int64_t>());
  torch::serialize::InputArchive archive;
  archive.load_from((folder / "predictor.pt").string());
  network_->load(archive);
  network_->to(where_);
  network_->eval();
}

}  // namespace

std::unique_ptr<LearnedModel> make_learned(const Config& config, const TrainOptions& options) {
  return std::make_unique<Learned>(config, options);
}

std::unique_ptr<LearnedModel> load_learned(const std::filesystem::path& folder,
                                           const TrainOptions& options) {
  const std::string file = (folder / "predictor.json").string();
  if (!std::filesystem::exists(file)) {
    throw base::UsageError("there is no predictor in " + folder.string() + "; " +
                           where_one_is(folder));
  }
  const nlohmann::json json = base::parse_json_file(file);
  if (!json.is_object() || json.value("version", 0) != kVersion) {
    throw base::UsageError(file + " is no predictor of this version; train it again");
  }
  auto model = std::make_unique<Learned>(parse_config(json.at("config"), file), options);
  try {
    model->load(folder, json);
  } catch (const std::exception&) {
    throw base::UsageError("the predictor in " + folder.string() + " is damaged; train it again");
  }
  return model;
}

std::string training_device(const std::string& device) {
  const auto where = device_of(device);
  if (where.is_cpu()) return "cpu";
  return at::cuda::getDeviceProperties(where.index())->name;
}

}  // namespace sluice::predictor
