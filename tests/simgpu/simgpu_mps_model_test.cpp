// How kernels of MPS clients share a device, and their faults, in virtual time.
#include <gmock/gmock.h>

#include "tests/simgpu/virtual_gpu.hpp"

namespace sluice::simgpu::test {
namespace {

constexpr auto kTailNs = static_cast<Nanoseconds>(cost::kTail);
constexpr std::int32_t kIllegalAddress = 700;
constexpr std::int32_t kRpcFailure = 806;

// The real time of `ns` at full speed on `own` of `width` multiprocessors, next to kernels on
// `others`.
double stretched(double ns, double own, double width, double others) {
  return ns * width / own * (1 + cost::kSharedBandwidth * others / kMultiprocessors);
}

void expect_kernel(const Line& kernel, double start, double end) {
  EXPECT_NEAR(static_cast<double>(kernel.start), start, 2);
  EXPECT_NEAR(static_cast<double>(kernel.end), end, 2);
}

TEST(MpsModel, KernelsOfSeveralClientsRunAtOnceAndShareTheBandwidth) {
  Machine machine;
  Client& a = *machine.add({});
  Client& b = *machine.add({});
  Machine::launch(a, 0, kMs, 40);
  Machine::launch(b, 0, kMs, 60);
  machine.advance(10 * kMs);
  const double sm_time = kMs - kTailNs;
  // a is done first, and b goes on alone.
  const double a_end = stretched(sm_time, 1, 1, 60);
  const double b_end = stretched(sm_time, 1, 1, 40);
  ASSERT_GT(a_end, b_end);
  const double b_done = b_end / stretched(1, 1, 1, 60);
  expect_kernel(machine.kernels(b).at(0), 0, b_end + kTailNs);
  expect_kernel(machine.kernels(a).at(0), 0, b_end + (sm_time - b_done) + kTailNs);
}

TEST(MpsModel, WithoutMpsTheyRunOneAfterTheOther) {
  Machine machine;
  Client& a = *machine.add({.server = 0});
  Client& b = *machine.add({.server = 0});
  Machine::launch(a, 0, kMs, 40);
  Machine::launch(b, 0, kMs, 60);
  machine.advance(10 * kMs);
  expect_kernel(machine.kernels(a).at(0), 0, kMs);
  expect_kernel(machine.kernels(b).at(0), kMs + cost::kSwitch, 2 * kMs + cost::kSwitch);
}

TEST(MpsModel, AloneAKernelTakesItsTimeAndTheNextFollowsAtOnce) {
  Machine machine;
  Client& client = *machine.add({});
  for (int i = 0; i < 3; ++i) Machine::launch(client, 0, kMs, 132);
  Machine::launch(client, 0, 1, 1);
  machine.advance(10 * kMs);
  const std::vector<Line> kernels = machine.kernels(client);
  ASSERT_EQ(kernels.size(), 4U);
  for (std::size_t i = 0; i < 3; ++i) expect_kernel(kernels[i], i * kMs, (i + 1) * kMs);
  EXPECT_LE(kernels[3].end, 3 * kMs + 2) << "a kernel may be shorter than the tail";
}

TEST(MpsModel, AClientOfHalfTheMultiprocessorsTakesTwiceAsLongIfItWouldUseMore) {
  Machine machine;
  Client& capped = *machine.add({.most = 66});
  Machine::launch(capped, 0, kMs, 132);
  Machine::launch(capped, 0, kMs, 66);
  Machine::launch(capped, 0, kMs, 99);
  machine.advance(10 * kMs);
  const std::vector<Line> kernels = machine.kernels(capped);
  ASSERT_EQ(kernels.size(), 3U);
  const double sm_time = kMs - kTailNs;
  expect_kernel(kernels[0], 0, 2 * sm_time + kTailNs);
  expect_kernel(kernels[1], kernels[0].end, kernels[0].end + kMs);
  expect_kernel(kernels[2], kernels[1].end, kernels[1].end + 1.5 * sm_time + kTailNs);
}

TEST(MpsModel, NothingIsTakenFromAKernelThatRunsAndTheHigherPriorityGoesNext) {
  Machine machine;
  Client& first = *machine.add({.priority = 1});
  Client& low = *machine.add({.priority = 1});
  Client& high = *machine.add({.priority = 0});
  Machine::launch(first, 0, kMs);
  Machine::launch(low, 100 * kUs, kMs);
  Machine::launch(high, 200 * kUs, kMs);
  machine.advance(10 * kMs);
  const double sm_time = kMs - kTailNs;
  expect_kernel(machine.kernels(first).at(0), 0, kMs);
  expect_kernel(machine.kernels(high).at(0), sm_time, sm_time + kMs);
  expect_kernel(machine.kernels(low).at(0), 2 * sm_time, 2 * sm_time + kMs);
}

TEST(MpsModel, AKernelBeginsOnWhatIsFreeAndTakesMoreWhenOthersGiveItBack) {
  Machine machine;
  Client& capped = *machine.add({.priority = 1, .most = 66});
  Client& high = *machine.add({});
  Machine::launch(capped, 0, kMs);
  Machine::launch(high, 100 * kUs, 3 * kMs);
  machine.advance(10 * kMs);
  const double capped_alone = 100 * kUs;  // at half speed
  const double capped_left = kMs - kTailNs - capped_alone / 2;
  const double together = stretched(capped_left, 66, 132, 66);
  const double capped_ends = capped_alone + together;
  expect_kernel(machine.kernels(capped).at(0), 0, capped_ends + kTailNs);
  const double high_left = 3 * kMs - kTailNs - capped_left;
  expect_kernel(machine.kernels(high).at(0), 100 * kUs, capped_ends + high_left + kTailNs);
}

TEST(MpsModel, OfOneClientOneKernelRunsAtATimeByTheStreamsPriority) {
  Machine machine;
  Client& client = *machine.add({});
  Machine::launch(client, 0, kMs, 10, 0);
  Machine::launch(client, kUs, kMs, 10, 1);
  Machine::launch(client, 2 * kUs, kMs, 10, 2);
  client.area()->ring.at(2).priority = -1;
  machine.advance(10 * kMs);
  std::vector<std::uint64_t> order;
  Nanoseconds last_end = 0;
  for (const Line& kernel : machine.kernels(client)) {
    order.push_back(kernel.stream);
    EXPECT_GE(kernel.start + kTailNs, last_end);
    last_end = kernel.end;
  }
  EXPECT_THAT(order, testing::ElementsAre(1, 3, 2));
}

// Prevents: best effort that never runs next to a stream of kernels of the higher priority.
TEST(MpsModel, AKernelThatWaitsBeginsInThePauseBetweenTwoKernelsOfAStream) {
  Machine machine;
  Client& high = *machine.add({});
  Client& low = *machine.add({.priority = 1});
  Machine::launch(high, 0, kMs);
  Machine::launch(high, 0, kMs);
  Machine::launch(low, 100 * kUs, kMs);
  machine.advance(10 * kMs);
  expect_kernel(machine.kernels(low).at(0), kMs - kTailNs, 2 * kMs - kTailNs);
  expect_kernel(machine.kernels(high).at(1), 2 * kMs - 2 * kTailNs, 3 * kMs - 2 * kTailNs);
}

TEST(MpsModel, TheClientsOfAServerTakeOneTurnTogetherAndOthersHaveTheirOwn) {
  Machine machine;
  Client& a = *machine.add({});
  Client& b = *machine.add({});
  Client& alone = *machine.add({.server = 0});
  for (Client* client : {&a, &b, &alone}) Machine::launch(*client, 0, 11 * kMs, 50);
  machine.advance(100 * kMs);
  const Line of_a = machine.kernels(a).at(0);
  const Line of_b = machine.kernels(b).at(0);
  const Line of_alone = machine.kernels(alone).at(0);
  EXPECT_EQ(of_a.end, of_b.end) << "both have every turn";
  // Without a neighbour in its turns, this one needs five. The others are slower side by side.
  const double turn = cost::kSlice + cost::kSwitch;
  expect_kernel(of_alone, turn, 10 * turn - cost::kSwitch);
  const double work = stretched(11 * kMs - kTailNs, 1, 1, 50);
  expect_kernel(of_a, 0, work + 5 * turn + 5 * cost::kSwitch + kTailNs);
  std::vector<Line> switches = machine.log();
  std::erase_if(switches, [](const Line& line) { return line.kind != "switch"; });
  EXPECT_EQ(switches.size(), 11U);
}

TEST(MpsModel, TwoServersTakeTurnsToo) {
  Machine machine;
  Client& a = *machine.add({.server = 1});
  Client& b = *machine.add({.server = 2});
  Machine::launch(a, 0, kMs, 50);
  Machine::launch(b, 0, kMs, 50);
  machine.advance(100 * kMs);
  EXPECT_GT(machine.kernels(b).at(0).start, machine.kernels(a).at(0).end - 2 * kTailNs);
}

TEST(MpsModel, NoKernelBeginsInTheInstantInWhichTheTurnEnds) {
  Machine machine;
  Client& busy = *machine.add({});
  Client& late = *machine.add({});
  Client& alone = *machine.add({.server = 0});
  const auto turn_end = static_cast<Nanoseconds>(cost::kSlice);
  Machine::launch(busy, 0, 10 * kMs, 40);
  Machine::launch(alone, kMs, kMs, 40);
  Machine::launch(late, turn_end, kMs, 40);
  machine.advance(100 * kMs);
  EXPECT_EQ(machine.kernels(alone).at(0).start, turn_end + static_cast<Nanoseconds>(cost::kSwitch));
  EXPECT_GT(machine.kernels(late).at(0).start, machine.kernels(alone).at(0).end);
}

// Prevents: a kernel that the process sees late and that begins before what has happened meanwhile.
TEST(MpsModel, AKernelThatIsSeenLateBeginsAfterTheLastChange) {
  Machine machine;
  Client& first = *machine.add({});
  Client& second = *machine.add({});
  Client& late = *machine.add({});
  Machine::launch(first, 0, 10 * kMs, 40);
  Machine::launch(second, 2 * kMs, 10 * kMs, 40);
  machine.advance(3 * kMs);
  Machine::launch(late, kMs, kMs, 10);
  machine.advance(100 * kMs);
  const double work = stretched(kMs - kTailNs, 1, 1, 80);
  expect_kernel(machine.kernels(late).at(0), 2 * kMs, 2 * kMs + work + kTailNs);
  EXPECT_LT(machine.kernels(first).at(0).end, 12 * kMs);
}

// Prevents: another context that gets a whole turn in the pause between two kernels of a client.
TEST(MpsModel, ATurnDoesNotEndInThePauseBetweenTwoKernels) {
  Machine machine;
  Client& client = *machine.add({});
  Client& alone = *machine.add({.server = 0});
  for (int i = 0; i < 10; ++i) Machine::launch(client, 0, 100 * kUs);
  Machine::launch(alone, 50 * kUs, kMs);
  machine.advance(100 * kMs);
  EXPECT_EQ(machine.kernels(client).at(9).end, kMs);
}

TEST(MpsModel, AFaultEndsTheWorkOfAllClientsOfTheServerOnThatDevice) {
  Machine machine(2);
  Client& faulty = *machine.add({});
  Client& victim = *machine.add({.priority = 1});
  Client& elsewhere = *machine.add({.device = 1});
  Client& other_server = *machine.add({.server = 2});
  Client& alone = *machine.add({.server = 0});
  Machine::launch(faulty, 0, kMs, 10, 0, kFaults);
  for (Client* client : {&victim, &elsewhere, &other_server, &alone}) {
    Machine::launch(*client, 0, 20 * kMs, 10);
    Machine::launch(*client, 0, 20 * kMs, 10);
  }
  machine.advance(900 * kUs);
  EXPECT_EQ(victim.area()->fault, 0) << "before the kernel has run";
  machine.advance(500 * kMs);
  for (Client* client : {&faulty, &victim}) {
    EXPECT_EQ(client->area()->fault, kIllegalAddress);
    EXPECT_EQ(client->area()->ring[0].completed, client->area()->ring[0].submitted);
  }
  EXPECT_EQ(machine.kernels(victim).size(), 0U);
  for (Client* client : {&elsewhere, &other_server, &alone}) {
    EXPECT_EQ(client->area()->fault, 0);
    EXPECT_EQ(machine.kernels(*client).size(), 2U);
  }
}

// Prevents: a call that hangs because its work came in the moment of the fault.
TEST(MpsModel, WorkThatComesAfterTheFaultEndsAtOnce) {
  Machine machine;
  Client& faulty = *machine.add({});
  Client& victim = *machine.add({});
  Machine::launch(victim, 0, kUs);
  Machine::launch(faulty, 0, kMs, 10, 0, kFaults);
  machine.advance(2 * kMs);
  Machine::launch(victim, 3 * kMs, kMs);
  Machine::launch(victim, 3 * kMs, kMs, 10, 1);
  machine.advance(3 * kMs);
  EXPECT_EQ(victim.area()->ring[0].completed, 2U);
  EXPECT_EQ(victim.area()->ring[1].completed, 1U);
  EXPECT_EQ(machine.kernels(victim).size(), 1U);
}

TEST(MpsModel, AServerWithAFaultTakesNoClientUntilTheFaultedOnesAreGone) {
  Machine machine;
  Client* faulty = machine.add({});
  Client* victim = machine.add({});
  Machine::launch(*faulty, 0, kMs, 10, 0, kFaults);
  machine.advance(2 * kMs);
  EXPECT_EQ(machine.add({}), nullptr);
  EXPECT_NE(machine.add({.server = 2}), nullptr);
  machine.simulation().drop_client(*faulty);
  EXPECT_EQ(machine.add({}), nullptr);
  machine.simulation().drop_client(*victim);
  Client* fresh = machine.add({});
  ASSERT_NE(fresh, nullptr);
  Machine::launch(*fresh, 10 * kMs, kMs);
  machine.advance(20 * kMs);
  EXPECT_EQ(machine.kernels(*fresh).size(), 1U);
}

TEST(MpsModel, WithoutMpsAFaultIsOfItsClientOnly) {
  Machine machine;
  Client& faulty = *machine.add({.server = 0});
  Client& other = *machine.add({.server = 0});
  Machine::launch(faulty, 0, kMs, 10, 0, kFaults);
  Machine::launch(other, 0, kMs, 10);
  machine.advance(100 * kMs);
  EXPECT_EQ(faulty.area()->fault, kIllegalAddress);
  EXPECT_EQ(other.area()->fault, 0);
  EXPECT_EQ(machine.kernels(other).size(), 1U);
}

TEST(MpsModel, AKilledClientGivesItsMultiprocessorsToTheOthers) {
  Machine machine;
  Client& killed = *machine.add({});
  Client& other = *machine.add({});
  Machine::launch(killed, 0, 100 * kMs, 100);
  Machine::launch(other, 100 * kUs, 2 * kMs);
  machine.advance(kMs);
  machine.simulation().drop_client(killed);
  machine.advance(50 * kMs);
  const double done = (kMs - 100 * kUs) / stretched(1, 32, 132, 100);
  expect_kernel(machine.kernels(other).at(0), 100 * kUs, kMs + (2 * kMs - done));
  EXPECT_EQ(other.area()->fault, 0);
}

TEST(MpsModel, AServerThatEndsEndsAllItsClients) {
  Machine machine;
  Client& client = *machine.add({});
  Client& other = *machine.add({.server = 2});
  Machine::launch(client, 0, 100 * kMs);
  machine.advance(kMs);
  for (const auto& server : machine.simulation().mps_servers()) {
    if (server->identity == 1) machine.simulation().end_server(*server);
  }
  EXPECT_EQ(client.area()->fault, kRpcFailure);
  EXPECT_EQ(other.area()->fault, 0);
  EXPECT_EQ(client.area()->ring[0].completed, 1U);
}

TEST(MpsModel, ASliceCannotBeSetByAClientOfMps) {
  Machine machine;
  EXPECT_FALSE(machine.simulation().set_slice(*machine.add({}), 1, 100, kZero));
  EXPECT_TRUE(machine.simulation().set_slice(*machine.add({.server = 0}), 1, 100, kZero));
}

}  // namespace
}  // namespace sluice::simgpu::test
