// What a client may give to those below it, on the terms of a site.
#include "controller/settings.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>

#include "shm/give.hpp"
#include "tests/support/change_request.hpp"

namespace sluice::controller {
namespace {

class GiveSettings : public testing::Test {
 protected:
  /// The notice for a new client of priority 1.
  std::string begin(std::uint16_t give, std::uint32_t min_give, std::uint32_t priority = 1) {
    shm::Request request;
    request.priority = priority;
    request.give = give;
    Terms terms;
    terms.min_give = min_give;
    EXPECT_EQ(fault_of_settings(request), "");
    std::string notice;
    begin_settings(*slot_, request, terms, notice);
    return notice;
  }
  [[nodiscard]] std::uint32_t give() const {
    return shm::unpack_give(slot_->requested_give.load());
  }

  std::unique_ptr<shm::Slot> slot_ = std::make_unique<shm::Slot>();
};

// Prevents: a critical program of an ordinary user that takes all, and one that gives what neither
// it nor the site has asked for.
TEST_F(GiveSettings, ANewClientGivesWhatItSaysAndNoLessThanTheSiteWants) {
  std::mt19937 random(3);
  for (int i = 0; i < 5000; ++i) {
    const bool says = random() % 4 != 0;
    const std::uint32_t said = random() % (shm::kMostGive + 1);
    const std::uint32_t least = random() % 3 == 0 ? 0 : random() % (shm::kMostGive + 1);
    const std::string notice = begin(says ? shm::say_give(said) : std::uint16_t{0}, least);
    EXPECT_EQ(give(), std::max(says ? said : shm::kDefaultGive, least));
    EXPECT_EQ(notice.empty(), !says || said >= least) << "nobody is told what he did not say";
  }
}

TEST_F(GiveSettings, TheNoticeSaysWhatTheSiteWants) {
  EXPECT_EQ(begin(shm::say_give(0), 25),
            "give 0 is below the site policy's limit; gives 2.5% (min_give in the site policy)");
  EXPECT_EQ(begin(shm::say_give(0), 25, 0), "") << "best effort holds nobody";
  EXPECT_EQ(give(), 25U) << "should root raise its priority";
  begin(0, 0);
  EXPECT_EQ(slot_->requested_give.load(), 0U) << "what a client says that says nothing";
}

// Prevents: a change that takes what nobody asked to change, or gives less than the site wants.
TEST_F(GiveSettings, AChangeSetsWhatItSaysAndKeepsTheRest) {
  std::mt19937 random(4);
  begin(shm::say_give(100), 0);
  std::uint32_t expected = 100;
  for (int i = 0; i < 5000; ++i) {
    shm::Request request = test::change_of({0, 1}, 1);
    const bool says = random() % 2 == 0;
    const std::uint32_t said = random() % (shm::kMostGive + 1);
    if (says) request.give = shm::say_give(said);
    Terms terms;
    terms.min_give = random() % (shm::kMostGive + 1);
    EXPECT_EQ(fault_of_settings(request), "");
    const std::string fault = fault_of_own_terms(request, terms);
    EXPECT_EQ(fault.empty(), !says || said >= terms.min_give);
    if (!fault.empty()) continue;
    const std::string changes = change_settings(*slot_, request);
    const std::uint32_t before = std::exchange(expected, says ? said : expected);
    EXPECT_EQ(give(), expected);
    EXPECT_EQ(changes, before == expected ? ""
                                          : ", give " + shm::give_text(before) + " -> " +
                                                shm::give_text(expected));
  }
}

TEST_F(GiveSettings, ARefusalSaysWhatTheSiteWants) {
  shm::Request request = test::change_of({0, 1}, 1);
  request.give = shm::say_give(0);
  Terms terms;
  terms.min_give = shm::kDefaultGive;
  EXPECT_EQ(fault_of_own_terms(request, terms),
            "give 0: the site policy wants at least 5% (min_give)");
}

// Prevents: a number out of range on the board. What an earlier library sends there is no fault.
TEST_F(GiveSettings, OnlyWhatIsSaidCanBeWrong) {
  for (std::uint32_t field = 0; field <= 0xffff; ++field) {
    shm::Request request = test::change_of({0, 1}, 1);
    request.give = static_cast<std::uint16_t>(field);
    const bool wrong = field >= 0x8000 && field - 0x8000 > shm::kMostGive;
    ASSERT_EQ(fault_of_settings(request), wrong ? "unknown give" : "") << field;
    request.kind = shm::RequestKind::kAttach;
    request.priority = 0;
    request.policy = request.target = request.memory = 0;
    request.slice = request.weight = 0;
    ASSERT_EQ(fault_of_settings(request), wrong ? "unknown give" : "") << field;
  }
}

}  // namespace
}  // namespace sluice::controller
