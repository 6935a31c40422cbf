#include "runner/experiment_reader.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::runner {
namespace {

using nlohmann::json;

/// The published entry with a recording in place of the model.
json published_model(const std::string& log = "model_A") {
  return {{"model_name", "fasterrcnn_resnet50_fpn"},
          {"model_weight", "FasterRCNN_ResNet50_FPN_Weights"},
          {"sleep_time", 0},
          {"input_file_path", "../data-set/rene/0000000099.png"},
          {"output_file_path", "./logs"},
          {"output_file_name", log},
          {"priority", 0},
          {"resize", true},
          {"resize_size", {1440, 2560}},
          {"control",
           {{"control", true},
            {"controlsync", true},
            {"controlEvent", false},
            {"queue_limit", {{"sync", 1}, {"event_group", 2}}}}},
          {"recording", "fasterrcnn_1440"}};
}

json published() { return {{"models", {published_model()}}, {"exp_dur", 30}, {"device_id", 1}}; }

Experiment read_text(const std::string& text) {
  const test::TempFolder folder;
  return read_experiment(folder.write("exp.json", text), Backends{SLUICE_TEST_RECORDINGS});
}
Experiment read(const json& document) { return read_text(document.dump(2)); }

/// The error, without the folder in front of the file name.
std::string error_of_text(const std::string& text) {
  const test::TempFolder folder;
  try {
    (void)read_experiment(folder.write("exp.json", text), Backends{SLUICE_TEST_RECORDINGS});
  } catch (const base::UsageError& error) {
    return std::string(error.what()).substr(folder.path().string().size() + 1);
  }
  return "no error";
}
std::string error_of(const json& document) { return error_of_text(document.dump(2)); }

/// The error when one value of the published experiment is replaced or added.
std::string error_with(const std::string& pointer, const json& value) {
  json document = published();
  document[json::json_pointer(pointer)] = value;
  return error_of(document);
}
std::string error_without(const std::string& parent, const std::string& key) {
  json document = published();
  document[json::json_pointer(parent)].erase(key);
  return error_of(document);
}
Control control_of(const json& control) {
  json document = published();
  document["models"][0]["control"] = control;
  return read(document).models[0].control;
}

TEST(Experiment, ReadsTheTargetOfAModel) {
  json document = published();
  EXPECT_FALSE(read(document).models[0].target.any());
  document["models"][0]["target"] = "p99=50ms";
  EXPECT_EQ(shm::to_string(read(document).models[0].target), "p99=50ms");
  EXPECT_EQ(error_with("/models/0/target", "p99=50"),
            "exp.json: /models/0/target: found \"p99=50\", allowed: p99=50ms, p95=800us, "
            "p99.9=1.5s (p50 to p99.9), p99=1.2x (times alone), step p99=25ms, none; did you mean "
            "\"p99=50ms\"?");
  EXPECT_EQ(error_with("/models/0/taget", "p99=50ms").substr(0, 62),
            "exp.json: /models/0/taget: unknown key, did you mean \"target\"?");
  document["models"][0]["control"]["control"] = false;
  EXPECT_EQ(error_of(document),
            "exp.json: /models/0/target: needs a control object with control true");
}

TEST(Experiment, ReadsTheMemoryLimitOfAModel) {
  json document = published();
  EXPECT_EQ(read(document).models[0].memory, 0U);
  document["models"][0]["memory"] = "20GiB";
  EXPECT_EQ(read(document).models[0].memory, std::uint64_t{20} << 30U);
  EXPECT_EQ(error_with("/models/0/memory", "20"),
            "exp.json: /models/0/memory: found \"20\", allowed: 20GiB, 1.5GiB, 80GB (1GiB to "
            "16TiB; KiB, MiB, GiB, TiB, kB, MB, GB, TB), none");
  document["models"][0]["control"]["control"] = false;
  EXPECT_EQ(error_of(document),
            "exp.json: /models/0/memory: needs a control object with control true");
}

TEST(Experiment, ReadsTheWeightOfAModel) {
  json document = published();
  EXPECT_EQ(read(document).models[0].weight, 0U);
  document["models"][0]["weight"] = 3;
  EXPECT_EQ(read(document).models[0].weight, 3U);
  EXPECT_EQ(error_with("/models/0/weight", 1001),
            "exp.json: /models/0/weight: found 1001, allowed: a whole number from 1 to 1000");
  document["models"][0]["control"]["control"] = false;
  EXPECT_EQ(error_of(document),
            "exp.json: /models/0/weight: needs a control object with control true");
}

TEST(Experiment, ReadsWhatAModelGives) {
  json document = published();
  EXPECT_EQ(read(document).models[0].give, shm::kDefaultGive);
  document["models"][0]["give"] = "2.5%";
  EXPECT_EQ(read(document).models[0].give, 25U);
  document["models"][0]["give"] = "0";
  EXPECT_EQ(read(document).models[0].give, 0U);
  EXPECT_EQ(error_with("/models/0/give", "5"),
            "exp.json: /models/0/give: found \"5\", allowed: 0, or a percentage from 0.1% to 50% "
            "such as 5%; did you mean \"5%\"?");
  document["models"][0]["control"]["control"] = false;
  EXPECT_EQ(error_of(document),
            "exp.json: /models/0/give: needs a control object with control true");
}

TEST(Experiment, AcceptsThePublishedSchemaUnchanged) {
  const Experiment experiment = read(published());
  EXPECT_EQ(experiment.exp_dur_s, 30);
  EXPECT_EQ(experiment.device_id, 1);
  ASSERT_EQ(experiment.models.size(), 1U);
  const Model& model = experiment.models[0];
  EXPECT_EQ(model.display_name(), "fasterrcnn_resnet50_fpn_1440");
  EXPECT_EQ(model.output_file(".log"), "./logs/model_A.log");
  EXPECT_TRUE(model.control.hooked);
  EXPECT_EQ(shm::to_string(model.control.policy), "sync:1");
}

TEST(Experiment, ConfigurationsOfTheTreeAreSound) {
  const std::string folder = std::string(SLUICE_TEST_CONFIGS) + "/replay/";
  const auto policies = [&](const std::string& name) {
    std::string text;
    for (const Model& model :
         read_experiment(folder + name, Backends{SLUICE_TEST_RECORDINGS}).models) {
      text += model.control.hooked ? shm::to_string(model.control.policy) + " " : "unhooked ";
    }
    return text;
  };
  EXPECT_EQ(policies("input.json"), "unhooked unhooked ");
  EXPECT_EQ(policies("input_control.json"), "gate gate ");
  EXPECT_EQ(policies("input_controlsync.json"), "sync:1 gate ");
  EXPECT_EQ(policies("input_controlevent.json"), "event:2 gate ");
  EXPECT_EQ(policies("input_device.json"), "device:200us gate ");
  EXPECT_EQ(policies("three_models.json"), "device:200us device:200us device:200us ");
}

TEST(Experiment, PublishedConfigurationsSayThatTheyNeedLibTorch) {
  // They must fail at the model, after everything else in them was accepted.
  for (const char* name : {"input", "input_control", "input_controlsync", "input_controlevent"}) {
    const std::string file = std::string(SLUICE_TEST_CONFIGS) + "/" + name + ".json";
    try {
      (void)read_experiment(file, Backends{SLUICE_TEST_RECORDINGS});
      ADD_FAILURE() << file << " was accepted";
    } catch (const base::UsageError& error) {
      const std::string what = error.what();
      EXPECT_NE(what.find("/models/0/model_name: no recording named \"fasterrcnn_resnet50_fpn\""),
                std::string::npos)
          << what;
      EXPECT_NE(what.find("LibTorch worker, which is not part of this build"), std::string::npos);
    }
  }
}

TEST(Experiment, PublishedConfigurationsRunOnTheLibTorchWorkerWhereThereIsOne) {
  for (const char* name : {"input", "input_control", "input_controlsync", "input_controlevent"}) {
    const std::string file = std::string(SLUICE_TEST_CONFIGS) + "/" + name + ".json";
    const Experiment experiment = read_experiment(file, Backends{SLUICE_TEST_RECORDINGS, true});
    for (const Model& model : experiment.models) EXPECT_EQ(model.backend, "torchscript") << file;
  }
}

TEST(Experiment, ReplaysStayReplaysWhereThereIsALibTorchWorker) {
  std::size_t files = 0;
  for (const auto& file :
       std::filesystem::directory_iterator(std::string(SLUICE_TEST_CONFIGS) + "/replay")) {
    ++files;
    const Experiment experiment =
        read_experiment(file.path(), Backends{SLUICE_TEST_RECORDINGS, true});
    for (const Model& model : experiment.models)
      EXPECT_EQ(model.backend, "recording") << file.path();
  }
  EXPECT_EQ(files, 6U);
}

TEST(Policy, FollowsThePublishedBooleansUnlessOneIsNamed) {
  const json limits{{"sync", 3}, {"event_group", 5}};
  EXPECT_FALSE(
      control_of({{"control", false}, {"controlsync", true}, {"queue_limit", limits}}).hooked);
  EXPECT_EQ(shm::to_string(control_of({{"control", true}}).policy), "gate");
  EXPECT_EQ(shm::to_string(control_of({{"controlsync", true}, {"queue_limit", limits}}).policy),
            "sync:3");
  const json both{{"controlsync", true}, {"controlEvent", true}, {"queue_limit", limits}};
  EXPECT_EQ(shm::to_string(control_of(both).policy), "event:5");
  json named = both;
  named["policy"] = "device:7";
  EXPECT_EQ(shm::to_string(control_of(named).policy), "device:7");
}

TEST(Policy, WithoutControlTheProcessIsLeftAlone) {
  json document = published();
  document["models"][0].erase("control");
  EXPECT_FALSE(read(document).models[0].control.hooked);
}

TEST(ExperimentError, MissingFileFolderAndSyntax) {
  const test::TempFolder folder;
  const auto error_of_file = [](const std::string& file) -> std::string {
    try {
      (void)read_experiment(file, Backends{SLUICE_TEST_RECORDINGS});
    } catch (const base::UsageError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(error_of_file(folder.file("none.json")),
            folder.file("none.json") + ": cannot be read: No such file or directory");
  EXPECT_EQ(error_of_file(folder.path()), folder.path().string() + ": is a folder, not a file");
  EXPECT_EQ(error_of_text("").substr(0, 38), "exp.json: not JSON: line 1, column 1: ");
  EXPECT_EQ(error_of_text("{\n  \"models\": [\n    {,\n").substr(0, 38),
            "exp.json: not JSON: line 3, column 6: ");
  EXPECT_EQ(error_of_text("{\"exp_dur\": 1e999}").substr(0, 18), "exp.json: not JSON");
  EXPECT_EQ(error_of_text("[1]"),
            "exp.json: /: found [1], allowed: an object with models, exp_dur, device_id, mps");
}

TEST(ExperimentError, UnknownKeyNamesTheNearest) {
  EXPECT_EQ(error_with("/models/0/control/queue_limit/event_gruop", 1),
            "exp.json: /models/0/control/queue_limit/event_gruop: unknown key, did you mean "
            "\"event_group\"? Allowed: sync, event_group");
  EXPECT_EQ(error_with("/zebra", 0),
            "exp.json: /zebra: unknown key; allowed: models, exp_dur, device_id, mps");
  EXPECT_EQ(error_with("/exp_durr", 0),
            "exp.json: /exp_durr: unknown key, did you mean \"exp_dur\"? Allowed: models, "
            "exp_dur, device_id, mps");
}

TEST(ExperimentError, WrongTypes) {
  EXPECT_EQ(error_with("/models/0/priority", "high"),
            "exp.json: /models/0/priority: found \"high\", allowed: a whole number from 0 to 255");
  EXPECT_EQ(error_with("/models/0/priority", 1.5),
            "exp.json: /models/0/priority: found 1.5, allowed: a whole number from 0 to 255");
  EXPECT_EQ(error_with("/models/0/control/control", 1),
            "exp.json: /models/0/control/control: found 1, allowed: true or false");
  EXPECT_EQ(error_with("/models/0/model_name", nullptr),
            "exp.json: /models/0/model_name: found null, allowed: a non-empty string");
  EXPECT_EQ(error_with("/models", 3), "exp.json: /models: found 3, allowed: a list of models");
  EXPECT_EQ(error_with("/models/0/resize_size", {720}),
            "exp.json: /models/0/resize_size: found [720], allowed: [height, width]");
  EXPECT_EQ(error_with("/models/0/control", false).substr(0, 61),
            "exp.json: /models/0/control: found false, allowed: an object ");
}

TEST(ExperimentError, NegativeAndOutOfRange) {
  EXPECT_EQ(error_with("/models/0/control/queue_limit/sync", -1),
            "exp.json: /models/0/control/queue_limit/sync: found -1, allowed: a whole number from "
            "1 to 1000000");
  EXPECT_EQ(error_with("/models/0/control/queue_limit/event_group", 0),
            "exp.json: /models/0/control/queue_limit/event_group: found 0, allowed: a whole number "
            "from 1 to 1000000");
  EXPECT_EQ(error_with("/models/0/priority", 256),
            "exp.json: /models/0/priority: found 256, allowed: a whole number from 0 to 255");
  EXPECT_EQ(error_with("/models/0/sleep_time", -0.1),
            "exp.json: /models/0/sleep_time: found -0.1, allowed: a number of at least 0 and at "
            "most 1e+06");
  EXPECT_EQ(error_with("/models/0/announce_ms", 1001),
            "exp.json: /models/0/announce_ms: found 1001, allowed: a number of at least 0 and at "
            "most 1000");
  EXPECT_EQ(error_with("/exp_dur", 0),
            "exp.json: /exp_dur: found 0, allowed: a number above 0 and at most 1e+06");
  EXPECT_EQ(error_with("/device_id", -1),
            "exp.json: /device_id: found -1, allowed: a whole number from 0 to 2147483647");
  EXPECT_EQ(error_with("/device_id", 18446744073709551615U),
            "exp.json: /device_id: found 18446744073709551615, allowed: a whole number from 0 to "
            "2147483647");
}

TEST(ExperimentError, ALogOutsideItsFolder) {
  EXPECT_EQ(error_with("/models/0/output_file_name", "../model_A"),
            "exp.json: /models/0/output_file_name: found \"../model_A\", allowed: a file name; its "
            "folder is output_file_path");
}

TEST(ExperimentError, MissingParts) {
  EXPECT_EQ(error_without("", "models"), "exp.json: /: \"models\" is missing");
  EXPECT_EQ(error_with("/models", json::array()),
            "exp.json: /models: found [], allowed: a list of at least one model");
  EXPECT_EQ(error_without("/models/0", "model_name"),
            "exp.json: /models/0: \"model_name\" is missing");
  EXPECT_EQ(error_without("/models/0", "output_file_name"),
            "exp.json: /models/0: \"output_file_name\" is missing");
  EXPECT_EQ(error_without("/models/0/control/queue_limit", "sync"),
            "exp.json: /models/0/control: controlsync is true, but queue_limit.sync is missing");
  EXPECT_EQ(error_without("/models/0", "resize_size"),
            "exp.json: /models/0: resize is true, but resize_size is missing");
}

TEST(ExperimentError, UnknownPolicyAndWhatIsNotInThisBuild) {
  EXPECT_EQ(error_with("/models/0/control/policy", "events:2"),
            "exp.json: /models/0/control/policy: found \"events:2\", allowed: none, gate, sync:N, "
            "event:N, device:N, device:Tus, device:Tus,ahead:Ams (N and T 1-1000000, A 1-1000); "
            "did you mean \"event:2\"?");
  EXPECT_EQ(
      error_with("/models/0/backend", "torchscript"),
      "exp.json: /models/0/backend: model \"fasterrcnn_resnet50_fpn\" needs the LibTorch "
      "worker, which is not part of this build (./x torch, then build again); only \"recording\" "
      "is");
  EXPECT_EQ(
      error_with("/models/0/backend", "onnx"),
      "exp.json: /models/0/backend: found \"onnx\", allowed: \"recording\", \"torchscript\" or "
      "\"aoti\"");
  EXPECT_EQ(error_with("/mps", true), "no error");
  EXPECT_EQ(error_with("/mps", 1), "exp.json: /mps: found 1, allowed: true or false");
  const std::string wrong_recording = error_with("/models/0/recording", "fasterrcnn_1404");
  EXPECT_TRUE(wrong_recording.starts_with(
      "exp.json: /models/0/recording: no recording named "
      "\"fasterrcnn_1404\", did you mean \"fasterrcnn_1440\"? Recordings here: "))
      << wrong_recording;
}

TEST(ExperimentError, ModelsThatWouldWriteOneLog) {
  // Two workers on one file would tear each other's lines.
  json document = published();
  document["models"].push_back(published_model());
  document["models"][1]["output_file_path"] = "./other/../logs/";
  EXPECT_EQ(error_of(document),
            "exp.json: /models/1: the same log file as /models/0: ./other/../logs/model_A.log");
  document["models"][1]["output_file_name"] = "model_B";
  EXPECT_EQ(error_of(document), "no error");
}

TEST(ExperimentError, ArrivalsAndHostGaps) {
  const auto with_arrival = [](const json& arrival) {
    return error_with("/models/0/arrival", arrival);
  };
  EXPECT_EQ(with_arrival({{"kind", "periodic"}, {"period_ms", 6}}), "no error");
  EXPECT_EQ(with_arrival({{"kind", "poisson"}, {"rate_per_s", 6}, {"seed", 3}}), "no error");
  EXPECT_EQ(with_arrival({{"kind", "closed"}}), "no error");
  EXPECT_EQ(with_arrival({{"kind", "periodic"}}),
            "exp.json: /models/0/arrival: \"period_ms\" is missing");
  EXPECT_EQ(with_arrival({{"kind", "random"}}),
            "exp.json: /models/0/arrival/kind: found \"random\", allowed: closed, periodic or "
            "poisson");
  EXPECT_EQ(
      with_arrival({{"kind", "poisson"}, {"rate_per_s", 0}}),
      "exp.json: /models/0/arrival/rate_per_s: found 0, allowed: a number above 0 and at most "
      "1e+06");
  EXPECT_EQ(with_arrival({{"kind", "closed"}, {"period_ms", 6}}),
            "exp.json: /models/0/arrival/period_ms: does not apply to arrivals of kind \"closed\"");
  json sleeping = published();
  sleeping["models"][0]["sleep_time"] = 1;
  sleeping["models"][0]["arrival"] = {{"kind", "periodic"}, {"period_ms", 6}};
  EXPECT_EQ(
      error_of(sleeping),
      "exp.json: /models/0/arrival: sleep_time cannot be used with arrivals on a schedule: set "
      "sleep_time to 0");
  json graph = published();
  graph["models"][0]["cuda_graph"] = true;
  graph["models"][0]["host_gap"] = "recording";
  EXPECT_EQ(error_of(graph),
            "exp.json: /models/0: a CUDA graph is one launch, so there is no host gap between its "
            "kernels");
}

}  // namespace
}  // namespace sluice::runner
