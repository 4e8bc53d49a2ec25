// What service::Access reads of requests and peers.
#pragma once

#include "net/http.h"
#include "service/access_request.h"

namespace headgate::api {

[[nodiscard]] inline service::PeerView view_of(const net::Peer& peer) noexcept {
  return {peer.ip, peer.certificate, peer.loopback, peer.tls};
}
// One pass over the headers. It borrows from the request.
[[nodiscard]] service::AccessRequest access_request(const net::HttpRequest& request) noexcept;

}  // namespace headgate::api
