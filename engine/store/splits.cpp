#include "engine/store/splits.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/fd.hpp"
#include "base/json_node.hpp"

namespace sluice::engine {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;

Split parse_split(const json& entry) {
  return {.blocks = entry.at("blocks"),
          .cuts = entry.at("cuts"),
          .batch = entry.at("batch"),
          .ms = entry.at("ms"),
          .whole_ms = entry.at("whole_ms"),
          .gpu = entry.at("gpu"),
          .torch = entry.value("torch", "")};
}

ordered_json to_json(const Split& split) {
  return {{"blocks", split.blocks}, {"cuts", split.cuts},         {"batch", split.batch},
          {"ms", split.ms},         {"whole_ms", split.whole_ms}, {"gpu", split.gpu},
          {"torch", split.torch}};
}

bool same_target(const ordered_json& entry, const Split& split) {
  return entry.value("blocks", std::size_t{0}) == split.blocks &&
         entry.value("batch", std::size_t{0}) == split.batch && entry.value("gpu", "") == split.gpu;
}

/// base::parse_json_file() has sorted keys; the file keeps the order in which a person reads it.
ordered_json read_in_order(const fs::path& file) {
  std::ifstream in(file);
  return ordered_json::parse(in);
}

[[noreturn]] void cannot_write(const fs::path& file) {
  throw base::RunError(fmt::format("cannot write {}: {}", file.string(), std::strerror(errno)));
}

/// Held while model.json is changed. `sluice models export` takes the same lock.
base::Fd lock_store(const fs::path& store) {
  base::Fd lock(open(store.c_str(), O_RDONLY | O_CLOEXEC));
  while (flock(lock.get(), LOCK_EX) != 0) {
    if (errno != EINTR) cannot_write(store);
  }
  return lock;
}

void replace_file(const fs::path& file, const std::string& text) {
  const fs::path draft = file.parent_path() / fmt::format(".model.json.{}", getpid());
  std::ofstream out(draft);
  out << text << std::flush;
  std::error_code failed;
  if (out) fs::rename(draft, file, failed);
  if (out && !failed) return;
  if (failed) errno = failed.value();
  const int error = errno;
  fs::remove(draft, failed);
  errno = error;
  cannot_write(file);
}

}  // namespace

std::optional<FoundSplit> find_split(const fs::path& model_json, std::size_t blocks,
                                     const std::string& gpu, const std::string& torch) {
  const json model = base::parse_json_file(model_json);
  std::optional<FoundSplit> found;
  try {
    for (const json& entry : model.value("splits", json::array())) {
      if (entry.at("blocks") != blocks) continue;
      Split split = parse_split(entry);
      const bool stale = split.gpu != gpu || split.torch != torch;
      if (!found || !stale || found->stale) found = FoundSplit{std::move(split), stale};
    }
  } catch (const json::exception& error) {
    throw base::UsageError(fmt::format(
        "{}: \"splits\" cannot be understood ({}); remove it and run `sluice split` again",
        model_json.string(), error.what()));
  }
  return found;
}

std::string stale_warning(const std::string& model, const Split& split, const std::string& gpu,
                          const std::string& torch) {
  return fmt::format(
      "{} was split on {} with torch {}, and this is {} with torch {}: its blocks are measured "
      "again and may be uneven; `sluice split {} -c {}` makes them even",
      model, split.gpu, split.torch.empty() ? "?" : split.torch, gpu, torch, model, split.blocks);
}

void save_split(const fs::path& model_json, const Split& split) {
  const base::Fd lock = lock_store(model_json.parent_path().parent_path());
  ordered_json model = read_in_order(model_json);
  ordered_json kept = ordered_json::array();
  for (const ordered_json& entry : model.value("splits", ordered_json::array())) {
    if (!same_target(entry, split)) kept.push_back(entry);
  }
  kept.push_back(to_json(split));
  model["splits"] = std::move(kept);
  replace_file(model_json, model.dump(2) + "\n");
}

}  // namespace sluice::engine
