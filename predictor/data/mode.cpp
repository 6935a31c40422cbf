#include "predictor/data/mode.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <numeric>
#include <random>
#include <set>

#include "base/error.hpp"

namespace sluice::predictor {
namespace {

constexpr const char* kChoices = "sampleN, list-I-J.., network-A-B.. or without-A-B..";

std::vector<std::string> split_at(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (true) {
    const std::size_t end = text.find(separator, begin);
    parts.push_back(text.substr(begin, end - begin));
    if (end == std::string::npos) return parts;
    begin = end + 1;
  }
}

[[noreturn]] void refuse(const std::string& part, const std::string& allowed) {
  throw base::UsageError(fmt::format("--mode: '{}' is not {}", part, allowed));
}

/// The names after `prefix`, separated by -.
std::vector<std::string> names_after(const std::string& text, const std::string& prefix,
                                     const std::string& allowed) {
  if (!text.starts_with(prefix)) refuse(text, allowed);
  auto names = split_at(text.substr(prefix.size()), '-');
  if (std::ranges::find(names, "") != names.end()) refuse(text, allowed);
  return names;
}

std::size_t to_number(const std::string& text, const std::string& part,
                      const std::string& allowed) {
  std::size_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc{} || parsed.ptr != text.data() + text.size()) refuse(part, allowed);
  return value;
}

bool is_choice(const std::string& text) {
  return text.starts_with("sample") || text.starts_with("list-") || text.starts_with("network-") ||
         text.starts_with("without-");
}

void parse_choice(const std::string& text, Mode& mode) {
  const std::string allowed = kChoices;
  if (text.starts_with("sample")) {
    mode.sample = to_number(text.substr(6), text, allowed);
    if (*mode.sample == 0) refuse(text, allowed);
  } else if (text.starts_with("list-")) {
    for (const std::string& item : names_after(text, "list-", allowed)) {
      mode.list.push_back(to_number(item, text, allowed));
    }
  } else if (text.starts_with("without-")) {
    mode.without = names_after(text, "without-", allowed);
  } else {
    mode.networks = names_after(text, "network-", allowed);
  }
}

void parse_split(const std::string& text, Mode& mode) {
  const std::string allowed = "by_net:test-A-B.. or by_device:train-A..,test-B..";
  if (text.starts_with("by_net:")) {
    mode.test_networks = names_after(text.substr(7), "test-", allowed);
  } else if (text.starts_with("by_device:")) {
    const auto halves = split_at(text.substr(10), ',');
    if (halves.size() != 2) refuse(text, allowed);
    mode.train_devices = names_after(halves[0], "train-", allowed);
    mode.test_devices = names_after(halves[1], "test-", allowed);
  } else {
    refuse(text, allowed);
  }
}

void parse_source(const std::string& text, Mode& mode) {
  if (is_choice(text)) return parse_choice(text, mode);
  const auto halves = split_at(text, ':');
  if (halves.size() > 2) refuse(text, "DEVICE[,DEVICE..][:CHOICE]");
  mode.devices = split_at(halves[0], ',');
  if (std::ranges::find(mode.devices, "") != mode.devices.end()) refuse(text, "names of devices");
  if (halves.size() == 2) {
    if (!is_choice(halves[1])) refuse(halves[1], kChoices);
    parse_choice(halves[1], mode);
  }
}

std::vector<bool> chosen_tasks(const Dataset& data, const Mode& mode, std::uint64_t seed) {
  if (!mode.networks.empty()) return tasks_of(data, mode.networks);
  if (!mode.without.empty()) {
    auto others = tasks_of(data, mode.without);
    others.flip();
    return others;
  }
  std::vector<bool> wanted(data.tasks.size(), !mode.sample && mode.list.empty());
  for (const std::size_t task : mode.list) {
    if (task >= wanted.size()) {
      throw base::UsageError(fmt::format("--mode: there is no task {}; tasks.csv has 0 to {}", task,
                                         wanted.size() - 1));
    }
    wanted[task] = true;
  }
  if (mode.sample) {
    for (const std::size_t task : choose_random(wanted.size(), *mode.sample, seed)) {
      wanted[task] = true;
    }
  }
  return wanted;
}

/// Names the networks that test without a label: the user may not have measured them.
std::string unmeasured(const Dataset& data, const Mode& mode, const std::vector<Label>& labels) {
  std::vector<std::string> names;
  for (const std::string& name : mode.test_networks) {
    const auto tasks = tasks_of(data, {name});
    const auto inside = [&](const Label& label) {
      return tasks[data.programs[label.query.program].task];
    };
    if (std::ranges::none_of(labels, inside)) names.push_back(name);
  }
  if (names.empty()) return "both need some";
  return fmt::format("no measured program is of {}", fmt::join(names, ", "));
}

void split_every_fifth(std::vector<Label> labels, Fold& fold) {
  std::ranges::stable_sort(labels, {}, &Label::seconds);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    (i % 5 == 2 ? fold.test : fold.train).push_back(labels[i]);
  }
}

}  // namespace

