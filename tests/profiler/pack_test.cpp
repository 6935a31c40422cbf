// A pack that is written is read as the same programs; a damaged one is a line that says where.
#include "profiler/packs/pack.hpp"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "base/error.hpp"
#include "profiler/packs/base64.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::profiler {
namespace {

using test::TempFolder;
using testing::ElementsAre;
using testing::HasSubstr;

Task made_up_task() {
  return {
      .id = "00000000000000aa",
      .name = "fused_add",
      .workload_key = "[\"add\"]",
      .flop = 64,
      .buffers = {{{4, 16}, "float32", false}, {{4, 16}, "float16", true}},
      .sketches = {{{.name = "tile_0", .type = "sp", .extent = 16, .parts = 2, .max_innermost = 64},
                    {.name = "unroll", .type = "ot", .values = {0, 16}}}}};
}

Program made_up_program() {
  Program program{.id = "00000000000000bb",
                  .task = "00000000000000aa",
                  .index = 7,
                  .entity = {{"tile_0", "sp", {4, 4}}, {"unroll", "ot", 16}},
                  .source = std::string(100'000, 'x'),
                  .kernels = {{.name = "k",
                               .grid = {2, 3, 4},
                               .block = {32, 1, 1},
                               .shared = 1024,
                               .static_shared = 512,
                               .local = 64,
                               .args = {0, 2, 1}}},
                  .extra = {4096},
                  .features = {{1.5F, 2.5F}, {0, 1}},
                  .position = {3, 5},
                  .nodes = 9};
  program.cubins["sm_90"] = std::string(
      "\x7f"
      "ELF\0\xff",
      6);
  return program;
}

std::string written_pack(const TempFolder& folder) {
  const std::string file = folder.file("small.programs");
  PackWriter pack(file);
  pack.add(PackHeader{"cuda -arch=sm_90", "0.27.0.post1", "0.1.14.post0", 3});
  pack.add(Network{"net", 4, {{"00000000000000aa", {}}, {"00000000000000aa", {0}}}});
  pack.add(made_up_task());
  pack.add(made_up_program());
  pack.close();
  return file;
}

TEST(Packs, EveryEntryComesBack) {
  const TempFolder folder;
  PackReader reader(written_pack(folder));
  const auto header = std::get<PackHeader>(reader.next().value());
  EXPECT_EQ(header.target, "cuda -arch=sm_90");
  EXPECT_EQ(header.seed, 3U);
  const auto network = std::get<Network>(reader.next().value());
  EXPECT_EQ(network.batch, 4);
  ASSERT_EQ(network.calls.size(), 2U);
  EXPECT_EQ(network.calls[1].after, std::vector<std::size_t>{0});
  const auto task = std::get<Task>(reader.next().value());
  EXPECT_EQ(to_json(task), to_json(made_up_task()));
  EXPECT_EQ(task.buffers[0].bytes(), 256U);
  EXPECT_EQ(task.buffers[1].bytes(), 128U);
  const auto program = std::get<Program>(reader.next().value());
  EXPECT_EQ(to_json(program), to_json(made_up_program()));
  EXPECT_EQ(program.cubins.at("sm_90"), made_up_program().cubins.at("sm_90"));
  EXPECT_EQ(program.kernels[0].grid[2], 4U);
  EXPECT_EQ(program.kernels[0].static_shared, 512U);
  EXPECT_EQ(program.kernels[0].local, 64U);
  EXPECT_FALSE(reader.next());
}

TEST(Packs, AWholePackHasNoSources) {
  const TempFolder folder;
  const Pack pack = read_pack(written_pack(folder));
  ASSERT_EQ(pack.programs.size(), 1U);
  EXPECT_TRUE(pack.programs[0].source.empty());
  EXPECT_EQ(pack.programs[0].features.size(), 2U);
  EXPECT_EQ(pack.tasks.count("00000000000000aa"), 1U);
}

std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename());
  }
  return names;
}

// Prevents: a device or a link that becomes a file, and a folder that is found behind all the work.
TEST(Packs, OnlyAFileIsReplaced) {
  const TempFolder folder;
  EXPECT_THROW(PackWriter(folder.path()), base::UsageError);
  EXPECT_THROW(PackWriter("/dev/null"), base::UsageError);
  std::filesystem::create_symlink("/dev/null", folder.file("null"));
  EXPECT_THROW(PackWriter(folder.file("null")), base::UsageError);
  std::filesystem::create_symlink("loop", folder.file("loop"));
  EXPECT_THROW(PackWriter(folder.file("loop")), base::RunError);

  std::filesystem::create_directory(folder.file("packs"));
  std::filesystem::create_symlink("packs/new", folder.file("second"));
  std::filesystem::create_symlink("second", folder.file("small.programs"));
  for (int run = 0; run < 2; ++run) {
    (void)written_pack(folder);
    EXPECT_TRUE(std::filesystem::is_symlink(folder.file("small.programs")));
    EXPECT_TRUE(std::filesystem::is_symlink(folder.file("second")));
    EXPECT_EQ(read_pack(folder.file("packs/new")).programs.size(), 1U);
    EXPECT_THAT(names_in(folder.file("packs")), ElementsAre("new"));
  }
}

