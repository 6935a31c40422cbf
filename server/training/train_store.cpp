#include "server/training/train_store.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "base/error.hpp"
#include "base/nearest.hpp"
#include "base/trimmed.hpp"

namespace sluice::server::training {
namespace {

namespace fs = std::filesystem;
using base::trimmed;

/// Far more than a job needs, and less than the kernel accepts for one argument.
constexpr std::size_t kMostArgBytes = 64 << 10;
constexpr std::string_view kModeName = "mode";
/// Of a client's text in a message.
constexpr std::size_t kShownBytes = 128;

bool is_option_name(std::string_view name) {
  constexpr std::string_view kAllowed =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
  return !name.empty() && name.front() != '-' &&
         name.find_first_not_of(kAllowed) == std::string_view::npos;
}

/// A value that a trainer could take for an option. Negative numbers are none.
bool is_option(std::string_view value) {
  if (value.empty() || value.front() != '-') return false;
  double number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  return error != std::errc{} || end != value.data() + value.size();
}

/// What no value of an argument needs, and what ends or breaks one.
bool has_control_character(std::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return c >= '\0' && c < ' ' && c != '\t'; });
}

bool is_job_file(const fs::directory_entry& entry) {
  std::error_code ignored;
  return entry.is_regular_file(ignored) && entry.path().filename().string().front() != '.';
}

}  // namespace

Command parse_train_args(const std::string& args) {
  if (args.size() > kMostArgBytes) {
    throw base::UsageError(fmt::format("arguments of training: found {} bytes, at most {}",
                                       args.size(), kMostArgBytes));
  }
  if (has_control_character(args)) {
    throw base::UsageError("arguments of training: found a control character");
  }
  Command out;
  std::string_view left = args;
  while (!trimmed(left).empty()) {
    const auto comma = left.find(',');
    const std::string_view item = trimmed(left.substr(0, comma));
    left = comma == std::string_view::npos ? "" : left.substr(comma + 1);
    const auto equals = item.find('=');
    const std::string_view name = trimmed(item.substr(0, equals));
    if (equals == std::string_view::npos || !is_option_name(name)) {
      throw base::UsageError(
          fmt::format("arguments of training: found '{}', expected name=value, name=value, ...",
                      item.substr(0, kShownBytes)));
    }
    const std::string_view value = trimmed(item.substr(equals + 1));
    if (is_option(value)) {
      throw base::UsageError(
          fmt::format("arguments of training: {}: found '{}', which looks like an option", name,
                      value.substr(0, kShownBytes)));
    }
    if (name == kModeName) {
      throw base::UsageError("arguments of training: mode is the server's to choose");
    }
    out.push_back("--" + std::string(name));
    out.emplace_back(value);
  }
  return out;
}

TrainStore::TrainStore(fs::path folder, std::string python)
    : folder_(std::move(folder)), python_(std::move(python)) {
  std::error_code ignored;
  if (!fs::is_directory(folder_, ignored)) {
    throw base::UsageError(fmt::format("--train-store {}: no such folder", folder_.string()));
  }
  folder_ = fs::absolute(folder_);
  if (python_.empty()) {
    const char* const chosen = std::getenv("SLUICE_PYTHON");
    python_ = chosen != nullptr && *chosen != '\0' ? chosen : "python3";
  }
}

std::vector<std::string> TrainStore::jobs() const {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder_, ignored)) {
    if (is_job_file(entry)) names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

Command TrainStore::command(const std::string& job, const std::string& args, Mode mode) const {
  std::vector<fs::path> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder_, ignored)) {
    if (is_job_file(entry) && entry.path().stem() == job) found.push_back(entry.path());
  }
  if (found.empty()) {
    throw base::UsageError(fmt::format("unknown training job '{}' in {}{}",
                                       job.substr(0, kShownBytes), folder_.string(),
                                       base::did_you_mean(job, jobs())));
  }
  if (found.size() > 1) {
    throw base::UsageError(fmt::format("training job '{}': {} and {} have this name; rename one",
                                       job, found[0].filename().string(),
                                       found[1].filename().string()));
  }
  Command out;
  if (found.front().extension() == ".py") {
    out.push_back(python_);
  } else if (access(found.front().c_str(), X_OK) != 0) {
    throw base::UsageError(fmt::format("training job '{}': {} is not executable; chmod +x it", job,
                                       found.front().string()));
  }
  out.push_back(found.front().string());
  for (std::string& arg : parse_train_args(args)) out.push_back(std::move(arg));
  out.insert(out.end(), {"--mode", std::string(to_string(mode))});
  return out;
}

}  // namespace sluice::server::training
