#include "tests/support/program.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>
#include <stdexcept>

namespace sluice::test {
namespace {

std::vector<std::string> environment_of(const ProgramOptions& options) {
  std::vector<std::string> variables = options.environment;
  variables.insert(variables.end(), {"LD_PRELOAD=" SLUICE_INTERCEPT_LIBRARY,
                                     "SLUICE_PRIORITY=" + std::to_string(options.priority),
                                     "SLUICE_POLICY=" + options.policy,
                                     // So that a test can say when gates close. The first counts.
                                     "SLUICE_GIVE=0"});
  // A real driver instead of the simulated one that the client is linked with.
  if (const char* real = std::getenv("SLUICE_TEST_LIBCUDA_DIR")) {
    variables.push_back(std::string("LD_LIBRARY_PATH=") + real);
  }
  return variables;
}

}  // namespace

SharedProgress::SharedProgress(std::string file) : file_(std::move(file)) {
  const base::Fd fd(open(file_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  void* at = MAP_FAILED;
  if (fd && ftruncate(fd.get(), sizeof(Progress)) == 0) {
    at = mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  }
  if (at == MAP_FAILED) throw std::runtime_error("cannot make " + file_);
  progress_ = static_cast<Progress*>(at);
}

SharedProgress::~SharedProgress() {
  munmap(progress_, sizeof(Progress));
  unlink(file_.c_str());
}

Program::Program(const Session& session, const std::string& name, const ProgramOptions& options)
    // In /dev/shm, because a real driver does not register pages of a file on a disk.
    : SharedProgress("/dev/shm/progress." + session.name() + "." + name),
      Process({SLUICE_FAULT_CLIENT, file()},
              {.environment = environment_of(options), .err = session.file(name + ".log")}),
      log_(session.file(name + ".log")) {
  EXPECT_EQ(answer().substr(0, 2), "ok") << said();
}

std::string Program::ask(const std::string& command) {
  tell(command);
  const std::string line = answer();
  EXPECT_EQ(line.substr(0, 2), "ok") << command << ": " << line << "\n" << said();
  return line.size() > 3 ? line.substr(3) : std::string();
}

std::vector<std::uint64_t> Program::ask_numbers(const std::string& command) {
  std::istringstream words(ask(command));
  std::vector<std::uint64_t> numbers;
  for (std::uint64_t number = 0; words >> number;) numbers.push_back(number);
  return numbers;
}

std::size_t count_of(const std::string& text, const std::string& word) {
  std::size_t count = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    ++count;
  }
  return count;
}

}  // namespace sluice::test
