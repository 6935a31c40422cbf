// `sluice gpus` says which GPU there is. These run where there is no NVIDIA driver, and where there
// is one: what they expect of --gpu real depends on what it answers.
#include <nlohmann/json.hpp>

#include "tests/support/temp_folder.hpp"
#include "tests/tools/command.hpp"

namespace sluice::test {
namespace {

class Gpus : public CommandTest {};

TEST_F(Gpus, TheSimulatedOneCanAlwaysBeAskedFor) {
  const base::Captured result = sluice({"gpus", "--gpu", "sim", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json["kind"], "simulated");
  EXPECT_EQ(json["why_simulated"], "asked for by --gpu sim");
  ASSERT_EQ(json["devices"].size(), 1U);
  EXPECT_EQ(json["devices"][0]["index"], 0);
  EXPECT_EQ(json["devices"][0]["compute_mode"], "default");
  EXPECT_EQ(json["devices"][0]["uuid"].get<std::string>().size(), 40U);
  EXPECT_GT(json["devices"][0]["memory_bytes"], std::uint64_t{1} << 30U);
}

// Prevents: "install NVIDIA's driver" where a toolkit's stub is found before it.
TEST_F(Gpus, AToolkitsStubIsNamed) {
  setenv("LD_LIBRARY_PATH", SLUICE_TEST_STUB_FOLDER, 1);
  const base::Captured result = sluice({"gpus", "--gpu", "real"});
  unsetenv("LD_LIBRARY_PATH");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("/libcuda.so.1 is the stub of a CUDA toolkit"), std::string::npos)
      << result.err;
}

// Prevents: no answer at all where a path that a message names is not UTF-8.
TEST_F(Gpus, JsonIsValidWhateverThePathOfTheDriver) {
  const TempFolder folder;
  const std::string bad = folder.file("\xff");
  std::filesystem::create_directory(bad);
  std::ofstream(bad + "/libcuda.so.1") << "no library";
  setenv("LD_LIBRARY_PATH", bad.c_str(), 1);
  const base::Captured result = sluice({"gpus", "--json"});
  unsetenv("LD_LIBRARY_PATH");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_NE(json["why_simulated"].get<std::string>().find("\ufffd/libcuda.so.1"), std::string::npos)
      << result.out;
}

TEST_F(Gpus, SaysHowManyThereAre) {
  setenv("SLUICE_SIM_DEVICES", "2", 1);
  const base::Captured result = sluice({"gpus", "--gpu", "sim"});
  unsetenv("SLUICE_SIM_DEVICES");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(result.out.starts_with("simulated GPU, driver for CUDA ")) << result.out;
  EXPECT_EQ(lines_in(result.out), 4) << result.out;
}

// Figures of a simulated GPU taken for real ones are the worst mistake this command can make.
TEST_F(Gpus, TheSimulatedDriverIsNeverTakenForARealOne) {
  setenv("LD_LIBRARY_PATH", SLUICE_TEST_SIMGPU_FOLDER, 1);
  const base::Captured real = sluice({"gpus", "--gpu", "real"});
  EXPECT_EQ(real.exit_code, 1);
  EXPECT_NE(real.err.find("is the simulated one"), std::string::npos) << real.err;
  const base::Captured any = sluice({"gpus"});
  EXPECT_EQ(any.exit_code, 0);
  EXPECT_TRUE(any.out.starts_with("simulated")) << any.out;
}

TEST_F(Gpus, AutoIsTheRealOneWhereThereIsOne) {
  const base::Captured real = sluice({"gpus", "--gpu", "real"});
  const base::Captured any = sluice({"gpus"});
  ASSERT_EQ(any.exit_code, 0) << any.err;
  if (real.exit_code == 0) {
    EXPECT_EQ(any.out, real.out);
    return;
  }
  EXPECT_EQ(real.exit_code, 1);
  EXPECT_EQ(lines_in(real.err), 1) << real.err;
  EXPECT_NE(real.err.find("libcuda.so.1"), std::string::npos) << real.err;
  EXPECT_TRUE(any.out.starts_with("simulated")) << any.out;
  EXPECT_NE(any.out.find("why simulated: "), std::string::npos) << any.out;
}

}  // namespace
}  // namespace sluice::test