std::vector<std::size_t> choose_random(std::size_t points, std::size_t count, std::uint64_t seed) {
  std::vector<std::size_t> all(points);
  std::iota(all.begin(), all.end(), std::size_t{0});
  std::vector<std::size_t> chosen;
  std::mt19937_64 random(seed);
  std::ranges::sample(all, std::back_inserter(chosen),
                      static_cast<std::ptrdiff_t>(std::min(count, points)), random);
  return chosen;
}

Mode parse_mode(const std::string& text) {
  Mode mode;
  if (text.empty()) return mode;
  if (text.starts_with("by_")) {
    parse_split(text, mode);
    return mode;
  }
  const std::size_t dot = text.find(".by_");
  parse_source(text.substr(0, dot), mode);
  if (dot != std::string::npos) parse_split(text.substr(dot + 1), mode);
  return mode;
}

std::vector<bool> devices_of(const Dataset& data, const std::vector<std::string>& names) {
  std::vector<bool> wanted(data.devices.size(), names.empty());
  for (const std::string& name : names) wanted[data.device(name)] = true;
  return wanted;
}

bool same_network(const std::string& a, const std::string& b) {
  return std::ranges::equal(
      a, b, {}, [](char c) { return c == '-' ? '_' : std::tolower(c); },
      [](char c) { return c == '-' ? '_' : std::tolower(c); });
}

std::vector<bool> tasks_of(const Dataset& data, const std::vector<std::string>& networks) {
  std::vector<bool> wanted(data.tasks.size(), false);
  for (const std::string& name : networks) {
    bool found = false;
    for (const Network& network : data.networks) {
      if (!same_network(network.name, name)) continue;
      found = true;
      for (const auto& call : network.calls) wanted[call.task] = true;
    }
    if (found) continue;
    std::set<std::string> known;
    for (const Network& network : data.networks) {
      std::string in_mode = network.name;
      std::ranges::replace(in_mode, '-', '_');
      known.insert(in_mode);
    }
    throw base::UsageError(
        fmt::format("no network '{}' in the data set, which has {}; write _ for - in their names",
                    name, fmt::join(known, ", ")));
  }
  return wanted;
}

Fold make_fold(const Dataset& data, const Mode& mode, std::uint64_t seed) {
  const auto devices = devices_of(data, mode.devices);
  const auto tasks = chosen_tasks(data, mode, seed);
  std::vector<Label> labels;
  for (const Label& label : data.labels) {
    if (devices[label.query.device] && tasks[data.programs[label.query.program].task]) {
      labels.push_back(label);
    }
  }
  Fold fold;
  if (!mode.test_networks.empty()) {
    const auto test = tasks_of(data, mode.test_networks);
    for (const Label& label : labels) {
      (test[data.programs[label.query.program].task] ? fold.test : fold.train).push_back(label);
    }
  } else if (!mode.test_devices.empty()) {
    const auto train = devices_of(data, mode.train_devices);
    const auto test = devices_of(data, mode.test_devices);
    for (const Label& label : labels) {
      if (train[label.query.device]) fold.train.push_back(label);
      if (test[label.query.device]) fold.test.push_back(label);
    }
  } else {
    split_every_fifth(labels, fold);
  }
  if (fold.train.empty() || fold.test.empty()) {
    throw base::UsageError(
        fmt::format("--mode: {} measured programs to train with and {} to test "
                    "with are left; {}",
                    fold.train.size(), fold.test.size(), unmeasured(data, mode, labels)));
  }
  return fold;
}

}  // namespace sluice::predictor
