#pragma once
#include <string>
#include <string_view>

namespace sluice::shm {

/// Why a session's controller could not be asked, and what to do, in one line. `error` is the errno
/// of connect_controller(), connect_patiently() or ask(). docs/reference/faults.md has the table.
[[nodiscard]] std::string why_no_controller(int error, std::string_view session);

}  // namespace sluice::shm
