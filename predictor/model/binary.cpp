#include "predictor/model/binary.hpp"

#include <fstream>
#include <iterator>

namespace sluice::predictor {
namespace {

constexpr int kVersion = 1;

}  // namespace

void write_binary(const std::filesystem::path& file, const char* kind, nlohmann::json value) {
  value["kind"] = kind;
  value["version"] = kVersion;
  const auto bytes = nlohmann::json::to_cbor(value);
  std::ofstream out(file, std::ios::binary);
  out.write(reinterpret_cast<const char*>(bytes.data()),
            static_cast<std::streamsize>(bytes.size()));
  if (!out.flush()) throw base::RunError("cannot write " + file.string());
}

void read_binary(const std::filesystem::path& file, const char* kind, const char* remedy,
                 const std::function<void(const nlohmann::json&)>& take) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw base::UsageError("there is no " + file.string() + "; " + remedy);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(in),
                                std::istreambuf_iterator<char>()};
  nlohmann::json value;
  try {
    value = nlohmann::json::from_cbor(bytes);
  } catch (const nlohmann::json::exception&) {  // then it is no object
  }
  const nlohmann::json none;
  if (!value.is_object() || value.value("kind", none) != kind ||
      value.value("version", none) != kVersion) {
    throw base::UsageError(file.string() + " is no " + kind + " of this version; " + remedy);
  }
  try {
    take(value);
  } catch (const nlohmann::json::exception&) {
    throw base::UsageError(file.string() + " is damaged; " + remedy);
  } catch (const base::UsageError& error) {
    throw base::UsageError(file.string() + " is damaged (" + error.what() + "); " + remedy);
  }
}

}  // namespace sluice::predictor
