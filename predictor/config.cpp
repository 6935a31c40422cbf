#include "predictor/config.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.hpp"
#include "base/install.hpp"
#include "base/json_node.hpp"
#include "predictor/data/dataset.hpp"

namespace sluice::predictor {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::int64_t kWidest = 65536;
constexpr std::int64_t kMany = 1'000'000;

/// Calls `visit` with the name, the member and the allowed range of each setting: the one list of
/// keys, for reading and for writing.
template <class C, class Visit>
void each_setting(C& config, const Visit& visit) {
  visit.word("network", config.network, {"transformer", "mlp", "lstm"});
  visit.count("layers", config.layers, 0, 64);
  visit.count("heads", config.heads, 1, kFeatures);
  visit.count("feed_forward", config.feed_forward, 1, kWidest);
  visit.count("flatten", config.flatten, 1, kWidest);
  visit.widths("embedding", config.embedding);
  visit.count("embedding_width", config.embedding_width, 1, kWidest);
  visit.widths("device", config.device);
  visit.widths("decoder", config.decoder);
  visit.flag("positions", config.positions);
  visit.word("labels", config.labels, {"boxcox", "log", "none"});
  visit.real("mse", config.mse, 0, 1e9);
  visit.real("mape", config.mape, 0, 1e9);
  visit.real("cmd", config.cmd, 0, 1e9);
  visit.real("lr", config.lr, 1e-9, 1);
  visit.word("schedule", config.schedule, {"cosine", "cycle", "constant"});
  visit.real("weight_decay", config.weight_decay, 0, 1);
  visit.count("batch", config.batch, 2, kMany);
  visit.count("epochs", config.epochs, 1, kMany);
  visit.count("tune_epochs", config.tune_epochs, 0, kMany);
  visit.real("dropout", config.dropout, 0, 0.99);
}

struct Read {
  const base::JsonNode& node;
  void word(const char* name, std::string& value,
            std::initializer_list<const char*> allowed) const {
    const auto found = node.find(name);
    if (!found) return;
    value = found->as_text();
    for (const char* each : allowed) {
      if (value == each) return;
    }
    throw base::UsageError(
        fmt::format("{}: '{}' is not one of {}", name, value, fmt::join(allowed, ", ")));
  }
  void count(const char* name, std::int64_t& value, std::int64_t min, std::int64_t max) const {
    if (const auto found = node.find(name)) value = found->as_integer(min, max);
  }
  void real(const char* name, double& value, double min, double max) const {
    if (const auto found = node.find(name)) value = found->as_number(min, max);
  }
  void flag(const char* name, bool& value) const {
    if (const auto found = node.find(name)) value = found->as_bool();
  }
  void widths(const char* name, std::vector<std::int64_t>& value) const {
    const auto found = node.find(name);
    if (!found) return;
    value.clear();
    for (const auto& each : found->elements("widths of layers")) {
      value.push_back(each.as_integer(1, kWidest));
    }
  }
};

struct Write {
  ordered_json& out;
  void word(const char* name, const std::string& value, std::initializer_list<const char*>) const {
    out[name] = value;
  }
  void count(const char* name, std::int64_t value, std::int64_t, std::int64_t) const {
    out[name] = value;
  }
  void real(const char* name, double value, double, double) const { out[name] = value; }
  void flag(const char* name, bool value) const { out[name] = value; }
  void widths(const char* name, const std::vector<std::int64_t>& value) const { out[name] = value; }
};

}  // namespace

Config parse_config(const json& document, const std::string& where) {
  Config config;
  std::vector<std::string> names;
  const ordered_json defaults = to_json(config);
  for (const auto& [name, value] : defaults.items()) names.push_back(name);
  const base::JsonNode node(where, document);
  node.expect_object(names);
  each_setting(config, Read{node});
  if (kFeatures % static_cast<std::size_t>(config.heads) != 0) {
    throw base::UsageError(fmt::format("{}: heads: {} does not divide the {} features", where,
                                       config.heads, kFeatures));
  }
  return config;
}

ordered_json to_json(const Config& config) {
  ordered_json out;
  each_setting(config, Write{out});
  return out;
}

Config find_config(const std::string& name) {
  std::string file = name;
  const auto installed =
      base::Install::of_this_program().root() / "share/sluice/predictor" / (name + ".json");
  if (!std::filesystem::exists(file) && std::filesystem::exists(installed))
    file = installed.string();
  return parse_config(base::parse_json_file(file), file);
}

Config with_setting(const Config& config, const std::string& setting) {
  const std::size_t sign = setting.find('=');
  if (sign == std::string::npos) {
    throw base::UsageError("--set: '" + setting + "' is not KEY=VALUE");
  }
  const std::string value = setting.substr(sign + 1);
  json all = json::parse(to_json(config).dump());
  const json parsed = json::parse(value, nullptr, false);
  all[setting.substr(0, sign)] = parsed.is_discarded() ? json(value) : parsed;
  return parse_config(all, "--set");
}

}  // namespace sluice::predictor
