#include "shm/client_name.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sluice::shm {
namespace {

std::string name_of(const std::vector<std::string>& args) {
  std::string line;
  for (const std::string& arg : args) line += arg + '\0';
  return client_name(line);
}

// Prevents: every row is called python.
TEST(ClientName, IsTheScriptOfAnInterpreter) {
  EXPECT_EQ(name_of({"python", "train.py"}), "train.py");
  EXPECT_EQ(name_of({"/usr/bin/python3.11", "-u", "/home/me/serve.py", "--port", "80"}),
            "serve.py");
  EXPECT_EQ(name_of({"python", "-W", "ignore", "-X", "dev", "a.py"}), "a.py");
  EXPECT_EQ(name_of({"python", "-m", "torch.distributed.run", "x"}), "torch.distributed.run");
  EXPECT_EQ(name_of({"bash", "-e", "run.sh"}), "run.sh");
}

TEST(ClientName, IsOtherwiseTheProgram) {
  EXPECT_EQ(name_of({"/opt/bin/server", "config.py"}), "server");
  EXPECT_EQ(name_of({"python"}), "python");
  EXPECT_EQ(name_of({"python", "-c", "print(1)"}), "python");
  EXPECT_EQ(name_of({"python", "-m"}), "");
  EXPECT_EQ(name_of({}), "");
}

TEST(ClientName, NameFromAUserFitsBoardAndTerminal) {
  for (const char* good : {"a", "ResNet-50 (critical)", "gr\xc3\xbc\xc3\x9f"}) {
    EXPECT_EQ(check_client_name(good), "") << good;
  }
  EXPECT_EQ(check_client_name(std::string(63, 'x')), "");
  for (const std::string& bad : {std::string(), std::string(64, 'x'), std::string("a\nb")}) {
    EXPECT_NE(check_client_name(bad).find("cannot name a client"), std::string::npos) << bad;
  }
}

}  // namespace
}  // namespace sluice::shm
