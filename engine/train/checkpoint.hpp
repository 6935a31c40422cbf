#pragma once
#include <filesystem>
#include <functional>
#include <iosfwd>

namespace sluice::engine {

/// Replaces the file by what `write` writes. A reader finds the old file or the new one, whole,
/// whenever this process or the machine stops. Writes FILE.part first; not for two processes at
/// once. Throws base::RunError.
void replace_file(const std::filesystem::path& file,
                  const std::function<void(std::ostream&)>& write);

}  // namespace sluice::engine
