#pragma once
#include <cstdio>
#include <string>

namespace sluice::memory {

/// One result, printed as one line of JSON when the object ends; README.md explains the fields.
class Finding {
 public:
  Finding(const char* experiment, const std::string& what) {
    line_ = "{\"experiment\": \"" + std::string(experiment) + "\", \"what\": \"" + what + "\"";
  }
  Finding(const Finding&) = delete;
  Finding& operator=(const Finding&) = delete;
  ~Finding() {
    std::printf("%s}\n", line_.c_str());
    std::fflush(stdout);
  }

  Finding& with(const char* field, double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.6g", value);
    return raw(field, text);
  }
  Finding& with(const char* field, bool value) { return raw(field, value ? "true" : "false"); }
  Finding& with(const char* field, const std::string& value) {
    return raw(field, "\"" + value + "\"");
  }
  Finding& with(const char* field, const char* value) { return with(field, std::string(value)); }

 private:
  Finding& raw(const char* field, const std::string& value) {
    line_ += ", \"" + std::string(field) + "\": " + value;
    return *this;
  }

  std::string line_;
};

}  // namespace sluice::memory
