// The memory that requests and responses share.
#include "tests/server/server_test.hpp"
#include "tests/support/eventually.hpp"

namespace sluice::server {
namespace {

using testing::HasSubstr;

// Prevents: clients that do not read their responses fill the memory of the machine.
TEST_F(ServerTest, ResponsesAreCountedUntilTheyHaveBeenSent) {
  ServerOptions options;
  options.max_queued_bytes = 20;
  start({model("a", 2)}, options);
  std::promise<Response> answered;
  server_->infer(request("a", {1, 2, 3, 4}), [&](const Status& status, const Response& response) {
    EXPECT_TRUE(status.ok());
    answered.set_value(response);
  });
  std::optional<Response> unread = answered.get_future().get();
  EXPECT_EQ(server_->memory().used(), 16U);
  const Answer refused = ask("a").wait();
  EXPECT_EQ(refused.status.code, Code::kResourceExhausted);
  EXPECT_THAT(refused.status.message, HasSubstr("--max-queue-mb"));
  unread.reset();
  EXPECT_TRUE(test::eventually([&] { return server_->memory().used() == 0; }));
  EXPECT_TRUE(ask("a").wait().status.ok()) << "the memory is free again";
}

// Prevents: nine tenths of a batch that are counted as free while one slow reader keeps all of it.
TEST_F(ServerTest, AResponseKeepsTheMemoryOfItsWholeBatch) {
  start({model("a", 2)});
  stage_.hold();
  auto running = ask("a");
  stage_.steps(1);
  std::promise<Response> answered;
  server_->infer(request("a", {1, 2}),
                 [&](const Status&, const Response& response) { answered.set_value(response); });
  auto other = ask("a");
  stage_.release();
  const Response unread = answered.get_future().get();
  EXPECT_TRUE(other.wait().status.ok());
  running.wait();
  EXPECT_EQ(server_->memory().used(), 16U);
}

// Prevents: a share that is given back twice, or more bytes than the limit.
TEST(ByteBudget, SharesFitIntoTheLimit) {
  std::optional<ByteBudget> budget(100);
  ByteBudget::Share first(*budget);
  EXPECT_TRUE(first.resize(60));
  ByteBudget::Share second(*budget);
  EXPECT_FALSE(second.resize(41));
  EXPECT_TRUE(second.resize(40));
  EXPECT_FALSE(second.resize(~std::uint64_t{0}));
  EXPECT_EQ(budget->used(), 100U);
  EXPECT_TRUE(first.resize(10));
  ByteBudget::Share moved(std::move(second));
  EXPECT_EQ(budget->used(), 50U);
  moved = {};
  EXPECT_EQ(budget->used(), 10U);
  budget.reset();  // The share keeps what it needs.
}

}  // namespace
}  // namespace sluice::server