std::string error_of(const std::string& file) {
  try {
    (void)read_pack(file);
  } catch (const base::UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Packs, APackThatIsStillBeingMadeHasTheEntriesSoFar) {
  // It grows by an xz stream at a time.
  const TempFolder folder;
  const std::string whole = test::read_file(written_pack(folder));
  PackWriter more(folder.file("more"));
  more.add(made_up_program());
  more.close();
  const std::string second = test::read_file(folder.file("more"));
  const Pack both = read_pack(folder.write("both", whole + second));
  EXPECT_EQ(both.programs.size(), 2U);
  EXPECT_FALSE(both.torn);
  const Pack cut = read_pack(folder.write("cut", whole + second.substr(0, second.size() / 2)));
  EXPECT_EQ(cut.programs.size(), 1U);
  EXPECT_TRUE(cut.torn);
}

TEST(Packs, APackThatIsNotClosedLeavesTheOlderOne) {
  const TempFolder folder;
  const std::string file = written_pack(folder);
  const std::string before = test::read_file(file);
  {
    PackWriter writer(file);
    writer.add(made_up_program());
  }
  EXPECT_EQ(test::read_file(file), before);
  EXPECT_THAT(names_in(folder.path()), ElementsAre("small.programs"));
}

TEST(Packs, TwoWritersOfOnePackDoNotDamageIt) {
  const TempFolder folder;
  const std::string file = folder.file("small.programs");
  PackWriter first(file);
  first.add(PackHeader{"llvm", "t", "f", 1});
  PackWriter(file).add(PackHeader{"llvm", "t", "f", 2});
  (void)written_pack(folder);
  const std::string second = test::read_file(file);
  first.add(made_up_program());
  EXPECT_EQ(test::read_file(file), second);
  first.close();
  EXPECT_EQ(read_pack(file).header.seed, 1U);
  EXPECT_EQ(read_pack(file).programs.size(), 1U);
  EXPECT_THAT(names_in(folder.path()), ElementsAre("small.programs"));
  EXPECT_EQ(std::filesystem::status(file).permissions(),
            std::filesystem::status(folder.write("ordinary", "")).permissions())
      << "others read packs too";
}

TEST(Packs, ADamagedPackIsSaidToBe) {
  const TempFolder folder;
  const std::string whole = test::read_file(written_pack(folder));
  EXPECT_THAT(error_of(folder.write("text", "{\"kind\": \"pack\"}\n")),
              HasSubstr("not an xz file"));
  EXPECT_THAT(error_of(folder.file("none")), HasSubstr("cannot be read"));
  EXPECT_THAT(error_of(folder.write("empty", "")), HasSubstr("empty: not a pack"));
  EXPECT_THAT(error_of(folder.write("begun", whole.substr(0, 20))), HasSubstr("not a pack"));
  std::string damaged = whole;
  damaged[damaged.size() / 2] ^= 0x55;
  EXPECT_THAT(error_of(folder.write("damaged", damaged)), HasSubstr("damaged"));
}

TEST(Packs, ALineThatCannotBeUnderstoodIsNamed) {
  const TempFolder folder;
  const auto pack_of = [&](const std::vector<std::string>& lines) {
    XzLineWriter writer(folder.file("p"));
    for (const std::string& line : lines) writer.write(line);
    writer.close();
    return folder.file("p");
  };
  EXPECT_THAT(error_of(pack_of({R"({"kind": "task"})"})),
              HasSubstr("line 1: not a line of a pack"));
  EXPECT_THAT(error_of(pack_of({R"({"kind": "pack", "version": 9})"})), HasSubstr("version 9"));
  const std::string header = to_json(PackHeader{"llvm", "a", "b", 0}).dump();
  EXPECT_THAT(error_of(pack_of({header, R"({"kind": "new"})"})),
              HasSubstr("line 2: unknown kind 'new'"));
  EXPECT_THAT(error_of(pack_of({to_json(made_up_task()).dump()})), HasSubstr("a pack begins with"));
}

TEST(Packs, TheWidestKernelHasTheMostThreadsInAll) {
  const std::vector<Kernel> kernels{{.name = "a", .grid = {4, 1, 1}, .block = {1024, 1, 1}},
                                    {.name = "b", .grid = {100, 2, 1}, .block = {32, 4, 1}},
                                    {.name = "c", .grid = {1, 1, 1}, .block = {64, 1, 1}}};
  ASSERT_NE(widest(kernels), nullptr);
  EXPECT_EQ(widest(kernels)->blocks(), 200U);
  EXPECT_EQ(widest(kernels)->threads(), 128U);
  EXPECT_EQ(widest({}), nullptr);
}

TEST(Packs, Base64OfEveryLengthComesBack) {
  std::string bytes;
  for (int i = 0; i < 300; ++i) {
    EXPECT_EQ(from_base64(to_base64(bytes)), bytes);
    bytes += static_cast<char>(i * 37);
  }
  EXPECT_EQ(to_base64("sluice"), "c2x1aWNl");
  EXPECT_EQ(to_base64("sl"), "c2w=");
  EXPECT_THROW((void)from_base64("a*"), base::UsageError);
}

}  // namespace
}  // namespace sluice::profiler
