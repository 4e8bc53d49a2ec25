#include "net/grpc_answers.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "net/grpc_text.h"

namespace headgate::net {
namespace {

// A name or value that outlives the session, so that nghttp2 need not copy it.
nghttp2_nv fixed(std::string_view name, std::string_view value) noexcept {
  const auto bytes = [](std::string_view text) {
    return const_cast<std::uint8_t*>(reinterpret_cast<const std::uint8_t*>(text.data()));
  };
  return {bytes(name), bytes(value), name.size(), value.size(),
          NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE};
}

nghttp2_nv copied_value(std::string_view name, std::string_view value) noexcept {
  nghttp2_nv pair = fixed(name, value);
  pair.flags = NGHTTP2_NV_FLAG_NO_COPY_NAME;
  return pair;
}

constexpr std::string_view kStatus = ":status";
constexpr std::string_view kContentType = "content-type";
constexpr std::string_view kGrpcStatus = "grpc-status";
constexpr std::string_view kGrpcMessage = "grpc-message";
constexpr std::string_view kGrpc = "application/grpc";

ssize_t read_answer(nghttp2_session* h2, std::int32_t id, std::uint8_t* buffer, std::size_t size, std::uint32_t* flags,
                    nghttp2_data_source* source, void* /*user*/) {
  GrpcStream& call = *static_cast<GrpcStream*>(source->ptr);
  const std::string& message = call.answer.message;
  std::size_t written = 0;
  if (call.sent < kGrpcPrefix) {
    const std::array<char, kGrpcPrefix> prefix = grpc_prefix(static_cast<std::uint32_t>(message.size()));
    written = std::min(size, kGrpcPrefix - call.sent);
    std::memcpy(buffer, prefix.data() + call.sent, written);
    call.sent += written;
  }
  if (call.sent >= kGrpcPrefix) {
    const std::size_t at = call.sent - kGrpcPrefix;
    const std::size_t part = std::min(size - written, message.size() - at);
    std::copy_n(message.data() + at, part, buffer + written);
    written += part;
    call.sent += part;
  }
  const bool all = call.sent == kGrpcPrefix + message.size();
  if (all && call.answer.stays && written == 0) return NGHTTP2_ERR_DEFERRED;
  if (all && call.answer.stays) return static_cast<ssize_t>(written);
  if (all) {
    *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
    static const nghttp2_nv kDone = fixed(kGrpcStatus, "0");
    static const nghttp2_nv kLate = fixed(kGrpcStatus, "4");
    nghttp2_submit_trailer(h2, id, call.end == GrpcStatus::kOk ? &kDone : &kLate, 1);
  }
  return static_cast<ssize_t>(written);
}

}  // namespace

void send_message(nghttp2_session* h2, GrpcStream& stream) {
  static const std::array<nghttp2_nv, 2> kHead{fixed(kStatus, "200"), fixed(kContentType, kGrpc)};
  nghttp2_data_provider provider;
  provider.source.ptr = &stream;
  provider.read_callback = read_answer;
  nghttp2_submit_response(h2, stream.id, kHead.data(), kHead.size(), &provider);
}

void send_status(nghttp2_session* h2, const GrpcStream& stream, GrpcStatus status, std::string_view why) {
  const std::string number = std::to_string(static_cast<int>(status));
  const std::string text = percent_encoded(why);
  const std::array<nghttp2_nv, 4> head{fixed(kStatus, "200"), fixed(kContentType, kGrpc),
                                       copied_value(kGrpcStatus, number), copied_value(kGrpcMessage, text)};
  nghttp2_submit_response(h2, stream.id, head.data(), head.size(), nullptr);
}

void send_http_status(nghttp2_session* h2, const GrpcStream& stream, std::string_view status) {
  const nghttp2_nv head = copied_value(kStatus, status);
  nghttp2_submit_response(h2, stream.id, &head, 1, nullptr);
}

}  // namespace headgate::net
