// The commands of the Redis protocol: CL.THROTTLE, HG.CHECK and its leases, and the housekeeping that clients expect.
#pragma once

#include <memory>

#include "net/resp.h"
#include "service/service.h"

namespace headgate::api {

// For one connection. The service outlives it.
[[nodiscard]] std::unique_ptr<net::RespCommands> make_resp_commands(const service::Service& service,
                                                                    const net::Peer& peer);

}  // namespace headgate::api
