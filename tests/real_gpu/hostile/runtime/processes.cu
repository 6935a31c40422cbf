// Several processes: shared memory and events, forks, children that end in every way.
#include <sys/resource.h>

#include "runtime.cuh"

/// Memory and events of another process: the two take turns.
CASE(ipc) {
  const bool child = Peer::is_child(args);
  const int rounds = 1500;
  cudaEvent_t theirs;
  cudaStream_t s = make_stream();
  cudaEvent_t mine = make_event(cudaEventDisableTiming | cudaEventInterprocess);
  struct Message {
    cudaIpcEventHandle_t event;
    cudaIpcMemHandle_t memory;
  } out{};
  CU(cudaIpcGetEventHandle(&out.event, mine));
  unsigned* data = nullptr;
  if (!child) {
    CU(cudaMalloc(&data, 4 << 20));
    CU(cudaMemset(data, 5, 4 << 20));
    CU(cudaIpcGetMemHandle(&out.memory, data));
  }
  const Peer peer("ipc", args);
  peer.send(out);
  const auto in = peer.receive<Message>();
  CU(cudaIpcOpenEventHandle(&theirs, in.event));
  if (child)
    CU(cudaIpcOpenMemHandle(reinterpret_cast<void**>(&data), in.memory,
                            cudaIpcMemLazyEnablePeerAccess));
  launch(s, make_data(), 1);
  finish(s);
  const auto wait_for_peer = [&] {
    peer.receive<char>();                   // the other one has recorded its event
    CU(cudaStreamWaitEvent(s, theirs, 0));  // and its work need not be done
  };
  const auto end = [&] {
    if (!child) wait_for_peer();
    finish(s);
  };
  const Run run = timed(rounds, end, [&](int i) {
    if (child || i > 0) wait_for_peer();
    for (int k = 0; k < 5; ++k) launch(s, data, 2 * i + child, 50);
    CU(cudaEventRecord(mine, s));
    peer.send('t');
  });
  if (child) return 0;
  peer.join();
  return report(sum_of(data), run);
}

/// Kernels of two processes of one priority wait for each other by words in shared host memory:
/// time slices only let them go on.
CASE(mapped_flags) {
  const bool child = !args.empty();
  const int rounds = 40;
  const int fd = child ? std::atoi(args[0].c_str()) : memfd_create("hostile", 0);
  if (!child && ftruncate(fd, 4096) != 0) die("ftruncate");
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  auto* words = static_cast<unsigned*>(page);
  pid_t pid = 0;
  if (!child) pid = spawn_self({"mapped_flags", std::to_string(fd)});
  CU(cudaHostRegister(page, 4096, cudaHostRegisterMapped));
  unsigned* seen = nullptr;
  CU(cudaHostGetDevicePointer(reinterpret_cast<void**>(&seen), page, 0));
  unsigned* gave_up = make_data(0);
  unsigned* data = make_data();
  cudaStream_t s = make_stream();
  load(await);
  launch(s, data, 1);
  finish(s);
  __atomic_fetch_add(&words[2], 1, __ATOMIC_SEQ_CST);
  while (__atomic_load_n(&words[2], __ATOMIC_SEQ_CST) < 2) sleep_ms(1);
  const unsigned own = child ? 1 : 0;
  unsigned gave = 0;
  const auto end = [&] { gave = read_word(gave_up); };
  const Run run = timed(rounds, end, [&](int i) {
    await<<<1, 1, 0, s>>>(seen + own, i + own, gave_up);
    launch(s, data, i);
    finish(s);
    __atomic_store_n(&words[1 - own], i + 1, __ATOMIC_SEQ_CST);
  });
  if (child) return gave == 0 ? 0 : 5;
  const std::string note =
      "gave_up=" + std::to_string(gave) + " child=" + std::to_string(wait_for(pid));
  return report(sum_of(data, gave), run, note);
}

/// Launches into the default stream, and a wait after every hundredth.
static unsigned* launch_20000() {
  unsigned* data = make_data();
  for (int k = 0; k < 20000; ++k) {
    launch(nullptr, data, k);
    if (k % 100 == 0) finish_all();
  }
  finish_all();
  return data;
}

/// Forks before the driver is used; parent and children use it then.
CASE(fork_before) {
  const double begin = now_s();
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    const pid_t pid = fork();
    if (pid == 0) _exit(sum_of(launch_20000()) != 0 ? 0 : 1);
    children.push_back(pid);
  }
  unsigned* data = launch_20000();
  expect_success(children);
  return report(sum_of(data), {5, now_s() - begin});
}

