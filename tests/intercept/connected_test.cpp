// Whether a process can wait for work of another process or GPU, on the recording driver.
#include <array>

#include "tests/intercept/session.hpp"

namespace sluice::intercept::test {
namespace {

CUresult open_memory() {
  CUdeviceptr at = 0;
  return ::cuIpcOpenMemHandle_v2(&at, {}, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}
CUresult open_event() {
  CUevent event = nullptr;
  return ::cuIpcOpenEventHandle(&event, {});
}
CUresult reach_peer() { return ::cuCtxEnablePeerAccess(nullptr, 0); }
CUresult import_memory() {
  CUmemGenericAllocationHandle handle = 0;
  return ::cuMemImportFromShareableHandle(&handle, nullptr,
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

struct Opening {
  const char* name;
  CUresult (*open)();
};
std::ostream& operator<<(std::ostream& out, const Opening& opening) { return out << opening.name; }

constexpr std::array<Opening, 4> kOpenings{{{"Memory", open_memory},
                                            {"Event", open_event},
                                            {"Peer", reach_peer},
                                            {"Import", import_memory}}};

class Connected : public Session, public ::testing::WithParamInterface<Opening> {
 protected:
  void SetUp() override {
    Session::SetUp();
    if (!IsSkipped()) attach("device:200us");
  }
};

// Prevents: ranks of one training take turns, and each waits through the turns of the other.
TEST_P(Connected, OnceTheProcessOpensSomethingOfAnother) {
  ASSERT_EQ(slot().turn.connected.load(), 0U);
  EXPECT_EQ(GetParam().open(), CUDA_SUCCESS);
  EXPECT_TRUE(sluice::test::eventually([&] { return slot().turn.connected.load() != 0; }));
}

INSTANTIATE_TEST_SUITE_P(By, Connected, ::testing::ValuesIn(kOpenings),
                         [](const auto& by) { return std::string(by.param.name); });

}  // namespace
}  // namespace sluice::intercept::test
