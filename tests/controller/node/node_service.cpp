#include "tests/controller/node/node_service.hpp"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <utility>

namespace sluice::test {

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

std::size_t open_files(pid_t pid) {
  const std::filesystem::directory_iterator all("/proc/" + std::to_string(pid) + "/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

bool send_with(int socket, const void* bytes, std::size_t size, const std::vector<int>& files) {
  std::vector<char> control(CMSG_SPACE(files.size() * sizeof(int)));
  iovec part{const_cast<void*>(bytes), size};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(files.size() * sizeof(int));
  if (!files.empty()) std::memcpy(CMSG_DATA(header), files.data(), files.size() * sizeof(int));
  return sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(size);
}

std::vector<std::string> as_user(uid_t uid) {
  const std::string id = std::to_string(uid);
  return {kSetpriv, "--reuid", id, "--regid", id, "--clear-groups", "--inh-caps=-all"};
}

std::unique_ptr<FakeClient> client_of(uid_t uid, int priority, int device) {
  return std::make_unique<FakeClient>("node", priority, device, as_user(uid));
}

NodeServiceTest::NodeServiceTest() {
  chmod(parent_.path().c_str(), 0755);  // other users must reach the socket
  setenv("SLUICE_NODE_DIR", folder().c_str(), 1);
  unsetenv("SLUICE_SESSION");
}

NodeServiceTest::~NodeServiceTest() { unsetenv("SLUICE_NODE_DIR"); }

void NodeServiceTest::start(const std::string& policy, std::vector<std::string> through) {
  std::vector<std::string> command = std::move(through);
  command.insert(command.end(), {SLUICE_NODE_PROGRAM, "--log-level", "debug"});
  if (!policy.empty()) {
    const std::string file = parent_.write("policy.json", policy);
    chmod(file.c_str(), 0644);
    command.insert(command.end(), {"--policy", file});
  }
  service_ =
      std::make_unique<Process>(std::move(command), ProcessOptions{.err = parent_.file("log")});
  ++starts_;
  const auto ready = [&] {
    return count_of(log(), "sluice node ready: ") == static_cast<std::size_t>(starts_);
  };
  if (!eventually(ready, kProgramPatience)) {
    throw std::runtime_error("the node service does not get ready:\n" + log());
  }
}

std::string NodeServiceTest::ready_line() const {
  const std::string all = log();
  const std::size_t at = all.rfind("sluice node ready: ");
  return at == std::string::npos ? "" : all.substr(at, all.find('\n', at) - at);
}

void NodeServiceTest::kill_service() {
  service_->signal(SIGKILL);
  EXPECT_EQ(service_->wait(), 128 + SIGKILL);
}

bool NodeServiceTest::logs(const std::string& text) const {
  return eventually([&] { return log().find(text) != std::string::npos; });
}

void NodeServiceTest::TearDown() {
  if (service_ && !service_->ended()) {
    service_->signal(SIGTERM);
    EXPECT_EQ(service_->wait(kProgramPatience), 0);
  }
  if (HasFailure()) std::fprintf(stderr, "--- log of the service\n%s---\n", log().c_str());
}

void UsersTest::SetUp() {
  if (geteuid() != 0) GTEST_SKIP() << "only root can start processes of other users";
  if (access(kSetpriv, X_OK) != 0) GTEST_SKIP() << "no " << kSetpriv << " here";
}

}  // namespace sluice::test
