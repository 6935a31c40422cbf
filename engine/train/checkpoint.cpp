#include "engine/train/checkpoint.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/error.hpp"
#include "base/fd.hpp"

namespace sluice::engine {
namespace {

[[noreturn]] void fail(const std::filesystem::path& file) {
  throw base::RunError(
      fmt::format("cannot write the checkpoint {}: {}", file.string(), std::strerror(errno)));
}

/// Waits until the file, or the names in the folder, are on the disk.
void sync(const std::filesystem::path& path) {
  const base::Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd || fsync(fd.get()) != 0) fail(path);
}

}  // namespace

void replace_file(const std::filesystem::path& file,
                  const std::function<void(std::ostream&)>& write) {
  const std::filesystem::path part = file.string() + ".part";
  {
    std::ofstream out(part, std::ios::binary | std::ios::trunc);
    if (!out) fail(part);
    write(out);
    out.flush();
    if (!out) fail(part);
  }
  sync(part);
  if (rename(part.c_str(), file.c_str()) != 0) fail(file);
  sync(std::filesystem::absolute(file).parent_path());
}

}  // namespace sluice::engine
