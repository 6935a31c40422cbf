#include "predictor/model/model.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "predictor/model/binary.hpp"

namespace sluice::predictor {

const std::vector<std::string>& model_names() {
  static const std::vector<std::string> kNames{"gaussian", "ratio", "analytic", "copied"};
  return kNames;
}

std::unique_ptr<LatencyModel> make_model(const std::string& name, std::uint64_t seed) {
  if (name == "gaussian") return make_gaussian(seed);
  if (name == "ratio") return make_ratio(seed);
  if (name == "analytic") return make_analytic(seed);
  if (name == "copied") return make_copied();
  throw base::UsageError("there is no model '" + name + "'");
}

void save_model(const std::filesystem::path& folder, const std::string& name,
                const LatencyModel& model) {
  write_binary(folder / "predictor.cbor", "predictor",
               {{"model", name}, {"parameters", model.saved()}});
}

std::unique_ptr<LatencyModel> load_model(const std::filesystem::path& folder) {
  constexpr const char* kRemedy = "`sluice predict train` makes one";
  std::unique_ptr<LatencyModel> model;
  read_binary(folder / "predictor.cbor", "predictor", kRemedy, [&](const nlohmann::json& value) {
    model = make_model(value.at("model"), 0);
    model->restore(value.at("parameters"));
  });
  return model;
}

}  // namespace sluice::predictor
