#include "controller/slice_answers.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/fd.hpp"

namespace sluice::controller {
namespace {

using Json = nlohmann::json;
using shm::SliceAnswer;

/// At most 4 KiB. A file that is no plain file, such as a pipe, does not block the reader.
std::string content(const std::string& file) {
  const base::Fd fd(open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  std::string text(4096, '\0');
  const ssize_t size = fd ? read(fd.get(), text.data(), text.size()) : 0;
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  return text;
}

std::string text_in(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

Json object_in(const std::string& text) {
  Json json = Json::parse(text, nullptr, false);
  return json.is_object() ? json : Json::object();
}

std::optional<SliceAnswer> answer_in(const Json& json) {
  constexpr double kMostMs = 100;
  const std::string slices = text_in(json, "slices");
  const auto short_ms = json.find("short_ms");
  if (short_ms == json.end() || !short_ms->is_number()) return std::nullopt;
  const double ms = std::clamp(short_ms->get<double>(), 0.0, kMostMs);
  for (const auto kind : {SliceAnswer::Kind::kObeyed, SliceAnswer::Kind::kNotObeyed}) {
    if (slices == shm::kind_name(kind)) {
      return SliceAnswer{kind, static_cast<std::uint32_t>(ms * 100 + 0.5) * 10};
    }
  }
  return std::nullopt;
}

}  // namespace

std::string answer_folder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache == '/') return std::string(cache) + "/sluice";
  const char* home = std::getenv("HOME");
  return home != nullptr && *home == '/' ? std::string(home) + "/.cache/sluice" : std::string();
}

std::string loaded_driver() {
  std::string version = content("/sys/module/nvidia/version");
  while (!version.empty() && version.back() == '\n') version.pop_back();
  return version;
}

std::optional<SliceAnswer> recorded_answer(const std::string& folder, const std::string& uuid,
                                           const std::string& driver) {
  if (folder.empty() || driver.empty()) return std::nullopt;
  const Json json = object_in(content(folder + "/slices-" + uuid + ".json"));
  return text_in(json, "driver") == driver ? answer_in(json) : std::nullopt;
}

void record_answer(const std::string& folder, const std::string& uuid, const std::string& text) {
  if (folder.empty()) return;
  std::error_code ignored;
  std::filesystem::create_directories(folder, ignored);
  std::string temporary = folder + "/.slices-XXXXXX";
  const base::Fd fd(mkostemp(temporary.data(), O_CLOEXEC));
  if (!fd) return;
  fchmod(fd.get(), 0644);  // the answers of the node service are for everybody
  const bool whole = write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const std::string file = folder + "/slices-" + uuid + ".json";
  if (!whole || rename(temporary.c_str(), file.c_str()) != 0) unlink(temporary.c_str());
}

std::optional<SliceAnswer> printed_answer(const std::string& text, std::string& why) {
  const Json json = object_in(text);
  why = text_in(json, "why");
  return answer_in(json);
}

}  // namespace sluice::controller
