// A setting that is misspelt or ignored trains another network than the user asked for.
#include "predictor/config.hpp"

#include <gmock/gmock.h>

#include "base/error.hpp"
#include "base/json_node.hpp"

namespace sluice::predictor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(Config, SurvivesWritingAndReading) {
  Config config;
  config.network = "lstm";
  config.decoder = {7, 9};
  config.positions = false;
  config.cmd = 0.25;
  const auto json = nlohmann::json::parse(to_json(config).dump());
  EXPECT_EQ(to_json(parse_config(json, "x")), to_json(config));
}

TEST(Config, ASettingOnTheCommandLine) {
  const Config base;
  EXPECT_EQ(with_setting(base, "labels=log").labels, "log");
  EXPECT_EQ(with_setting(base, "positions=false").positions, false);
  EXPECT_EQ(with_setting(base, "lr=1e-5").lr, 1e-5);
  EXPECT_THAT(with_setting(base, "embedding=[3,4]").embedding, ElementsAre(3, 4));
  EXPECT_EQ(with_setting(base, "layers=5").heads, base.heads);
}

TEST(Config, RefusesWithTheKey) {
  const auto refuse = [](const char* setting, const char* text) {
    EXPECT_THAT([&] { (void)with_setting(Config{}, setting); },
                ThrowsMessage<base::UsageError>(HasSubstr(text)))
        << setting;
  };
  refuse("layer=3", "layer");
  refuse("layers=-1", "layers");
  refuse("labels=square", "labels: 'square' is not one of boxcox, log, none");
  refuse("labels", "--set: 'labels' is not KEY=VALUE");
  refuse("heads=5", "heads: 5 does not divide the 176 features");
}

TEST(Config, ThePublishedOne) {
  const std::string file = SLUICE_TEST_PREDICTOR "/configs/search_trial_1575.json";
  const Config config = parse_config(base::parse_json_file(file), file);
  EXPECT_EQ(config.layers, 11);
  EXPECT_EQ(config.flatten, 716);
  EXPECT_THAT(config.embedding, ElementsAre(985, 985, 985));
  EXPECT_EQ(config.embedding_width, 69);
  EXPECT_THAT(config.decoder, ElementsAre(930, 930, 930));
  EXPECT_EQ(config.batch, 600);
  EXPECT_EQ(config.schedule, "cycle");
}

}  // namespace
}  // namespace sluice::predictor
