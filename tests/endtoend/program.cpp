#include "program.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace sluice::endtoend {
namespace {

Progress* make_progress(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  const bool sized = fd >= 0 && ftruncate(fd, sizeof(Progress)) == 0;
  void* at = sized ? mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                   : MAP_FAILED;
  if (fd >= 0) close(fd);
  if (at == MAP_FAILED) throw std::runtime_error("cannot make " + path);
  return static_cast<Progress*>(at);
}

/// By way of env, which becomes the program: the pid stays, and the test itself is not preloaded.
std::vector<std::string> command_line(const std::string& session, const std::string& progress,
                                      const ProgramOptions& options) {
  std::vector<std::string> words{
      "/usr/bin/env", "LD_PRELOAD=" SLUICE_INTERCEPT_LIBRARY, "SLUICE_SESSION=" + session,
      "SLUICE_PRIORITY=" + std::to_string(options.priority), "SLUICE_POLICY=" + options.policy};
  // A real driver instead of the simulated one that the client is linked with.
  if (const char* real = std::getenv("SLUICE_TEST_LIBCUDA_DIR")) {
    words.push_back(std::string("LD_LIBRARY_PATH=") + real);
  }
  words.insert(words.end(), options.environment.begin(), options.environment.end());
  words.insert(words.end(), {SLUICE_FAULT_CLIENT, progress});
  return words;
}

}  // namespace

Program::Program(const std::string& folder, const std::string& name, const std::string& session,
                 const ProgramOptions& options)
    // In /dev/shm, because a real driver registers no pages of a file on a disk.
    : log_(folder + "/" + name + ".log"),
      progress_file_("/dev/shm/progress." + session + "." + name),
      progress_(make_progress(progress_file_)),
      process_(std::make_unique<Child>(command_line(session, progress_file_, options), log_)) {
  EXPECT_EQ(answer().substr(0, 2), "ok") << said();
}

Program::~Program() {
  process_.reset();
  munmap(progress_, sizeof(Progress));
  unlink(progress_file_.c_str());
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

int Program::wait() {
  const int status = process_->wait();
  ended_ = true;
  return status;
}

std::string Program::said() const {
  std::ifstream file(log_);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::size_t count_of(const std::string& text, const std::string& word) {
  std::size_t count = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    ++count;
  }
  return count;
}

}  // namespace sluice::endtoend
