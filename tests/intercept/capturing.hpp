#pragma once
#include <gtest/gtest.h>

#include "tests/intercept/session.hpp"

namespace sluice::intercept::test {

/// Streams of the recording driver are captured into graphs.
class Capturing : public Session {
 protected:
  static void begin(CUstream stream,
                    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) {
    ASSERT_EQ(::cuStreamBeginCapture_v2(stream, mode), CUDA_SUCCESS);
  }
  static CUgraph end(CUstream stream) {
    CUgraph graph = nullptr;
    EXPECT_EQ(::cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
    return graph;
  }
  static CUgraph capture(CUstream stream, int launches) {
    begin(stream);
    for (int i = 0; i < launches; ++i) launch(stream);
    return end(stream);
  }
  static CUgraphExec instantiate(CUgraph graph) {
    CUgraphExec exec = nullptr;
    EXPECT_EQ(::cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
    return exec;
  }
};

}  // namespace sluice::intercept::test
