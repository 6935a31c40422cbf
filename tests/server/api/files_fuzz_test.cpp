// Damaged files: what users write and what an import leaves is read, or refused in words.
#include <filesystem>
#include <fstream>
#include <functional>

#include "engine/recording/recording.hpp"
#include "engine/store/model_store.hpp"
#include "engine/store/splits.hpp"
#include "mutator.hpp"
#include "server/models/config_file.hpp"
#include "server/training/train_store.hpp"
#include "support/temp_folder.hpp"

namespace sluice::server {
namespace {

using test::Mutator;

constexpr const char* kModelJson =
    R"({"task":"imported","torch":"2.11.0","variants":[{"format":"torchscript","file":"m.pt",)"
    R"("dtype":"float32","batch":4,"inputs":[{"name":"IN","datatype":"FP32","shape":[3,-1]}],)"
    R"("outputs":[{"name":"OUT","datatype":"INT64","shape":[1]}]}],"splits":[{"blocks":2,"cuts":[7],)"
    R"("batch":1,"ms":[1.5,2],"whole_ms":3.5,"gpu":"sm_90","torch":"2.11.0"}]})";

std::vector<std::string> file_corpus() {
  return {
      kModelJson,
      R"({"model":"m","gpu":"H100","columns":["kind","name","grid","block","duration_ns","launch_ns"],)"
      R"("rows":[["kernel","k",[392,1,1],[8,8,1],5344,-3],["memcpy","",[1,1,1],[1,1,1],5,7]]})",
      "a[2]\n path m\n batch-size 8\n slo-ms 20.5\n device sim\n versions 1,3\nb # b\n path m\n"
      "\tengine recording\n preload no\n versions latest:2\n timeout-us 100\n",
  };
}

TEST(Fuzz, Files) {
  const test::TempFolder folder;
  std::filesystem::create_directory(folder.file("m"));
  const std::string file = folder.write("m/model.json", "");
  std::ofstream(folder.file("m/m.pt")) << "";
  engine::ModelSpec spec;
  spec.model_name = "m";
  spec.backend = "torchscript";
  const engine::ModelStore store{folder.path(), true};
  const std::vector<std::function<void()>> readers{
      [&] { (void)read_config(file); },
      [&] { (void)engine::read_recording(file); },
      [&] { (void)engine::find_split(file, 2, "sm_90", "2.11.0"); },
      [&] { (void)engine::find_stored_model(store, spec, {}, "test"); },
  };
  test::fuzz(file_corpus(), [&](Mutator& mutator) {
    const std::string text = mutator.next();
    std::filesystem::remove(file);  // else ext4 waits for the disk
    std::ofstream(file) << text;
    for (const auto& read : readers) {
      try {
        read();
      } catch (const base::UsageError& error) {
        EXPECT_STRNE(error.what(), "");
      }
    }
    try {
      (void)training::parse_train_args(text);
      (void)parse_model_list(text);
    } catch (const base::UsageError& error) {
      EXPECT_STRNE(error.what(), "");
    }
  });
}

}  // namespace
}  // namespace sluice::server
