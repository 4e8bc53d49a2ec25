// Answers to gRPC calls, handed to nghttp2. Internal to GrpcSession.
#pragma once

#include <nghttp2/nghttp2.h>

#include <string_view>

#include "net/grpc_stream.h"

namespace headgate::net {

// Sends stream.answer.message, and then the status unless the call stays open. `stream` stays where it is until nghttp2
// closes the stream.
void send_message(nghttp2_session* h2, GrpcStream& stream);
// An answer without a message: one block of headers.
void send_status(nghttp2_session* h2, const GrpcStream& stream, GrpcStatus status, std::string_view why);
// For what is not gRPC: "405".
void send_http_status(nghttp2_session* h2, const GrpcStream& stream, std::string_view status);

}  // namespace headgate::net
