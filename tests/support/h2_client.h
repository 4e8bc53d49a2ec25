// An HTTP/2 client over memory, for tests: what it sends is in out(), what came back is in replies.
#pragma once

#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace headgate::test {

class H2Client {
 public:
  struct Reply {
    std::map<std::string, std::string> headers;  // and trailers
    int header_blocks = 0;
    std::string data;
    bool ended = false;
    bool closed = false;
    std::uint32_t reset = 0;
  };
  using Headers = std::vector<std::pair<std::string, std::string>>;

  H2Client() {
    nghttp2_session_callbacks* callbacks = nullptr;
    nghttp2_session_callbacks_new(&callbacks);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    nghttp2_session_client_new(&h2_, callbacks, this);
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_submit_settings(h2_, NGHTTP2_FLAG_NONE, nullptr, 0);
  }
  ~H2Client() { nghttp2_session_del(h2_); }
  H2Client(const H2Client&) = delete;
  H2Client& operator=(const H2Client&) = delete;

  [[nodiscard]] nghttp2_session* h2() const { return h2_; }

  static Headers grpc_headers(const std::string& path) {
    return {{":method", "POST"},    {":scheme", "http"}, {":path", path},
            {":authority", "test"}, {"te", "trailers"},  {"content-type", "application/grpc"}};
  }

  // `body` is sent as it is; with keep_open the stream does not end.
  std::int32_t request(const Headers& headers, std::string body, bool keep_open = false) {
    std::vector<nghttp2_nv> pairs;
    for (const auto& [name, value] : headers) {
      pairs.push_back({bytes(name), bytes(value), name.size(), value.size(), NGHTTP2_NV_FLAG_NONE});
    }
    auto* left = new Body{std::move(body), 0, keep_open};
    nghttp2_data_provider provider;
    provider.source.ptr = left;
    provider.read_callback = read_body;
    const std::int32_t id = nghttp2_submit_request(h2_, nullptr, pairs.data(), pairs.size(), &provider, nullptr);
    bodies_.emplace_back(left);
    return id;
  }

  std::string out() {
    std::string all;
    for (;;) {
      const std::uint8_t* data = nullptr;
      const ssize_t size = nghttp2_session_mem_send(h2_, &data);
      if (size <= 0) return all;
      all.append(reinterpret_cast<const char*>(data), static_cast<std::size_t>(size));
    }
  }
  // False: it was not HTTP/2.
  bool in(std::string_view data) {
    return nghttp2_session_mem_recv(h2_, reinterpret_cast<const std::uint8_t*>(data.data()), data.size()) >= 0;
  }

  std::map<std::int32_t, Reply> replies;
  std::vector<std::pair<std::int32_t, std::uint32_t>> goaways;  // last stream, error
  std::map<std::int32_t, std::uint32_t> settings;
  int pings = 0;
  int pongs = 0;

 private:
  struct Body {
    std::string text;
    std::size_t sent = 0;
    bool keep_open = false;
  };
  static std::uint8_t* bytes(const std::string& text) {
    return const_cast<std::uint8_t*>(reinterpret_cast<const std::uint8_t*>(text.data()));
  }
  static H2Client& self(void* user) { return *static_cast<H2Client*>(user); }

  static ssize_t read_body(nghttp2_session* /*h2*/, std::int32_t /*id*/, std::uint8_t* buffer, std::size_t size,
                           std::uint32_t* flags, nghttp2_data_source* source, void* /*user*/) {
    Body& body = *static_cast<Body*>(source->ptr);
    const std::size_t part = std::min(size, body.text.size() - body.sent);
    if (part == 0 && body.keep_open) return NGHTTP2_ERR_DEFERRED;
    std::memcpy(buffer, body.text.data() + body.sent, part);
    body.sent += part;
    if (body.sent == body.text.size() && !body.keep_open) *flags |= NGHTTP2_DATA_FLAG_EOF;
    return static_cast<ssize_t>(part);
  }
  static int on_header(nghttp2_session* /*h2*/, const nghttp2_frame* frame, const std::uint8_t* name,
                       std::size_t name_size, const std::uint8_t* value, std::size_t value_size, std::uint8_t /*flags*/,
                       void* user) {
    self(user).replies[frame->hd.stream_id].headers[{reinterpret_cast<const char*>(name), name_size}] = {
        reinterpret_cast<const char*>(value), value_size};
    return 0;
  }
  static int on_data(nghttp2_session* /*h2*/, std::uint8_t /*flags*/, std::int32_t id, const std::uint8_t* data,
                     std::size_t size, void* user) {
    self(user).replies[id].data.append(reinterpret_cast<const char*>(data), size);
    return 0;
  }
  static int on_frame(nghttp2_session* /*h2*/, const nghttp2_frame* frame, void* user) {
    H2Client& me = self(user);
    const bool ack = (frame->hd.flags & NGHTTP2_FLAG_ACK) != 0;
    switch (frame->hd.type) {
      case NGHTTP2_GOAWAY: me.goaways.emplace_back(frame->goaway.last_stream_id, frame->goaway.error_code); return 0;
      case NGHTTP2_PING: ++(ack ? me.pongs : me.pings); return 0;
      case NGHTTP2_SETTINGS:
        for (std::size_t i = 0; i < frame->settings.niv; ++i) {
          me.settings[frame->settings.iv[i].settings_id] = frame->settings.iv[i].value;
        }
        return 0;
      case NGHTTP2_HEADERS: ++me.replies[frame->hd.stream_id].header_blocks; break;
      case NGHTTP2_DATA: break;
      default: return 0;
    }
    if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0) me.replies[frame->hd.stream_id].ended = true;
    return 0;
  }
  static int on_close(nghttp2_session* /*h2*/, std::int32_t id, std::uint32_t error, void* user) {
    Reply& reply = self(user).replies[id];
    reply.closed = true;
    reply.reset = error;
    return 0;
  }

  nghttp2_session* h2_ = nullptr;
  std::vector<std::unique_ptr<Body>> bodies_;
};

}  // namespace headgate::test