/// Forks after the driver is used, while threads launch; children do not use it: they exit, call
/// exit handlers, exec, or stay for a while.
CASE(fork_after) {
  unsigned* data = make_data();
  unsigned* other = make_data();
  std::thread launcher([&] {
    cudaStream_t s = make_stream();
    for (int i = 0; i < 40000; ++i) {
      launch(s, other, i);
      if (i % 100 == 0) finish(s);
    }
    finish(s);
  });
  cudaStream_t s = make_stream();
  launch(s, data, 1);
  std::vector<pid_t> children;
  const auto join_all = [&] { expect_success(children); };
  const Run run = timed(count_of(args, 60), join_all, [&](int i) {
    const pid_t pid = fork();
    if (pid == 0) {
      if (i % 4 == 0) _exit(0);
      if (i % 4 == 1) {
        std::vector<int> some(100000, i);
        execl("/bin/true", "true", nullptr);
      }
      if (i % 4 == 2) {
        std::thread([] { sleep_ms(20); }).join();
        _exit(0);
      }
      int count_devices = 0;
      cudaGetDeviceCount(&count_devices);  // an error, and no hang
      _exit(0);
    }
    if (pid < 0) die("fork");
    children.push_back(pid);
    launch(s, data, i);
    finish(s);
  });
  launcher.join();
  return report(sum_of(data, sum_of(other)), run);
}

/// Works in two threads for a while, and ends as told.
[[noreturn]] static void work_and_end(const std::string& how) {
  const rlimit none{};
  setrlimit(RLIMIT_CORE, &none);
  cudaStream_t s = make_stream();
  unsigned* data = make_data();
  std::thread([] {
    cudaStream_t t = make_stream();
    unsigned* more = make_data();
    for (unsigned i = 0;; ++i) {
      mix<<<16, 256, 0, t>>>(more, kN, i, 500);
      if (cudaGetLastError() != cudaSuccess) sleep_ms(1000);
    }
  }).detach();
  const double begin = now_s();
  for (int i = 0; now_s() - begin < 0.3; ++i) {
    launch(s, data, i, 500);
    if (i % 50 == 0) finish(s);
  }
  if (how == "_exit") _exit(0);
  if (how == "exit") std::exit(0);
  if (how == "quick_exit") std::quick_exit(0);
  if (how == "abort") std::abort();
  if (how == "segv") raise(SIGSEGV);
  if (how == "exec") execl("/bin/true", "true", nullptr);
  if (how == "thread_exit") std::thread([] { std::exit(0); }).join();
  sleep_ms(60000);  // killed from outside
  std::exit(0);
}

/// Children end in every way in the middle of their work; then this process works as if nothing had
/// been.
CASE(endings) {
  if (!args.empty()) work_and_end(args[0]);
  struct Ending {
    const char* how;
    bool by_signal;
    int signal = 0;  // sent from outside
  };
  const std::vector<Ending> endings = {
      {"_exit", false},       {"exit", false},         {"quick_exit", false},
      {"abort", true},        {"segv", true},          {"exec", false},
      {"thread_exit", false}, {"kill", true, SIGKILL}, {"term", true, SIGTERM}};
  const double begin = now_s();
  for (const auto& [how, by_signal, signal] : endings) {
    const double from = now_s();
    const pid_t pid = spawn_self({"endings", how});
    if (signal != 0) {
      sleep_ms(1200);
      kill(pid, signal);
    }
    const int status = wait_for(pid);
    if (WIFSIGNALED(status) != by_signal)
      die(std::string(how) + ": ended with status " + std::to_string(status));
    if (now_s() - from > 15) die(std::string(how) + ": took too long");
  }
  unsigned* data = make_data();
  for (int i = 0; i < 20000; ++i) launch(nullptr, data, i);
  finish_all();
  return report(sum_of(data), {static_cast<double>(endings.size()), now_s() - begin});
}

/// Eight processes of one priority on one GPU.
CASE(eight) {
  std::vector<pid_t> pids;
  const auto join_all = [&] { expect_success(pids); };
  const Run run = timed(8, join_all, [&](int) { pids.push_back(spawn_self({"tiny", "40000"})); });
  return report(8, run);
}
