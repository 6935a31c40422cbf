#include "server/models/config_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <string_view>

#include "base/error.hpp"
#include "base/nearest.hpp"
#include "base/trimmed.hpp"

namespace sluice::server {
namespace {

using base::UsageError;

/// A setting of a model: reads its value and returns what is allowed if the value is not.
struct Key {
  std::string_view name;
  std::function<std::string(ModelConfig&, const std::string&)> set;
};

template <class Number>
std::optional<Number> parse_number(const std::string& text, Number min, Number max) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  if (!(value >= min && value <= max)) return std::nullopt;
  return value;
}

template <class Field, class Number = Field>
auto number(Field ModelConfig::*field, Number min, Number max) {
  return [=](ModelConfig& model, const std::string& text) -> std::string {
    const auto value = parse_number<Number>(text, min, max);
    if (!value) return fmt::format("a number from {} to {}", min, max);
    model.*field = static_cast<Field>(*value);
    return "";
  };
}

auto one_of(std::string ModelConfig::*field, std::vector<std::string> words) {
  return [=](ModelConfig& model, const std::string& text) -> std::string {
    std::string allowed;
    for (const std::string& word : words) {
      if (word == text) {
        model.*field = text;
        return "";
      }
      allowed += (allowed.empty() ? "" : ", ") + word;
    }
    return allowed;
  };
}

std::string set_path(ModelConfig& model, const std::string& text) {
  model.path = text;
  return "";
}

std::string set_preload(ModelConfig& model, const std::string& text) {
  if (text != "yes" && text != "no") return "yes, no";
  model.preload = text == "yes";
  return "";
}

std::string set_batch_size(ModelConfig& model, const std::string& text) {
  constexpr std::size_t kMost = 4096;
  const auto value = parse_number<std::size_t>(text, 0, kMost);
  if (!value) return fmt::format("a number from 0 to {}", kMost);
  model.batch_size = std::max<std::size_t>(*value, 1);
  model.batched = *value > 0;
  return "";
}

/// The numbers of `1,3`, or nothing if that is no such list.
template <class Number>
std::optional<std::vector<Number>> parse_numbers(const std::string& text, Number min, Number max) {
  std::vector<Number> numbers;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    const auto number = parse_number<Number>(text.substr(at, comma - at), min, max);
    if (!number) return std::nullopt;
    numbers.push_back(*number);
    at = comma + 1;
  }
  return numbers;
}

/// `cuda`, `cpu`, `sim`, or the kind with indices: `cuda:0,1`.
std::string set_device(ModelConfig& model, const std::string& text) {
  const std::string allowed = "cuda, cuda:N, cuda:N,M, the same with sim, or cpu";
  constexpr int kMost = 31;  // jobs are announced on no other: sluice_job_begin_on()
  const std::size_t colon = text.find(':');
  model.device = text.substr(0, colon);
  const bool gpu = model.device == "cuda" || model.device == "sim";
  if (!gpu && text != "cpu") return allowed;
  if (colon == std::string::npos) return "";
  const auto gpus = parse_numbers<int>(text.substr(colon + 1), 0, kMost);
  if (!gpus) return allowed;
  if (std::set(gpus->begin(), gpus->end()).size() != gpus->size()) return "each GPU once";
  model.gpus = *gpus;
  return "";
}

constexpr std::string_view kLatest = "latest:";

std::optional<std::vector<std::uint64_t>> parse_versions(const std::string& text) {
  return parse_numbers<std::uint64_t>(text, 1, std::numeric_limits<std::uint64_t>::max());
}

std::optional<std::size_t> parse_latest(const std::string& text) {
  if (!text.starts_with(kLatest)) return std::nullopt;
  return parse_number<std::size_t>(text.substr(kLatest.size()), 1, 1000);
}

std::string set_versions(ModelConfig& model, const std::string& text) {
  model.versions = text;
  if (text == "all" || parse_latest(text) || parse_versions(text)) return "";
  return "latest:N, all, or numbers such as 1,3";
}

