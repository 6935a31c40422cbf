#pragma once
#include "profiler/runs/measure_pack.hpp"
#include "profiler/workers/program_server.hpp"

/// `sluice opbench measure` for packs of target llvm: TVM makes the programs again and times them
/// on this machine's CPU.
namespace sluice::profiler {

/// Whether the packs have programs for a CPU. Throws base::UsageError if a file is no pack, or if
/// some are for CPUs and some for GPUs.
[[nodiscard]] bool is_for_cpu(const std::vector<std::string>& packs);

/// Measures packs into options.out with each number of options.threads, without the programs that
/// are there already. A program that ends the server gets a record with an error; a network that
/// cannot be imported is reported and left out. All packs are for CPUs.
MeasureCounts measure_cpu_packs(const MeasureOptions& options, ProgramServer& server);

/// Times a program by the measuring rule, except that TVM decides about the runs of a repeat, and
/// puts times or error into the record.
void time_on_cpu(ProgramServer& server, const Program& program, int threads, Record& record);

}  // namespace sluice::profiler
