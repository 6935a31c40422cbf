#include "profiler/runs/compile_pack.hpp"

#include <fmt/format.h>

#include <deque>
#include <filesystem>
#include <set>
#include <system_error>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/terminal.hpp"
#include "profiler/packs/selection.hpp"
#include "profiler/workers/gpu_workers.hpp"

namespace sluice::profiler {
namespace {

/// Finished programs that wait for a slow one before them, so that memory has a limit.
constexpr std::size_t kMostWaiting = 1024;

class PackCompiler {
 public:
  explicit PackCompiler(const CompileOptions& options)
      : options_(options),
        arch_(options.arch),
        compilers_(compiler_commands(options.jobs), options.compile_limit_s),
        out_(options.out) {}

  /// A pack that does not fit the others must not be found behind minutes of compiling.
  void check_headers() {
    for (const std::string& file : options_.packs) {
      // A pipe can be read only once.
      std::error_code unknown;
      if (!std::filesystem::is_fifo(file, unknown)) add_header(file, read_header(file));
    }
  }

  void add_pack(const std::string& file) {
    PackReader pack(file);
    while (auto entry = pack.next()) {
      if (const auto* header = std::get_if<PackHeader>(&*entry)) add_header(file, *header);
      if (const auto* network = std::get_if<Network>(&*entry)) {
        if (networks_.emplace(network->name, network->batch).second) queue_.emplace_back(*network);
      }
      if (const auto* task = std::get_if<Task>(&*entry)) {
        if (tasks_.insert(task->id).second) queue_.emplace_back(*task);
      }
      if (auto* program = std::get_if<Program>(&*entry)) add_program(file, std::move(*program));
      write_finished();
    }
    if (pack.torn()) report_torn(file);
  }

  CompileCounts finish() {
    while (!queue_.empty()) work();
    progress_.clear();
    counts_.bare = selection_.bare();
    if (counts_.written() == 0 && counts_.failed + counts_.too_long == 0 && counts_.bare > 0) {
      throw base::UsageError(
          fmt::format("{} programs have neither a source nor a binary; {} is not written",
                      counts_.bare, options_.out));
    }
    if (counts_.written() == 0) {
      throw base::RunError(fmt::format("no program has a binary; {} is not written", options_.out));
    }
    out_.close();
    return counts_;
  }

 private:
  /// A line of the new pack.
  struct Line {
    explicit Line(PackEntry what) : entry(std::move(what)) {}
    PackEntry entry;
    bool finished = true;
    bool left_out = false;
  };

  void add_header(const std::string& file, const PackHeader& header) {
    const std::string arch = arch_of(file, header);
    if (!arch_.empty() && arch != arch_) {
      throw base::UsageError(
          fmt::format("{}: programs for {}, not for {}; compile them into a pack of their own",
                      file, arch, arch_));
    }
    arch_ = arch;
    if (header_.target.empty()) {
      header_ = header;
      queue_.emplace_back(header);
    } else if (header.target != header_.target || header.tvm != header_.tvm) {
      throw base::UsageError(fmt::format(
          "{}: of target '{}' and TVM {}, but {} is of '{}' and {}; compile them into "
          "a pack of their own",
          file, header.target, header.tvm, options_.packs.front(), header_.target, header_.tvm));
    }
  }

  void add_program(const std::string& file, Program program) {
    if (!tasks_.contains(program.task)) {
      throw base::UsageError(
          fmt::format("{}: program {} before its task {}", file, program.id, program.task));
    }
    const bool has_binary = program.cubins.contains(arch_);
    if (!selection_.take(program, !has_binary && program.source.empty())) return;
    while (queue_.size() >= kMostWaiting) work();
    if (has_binary) {
      ++counts_.had;
      program.source.clear();
      queue_.emplace_back(std::move(program));
    } else {
      compile(std::move(program));
    }
  }

  void compile(Program program) {
    while (compilers_.idle() == compilers_.size()) work();
    Line& line = queue_.emplace_back(std::move(program));
    line.finished = false;
    const auto& added = std::get<Program>(line.entry);
    compilers_.submit(compilers_.idle(), compile_request(added, arch_),
                      [this, &line](const WorkerAnswer& answer) { compiled(line, answer); });
  }

  void compiled(Line& line, const WorkerAnswer& answer) {
    auto& program = std::get<Program>(line.entry);
    line.finished = true;
    std::string why;
    if (answer.how == WorkerAnswer::How::kTimeout) {
      why = fmt::format("compiled longer than {:g} s", options_.compile_limit_s);
      ++counts_.too_long;
    } else {
      why = answer.how == WorkerAnswer::How::kDied ? "sluice-compile " + answer.text
                                                   : take_binary(program, arch_, answer.text);
      ++(why.empty() ? counts_.compiled : counts_.failed);
    }
    line.left_out = !why.empty();
    if (why.empty()) return;
    progress_.clear();
    fmt::print(stderr, "sluice opbench: program {}: {}\n", program.id, why);
  }

  void work() {
    (void)wait_for_answer({&compilers_}, 1);
    write_finished();
    const double seconds = base::seconds_since(begin_ns_);
    if (!progress_.due(seconds)) return;
    progress_.show(seconds, fmt::format("{:.0f} s: {} programs with a binary, {} without", seconds,
                                        counts_.written(), counts_.failed + counts_.too_long));
  }

  void write_finished() {
    for (; !queue_.empty() && queue_.front().finished; queue_.pop_front()) {
      if (!queue_.front().left_out) out_.add(queue_.front().entry);
    }
  }

  const CompileOptions& options_;
  std::string arch_;
  WorkerPool compilers_;
  PackWriter out_;
  PackHeader header_;
  std::deque<Line> queue_;  ///< In the order of the packs.
  std::set<std::pair<std::string, std::int64_t>> networks_;
  std::set<std::string> tasks_;
  Selection selection_{options_.per_task};
  CompileCounts counts_;
  base::ProgressLine progress_;
  std::uint64_t begin_ns_ = base::monotonic_ns();
};

}  // namespace

CompileCounts compile_packs(const CompileOptions& options) {
  for (const std::string& file : options.packs) {
    // The new pack lacks the sources, and the programs that do not compile.
    std::error_code not_there;
    if (std::filesystem::equivalent(file, options.out, not_there)) {
      throw base::UsageError(fmt::format(
          "{}: the same file as the pack {}; choose another name for -o", options.out, file));
    }
  }
  PackCompiler compiler(options);
  compiler.check_headers();
  for (const std::string& file : options.packs) compiler.add_pack(file);
  return compiler.finish();
}

}  // namespace sluice::profiler
