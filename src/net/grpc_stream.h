// One call of a gRPC connection, from its first header to its last trailer.
//
// Internal to GrpcSession, which keeps some for the next calls.
#pragma once

#include <cstdint>
#include <list>
#include <string>
#include <string_view>
#include <vector>

#include "net/grpc.h"

namespace headgate::net {

struct GrpcStream {
  static constexpr std::size_t kKeptCapacity = 4 << 10;  // of each buffer, when it is kept for the next call
  // Where a header stands in `text`.
  struct Place {
    std::uint32_t name = 0;
    std::uint32_t name_size = 0;
    std::uint32_t value_size = 0;
  };

  std::int32_t id = 0;
  std::string text;  // of all headers, one after the other
  std::vector<Place> places;
  std::size_t header_bytes = 0;
  bool too_large = false;  // the headers
  Place path;
  Place content_type;
  bool post = false;
  bool ended = false;       // all of it has come
  bool answered = false;    // or refused: what still comes is not kept
  std::uint64_t later = 0;  // not 0: its answer comes from elsewhere, under this number
  Nanos begun{0};
  Nanos timeout{-1};
  const char* problem = nullptr;  // of its head
  std::string message;            // with its prefix
  GrpcAnswer answer;
  std::size_t sent = 0;  // of the answer, prefix included
  GrpcStatus end = GrpcStatus::kOk;
  std::list<GrpcStream>::iterator self;

  [[nodiscard]] std::string_view name_of(const Place& place) const noexcept {
    return std::string_view(text).substr(place.name, place.name_size);
  }
  [[nodiscard]] std::string_view value_of(const Place& place) const noexcept {
    return std::string_view(text).substr(place.name + place.name_size, place.value_size);
  }

  // Keeps the header. `problem` says what is wrong with it, or with all of them together.
  void take_header(std::string_view name, std::string_view value, std::size_t most_bytes);

  void clear() {
    const auto forget = [](std::string& buffer) {
      buffer.clear();
      if (buffer.capacity() > kKeptCapacity) std::string().swap(buffer);
    };
    forget(text);
    forget(message);
    forget(answer.text);
    forget(answer.message);
    forget(answer.last);
    answer.status = end = GrpcStatus::kOk;
    answer.stays = false;
    places.clear();
    header_bytes = sent = 0;
    path = content_type = {};
    post = ended = answered = too_large = false;
    later = 0;
    timeout = Nanos{-1};
    problem = nullptr;
  }
};

}  // namespace headgate::net
