// Keys of the configuration that take something special: a URL, a time zone, networks.
#pragma once

#include "server/config_keys.h"

namespace headgate::server {

[[nodiscard]] ConfigKey store_url_key();
[[nodiscard]] ConfigKey database_key();
[[nodiscard]] ConfigKey timezone_key();
[[nodiscard]] ConfigKey gate_trust_key();
[[nodiscard]] ConfigKey webhook_url_key();
[[nodiscard]] ConfigKey kept_for_key();

}  // namespace headgate::server
