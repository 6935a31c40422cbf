#include "controller/admission.hpp"

#include <sys/socket.h>
#include <unistd.h>

namespace sluice::controller {

Peer Peer::of(int socket) {
  Peer peer;
  ucred known{};
  socklen_t size = sizeof(known);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &known, &size) != 0) return peer;
  peer.uid = known.uid;
  peer.groups.push_back(known.gid);
  // The first call only asks for the size.
  socklen_t bytes = 0;
  getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, nullptr, &bytes);
  std::vector<gid_t> more(bytes / sizeof(gid_t));
  if (!more.empty() && getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, more.data(), &bytes) == 0) {
    peer.groups.insert(peer.groups.end(), more.begin(), more.end());
  }
  peer.process = std::make_shared<const ClientProcess>(ClientProcess::peer_of(socket, known.pid));
  return peer;
}

OwnUser& OwnUser::instance() {
  static OwnUser own;
  return own;
}

bool OwnUser::may_connect(uid_t uid) const { return uid == geteuid(); }

std::string OwnUser::user_name(uid_t uid) const { return "uid " + std::to_string(uid); }

}  // namespace sluice::controller
