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

nlohmann::json read_binary(const std::filesystem::path& file, const char* kind,
                           const char* remedy) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw base::UsageError("there is no " + file.string() + "; " + remedy);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(in),
                                std::istreambuf_iterator<char>()};
  auto value = nlohmann::json::from_cbor(bytes, true, false);
  if (!value.is_object() || value.value("kind", "") != kind ||
      value.value("version", 0) != kVersion) {
    throw base::UsageError(file.string() + " is no " + kind + " of this version; " + remedy);
  }
  return value;
}

}  // namespace sluice::predictor
