// What a reader reports, and what a hostile one may report.
#include "shm/report.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>

namespace sluice::shm {
namespace {

class Reports : public testing::Test {
 protected:
  std::unique_ptr<Slot> words_ = std::make_unique<Slot>();
  std::unique_ptr<Slot> shown_ = std::make_unique<Slot>();
  Report report_;
};

// Prevents: a counter is forgotten, or lands in another word, because the list of words and their
// number differ.
TEST_F(Reports, EveryWordArrivesAtItsPlace) {
  std::memset(static_cast<void*>(words_.get()), 1, sizeof(Slot));
  words_->job_since_ns.store(11);
  words_->entries.back().words.back().store(12);
  words_->memory.held.store(13);
  words_->memory.drained_ns.store(14);
  words_->memory.refused_allocations.store(15);
  fill_report(report_, *words_);
  for (std::size_t i = 0; i < report_.words.size(); ++i) EXPECT_NE(report_.words[i], 0U) << i;
  copy_words(report_, *shown_);
  EXPECT_EQ(shown_->job_since_ns.load(), 11U);
  EXPECT_EQ(shown_->entries.back().words.back().load(), 12U);
  EXPECT_EQ(shown_->memory.held.load(), 13U);
  EXPECT_EQ(shown_->memory.drained_ns.load(), 14U) << "the last one";
  EXPECT_EQ(shown_->memory.refused_allocations.load(), 15U);
  EXPECT_EQ(shown_->skipped_waits.load(), 0x01010101U);
}

// Prevents: a report writes what others go by: the gate, the identity, the limits of memory, and
// the name of its user.
TEST_F(Reports, WhatOthersGoByIsNotCopied) {
  std::memset(static_cast<void*>(&report_), 0xff, sizeof(report_));
  copy_words(report_, *shown_);
  EXPECT_EQ(shown_->gate.load(), 0U);
  EXPECT_EQ(shown_->info.load(), 0U);
  EXPECT_EQ(shown_->slack_ns.load(), 0U);
  EXPECT_EQ(shown_->outranked.load(), 0U);
  EXPECT_EQ(shown_->reader.load(), 0U);
  EXPECT_EQ(shown_->job.load(), 0U);
  EXPECT_EQ(shown_->policy.load(), 0U);
  EXPECT_EQ(shown_->pid.load(), 0U);
  EXPECT_EQ(shown_->requested_policy.load(), 0U);
  EXPECT_EQ(shown_->waived[0].load(), 0U);
  EXPECT_EQ(shown_->held_by_ns[0].load(), 0U);
  EXPECT_EQ(shown_->memory_limit.load(), 0U);
  EXPECT_EQ(shown_->memory_ceiling.load(), 0U);
  EXPECT_EQ(shown_->memory.grant.load(), 0U);
  EXPECT_EQ(shown_->memory.order.load(), 0U);
  EXPECT_EQ(shown_->memory.done.load(), 0U);
  EXPECT_EQ(shown_->memory.draining.load(), 0U);
  EXPECT_EQ(shown_->memory.broker.load(), 0U);
}

// Prevents: text of a report forges lines in the output of others, or has no end.
TEST_F(Reports, TextIsPrintableAndEnds) {
  report_.unhooked_name.fill('\n');
  copy_words(report_, *shown_);
  EXPECT_EQ(std::string(shown_->unhooked_name.data()), std::string(31, '?'));
}

// Prevents: a job of the slot's next client has a number that somebody waived earlier.
TEST_F(Reports, TheJobCounterNeverGoesBack) {
  report_.job = 9;
  EXPECT_EQ(job_after(6, report_), 9U);
  EXPECT_EQ(job_after(9, report_), 9U);
  EXPECT_EQ(job_after(10, report_), 10U);
  report_.job = ~std::uint64_t{0};
  EXPECT_EQ(job_after(10, report_), 10U) << "a jump to where the counter is used up";
}

// Prevents: the first report of a client in a used slot takes the job counter back.
TEST_F(Reports, TheWordsBeginWhereTheSlotIs) {
  shown_->job.store(42);
  shown_->policy.store(7);
  shown_->memory.done.store(3);
  begin_words(*words_, *shown_);
  fill_report(report_, *words_);
  EXPECT_EQ(job_after(42, report_), 42U);
  EXPECT_EQ(report_.policy, 7U);
  EXPECT_EQ(report_.done, 3U);
}

}  // namespace
}  // namespace sluice::shm
