#include "predictor/model/binary.hpp"

#include <fstream>
#include <iterator>

#include "profiler/packs/xz_bytes.hpp"

namespace sluice::predictor {
namespace {

constexpr int kVersion = 1;

/// The file's CBOR, compressed or not.
std::string read(const std::filesystem::path& file, const char* remedy) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw base::UsageError("there is no " + file.string() + "; " + remedy);
  std::string bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (!profiler::is_xz(bytes)) return bytes;
  try {
    return profiler::from_xz(bytes);
  } catch (const base::UsageError& error) {
    throw base::UsageError(file.string() + " is damaged (" + error.what() + "); " + remedy);
  }
}

}  // namespace

void write_binary(const std::filesystem::path& file, const char* kind, nlohmann::json value) {
  value["kind"] = kind;
  value["version"] = kVersion;
  std::string cbor;
  nlohmann::json::to_cbor(value, cbor);
  std::ofstream out(file, std::ios::binary);
  out << profiler::to_xz(cbor);
  if (!out.flush()) throw base::RunError("cannot write " + file.string());
}

void read_binary(const std::filesystem::path& file, const char* kind, const char* remedy,
                 const std::function<void(const nlohmann::json&)>& take) {
  const std::string bytes = read(file, remedy);
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
