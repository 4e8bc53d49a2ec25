#include "net/grpc_stream.h"

#include <optional>

#include "net/grpc_text.h"

namespace headgate::net {

void GrpcStream::take_header(std::string_view name, std::string_view value, std::size_t most_bytes) {
  constexpr std::size_t kOverhead = 32;  // of a header, as RFC 9113 counts them
  constexpr std::size_t kMostHeaders = 100;
  header_bytes += name.size() + value.size() + kOverhead;
  if (header_bytes > most_bytes || places.size() >= kMostHeaders) {
    too_large = true;
    problem = "the headers are too large";
    return;
  }
  if (name == ":method") {
    post = value == "POST";
    return;
  }
  if (name == "grpc-timeout") {
    const std::optional<Nanos> parsed = parse_grpc_timeout(value);
    if (!parsed) problem = "grpc-timeout must be at most eight digits and one of H, M, S, m, u and n";
    timeout = parsed.value_or(Nanos{-1});
  }
  const Place place{static_cast<std::uint32_t>(text.size()), static_cast<std::uint32_t>(name.size()),
                    static_cast<std::uint32_t>(value.size())};
  text.append(name).append(value);
  if (name == ":path") {
    path = place;
  } else if (name == "content-type") {
    content_type = place;
  }
  if (name.front() != ':') places.push_back(place);
}

}  // namespace headgate::net
