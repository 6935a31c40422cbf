// `sluice exec` with the real controller, the real interposer and the simulated GPU.
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include "shm/messages.hpp"
#include "shm/session.hpp"
#include "tests/support/controller.hpp"
#include "tests/support/temp_folder.hpp"
#include "tests/tools/command.hpp"

namespace sluice::test {
namespace {

using Args = std::vector<std::string>;

class Exec : public CommandTest {
 protected:
  static Args under_exec(Args options, const Args& program) {
    options.insert(options.begin(), {"exec", "--gpu", "sim"});
    options.emplace_back("--");
    options.insert(options.end(), program.begin(), program.end());
    return options;
  }
  static base::Captured exec(const Args& options, const Args& program) {
    return sluice(under_exec(options, program));
  }
  static std::string variable(const base::Captured& result, const std::string& name) {
    const std::string out = "\n" + result.out;
    const std::size_t start = out.find("\n" + name + "=");
    if (start == std::string::npos) return "(not set)";
    const std::size_t value = start + name.size() + 2;
    return out.substr(value, out.find('\n', value) - value);
  }
};

TEST_F(Exec, PreparesTheEnvironment) {
  const base::Captured result =
      exec({"--priority", "7", "--policy", "event:2"},
           {"sh", "-c", "echo stderr=$(stat -L -c %d:%i /dev/stderr); env"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(variable(result, "SLUICE_SESSION"), session_);
  EXPECT_EQ(variable(result, "SLUICE_PRIORITY"), "7");
  EXPECT_EQ(variable(result, "SLUICE_POLICY"), "event:2");
  EXPECT_EQ(variable(result, "SLUICE_LOG"), "warn");
  EXPECT_EQ(variable(result, "SLUICE_STDERR"), variable(result, "stderr"));
  EXPECT_EQ(variable(result, "LD_PRELOAD"), SLUICE_TEST_INTERPOSER);
  EXPECT_EQ(variable(result, "LD_LIBRARY_PATH"), SLUICE_TEST_SIMGPU_FOLDER);
}

TEST_F(Exec, PassesTheTargetAndTheLabelsOn) {
  const base::Captured result = exec({"--priority", "1", "--target", "p99=50ms", "--label", "a=1",
                                      "--label", "b=2", "--give", "2.5%"},
                                     {"env"});
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(variable(result, "SLUICE_TARGET"), "p99=50ms");
  EXPECT_EQ(variable(result, "SLUICE_LABEL"), "a=1,b=2");
  EXPECT_EQ(variable(result, "SLUICE_GIVE"), "2.5%");
  EXPECT_EQ(exec({"--priority", "1", "--give", "60%"}, {"env"}).exit_code, 2);
  setenv("SLUICE_LABEL", "c=3,d=4", 1);
  EXPECT_EQ(variable(exec({"--priority", "1"}, {"env"}), "SLUICE_LABEL"), "c=3,d=4");
  EXPECT_EQ(variable(exec({"--priority", "1", "--label", "a=1"}, {"env"}), "SLUICE_LABEL"), "a=1");
  unsetenv("SLUICE_LABEL");
  EXPECT_EQ(variable(exec({"--priority", "0", "--weight", "3"}, {"env"}), "SLUICE_WEIGHT"), "3");
  EXPECT_EQ(variable(exec({"--priority", "1"}, {"env"}), "SLUICE_TARGET"), "(not set)");
  const base::Captured best_effort = exec({"--priority", "0", "--target", "p99=2x"}, {"true"});
  EXPECT_EQ(best_effort.exit_code, 0);
  EXPECT_EQ(best_effort.err,
            "sluice exec: --target has no effect at priority 0: no program waits for its jobs\n");
}

TEST_F(Exec, SaysWhatAProgramGives) {
  setenv("SLUICE_GIVE", "10%", 1);
  EXPECT_EQ(variable(exec({"--priority", "1"}, {"env"}), "SLUICE_GIVE"), "10%");
  EXPECT_EQ(variable(exec({"--priority", "1", "--give", "0"}, {"env"}), "SLUICE_GIVE"), "0");
  unsetenv("SLUICE_GIVE");
  EXPECT_EQ(variable(exec({"--priority", "1"}, {"env"}), "SLUICE_GIVE"), "(not set)");
  EXPECT_EQ(exec({"--priority", "0", "--give", "0"}, {"true"}).err,
            "sluice exec: --give has no effect at priority 0: no program is below it\n");
  EXPECT_EQ(exec({"--priority", "0", "--give", "5%"}, {"true"}).err, "") << "the default";
}

// Prevents: scripts of 0.2 fail.
TEST_F(Exec, AFormerOptionStillWorksAndNamesItsSuccessor) {
  const base::Captured first = exec({"--priority", "1", "--close", "first"}, {"env"});
  EXPECT_EQ(variable(first, "SLUICE_GIVE"), "0");
  EXPECT_EQ(first.err, "sluice exec: --close first is --give 0 now\n");
  const base::Captured both = exec({"--priority", "1", "--close=first", "--give", "2%"}, {"env"});
  EXPECT_EQ(variable(both, "SLUICE_GIVE"), "2%");
  const base::Captured law = exec({"--close=law", "--priority", "1"}, {"env"});
  EXPECT_EQ(variable(law, "SLUICE_GIVE"), "(not set)");
  EXPECT_EQ(law.exit_code, 0);
}

TEST_F(Exec, KeepsWhatTheUserHasSet) {
  setenv("LD_LIBRARY_PATH", "/one:/two", 1);
  const base::Captured result = exec({"--priority", "0"}, {"env"});
  EXPECT_EQ(variable(result, "LD_LIBRARY_PATH"), SLUICE_TEST_SIMGPU_FOLDER ":/one:/two");
}

// Prevents: a fake driver in the place of a broken one, of which a program knows only that
// "Error 500: named symbol not found".
TEST_F(Exec, NeverPutsTheSimulatedGpuInThePlaceOfARealOne) {
  const base::Captured result = sluice({"exec", "--priority", "0", "--", "env"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(variable(result, "LD_LIBRARY_PATH"), "(not set)");
  const base::Captured real = sluice({"gpus", "--gpu", "real"});
  if (real.exit_code == 0) GTEST_SKIP() << "there is a real GPU";
  const base::Captured refused = sluice({"exec", "--priority", "0", "--gpu", "real", "env"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_EQ(refused.out, "");
  EXPECT_EQ(refused.err,
            "sluice exec: no NVIDIA driver found (libcuda.so.1); --gpu sim takes the simulated "
            "one\n");
}

// In a shell under `sluice exec --gpu sim`.
TEST_F(Exec, KeepsTheGpuOfTheShellItIsTypedIn) {
  const base::Captured result =
      exec({"--priority", "0"}, sluice_command({"exec", "--priority", "1", "--", "env"}));
  EXPECT_EQ(variable(result, "LD_LIBRARY_PATH"), SLUICE_TEST_SIMGPU_FOLDER) << result.err;
}

// In a shell under `sluice exec`, another one changes the priority and piles nothing up.
TEST_F(Exec, Nests) {
  Args inner = sluice_command(under_exec({"--priority", "9"}, {"env"}));
  const base::Captured result = exec({"--priority", "0", "--policy", "gate"}, inner);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(variable(result, "SLUICE_PRIORITY"), "9");
  EXPECT_EQ(variable(result, "SLUICE_POLICY"), "gate");
  EXPECT_EQ(variable(result, "LD_PRELOAD"), SLUICE_TEST_INTERPOSER);
  EXPECT_EQ(variable(result, "LD_LIBRARY_PATH"), SLUICE_TEST_SIMGPU_FOLDER);
}

TEST_F(Exec, WithoutInterceptionOnlyChoosesTheGpu) {
  setenv("LD_PRELOAD", SLUICE_TEST_INTERPOSER, 1);  // as in a shell under `sluice exec`
  const base::Captured result = exec({"--no-intercept"}, {"env"});
  unsetenv("LD_PRELOAD");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(variable(result, "LD_PRELOAD"), "(not set)");
  EXPECT_EQ(variable(result, "LD_LIBRARY_PATH"), SLUICE_TEST_SIMGPU_FOLDER);
  EXPECT_EQ(variable(result, "SLUICE_SESSION"), session_);
  EXPECT_EQ(controller_pid(), 0);
}

TEST_F(Exec, PassesArgumentsExitCodeAndPidThrough) {
  const base::Captured result =
      exec({"--priority", "0"}, {"printf", "%s|", "--priority", "--", "a b", ""});
  EXPECT_EQ(result.out, "--priority|--|a b||");
  EXPECT_EQ(exec({"--priority", "0"}, {"sh", "-c", "exit 42"}).exit_code, 42);
  Process process(sluice_command(under_exec({"--priority", "0"}, {"sh", "-c", "echo $$"})));
  EXPECT_EQ(process.read_line(), std::to_string(process.pid()));
  EXPECT_EQ(process.finish().exit_code, 0);
}

// Prevents: a program that is started with the ends of its children ignored, and is not so under
// us.
TEST_F(Exec, PassesAnIgnoredSigchldThrough) {
  Args command{"/usr/bin/env", "--ignore-signal=CHLD"};
  const Args ours = sluice_command(
      under_exec({"--priority", "0", "--memory", "1GiB"}, {"grep", "SigIgn", "/proc/self/status"}));
  command.insert(command.end(), ours.begin(), ours.end());
  Process program(command);
  const std::string line = program.read_line();
  constexpr std::uint64_t kIgnoresSigchld = std::uint64_t{1} << (SIGCHLD - 1);
  EXPECT_NE(std::stoull(line.substr(line.find('\t')), nullptr, 16) & kIgnoresSigchld, 0U) << line;
  EXPECT_EQ(program.finish().err, "");
}

// A program that waits for "any child" must not be handed the controller.
TEST_F(Exec, TheControllerIsNoChildOfTheProgram) {
  Process client(sluice_command(under_exec({"--priority", "0"}, {SLUICE_TEST_CLIENT})));
  EXPECT_EQ(client.read_line(), "ok");
  EXPECT_NE(controller_pid(), 0);
  client.write_line("children");
  EXPECT_EQ(client.read_line(), "none");
  EXPECT_EQ(client.finish().err, "");
}

// `sluice exec ... | tee` must end with the program, though the controller it started lives on.
TEST_F(Exec, TheControllerHoldsNoStreamOfTheUsersOpen) {
  Process first(sluice_command(under_exec({"--priority", "0"}, {"sh", "-c", "read line"})));
  const base::Captured second = exec({"--priority", "0"}, {"true"});
  EXPECT_EQ(second.exit_code, 0);
  const pid_t controller = controller_pid();
  ASSERT_NE(controller, 0);
  for (const char* fd : {"0", "1", "2"}) {
    const auto target = std::filesystem::read_symlink("/proc/" + std::to_string(controller) +
                                                      "/fd/" + std::string(fd));
    EXPECT_FALSE(target.native().starts_with("pipe:")) << "fd " << fd << " is " << target;
  }
  first.finish();
}

// Started in the same moment, two find one controller between them and neither complains.
TEST_F(Exec, SeveralAtOnceStartOneController) {
  constexpr int kAtOnce = 6;
  std::vector<std::unique_ptr<Process>> clients;
  for (int i = 0; i < kAtOnce; ++i) {
    clients.push_back(std::make_unique<Process>(
        sluice_command(under_exec({"--priority", "0"}, {"sh", "-c", "echo started; read line"}))));
  }
  for (const auto& client : clients) EXPECT_EQ(client->read_line(), "started");
  EXPECT_NE(controller_pid(), 0);
  for (const auto& client : clients) EXPECT_EQ(client->finish().err, "");
}

/// A controller that does nothing but give one answer to one request.
class AnswerOnce {
 public:
  AnswerOnce(shm::ReplyStatus status, const std::string& text) {
    base::ensure_runtime_dir();
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path_.c_str(), sizeof(address.sun_path) - 1);
    listener_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    EXPECT_EQ(bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(listener_, 4), 0);
    thread_ = std::thread([this, status, text] {
      const int fd = accept(listener_, nullptr, nullptr);
      got_ = recv(fd, &request_, sizeof(request_), 0);
      shm::Reply reply;
      reply.status = status;
      text.copy(reply.text.data(), reply.text.size() - 1);
      send(fd, &reply, sizeof(reply), MSG_NOSIGNAL);
      close(fd);
    });
  }
  ~AnswerOnce() {
    stop();
    close(listener_);
    unlink(path_.c_str());
    base::remove_runtime_dir_if_empty();
  }
  AnswerOnce(const AnswerOnce&) = delete;
  AnswerOnce& operator=(const AnswerOnce&) = delete;

  shm::Request request() {
    stop();
    EXPECT_EQ(got_, static_cast<ssize_t>(sizeof(request_)));
    return request_;
  }

 private:
  void stop() {
    shutdown(listener_, SHUT_RDWR);  // wakes the thread if nobody came
    if (thread_.joinable()) thread_.join();
  }

  std::string path_ = shm::socket_path(std::getenv("SLUICE_SESSION"));
  int listener_ = -1;
  shm::Request request_;
  ssize_t got_ = -1;
  std::thread thread_;
};

// Without a lease the controller leaves before a program that takes long to reach the GPU does so.
TEST_F(Exec, TakesALeaseForItsOwnPid) {
  AnswerOnce controller(shm::ReplyStatus::kOk, "");
  EXPECT_EQ(exec({"--priority", "0"}, {"true"}).err, "");
  EXPECT_EQ(controller.request().kind, shm::RequestKind::kLease);
}

// Prevents: a program that runs ungated because it asked a controller that was about to end.
TEST_F(Exec, StartsAControllerWhenTheOneItAskedEnds) {
  const auto ending = start_controller(own_session_);
  ending->stop();
  Process program(sluice_command(under_exec({"--priority", "0"}, {"echo", "ran"})));
  EXPECT_TRUE(eventually([&] { return program.sleeps(); })) << "it waits for the answer";
  ending->signal(SIGTERM);
  ending->signal(SIGCONT);
  EXPECT_EQ(program.read_line(), "ran");
  EXPECT_EQ(program.finish().err, "");
  EXPECT_NE(controller_pid(), 0);
  EXPECT_NE(controller_pid(), ending->pid());
}

TEST_F(Exec, RunsTheProgramThoughTheControllerRefuses) {
  AnswerOnce controller(shm::ReplyStatus::kCannotWatch, "it lives in another pid namespace");
  const base::Captured result = exec({"--priority", "0"}, {"echo", "ran"});
  EXPECT_EQ(result.out, "ran\n");
  EXPECT_EQ(lines_in(result.err), 1) << result.err;
  EXPECT_NE(result.err.find("refuses: it lives in another pid namespace; the program runs ungated"),
            std::string::npos)
      << result.err;
}

// Prevents: a program that does not start because something of ours is broken.
TEST_F(Exec, RunsTheProgramThoughNoControllerCanBeStarted) {
  std::ofstream(board_file()) << "somebody else's";
  std::filesystem::permissions(board_file(), std::filesystem::perms::all);
  const base::Captured result = exec({"--priority", "0"}, {"echo", "ran"});
  std::filesystem::remove(board_file());
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, "ran\n");
  EXPECT_EQ(lines_in(result.err), 1) << result.err;
  EXPECT_NE(result.err.find("could not be started: /dev/shm/sluice."), std::string::npos)
      << result.err;
  EXPECT_TRUE(result.err.ends_with("; the program runs ungated\n")) << result.err;
}

// Prevents: "ended without a message" and "resource temporarily unavailable" where a limit of the
// shell is the reason.
TEST_F(Exec, ALimitOfTheShellIsTheReasonThatItNames) {
  const auto under_limit = [&](const std::string& limit) {
    std::string line = "ulimit " + limit + " && exec";
    for (const std::string& word :
         sluice_command({"exec", "--priority", "0", "--", "echo", "ran"})) {
      line += " '" + word + "'";
    }
    return Process({"/bin/sh", "-c", line}).finish();
  };
  for (const auto& [limit, reason] : {std::pair{"-f 8", "File too large"},
                                      std::pair{"-f 0", "ulimit -f limits its files to 0 bytes"},
                                      std::pair{"-n 6", "Too many open files"}}) {
    const base::Captured result = under_limit(limit);
    EXPECT_EQ(result.exit_code, 0) << limit;
    EXPECT_EQ(result.out, "ran\n") << limit;
    EXPECT_EQ(lines_in(result.err), 1) << result.err;
    EXPECT_NE(result.err.find(reason), std::string::npos) << limit << ": " << result.err;
    EXPECT_TRUE(result.err.ends_with("; the program runs ungated\n")) << result.err;
    EXPECT_EQ(controller_pid(), 0);
    EXPECT_FALSE(std::filesystem::exists(board_file())) << "nothing is left behind";
  }
}

// Prevents: what is printed goes into a file of ours that got the number 1, and is reported as
// done.
TEST_F(Exec, AClosedStandardOutputIsAFailureAndStaysClosedForTheProgram) {
  const auto closed = [&](const Args& command, const std::string& redirection) {
    std::string line = "exec";
    for (const std::string& word : sluice_command(command)) line += " '" + word + "'";
    return Process({"/bin/sh", "-c", line + " " + redirection}).finish();
  };
  const base::Captured lost = closed({"gpus", "--gpu", "sim", "--json"}, "1>&-");
  EXPECT_EQ(lost.exit_code, 1);
  EXPECT_EQ(lines_in(lost.err), 1) << lost.err;
  const base::Captured program = closed(
      {"exec", "--priority", "0", "--", "sh", "-c", "[ ! -e /proc/$$/fd/1 ] && exit 7"}, "1>&-");
  EXPECT_EQ(program.exit_code, 7) << program.err;
}

// Prevents: a program in a container that runs ungated with its limits on the command line only.
TEST_F(Exec, SaysThatAClientOfAnEngineHandsTheProgramOver) {
  const TempFolder folder;
  const std::string docker = folder.file("docker");  // the real one is static, too
  std::filesystem::copy_file(SLUICE_TEST_STATIC_PROGRAM, docker);
  const base::Captured result = exec({"--priority", "0"}, {docker, "run", "IMAGE"});
  EXPECT_EQ(result.exit_code, 1) << "that of the program";
  EXPECT_EQ(lines_in(result.err), 1) << result.err;
  EXPECT_NE(result.err.find("sluice exec: docker gives the settings to no program"),
            std::string::npos)
      << result.err;
  EXPECT_EQ(exec({"--priority", "0", "--log-level", "off"}, {docker}).err, "");
}

// Prevents: another tool of the same kind that sees no launch, and nobody says so.
TEST_F(Exec, SaysThatItPassesAnotherInterposerBy) {
  setenv("LD_PRELOAD", SLUICE_TEST_SECOND_INTERPOSER, 1);
  const base::Captured result = exec({"--priority", "0"}, {"true"});
  unsetenv("LD_PRELOAD");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "sluice exec: " SLUICE_TEST_SECOND_INTERPOSER
                        " is preloaded and hooks launches, too: Sluice calls the driver past it\n");
}

// Prevents: two containers with a controller each, whose programs run ungated next to each other.
TEST_F(Exec, OnceSaysThatItsSessionIsOnlyOfTheContainer) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to make a container";
  // The second one finds the controller of the first.
  Args nested = sluice_command({"exec", "--priority", "0", "--"});
  for (const std::string& word : sluice_command({"exec", "--priority", "0", "--", "true"})) {
    nested.push_back(word);
  }
  std::string inner;
  for (const std::string& word : nested) inner += " '" + word + "'";
  for (const char* kind : {"-m", "-m -i", "-m -p -f --mount-proc"}) {
    const base::Captured result =
        Process({"/bin/sh", "-c",
                 "exec unshare --propagation private " + std::string(kind) +
                     " sh -c \"mount -t tmpfs tmpfs /dev/shm &&" + inner + "\""})
            .finish();
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(lines_in(result.err), 1) << kind << ": " << result.err;
    EXPECT_NE(result.err.find("session " + session_ + " is only of this container"),
              std::string::npos)
        << kind << ": " << result.err;
  }
}

// Prevents: "no such file" of a file that is there.
TEST_F(Exec, NamesTheInterpreterThatIsMissing) {
  const TempFolder folder;
  const std::string script = folder.write("script", "#!/nonexistent/python3\n");
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  const base::Captured result = exec({"--priority", "0", "--log-level", "off"}, {script});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.err, "sluice exec: cannot run " + script +
                            ": it is started by /nonexistent/python3, which is missing\n");
}

// Prevents: the controller of a login shell that a cron job or a service of the same user does not
// find: both then ran in a session of the same name, and the second was refused.
TEST_F(Exec, TheEnvironmentDoesNotChangeWhereTheControllerIs) {
  setenv("XDG_RUNTIME_DIR", "/run/user/1000", 1);
  Process first(
      sluice_command(under_exec({"--priority", "0"}, {"sh", "-c", "echo on; read line"})));
  ASSERT_EQ(first.read_line(), "on");
  const pid_t controller = controller_pid();
  unsetenv("XDG_RUNTIME_DIR");
  const base::Captured second = exec({"--priority", "0"}, {"echo", "ran"});
  EXPECT_EQ(second.out, "ran\n");
  EXPECT_EQ(second.err, "");
  EXPECT_EQ(controller_pid(), controller);
  first.finish();
}

// Prevents: "ASan runtime does not come first in initial library list", and exit code 1.
TEST_F(Exec, AProgramBuiltWithAddressSanitizerStartsAndIsGated) {
  Process client(sluice_command(under_exec({"--priority", "0"}, {SLUICE_TEST_ASAN_CLIENT})));
  EXPECT_EQ(client.read_line(), "ok");
  client.write_line("launch 1000");
  EXPECT_EQ(client.read_line(), "ok");
  const base::Captured status = sluice({"status", "--coverage"});
  EXPECT_NE(status.out.find("0 bypassed"), std::string::npos) << status.out;
  const base::Captured result = client.finish();
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "");
}

TEST_F(Exec, LeavesTheUsersOptionsForAddressSanitizer) {
  EXPECT_EQ(variable(exec({"--priority", "0"}, {"env"}), "ASAN_OPTIONS"),
            "verify_asan_link_order=0");
  setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
  const Args inner = sluice_command(under_exec({"--priority", "1"}, {"env"}));
  const base::Captured nested = exec({"--priority", "0"}, inner);
  unsetenv("ASAN_OPTIONS");
  EXPECT_EQ(variable(nested, "ASAN_OPTIONS"), "detect_leaks=0:verify_asan_link_order=0");
}

TEST_F(Exec, SaysWhatItDoesNotReachAndStartsIt) {
  const std::string program = SLUICE_TEST_STATIC_PROGRAM;
  const base::Captured found = exec({"--priority", "0"}, {program});
  EXPECT_EQ(found.exit_code, 1);  // its number of threads
  EXPECT_EQ(lines_in(found.err), 1) << found.err;
  EXPECT_TRUE(found.err.starts_with("sluice exec: " + program + " runs ungated: it is a static"))
      << found.err;
  EXPECT_EQ(exec({"--priority", "0", "--log-level", "off"}, {program}).err, "");
  EXPECT_EQ(sluice({"exec", "--gpu", "sim", "--no-intercept", program}).err, "");
}

TEST_F(Exec, SaysThatTheLoaderIgnoresThePreload) {
  if (getuid() != 0) GTEST_SKIP() << "only root can give a program to another user";
  const std::string program = own_session_.file("setuid");
  std::filesystem::copy_file("/usr/bin/env", program);
  ASSERT_EQ(chown(program.c_str(), 12345, 0), 0);
  ASSERT_EQ(chmod(program.c_str(), 04755), 0);
  const base::Captured found = exec({"--priority", "0"}, {program});
  EXPECT_EQ(found.exit_code, 0);
  EXPECT_EQ(variable(found, "LD_PRELOAD"), "(not set)") << "the loader did not ignore it";
  EXPECT_EQ(lines_in(found.err), 1) << found.err;
  EXPECT_NE(found.err.find("runs ungated: it is setuid"), std::string::npos) << found.err;
}

// As execvp, env and every shell do.
TEST_F(Exec, AScriptWithoutAnInterpreterIsRunByTheShell) {
  const std::string script = own_session_.file("script");
  std::ofstream(script) << "echo ran $1; exit 3\n";
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  const base::Captured result = exec({"--priority", "0"}, {script, "x"});
  EXPECT_EQ(result.out, "ran x\n") << result.err;
  EXPECT_EQ(result.exit_code, 3);
}

// Prevents: after `rm -rf /dev/shm/*` a second controller, whose programs do not see the old ones.
TEST_F(Exec, FindsTheControllerAfterACleanUpOfShm) {
  Process first(
      sluice_command(under_exec({"--priority", "0"}, {"sh", "-c", "echo on; read line"})));
  ASSERT_EQ(first.read_line(), "on");
  const pid_t controller = controller_pid();
  ASSERT_GT(controller, 0);
  std::filesystem::remove(board_file());
  std::filesystem::remove(shm::socket_path(session_));
  EXPECT_EQ(exec({"--priority", "0"}, {"true"}).err, "");
  EXPECT_EQ(controller_pid(), controller);
  EXPECT_EQ(first.finish().err, "");
}

TEST_F(Exec, WarnsOfAnAmountWithoutItsUnit) {
  const base::Captured result = exec({"--priority", "0", "--policy", "device:200"}, {"true"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_NE(result.err.find("did you mean device:200us"), std::string::npos) << result.err;
}

// As nsys, strace and uv run do.
TEST_F(Exec, NeedsNoDashesBeforeTheProgram) {
  const base::Captured result = sluice({"exec", "--gpu", "sim", "--priority", "0", "--policy=gate",
                                        "printf", "%s|", "--priority", "--", "x"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "--priority|--|x|");
}

TEST_F(Exec, NamesItsClient) {
  const base::Captured named = exec({"--priority", "0", "--name", "my job"}, {"env"});
  EXPECT_EQ(variable(named, "SLUICE_NAME"), "my job");
  EXPECT_EQ(variable(exec({"--priority", "0"}, {"env"}), "SLUICE_NAME"), "(not set)")
      << "each of several programs of a script has a name of its own";
}

// No failure of ours may keep a program from running.
TEST_F(Exec, RunsTheProgramThoughTheControllerIsStopped) {
  Process first(
      sluice_command(under_exec({"--priority", "0"}, {"sh", "-c", "echo on; read line"})));
  ASSERT_EQ(first.read_line(), "on");
  const pid_t controller = controller_pid();
  ASSERT_GT(controller, 0);
  kill(controller, SIGSTOP);
  const base::Captured second = exec({"--priority", "0"}, {"echo", "ran"});
  kill(controller, SIGCONT);
  EXPECT_EQ(second.exit_code, 0);
  EXPECT_EQ(second.out, "ran\n");
  EXPECT_NE(second.err.find("does not answer"), std::string::npos) << second.err;
  first.finish();
}

TEST_F(Exec, StatusShowsWhoIsHeldByWhom) {
  Process low(sluice_command(under_exec({"--priority", "0"}, {SLUICE_TEST_CLIENT})));
  Process high(sluice_command(under_exec({"--priority", "1"}, {SLUICE_TEST_CLIENT})));
  ASSERT_EQ(low.read_line(), "ok");
  ASSERT_EQ(high.read_line(), "ok");
  for (Process* client : {&low, &high}) {
    client->write_line("launch 1000");
    ASSERT_EQ(client->read_line(), "ok");
    client->write_line("sync");
    ASSERT_EQ(client->read_line(), "ok");
  }
  high.write_line("launch 100000000");  // 1 s on the simulated GPU
  ASSERT_EQ(high.read_line(), "ok");
  const base::Captured result = sluice({"status", "--coverage"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("held for"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("by pid " + std::to_string(high.pid()) + " (priority 1"),
            std::string::npos)
      << result.out;
  EXPECT_NE(result.out.find("cuLaunchKernel"), std::string::npos) << result.out;
  EXPECT_EQ(low.finish().exit_code, 0);
  EXPECT_EQ(high.finish().exit_code, 0);
}

}  // namespace
}  // namespace sluice::test
