#include "profiler/records/record.hpp"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/error.hpp"
#include "base/statistics.hpp"
#include "profiler/packs/xz_lines.hpp"
#include "profiler/records/python_json.hpp"

namespace sluice::profiler {
namespace {

using nlohmann::ordered_json;

bool is_compressed(const std::string& file) { return file.ends_with(".xz"); }

std::string text_of(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

ordered_json details_json(const RecordDetails& details) {
  return {{"task", details.task},
          {"program", details.program},
          {"device", details.device},
          {"sms", details.sms},
          {"threads", details.threads},
          {"registers", details.registers},
          {"spill_bytes", details.spill_bytes},
          {"spread", details.spread},
          {"disturbed", details.disturbed}};
}

RecordDetails details_of(const ordered_json& value) {
  return {.task = value.at("task"),
          .program = value.at("program"),
          .device = value.at("device"),
          .sms = value.at("sms"),
          .threads = value.at("threads"),
          .registers = value.at("registers"),
          .spill_bytes = value.at("spill_bytes"),
          .spread = value.at("spread"),
          .disturbed = value.at("disturbed")};
}

}  // namespace

bool Record::good() const {
  return error == MeasureError::kNone && !seconds.empty() && !disturbed();
}

double Record::cost() const {
  return seconds.empty() || error != MeasureError::kNone ? INFINITY
                                                         : base::percentile(seconds, 0.5);
}

std::string to_line(const Record& record) {
  ordered_json line{
      {"input", {record.target, record.task_name, record.args, ordered_json::object()}},
      {"config",
       {{"index", record.index}, {"code_hash", record.code_hash}, {"entity", record.entity}}},
      {"result",
       {record.seconds, static_cast<int>(record.error), record.all_cost, record.timestamp}},
      {"version", 0.2},
      {"tvm_version", record.tvm_version}};
  if (record.details) line["sluice"] = details_json(*record.details);
  return python_json(line);
}

Record record_of(const std::string& line) {
  try {
    const auto value = ordered_json::parse(line);
    const auto& input = value.at("input");
    const auto& config = value.at("config");
    const auto& result = value.at("result");
    Record record{.target = input.at(0),
                  .task_name = input.at(1),
                  .args = input.at(2),
                  .index = config.at("index"),
                  .code_hash = config.at("code_hash"),
                  .entity = config.at("entity"),
                  .seconds = result.at(0),
                  .error = static_cast<MeasureError>(result.at(1).get<int>()),
                  .all_cost = result.at(2),
                  .timestamp = result.at(3),
                  .tvm_version = value.at("tvm_version")};
    if (const auto found = value.find("sluice"); found != value.end()) {
      record.details = details_of(*found);
    }
    return record;
  } catch (const ordered_json::exception& error) {
    throw base::UsageError(std::string("not a record: ") + error.what());
  }
}

bool for_each_line(const std::string& file, const std::function<void(const std::string&)>& take) {
  const auto take_line = [&](std::size_t number, const std::string& line) {
    try {
      take(line);
    } catch (const base::UsageError& error) {
      throw base::UsageError(file + ": line " + std::to_string(number) + ": " + error.what());
    }
  };
  if (!std::filesystem::exists(file)) return false;
  if (is_compressed(file)) {
    XzLineReader lines(file);
    while (const auto line = lines.next()) take_line(lines.line(), *line);
    return lines.torn();
  }
  const std::string text = text_of(file);
  std::size_t number = 0;
  std::size_t from = 0;
  for (std::size_t to = text.find('\n'); to != std::string::npos; to = text.find('\n', from)) {
    ++number;
    if (to > from) take_line(number, text.substr(from, to - from));
    from = to + 1;
  }
  return from < text.size();
}

Records read_records(const std::string& file) {
  Records found;
  found.torn = for_each_line(
      file, [&](const std::string& line) { found.records.push_back(record_of(line)); });
  return found;
}

RecordFile::RecordFile(std::string file) : path_(std::move(file)) {
  if (is_compressed(path_)) {
    throw base::UsageError(path_ + ": nothing can be added to a compressed file; unpack it first");
  }
  if (std::filesystem::exists(path_)) {
    const std::string text = text_of(path_);
    const std::size_t end = text.rfind('\n');
    const std::size_t whole = end == std::string::npos ? 0 : end + 1;
    if (whole < text.size()) std::filesystem::resize_file(path_, whole);
  }
  file_.reset(std::fopen(path_.c_str(), "ae"));
  if (!file_) throw base::RunError(path_ + ": cannot be written: " + std::strerror(errno));
}

void RecordFile::add(const Record& record) { add_line(to_line(record)); }

void RecordFile::add_line(std::string line) {
  line += '\n';
  const bool written = std::fwrite(line.data(), 1, line.size(), file_.get()) == line.size() &&
                       std::fflush(file_.get()) == 0;
  if (!written) throw base::RunError(path_ + ": cannot be written: " + std::strerror(errno));
}

}  // namespace sluice::profiler
