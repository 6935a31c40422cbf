// A critical process that waits for a best-effort one.
#include "driver.hpp"

static const Variables kBestEffort = {"SLUICE_PRIORITY=0"};

/// A critical process has work in its stream that waits for a word in the memory of a best-effort
/// process: the hold and the wait are a cycle. Without Sluice a round takes microseconds.
CASE(inversion_gpu) {
  Primary gpu;
  Kernel mix;
  CUstream s = make_stream();
  constexpr int kRounds = 2;
  CUdeviceptr words = 0;
  if (Peer::is_child(args)) {
    const Peer parent("inversion_gpu", args);
    CU(cuIpcOpenMemHandle(&words, parent.receive<CUipcMemHandle>(),
                          CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    const CUdeviceptr data = make_data();
    mix(s, data, 0);
    finish(s);
    parent.send('r');
    for (unsigned i = 1; i <= kRounds; ++i) {
      parent.receive<unsigned>();
      CU(cuStreamWaitValue32(s, words, i, CU_STREAM_WAIT_VALUE_GEQ));
      for (unsigned k = 0; k < 20; ++k) mix(s, data, k, 4000);
      CU(cuStreamWriteValue32(s, words + 4, i, 0));
      finish(s);
    }
    return 0;
  }
  CU(cuMemAlloc(&words, 2 << 20));
  CU(cuMemsetD32(words, 0, 64));
  const CUdeviceptr data = make_data();
  finish_all();
  const Peer child("inversion_gpu", args, kBestEffort);
  CUipcMemHandle handle;
  CU(cuIpcGetMemHandle(&handle, words));
  child.send(handle);
  child.receive<char>();
  const Run run = timed(kRounds, [&](int i) {
    const unsigned round = i + 1;
    mix(s, data, round);
    CU(cuStreamWriteValue32(s, words, round, 0));                            // asks
    CU(cuStreamWaitValue32(s, words + 4, round, CU_STREAM_WAIT_VALUE_GEQ));  // waits for the answer
    mix(s, data, round);
    child.send(round);
    finish(s);
  });
  child.join();
  return report(sum_of(data), run, "the critical program waits for the best-effort one");
}

/// A critical process that waits for the answer of a best-effort one in a pipe, with its own GPU
/// work done: nobody should be held.
CASE(inversion_pipe) {
  constexpr int kRounds = 300;
  const auto [gpu, mix, s, data] = Work();
  mix(s, data, 0);
  finish(s);
  const Peer other("inversion_pipe", args, kBestEffort);
  if (Peer::is_child(args)) {
    other.send('r');
    for (int i = 0; i < kRounds; ++i) {
      auto word = other.receive<unsigned>();
      for (unsigned k = 0; k < 20; ++k) mix(s, data, word + k, 400);
      finish(s);
      CU(cuMemcpyDtoH(&word, data, 4));
      other.send(word);
    }
    return 0;
  }
  other.receive<char>();
  unsigned word = 5;
  CUevent event;
  CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  const Run run = timed(kRounds, [&](int i) {
    for (unsigned k = 0; k < 10; ++k) mix(s, data, word + k, 100);
    // Every third round the answer is asked for while the own work still runs, without any
    // synchronising call before it.
    if (i % 3 != 0) finish(s);
    other.send(word);
    word = other.receive<unsigned>();
    CU(cuEventRecord(event, s));
    CU(cuEventSynchronize(event));
  });
  other.join();
  return report(sum_of(data, word), run);
}
