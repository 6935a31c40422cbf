#pragma once
#include <optional>
#include <string>

#include "shm/slice_answer.hpp"

/// The answers that trials of time slices left on this machine (docs/reference/slices.md).
/// tools/python/sluice_tools/common/slice_answers.py has their content.
namespace sluice::controller {

/// $XDG_CACHE_HOME/sluice, else ~/.cache/sluice; empty if neither variable has an absolute path.
[[nodiscard]] std::string answer_folder();

/// Of the node service, for everybody to read.
inline constexpr const char* kNodeAnswerFolder = "/var/cache/sluice";

/// The version of NVIDIA's kernel module; empty if none is loaded.
[[nodiscard]] std::string loaded_driver();
/// In its place, of the simulated GPU.
inline constexpr const char* kSimulatedDriver = "simulated";

/// The answer in the folder for this device and version of the driver. Nothing if there is none, or
/// if the file is damaged. May block, as files do.
[[nodiscard]] std::optional<shm::SliceAnswer> recorded_answer(const std::string& folder,
                                                              const std::string& uuid,
                                                              const std::string& driver);

/// Replaces the file of the device as a whole. Does nothing where it may not write.
void record_answer(const std::string& folder, const std::string& uuid, const std::string& text);

/// What a trial printed. Nothing without an answer; `why` then has the reason.
[[nodiscard]] std::optional<shm::SliceAnswer> printed_answer(const std::string& text,
                                                             std::string& why);

}  // namespace sluice::controller
