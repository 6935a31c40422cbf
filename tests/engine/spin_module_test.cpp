#include "engine/recording/spin_module.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <set>

#include "engine/recording/recording.hpp"

namespace sluice::engine {
namespace {

using Names = std::vector<std::string>;

// The characters of a name that the simulated GPU logs (simgpu/channel/layout.hpp).
constexpr std::size_t kLogged = 127;

// Prevents: PTX that no driver compiles, or names that a reader cannot match to the recorded ones.
TEST(SpinModule, NamesAreIdentifiersThatReadLikeTheRecordedOnes) {
  EXPECT_EQ(
      spin_entry_names({"nvjet_sm90_tst_64x32__h", "void at::(anonymous namespace)::f<4, a-b>(c*)",
                        "_ZN3cub_4pad", "9!", "caf\xc3\xa9 \"$%\" {x}\n", "", "::<>"}),
      (Names{"sluice_spin_nvjet_sm90_tst_64x32__h",
             "sluice_spin_void_at_anonymous_namespace_f_4_a_b_c", "sluice_spin__ZN3cub_4pad",
             "sluice_spin_9", "sluice_spin_caf_x", "sluice_spin_kernel", "sluice_spin_kernel_2"}));
}

// Prevents: two kernels with one name. The driver would compile neither, or device:Tus would learn
// one duration for both.
TEST(SpinModule, NamesDifferAndAreNumberedOnlyWhereNeeded) {
  EXPECT_EQ(spin_entry_names({"a", "a_2", "a", "a<", "b", "a_2"}),
            (Names{"sluice_spin_a", "sluice_spin_a_2", "sluice_spin_a_3", "sluice_spin_a_4",
                   "sluice_spin_b", "sluice_spin_a_2_2"}));
}

TEST(SpinModule, LongNamesAreCutAndStillDiffer) {
  const std::string prefix(100, 'x');
  const Names names = spin_entry_names({prefix + "y", prefix + "z", prefix});
  EXPECT_EQ(names, (Names{"sluice_spin_" + prefix, "sluice_spin_" + prefix + "_2",
                          "sluice_spin_" + prefix + "_3"}));
  const Names many = spin_entry_names(Names(4000, prefix + "y"));
  EXPECT_EQ(std::set<std::string>(many.begin(), many.end()).size(), 4000U);
  for (const std::string& name : many) ASSERT_LE(name.size(), kLogged);
}

TEST(SpinModule, HasTheSameKernelUnderEachName) {
  const std::string text = spin_module({"sluice_spin_a", "sluice_spin_b_2"});
  const std::regex kernel(R"(\.visible \.entry (\w+)(\([^{]*\{[^}]*\}))");
  Names names;
  std::set<std::string> bodies;
  for (std::sregex_iterator at(text.begin(), text.end(), kernel), end; at != end; ++at) {
    names.push_back((*at)[1]);
    bodies.insert((*at)[2]);
  }
  EXPECT_EQ(names, (Names{"sluice_spin", "sluice_spin_a", "sluice_spin_b_2"}));
  ASSERT_EQ(bodies.size(), 1U);
  EXPECT_NE(bodies.begin()->find("%clock64"), std::string::npos);
  EXPECT_EQ(text.find(".version"), text.rfind(".version"));
}

TEST(SpinModule, EveryFunctionOfTheRecordingsHasAName) {
  for (const std::string& recording_name : recording_names(SLUICE_TEST_RECORDINGS)) {
    const Recording recording =
        read_recording(std::string(SLUICE_TEST_RECORDINGS) + "/" + recording_name + ".json");
    std::uint32_t functions = 0;
    for (const RecordedKernel& kernel : recording.kernels)
      functions = std::max(functions, kernel.function + 1);
    const Names names = spin_entry_names(recording.names);
    EXPECT_EQ(names.size(), functions) << recording_name;
    EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), functions)
        << recording_name;
    for (const std::string& name : names) {
      EXPECT_TRUE(std::regex_match(name, std::regex("sluice_spin_[A-Za-z0-9_]{2,}"))) << name;
      EXPECT_LE(name.size(), kLogged);
    }
  }
}

}  // namespace
}  // namespace sluice::engine
