#pragma once
#include <functional>
#include <string>

namespace sluice::base {

/// Whoever keeps the MPS daemon of a session: one process, which holds the right of
/// MpsFolder::become_keeper(). It ends each daemon that no program uses: at once if the daemon was
/// killed and only its servers are left, else when `controller_lives` is false, too. Returns when
/// nothing of the session's MPS is left, or if another process stays the keeper for ten seconds. A
/// keeper that is killed ends nothing: the next one finds what there is.
void keep_mps(const std::string& session, const std::function<bool()>& controller_lives);

}  // namespace sluice::base
