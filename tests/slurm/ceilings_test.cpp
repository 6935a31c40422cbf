// Prevents: a job that gets a priority which the site does not allow it, and a file with a mistake
// that is read as if it allowed everything. Needs no Slurm.
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/support/temp_folder.hpp"

extern "C" {
#include "slurm/ceilings.h"
}

namespace {

struct Job {
  const char* partition = nullptr;
  const char* qos = nullptr;
  const char* account = nullptr;
};

class Ceilings : public testing::Test {
 protected:
  sluice_ceiling find(const std::string& text, const Job& job = {}) {
    std::ofstream(file_) << text;
    const sluice_job_names names{job.partition, job.qos, job.account};
    return sluice_find_ceiling(file_.c_str(), &names);
  }

  sluice::test::TempFolder folder_;
  std::string file_ = folder_.path() / "ceilings";
};

TEST_F(Ceilings, IsTheLowestOfThoseThatTheJobHas) {
  const std::string text = "partition serving 9\nqos urgent 5\naccount vision 7\ndefault 1\n";
  EXPECT_EQ(find(text, {"serving", nullptr, nullptr}).priority, 9);
  EXPECT_EQ(find(text, {"serving", "urgent", "vision"}).priority, 5);
  EXPECT_EQ(find(text, {"serving", "normal", "vision"}).priority, 7);
  EXPECT_STREQ(find(text, {"serving", "urgent", "vision"}).rule, "qos urgent");
}

TEST_F(Ceilings, IsTheDefaultForAJobThatNoLineNames) {
  const Job job{"batch", "urgent2", "Vision"};
  EXPECT_EQ(find("qos urgent 5\naccount vision 7\ndefault 2\n", job).priority, 2);
  EXPECT_STREQ(find("default 2\n", job).rule, "default");
  EXPECT_EQ(find("partition serving 1\n", job).priority, 0);
  EXPECT_EQ(find("", job).priority, 0);
  EXPECT_EQ(find("default 2\npartition batch 5\n", job).priority, 5);
}

TEST_F(Ceilings, ANameOfOneKindIsNotThatOfAnother) {
  EXPECT_EQ(find("account a 3\npartition b 4\n", {"a", "b", "c"}).priority, 0);
}

TEST_F(Ceilings, ReadsCommentsAndAnyBlanks) {
  EXPECT_EQ(find("# a file\n\n\tpartition   p\t8  # eight\r\n", {"p", nullptr, nullptr}).priority,
            8);
}

TEST_F(Ceilings, ALineThatIsNoRuleSpoilsTheFile) {
  for (const char* line :
       {"partition p", "partition p 256", "partition p x", "partition 5", "partition p 1 2",
        "default", "default -1", "default a 1", "user u 1", "defualt 1"}) {
    const sluice_ceiling found =
        find(std::string("default 9\n\n") + line + "\n", {"p", nullptr, nullptr});
    EXPECT_EQ(found.priority, -1) << line;
    EXPECT_NE(std::string(found.fault).find("/ceilings:3: not 'default N'"), std::string::npos)
        << found.fault;
  }
}

TEST_F(Ceilings, AMissingFileIsNamed) {
  const sluice_job_names nobody{};
  const sluice_ceiling found = sluice_find_ceiling("/nowhere/ceilings", &nobody);
  EXPECT_EQ(found.priority, -1);
  EXPECT_STREQ(found.fault, "/nowhere/ceilings cannot be read: No such file or directory");
}

TEST(Priority, IsAWholeNumberFrom0To255) {
  EXPECT_EQ(sluice_parse_priority("0"), 0);
  EXPECT_EQ(sluice_parse_priority("255"), 255);
  EXPECT_EQ(sluice_parse_priority("007"), 7);
  for (const char* text : {"256", "-1", "+1", " 1", "1 ", "1.0", "", "x", "4294967296"}) {
    EXPECT_EQ(sluice_parse_priority(text), -1) << text;
  }
  EXPECT_EQ(sluice_parse_priority(nullptr), -1);
}

}  // namespace