constexpr std::size_t kMaxWorkers = 64;
constexpr std::size_t kMaxQueue = 1'000'000;
constexpr std::size_t kMaxBlocks = 64;
constexpr std::uint64_t kMaxWeightsMb = 1 << 20;
constexpr std::uint64_t kMaxUs = 3'600'000'000;

const std::vector<Key>& keys() {
  static const std::vector<Key> all{
      {"path", set_path},
      {"engine", one_of(&ModelConfig::engine, {"auto", "torch", "aoti", "recording", "dummy"})},
      {"device", set_device},
      {"batch-size", set_batch_size},
      {"num-worker", number(&ModelConfig::num_worker, std::size_t{1}, kMaxWorkers)},
      {"slo-ms", number(&ModelConfig::slo_ms, 0.0, 3.6e6)},
      {"priority", number(&ModelConfig::priority, 0, 1)},
      {"max-delay-us", number(&ModelConfig::max_delay_us, std::uint64_t{0}, kMaxUs)},
      {"timeout-us", number(&ModelConfig::timeout_us, std::uint64_t{0}, kMaxUs)},
      {"max-queue", number(&ModelConfig::max_queue, std::size_t{1}, kMaxQueue)},
      {"blocks", number(&ModelConfig::blocks, std::size_t{0}, kMaxBlocks)},
      {"preload", set_preload},
      {"weights-mb", number(&ModelConfig::weights_mb, std::uint64_t{0}, kMaxWeightsMb)},
      {"versions", set_versions},
  };
  return all;
}

std::vector<std::string> key_names() {
  std::vector<std::string> names;
  for (const Key& key : keys()) names.emplace_back(key.name);
  return names;
}

struct NamedModels {
  std::string name;
  std::size_t count = 1;
};

/// `name` or `name[n]`.
std::optional<NamedModels> parse_name(const std::string& text) {
  // A client may send any text. Longer names could be no folders.
  constexpr std::size_t kMostBytes = 128;
  constexpr std::string_view kAllowed =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
  const std::size_t end = std::min(text.find_first_not_of(kAllowed), text.size());
  if (end == 0 || end > kMostBytes || text.front() == '.' || text.front() == '-')
    return std::nullopt;
  NamedModels named{text.substr(0, end)};
  if (end == text.size()) return named;
  if (text[end] != '[' || text.back() != ']') return std::nullopt;
  constexpr std::size_t kMost = 9999;
  const auto count =
      parse_number<std::size_t>(text.substr(end + 1, text.size() - end - 2), 1, kMost);
  if (!count) return std::nullopt;
  named.count = *count;
  return named;
}

/// Adds the replicas of `model`, the first under the name itself. Returns a name that exists
/// already, or an empty text.
std::string add_replicas(const ModelConfig& model, std::size_t count,
                         std::vector<ModelConfig>& models) {
  std::set<std::string> taken;
  for (const ModelConfig& other : models) taken.insert(other.name);
  for (std::size_t i = 0; i < count; ++i) {
    ModelConfig replica = model;
    if (i > 0) replica.name += "-" + std::to_string(i);
    if (taken.count(replica.name) > 0) return replica.name;
    models.push_back(std::move(replica));
  }
  return "";
}

constexpr std::string_view kNameForm =
    "name or name[n], of at most 128 letters, digits, '_', '-' and '.'";

class ConfigReader {
 public:
  explicit ConfigReader(const std::string& file) : file_(file) {}

  std::vector<ModelConfig> read() {
    std::ifstream in(file_);
    if (!in) throw UsageError(file_ + ": cannot be read");
    for (std::string line; std::getline(in, line);) {
      ++line_;
      line = line.substr(0, line.find('#'));
      const std::string text{base::trimmed(line)};
      if (text.empty()) continue;
      if (line.front() == ' ' || line.front() == '\t') {
        read_setting(text);
      } else {
        finish_model();
        begin_model(text);
      }
    }
    finish_model();
    if (models_.empty()) throw UsageError(file_ + ": names no model");
    return std::move(models_);
  }

