#include "net/tls.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/x509.h>

#include <algorithm>
#include <limits>

namespace headgate::net {
namespace {

std::string why() {
  const unsigned long error = ERR_peek_last_error();
  const char* text = ERR_reason_error_string(error);
  std::string reason = text != nullptr ? text : "no reason given";
  ERR_clear_error();
  return reason;
}

Error wrong(std::string_view key, std::string_view file) {
  return {ErrorCode::kIo, fmt::format("tls.{} {}: {}", key, file, why()), false};
}

int as_int(std::size_t size) noexcept {
  return static_cast<int>(std::min(size, static_cast<std::size_t>(std::numeric_limits<int>::max())));
}

}  // namespace

Result<std::shared_ptr<TlsContext>> TlsContext::read(const TlsFiles& files, const std::string& alpn) {
  ERR_clear_error();
  std::shared_ptr<TlsContext> made(new TlsContext);
  made->context_.reset(SSL_CTX_new(TLS_server_method()));
  SSL_CTX* context = made->context_.get();
  if (context == nullptr) return wrong("cert", files.cert);
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_NO_COMPRESSION |
                                   SSL_OP_IGNORE_UNEXPECTED_EOF);
  SSL_CTX_set_mode(context,
                   SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
  // A key with a passphrase is refused: there is no terminal to enter one.
  SSL_CTX_set_default_passwd_cb(context, [](char*, int, int, void*) { return 0; });
  if (SSL_CTX_use_certificate_chain_file(context, files.cert.c_str()) != 1) return wrong("cert", files.cert);
  if (SSL_CTX_use_PrivateKey_file(context, files.key.c_str(), SSL_FILETYPE_PEM) != 1) return wrong("key", files.key);
  if (SSL_CTX_check_private_key(context) != 1) return wrong("key", files.key);
  // Resumed sessions keep what the client proved, so they must not cross servers.
  static constexpr unsigned char kSessionContext[] = "headgate";
  SSL_CTX_set_session_id_context(context, kSessionContext, sizeof kSessionContext - 1);
  if (!files.client_ca.empty()) {
    STACK_OF(X509_NAME)* names = SSL_load_client_CA_file(files.client_ca.c_str());
    if (names == nullptr) return wrong("client_ca", files.client_ca);
    SSL_CTX_set_client_CA_list(context, names);
    if (SSL_CTX_load_verify_locations(context, files.client_ca.c_str(), nullptr) != 1) {
      return wrong("client_ca", files.client_ca);
    }
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  }
  if (!alpn.empty()) {
    made->alpn_ = static_cast<char>(alpn.size()) + alpn;
    SSL_CTX_set_alpn_select_cb(context, &TlsContext::select_alpn, made.get());
  }
  return made;
}

Result<std::shared_ptr<TlsContext>> TlsContext::for_client(const std::string& ca_file) {
  ERR_clear_error();
  std::shared_ptr<TlsContext> made(new TlsContext);
  made->context_.reset(SSL_CTX_new(TLS_client_method()));
  SSL_CTX* context = made->context_.get();
  if (context == nullptr) return Error{ErrorCode::kIo, "TLS cannot be started: " + why()};
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_default_verify_paths(context);
  if (!ca_file.empty() && SSL_CTX_load_verify_locations(context, ca_file.c_str(), nullptr) != 1) {
    return Error{ErrorCode::kIo, fmt::format("{}: {}", ca_file, why())};
  }
  return made;
}

int TlsContext::select_alpn(SSL* /*ssl*/, const unsigned char** out, unsigned char* out_size, const unsigned char* in,
                            unsigned int in_size, void* self) {
  const std::string& alpn = static_cast<const TlsContext*>(self)->alpn_;
  unsigned char* chosen = nullptr;
  const int found = SSL_select_next_proto(&chosen, out_size, reinterpret_cast<const unsigned char*>(alpn.data()),
                                          static_cast<unsigned int>(alpn.size()), in, in_size);
  if (found != OPENSSL_NPN_NEGOTIATED) return SSL_TLSEXT_ERR_ALERT_FATAL;
  *out = chosen;
  return SSL_TLSEXT_ERR_OK;
}

TlsStream::TlsStream(std::shared_ptr<TlsContext> context, int fd)
    : context_(std::move(context)), ssl_(SSL_new(context_->get())) {
  if (ssl_ == nullptr) return;
  SSL_set_fd(ssl_.get(), fd);
  SSL_set_accept_state(ssl_.get());
}

TlsStream::TlsStream(std::shared_ptr<TlsContext> context, int fd, const std::string& server)
    : TlsStream(std::move(context), fd) {
  if (ssl_ == nullptr) return;
  SSL_set_connect_state(ssl_.get());
  if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl_.get()), server.c_str()) == 1) return;
  ERR_clear_error();
  // SSL_set_tlsext_host_name, whose macro has a C cast.
  const bool named = SSL_ctrl(ssl_.get(), SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
                              const_cast<char*>(server.c_str())) == 1;
  if (!named || SSL_set1_host(ssl_.get(), server.c_str()) != 1) ssl_.reset();
}

std::string TlsStream::distrust() const {
  const long result = ssl_ == nullptr ? X509_V_OK : SSL_get_verify_result(ssl_.get());
  return result == X509_V_OK ? "" : X509_verify_cert_error_string(result);
}

Moved TlsStream::outcome(int result) noexcept {
  if (result > 0) return Moved::kMore;
  switch (SSL_get_error(ssl_.get(), result)) {
    case SSL_ERROR_WANT_READ: return Moved::kWantRead;
    case SSL_ERROR_WANT_WRITE: return Moved::kWantWrite;
    case SSL_ERROR_ZERO_RETURN: return Moved::kEnded;
    default: return Moved::kFailed;
  }
}

Moved TlsStream::handshake() noexcept {
  if (ssl_ == nullptr) return Moved::kFailed;
  ERR_clear_error();
  return outcome(SSL_do_handshake(ssl_.get()));
}

Moved TlsStream::read(char* data, std::size_t size, std::size_t& count) noexcept {
  ERR_clear_error();
  const int result = SSL_read(ssl_.get(), data, as_int(size));
  count = result > 0 ? static_cast<std::size_t>(result) : 0;
  return outcome(result);
}

Moved TlsStream::write(const char* data, std::size_t size, std::size_t& count) noexcept {
  ERR_clear_error();
  const int result = SSL_write(ssl_.get(), data, as_int(size));
  count = result > 0 ? static_cast<std::size_t>(result) : 0;
  return outcome(result);
}

void TlsStream::shut_down() noexcept {
  ERR_clear_error();
  if (SSL_is_init_finished(ssl_.get()) != 0) SSL_shutdown(ssl_.get());
}

std::string TlsStream::common_name() const {
  const std::unique_ptr<X509, decltype(&X509_free)> certificate(SSL_get1_peer_certificate(ssl_.get()), &X509_free);
  if (certificate == nullptr || SSL_get_verify_result(ssl_.get()) != X509_V_OK) return {};
  const X509_NAME* subject = X509_get_subject_name(certificate.get());
  const int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
  if (at < 0) return {};
  unsigned char* utf8 = nullptr;
  const int size = ASN1_STRING_to_UTF8(&utf8, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
  if (size < 0) return {};
  std::string name(reinterpret_cast<const char*>(utf8), static_cast<std::size_t>(size));
  OPENSSL_free(utf8);
  // A name with a NUL would be read differently by C code.
  if (name.find('\0') != std::string::npos) return {};
  return name;
}

}  // namespace headgate::net
