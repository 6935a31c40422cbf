#include "tests/support/session.hpp"

#include <unistd.h>

#include <cctype>
#include <cstdlib>

#include "shm/mapping.hpp"
#include "shm/session.hpp"
#include "tests/support/eventually.hpp"

namespace sluice::test {
namespace {

namespace fs = std::filesystem;

/// Not "test-7-12" for "test-7-1".
bool holds(const std::string& text, const std::string& session) {
  const std::size_t at = text.find(session);
  if (at == std::string::npos) return false;
  const char next = text.c_str()[at + session.size()];
  return std::isdigit(static_cast<unsigned char>(next)) == 0;
}

}  // namespace

std::vector<std::string> files_of_session(const std::string& name) {
  std::vector<std::string> found;
  for (const std::string& folder : {std::string("/dev/shm"), base::runtime_dir()}) {
    std::error_code missing;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, missing)) {
      if (holds(entry.path().filename(), name)) found.push_back(entry.path());
    }
  }
  return found;
}

Session::Session(const std::string& prefix) {
  static int count = 0;
  name_ = prefix + "-" + std::to_string(getpid()) + "-" + std::to_string(++count);
  setenv("SLUICE_SESSION", name_.c_str(), 1);
}

Session::~Session() {
  std::error_code ignored;
  for (const std::string& file : files_of_session(name_)) fs::remove_all(file, ignored);
}

std::string Session::board_file() const { return "/dev/shm/" + shm::board_name(name_); }

bool Session::has_board() const { return fs::exists(board_file()); }

pid_t Session::controller_pid() const {
  try {
    return static_cast<pid_t>(shm::BoardMapping::inspect(name_).board().controller_pid.load());
  } catch (const shm::BoardError&) {
    return 0;
  }
}

std::string Session::log_gpu() const {
  const std::string log = file("gpu.log");
  setenv("SLUICE_SIM_LOG", log.c_str(), 1);
  return log;
}

void SessionTest::TearDown() {
  const auto gone = [this] { return files_of_session(session_).empty(); };
  EXPECT_TRUE(eventually(gone, kProgramPatience))
      << "left behind: " << testing::PrintToString(files_of_session(session_));
}

}  // namespace sluice::test