 private:
  [[noreturn]] void fail(std::size_t line, const std::string& what) const {
    throw UsageError(fmt::format("{}:{}: {}", file_, line, what));
  }

  void begin_model(const std::string& text) {
    const auto named = parse_name(text);
    if (!named) fail(line_, fmt::format("found model '{}', allowed: {}", text, kNameForm));
    model_ = ModelConfig{};
    model_.name = named->name;
    count_ = named->count;
    model_line_ = line_;
    seen_.clear();
  }

  void read_setting(const std::string& text) {
    if (count_ == 0) fail(line_, fmt::format("found '{}' before the first model", text));
    const auto space = text.find_first_of(" \t");
    const std::string name = text.substr(0, space);
    const std::string value{
        space == std::string::npos ? "" : base::trimmed(std::string_view(text).substr(space))};
    for (const Key& key : keys()) {
      if (key.name != name) continue;
      if (!seen_.insert(name).second) fail(line_, fmt::format("{}: is given twice", name));
      const std::string allowed = value.empty() ? "a value" : key.set(model_, value);
      if (allowed.empty()) return;
      fail(line_, fmt::format("{}: found '{}', allowed: {}", name, value, allowed));
    }
    fail(line_, fmt::format("unknown key '{}'{}, allowed: {}", name,
                            base::did_you_mean(name, key_names()), fmt::join(key_names(), ", ")));
  }

  void finish_model() {
    if (count_ == 0) return;
    if (model_.path.empty() && model_.name == "dummy") model_.path = model_.name;
    if (model_.path.empty())
      fail(model_line_, fmt::format("model {}: path is missing", model_.name));
    const std::string twice = add_replicas(model_, count_, models_);
    if (!twice.empty()) fail(model_line_, fmt::format("model {} is named twice", twice));
    count_ = 0;
  }

  const std::string& file_;
  std::size_t line_ = 0;
  std::vector<ModelConfig> models_;
  ModelConfig model_;
  std::size_t model_line_ = 0;
  std::size_t count_ = 0;  ///< Replicas of model_; 0: there is no model yet.
  std::set<std::string> seen_;
};

}  // namespace

std::vector<ModelConfig> read_config(const std::string& file) { return ConfigReader(file).read(); }

std::vector<ModelVersion> chosen_versions(const std::string& policy,
                                          std::vector<ModelVersion> found) {
  if (const auto latest = parse_latest(policy)) {
    const std::size_t kept = std::min(*latest, found.size());
    found.erase(found.begin(), found.end() - static_cast<std::ptrdiff_t>(kept));
  } else if (const auto numbers = parse_versions(policy)) {
    std::erase_if(found, [&](const ModelVersion& version) {
      return std::count(numbers->begin(), numbers->end(), version.number) == 0;
    });
  }
  return found;
}

bool is_model_name(const std::string& name) {
  const auto named = parse_name(name);
  return named && named->name == name;
}

std::vector<ModelConfig> parse_model_list(const std::string& list) {
  std::vector<ModelConfig> models;
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t comma = std::min(list.find(',', at), list.size());
    const std::string text{base::trimmed(std::string_view(list).substr(at, comma - at))};
    at = comma + 1;
    const auto named = parse_name(text);
    if (!named) {
      throw UsageError(fmt::format("--models: found '{}', allowed: {}", text, kNameForm));
    }
    ModelConfig model;
    model.name = named->name;
    model.path = named->name;
    const std::string twice = add_replicas(model, named->count, models);
    if (!twice.empty()) throw UsageError(fmt::format("--models: {} is named twice", twice));
  }
  return models;
}

}  // namespace sluice::server
