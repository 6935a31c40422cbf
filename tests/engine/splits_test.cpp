#include "engine/store/splits.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/file.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.hpp"
#include "base/fd.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::engine {
namespace {

using nlohmann::ordered_json;
using testing::HasSubstr;

class Splits : public testing::Test {
 protected:
  Splits() {
    std::filesystem::create_directories(folder_.path() / "net");
    static_cast<void>(folder_.write(
        "net/model.json", R"({"name": "net", "task": "text", "a key": 1, "variants": []})"));
  }
  [[nodiscard]] std::filesystem::path file() const { return folder_.path() / "net/model.json"; }
  [[nodiscard]] std::optional<FoundSplit> find(std::size_t blocks, const std::string& gpu = "sm_90",
                                               const std::string& torch = "2.11.0") const {
    return find_split(file(), blocks, gpu, torch);
  }

  test::TempFolder folder_;
  const Split three_{3, {46, 91}, 8, {1.5, 1.25, 1.75}, 4.25, "sm_90", "2.11.0"};
};

TEST_F(Splits, AreFoundAsTheyWereSaved) {
  EXPECT_FALSE(find(3));
  save_split(file(), three_);
  EXPECT_FALSE(find(2));
  const auto found = find(3);
  ASSERT_TRUE(found);
  EXPECT_FALSE(found->stale);
  EXPECT_EQ(found->split.cuts, three_.cuts);
  EXPECT_EQ(found->split.batch, 8U);
  EXPECT_EQ(found->split.ms, three_.ms);
  EXPECT_EQ(found->split.whole_ms, 4.25);
}

TEST_F(Splits, HaveThePublishedKeysAndLeaveTheOthers) {
  save_split(file(), three_);
  const auto model = ordered_json::parse(test::read_file(file()));
  std::vector<std::string> keys;
  for (const auto& [key, value] : model.items()) keys.push_back(key);
  EXPECT_EQ(keys, (std::vector<std::string>{"name", "task", "a key", "variants", "splits"}));
  EXPECT_EQ(model["splits"], ordered_json::parse(R"([{"blocks": 3, "cuts": [46, 91], "batch": 8,
      "ms": [1.5, 1.25, 1.75], "whole_ms": 4.25, "gpu": "sm_90", "torch": "2.11.0"}])"));
  // No draft is left.
  const auto files = std::filesystem::directory_iterator(folder_.path() / "net");
  EXPECT_EQ(std::distance(begin(files), end(files)), 1);
}

TEST_F(Splits, OfTheSameTargetAreReplaced) {
  save_split(file(), three_);
  Split other = three_;
  other.cuts = {40, 80};
  save_split(file(), other);
  EXPECT_EQ(find(3)->split.cuts, other.cuts);
  other.batch = 1;
  save_split(file(), other);
  other.gpu = "cpu";
  save_split(file(), other);
  other.blocks = 2;
  save_split(file(), other);
  EXPECT_EQ(ordered_json::parse(test::read_file(file()))["splits"].size(), 4U);
}

TEST_F(Splits, OfAnotherGpuOrTorchAreStale) {
  Split old = three_;
  old.cuts = {1, 2};
  old.gpu = "sm_80";
  save_split(file(), old);
  ASSERT_TRUE(find(3));
  EXPECT_TRUE(find(3)->stale);
  EXPECT_THAT(stale_warning("net", find(3)->split, "sm_90", "2.11.0"),
              HasSubstr("net was split on sm_80 with torch 2.11.0, and this is sm_90"));
  // One that fits is preferred, before or behind a stale one.
  save_split(file(), three_);
  EXPECT_EQ(find(3)->split.cuts, three_.cuts);
  EXPECT_FALSE(find(3)->stale);
  EXPECT_EQ(find(3, "sm_80")->split.cuts, old.cuts);
  EXPECT_FALSE(find(3, "sm_80")->stale);
  EXPECT_TRUE(find(3, "sm_90", "2.12.0")->stale);
}

TEST_F(Splits, ThatCannotBeUnderstoodNameTheFile) {
  static_cast<void>(folder_.write("net/model.json", R"({"splits": [{"blocks": 3}]})"));
  try {
    static_cast<void>(find(3));
    FAIL();
  } catch (const base::UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr(file().string()));
    EXPECT_THAT(error.what(), HasSubstr("sluice split"));
  }
  static_cast<void>(folder_.write("net/model.json", R"({"splits": {"blocks": "three"}})"));
  EXPECT_THROW((void)find(3), base::UsageError);
}

TEST_F(Splits, WaitForAnExportOfTheSameStore) {
  // Both read, change and replace model.json: without the lock one change would be lost.
  base::Fd lock(open(folder_.path().c_str(), O_RDONLY));
  ASSERT_EQ(flock(lock.get(), LOCK_EX), 0);
  std::thread saving([&] { save_split(file(), three_); });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_FALSE(find(3));
  lock.reset();
  saving.join();
  EXPECT_TRUE(find(3));
}

TEST_F(Splits, AFolderThatCannotBeWrittenIsNamed) {
  std::filesystem::rename(file(), folder_.path() / "elsewhere.json");
  std::filesystem::create_directory(file());
  EXPECT_ANY_THROW(save_split(file(), three_));
}

}  // namespace
}  // namespace sluice::engine
