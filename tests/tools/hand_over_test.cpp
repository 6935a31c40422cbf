// Command lines that hand their work to somebody else. Prevents: `sluice exec --memory 4GiB --
// docker run ...`, whose program has neither a priority nor a limit, and nobody says so.
#include "tools/exec/hand_over.hpp"

#include <gtest/gtest.h>

#include <sstream>

namespace sluice::tools {
namespace {

std::string said_of(const std::string& line) {
  std::istringstream text(line);
  std::vector<std::string> words;
  for (std::string word; text >> word;) words.push_back(word);
  return hand_over_warning(words);
}

TEST(HandOver, ClientsOfOtherProcessesAreNamedWithWhatToDo) {
  for (const auto& [line, todo] : std::vector<std::pair<std::string, std::string>>{
           {"docker run IMAGE python train.py", "sluice cdi"},
           {"/usr/bin/podman run IMAGE", "sluice cdi"},
           {"nerdctl exec x y", "sluice cdi"},
           {"apptainer exec x.sif python", "sluice cdi"},
           {"kubectl exec pod -- python", "device plugin"},
           {"srun -n 1 python train.py", "write srun ... sluice exec ..."},
           {"sbatch job.sh", "write sbatch ... sluice exec ..."},
           {"ssh host python train.py", "write ssh ... sluice exec ..."},
           {"systemd-run --user python", "write systemd-run ... sluice exec ..."}}) {
    const std::string said = said_of(line);
    const std::string name = line.substr(0, line.find(' '));
    EXPECT_TRUE(said.starts_with(name.substr(name.rfind('/') + 1) + " ")) << said;
    EXPECT_NE(said.find("runs ungated, without the limits"), std::string::npos) << said;
    EXPECT_NE(said.find(todo), std::string::npos) << said;
    EXPECT_EQ(said.find('\n'), std::string::npos) << said;
  }
}

TEST(HandOver, AClearedEnvironmentHasNoSettings) {
  for (const char* line :
       {"env -i ./train", "env - ./train", "env -iu HOME ./train", "env A=1 -i ./train",
        "env --ignore-environment ./train", "env -u LD_PRELOAD ./train", "env -uLD_PRELOAD ./train",
        "env --unset=LD_PRELOAD ./train", "sudo -u x ./train", "doas ./train", "su - x", "su -l x",
        "runuser --login x", "setpriv --reset-env ./train"}) {
    EXPECT_NE(said_of(line).find("takes LD_PRELOAD and SLUICE_*"), std::string::npos) << line;
  }
}

TEST(HandOver, IsSeenBehindWrappersAndInShells) {
  for (const char* line :
       {"env A=1 docker run x", "nice -n 5 docker run x", "nohup docker run x",
        "timeout 5s nice docker run x", "taskset -c 0,1 docker run x", "nice env -i ./train"}) {
    EXPECT_NE(said_of(line), "") << line;
  }
  EXPECT_NE(hand_over_warning({"sh", "-c", "exec docker run x"}), "");
  EXPECT_NE(hand_over_warning({"bash", "-ec", "docker run x"}), "");
}

TEST(HandOver, NothingIsSaidOfOtherPrograms) {
  for (const char* line :
       {"python train.py docker", "./docker.py run", "env python train.py -i", "env A=-i ./train",
        "env -u HOME ./train", "env", "nice", "nohup python ssh", "sh -c", "sh docker", "su x -c y",
        "sh train.sh -c docker"}) {
    EXPECT_EQ(said_of(line), "") << line;
  }
  EXPECT_EQ(hand_over_warning({}), "");
  EXPECT_EQ(hand_over_warning({""}), "");
  EXPECT_EQ(hand_over_warning({"env", ""}), "");
}

}  // namespace
}  // namespace sluice::tools
