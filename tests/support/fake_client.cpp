#include "tests/support/fake_client.hpp"

#include <gtest/gtest.h>

#include <sstream>
#include <utility>

namespace sluice::test {

namespace {

std::vector<std::string> joined(std::vector<std::string> front,
                                const std::vector<std::string>& back) {
  front.insert(front.end(), back.begin(), back.end());
  return front;
}

}  // namespace

FakeClient::FakeClient(const std::string& session, int priority, int device,
                       std::vector<std::string> through)
    : process_(joined(std::move(through), {SLUICE_FAKE_CLIENT_PROGRAM, session,
                                           std::to_string(priority), std::to_string(device)})),
      greeting_(process_.read_line()) {
  std::istringstream words(greeting_);
  std::string verdict;
  words >> verdict;
  if (verdict == "attached") words >> slot_ >> generation_ >> board_id_;
}

void FakeClient::order(const std::string& words) {
  process_.write_line(words);
  EXPECT_EQ(process_.read_line(), "ok") << words;
}

}  // namespace sluice::test
