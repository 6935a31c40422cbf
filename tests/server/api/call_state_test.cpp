#include "server/api/call_state.hpp"

#include <gtest/gtest.h>

#include "fake_service.hpp"

namespace sluice::server::api {
namespace {

class Counted final : public Cancellation {
 public:
  void cancel() override { ++count; }
  int count = 0;
};

TEST(Announcement, IsForgottenUnlessItIsTaken) {
  test::FakeService service;
  { const Announcement unused(service, "m", 0); }
  EXPECT_EQ(service.open_announcements(), 0U);
  {
    Announcement taken(service, "m", 0);
    EXPECT_EQ(taken.take(), 2U);
  }
  EXPECT_EQ(service.open_announcements(), 1U);
  service.forget(2);
  EXPECT_EQ(service.wrong_announcements(), 0U);
}

// The client may leave at any time, also while infer() runs.
TEST(CancelOnce, CancelsOnceInEitherOrder) {
  const auto before = std::make_shared<Counted>();
  CancelOnce cancelled_first;
  cancelled_first.cancel();
  cancelled_first.set(before);
  EXPECT_EQ(before->count, 1);

  const auto after = std::make_shared<Counted>();
  CancelOnce set_first;
  set_first.set(after);
  set_first.cancel();
  set_first.cancel();
  EXPECT_EQ(after->count, 1);

  CancelOnce answered;
  answered.set(nullptr);
  answered.cancel();
}

}  // namespace
}  // namespace sluice::server::api
