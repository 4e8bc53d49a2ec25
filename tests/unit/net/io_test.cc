// Over real sockets on the loopback interface. Nothing here waits for a fixed time: reads have a generous deadline.
#include "net/io.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <set>
#include <thread>

#include "base/wake_later.h"
#include "net/http.h"
#include "net/resp.h"

namespace headgate::net {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// A blocking client that gives up after a while.
class Client {
 public:
  explicit Client(const std::string& address) {
    const Result<Address> parsed = parse_address(address);
    const timeval deadline{20, 0};
    if (!parsed->path.empty()) {
      fd_ = ::socket(AF_UNIX, SOCK_STREAM, 0);
      sockaddr_un un{};
      un.sun_family = AF_UNIX;
      parsed->path.copy(un.sun_path, sizeof un.sun_path - 1);
      connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&un), sizeof un) == 0;
    } else {
      fd_ = ::socket(AF_INET, SOCK_STREAM, 0);
      sockaddr_in in{};
      in.sin_family = AF_INET;
      in.sin_port = htons(parsed->port);
      inet_pton(AF_INET, parsed->host.c_str(), &in.sin_addr);
      connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&in), sizeof in) == 0;
    }
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &deadline, sizeof deadline);
    setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &deadline, sizeof deadline);
  }
  ~Client() { ::close(fd_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool send(std::string_view text) {
    while (!text.empty()) {
      const ssize_t sent = ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      text.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }
  std::string read(std::size_t size) {
    std::string text(size, '\0');
    std::size_t got = 0;
    while (got < size) {
      const ssize_t count = ::recv(fd_, text.data() + got, size - got, 0);
      if (count <= 0) break;
      got += static_cast<std::size_t>(count);
    }
    text.resize(got);
    return text;
  }
  // Until it ends; "…(timeout)" if it does not.
  std::string read_all() {
    std::string text;
    char buffer[65536];
    while (true) {
      const ssize_t count = ::recv(fd_, buffer, sizeof buffer, 0);
      if (count < 0 && errno == EAGAIN) return text + "(timeout)";
      if (count <= 0) return text;
      text.append(buffer, static_cast<std::size_t>(count));
    }
  }
  void half_close() { ::shutdown(fd_, SHUT_WR); }
  [[nodiscard]] int fd() const noexcept { return fd_; }
  [[nodiscard]] bool connected() const noexcept { return connected_; }

 private:
  int fd_ = -1;
  bool connected_ = false;
};

// Answers lines; knows a few words. Everything a test wants to know of it is shared.
struct Shared {
  std::atomic<int> open{0};
  std::atomic<int> ticks{0};
  std::mutex mutex;
  std::vector<std::shared_ptr<Link>> links;
  std::vector<Peer> peers;
  std::set<std::thread::id> threads;
};

class Upper final : public Session {
 public:
  void receive(std::string_view bytes, Nanos /*now*/) override {
    for (const char c : bytes) out += static_cast<char>(std::toupper(c));
  }
  void drain() override { close = true; }
  [[nodiscard]] bool midway() const noexcept override { return false; }
};

class Lines final : public Session {
 public:
  Lines(std::shared_ptr<Shared> shared, const Peer& peer) : shared_(std::move(shared)) {
    ++shared_->open;
    const std::lock_guard lock(shared_->mutex);
    shared_->peers.push_back(peer);
    shared_->threads.insert(std::this_thread::get_id());
  }
  ~Lines() override { --shared_->open; }

  void receive(std::string_view bytes, Nanos /*now*/) override {
    pending_ += bytes;
    std::size_t end = 0;
    while ((end = pending_.find('\n')) != std::string::npos) {
      const std::string line = pending_.substr(0, end);
      pending_.erase(0, end + 1);
      standing = Standing::kKnown;
      answer(line);
    }
  }
  void drain() override {
    if (!waiting_) close = true;
    draining_ = true;
  }
  void finish() override {
    if (!waiting_) close = true;
  }
  void tick(Nanos /*now*/) override { ++shared_->ticks; }
  [[nodiscard]] bool midway() const noexcept override { return !pending_.empty(); }
  [[nodiscard]] bool busy() const noexcept override { return waiting_; }
  void go_on() {
    waiting_ = paused = false;
    out += "went on\n";
    if (draining_) close = true;
  }

 private:
  void answer(const std::string& line) {
    if (line == "close") {
      close = true;
    } else if (line == "wait") {
      waiting_ = paused = true;
      const std::lock_guard lock(shared_->mutex);
      shared_->links.push_back(link);
    } else if (line == "flood") {
      out.append(20 << 20, 'x');
    } else if (line == "upper") {
      out += "switching\n";
      unread = std::exchange(pending_, {});
      successor = std::make_unique<Upper>();
    } else {
      out += line + "!\n";
    }
  }

  std::shared_ptr<Shared> shared_;
  std::string pending_;
  bool waiting_ = false;
  bool draining_ = false;
};

// Until it holds, for a long time at most.
bool wait_until(const std::function<bool()>& holds) {
  const auto deadline = std::chrono::steady_clock::now() + 30s;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

class IoThreads : public ::testing::Test {
 protected:
  Listener lines(const std::string& name = "lines") {
    Listener listener;
    listener.name = name;
    listener.address = "127.0.0.1:0";
    listener.make = [shared = shared, idle = idle](const Peer& peer) -> std::unique_ptr<Session> {
      auto session = std::make_unique<Lines>(shared, peer);
      session->idle_limit = idle;
      return session;
    };
    return listener;
  }
  void start() { start(lines()); }
  void start(Listener listener) {
    std::vector<Listener> listeners;
    listeners.push_back(std::move(listener));
    Result<std::unique_ptr<Io>> opened = Io::open(std::move(listeners), options);
    ASSERT_TRUE(opened) << opened.error().message;
    io = std::move(*opened);
    io->start();
    address = io->address("lines");
  }
  std::shared_ptr<Link> first_link() {
    EXPECT_TRUE(wait_until([this] {
      const std::lock_guard lock(shared->mutex);
      return !shared->links.empty();
    }));
    const std::lock_guard lock(shared->mutex);
    return shared->links.front();
  }

  std::shared_ptr<Shared> shared = std::make_shared<Shared>();
  IoOptions options;
  Nanos idle{0};
  std::unique_ptr<Io> io;
  std::string address;
};

TEST_F(IoThreads, CarryBytesBothWays) {
  start();
  Client client(address);
  ASSERT_TRUE(client.send("a\nb\n"));
  EXPECT_EQ(client.read(6), "a!\nb!\n");
  ASSERT_TRUE(client.send("c\n"));
  EXPECT_EQ(client.read(3), "c!\n");
  const IoCounts counts = io->counts("lines");
  EXPECT_EQ(counts.accepted, 1U);
  EXPECT_EQ(counts.open, 1U);
  EXPECT_EQ(counts.bytes_in, 6U);
  EXPECT_EQ(shared->peers[0].ip, "127.0.0.1");
  EXPECT_TRUE(shared->peers[0].loopback);
  EXPECT_EQ(io->address("other"), "");
}

TEST_F(IoThreads, AnswerWhatCameBeforeAHalfClose) {
  start();
  Client client(address);
  ASSERT_TRUE(client.send("a\nb\n"));
  client.half_close();
  EXPECT_EQ(client.read_all(), "a!\nb!\n");
}

TEST_F(IoThreads, LetLastWordsArriveThoughThePeerStillSends) {
  start();
  Client client(address);
  ASSERT_TRUE(client.send("a\nclose\n" + std::string(100'000, 'x')));
  EXPECT_EQ(client.read_all(), "a!\n");
  client.half_close();
  EXPECT_TRUE(wait_until([this] { return io->counts("lines").open == 0; }));
}

TEST_F(IoThreads, RunPostedWorkAndReadOn) {
  start();
  Client client(address);
  ASSERT_TRUE(client.send("wait\n"));
  const std::shared_ptr<Link> link = first_link();
  ASSERT_TRUE(client.send("b\n"));
  link->post([](Session& session) { dynamic_cast<Lines&>(session).go_on(); });
  EXPECT_EQ(client.read(11), "went on\nb!\n");
}

TEST_F(IoThreads, AnswerLettersThatComeTogetherAtOnce) {
  start();
  Client client(address);
  ASSERT_TRUE(client.send("wait\n"));
  const std::shared_ptr<Link> link = first_link();
  std::string unsent;
  {
    const base::WakeLater together;
    link->post([](Session& session) { dynamic_cast<Lines&>(session).go_on(); });
    link->post([&](Session& session) {
      unsent = session.out;
      session.out += "once more\n";
    });
  }
  EXPECT_EQ(client.read(18), "went on\nonce more\n");
  EXPECT_EQ(unsent, "went on\n");
}

TEST_F(IoThreads, RunNothingAfterALetterThatEndsTheConnection) {
  start();
  Client client(address);
  ASSERT_TRUE(client.send("wait\n"));
  const std::shared_ptr<Link> link = first_link();
  std::atomic<bool> ran{false};
  {
    const base::WakeLater together;
    link->post([](Session& session) {
      session.out += "last words";
      session.close = true;
    });
    link->post([&ran](Session&) { ran = true; });
  }
  EXPECT_EQ(client.read_all(), "last words");
  io->stop(0s);
  EXPECT_FALSE(ran);
}

TEST_F(IoThreads, KeepAnsweringAPeerThatHalfClosedWhileItWaited) {
  start();
  Client client(address);
  ASSERT_TRUE(client.send("wait\n"));
  client.half_close();
  first_link()->post([](Session& session) {
    dynamic_cast<Lines&>(session).go_on();
    session.finish();
  });
  EXPECT_EQ(client.read_all(), "went on\n");
}

TEST_F(IoThreads, RunNothingForAConnectionThatIsGone) {
  start();
  std::shared_ptr<Link> link;
  {
    Client client(address);
    ASSERT_TRUE(client.send("wait\n"));
    link = first_link();
    link->post([](Session& session) { session.close = true; });
    EXPECT_EQ(client.read_all(), "");
  }
  ASSERT_TRUE(wait_until([this] { return shared->open == 0; }));
  std::atomic<bool> ran{false};
  link->post([&ran](Session&) { ran = true; });
  Client other(address);
  ASSERT_TRUE(other.send("a\n"));
  EXPECT_EQ(other.read(3), "a!\n");
  io->stop(0s);
  link->post([&ran](Session&) { ran = true; });  // nor after the end
  EXPECT_FALSE(ran);
}

TEST_F(IoThreads, HandAConnectionOverWithWhatIsUnread) {
  start();
  Client client(address);
  ASSERT_TRUE(client.send("upper\nabc"));
  EXPECT_EQ(client.read(13), "switching\nABC");
  ASSERT_TRUE(client.send("def"));
  EXPECT_EQ(client.read(3), "DEF");
}

TEST_F(IoThreads, SendMoreThanASocketTakesAtOnce) {
  start();
  Client client(address);
  ASSERT_TRUE(client.send("flood\nb\n"));
  EXPECT_EQ(client.read(20 << 20).size(), 20U << 20);
  EXPECT_EQ(client.read(3), "b!\n");
}

TEST_F(IoThreads, CloseAPeerThatTakesNothing) {
  options.write_within = 1ms;
  start();
  Client client(address);
  ASSERT_TRUE(client.send("flood\n"));
  EXPECT_TRUE(wait_until([this] { return io->counts("lines").timed_out == 1; }));
  EXPECT_TRUE(wait_until([this] { return io->counts("lines").open == 0; }));
}

TEST_F(IoThreads, CloseASlowSenderButNotAnIdleOne) {
  options.request_within = 1ms;
  start();
  Client idle_one(address);
  Client slow(address);
  ASSERT_TRUE(slow.send("unfinished"));
  EXPECT_EQ(slow.read_all(), "");
  EXPECT_EQ(io->counts("lines").timed_out, 1U);
  ASSERT_TRUE(idle_one.send("a\n"));
  EXPECT_EQ(idle_one.read(3), "a!\n");
}

TEST_F(IoThreads, CloseAnIdleConnectionButNotABusyOne) {
  idle = 1ms;
  start();
  Client busy(address);
  ASSERT_TRUE(busy.send("wait\n"));
  const std::shared_ptr<Link> link = first_link();
  Client client(address);
  EXPECT_EQ(client.read_all(), "");
  EXPECT_EQ(io->counts("lines").timed_out, 1U);
  link->post([](Session& session) { dynamic_cast<Lines&>(session).go_on(); });
  EXPECT_EQ(busy.read(8), "went on\n");
}

TEST_F(IoThreads, TellSessionsThatTimePasses) {
  start();
  Client client(address);
  EXPECT_TRUE(wait_until([this] { return shared->ticks > 0; }));
}

TEST_F(IoThreads, RefuseConnectionsBeyondTheCap) {
  options.places.most = 2;
  start();
  auto first = std::make_unique<Client>(address);
  Client second(address);
  ASSERT_TRUE(first->send("a\n"));
  ASSERT_TRUE(second.send("a\n"));
  EXPECT_EQ(first->read(3), "a!\n");
  EXPECT_EQ(second.read(3), "a!\n");
  Client third(address);
  EXPECT_EQ(third.read_all(), "");
  EXPECT_EQ(io->counts("lines").refused, 1U);
  first.reset();
  ASSERT_TRUE(wait_until([this] { return io->counts("lines").open == 1; }));
  Client fourth(address);
  ASSERT_TRUE(fourth.send("a\n"));
  EXPECT_EQ(fourth.read(3), "a!\n");
}

TEST_F(IoThreads, DrainLetsWhatWasAskedBeAnswered) {
  start();
  Client idle_one(address);
  Client waiting(address);
  ASSERT_TRUE(idle_one.send("a\n"));
  EXPECT_EQ(idle_one.read(3), "a!\n");
  ASSERT_TRUE(waiting.send("wait\n"));
  const std::shared_ptr<Link> link = first_link();
  std::thread stopper([this] { io->stop(30s); });
  EXPECT_EQ(idle_one.read_all(), "");  // closed at once
  EXPECT_FALSE(Client(address).connected());
  link->post([](Session& session) { dynamic_cast<Lines&>(session).go_on(); });
  EXPECT_EQ(waiting.read_all(), "went on\n");
  waiting.half_close();
  stopper.join();
  EXPECT_EQ(shared->open, 0);
}

TEST_F(IoThreads, StopClosesWhatDoesNotEndInTime) {
  start();
  Client waiting(address);
  ASSERT_TRUE(waiting.send("wait\n"));
  first_link();
  io->stop(0s);
  EXPECT_EQ(waiting.read_all(), "");
  EXPECT_EQ(shared->open, 0);
}

TEST_F(IoThreads, ShareAPortAndStartEachOnItsOwn) {
  options.threads = 3;
  std::atomic<int> started{0};
  options.on_thread_start = [&started](int) { ++started; };
  start();
  std::vector<std::unique_ptr<Client>> clients;
  // The kernel spreads connections by their addresses; so many do not all fall to one thread.
  for (int i = 0; i < 100; ++i) {
    clients.push_back(std::make_unique<Client>(address));
    ASSERT_TRUE(clients.back()->send("a\n"));
    ASSERT_EQ(clients.back()->read(3), "a!\n");
  }
  EXPECT_EQ(started, 3);
  EXPECT_EQ(io->counts("lines").open, 100U);
  const std::lock_guard lock(shared->mutex);
  EXPECT_GT(shared->threads.size(), 1U);
}

TEST_F(IoThreads, CarryManyConnectionsOfManyClientsConcurrently) {
  options.threads = 2;
  start();
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        Client client(address);
        for (int k = 0; k < 20; ++k) {
          const std::string text = std::to_string(t) + "-" + std::to_string(i) + "-" + std::to_string(k);
          if (!client.send(text + "\n") || client.read(text.size() + 2) != text + "!\n") ++wrong;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(io->counts("lines").accepted, 80U);
}

TEST_F(IoThreads, SayWhichAddressIsTaken) {
  for (const int threads : {1, 2}) {
    options.threads = threads;
    start();
    Listener second = lines("http");
    second.address = address;
    std::vector<Listener> listeners;
    listeners.push_back(second);
    const Result<std::unique_ptr<Io>> opened = Io::open(std::move(listeners), options);
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().message, "listen.http " + address + ": address already in use");
  }
}

TEST_F(IoThreads, ListenOnUnixAndInheritedSockets) {
  const std::string path = ::testing::TempDir() + "headgate_io_" + std::to_string(::getpid()) + ".sock";
  options.threads = 2;
  Listener listener = lines();
  listener.address = "unix:" + path;
  start(listener);
  {
    Client client(address);
    ASSERT_TRUE(client.send("a\n"));
    EXPECT_EQ(client.read(3), "a!\n");
    EXPECT_TRUE(shared->peers[0].loopback);
    // A second one is told; a stale file is replaced.
    std::vector<Listener> again{listener};
    const Result<std::unique_ptr<Io>> opened = Io::open(std::move(again), options);
    ASSERT_FALSE(opened);
    EXPECT_THAT(opened.error().message, HasSubstr("address already in use"));
  }
  io->stop(0s);
  EXPECT_FALSE(std::filesystem::exists(path));

  const int inherited = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(inherited, reinterpret_cast<sockaddr*>(&in), sizeof in), 0);
  ASSERT_EQ(::listen(inherited, 10), 0);
  listener.inherited = inherited;
  start(listener);
  Client client(address);
  ASSERT_TRUE(client.send("b\n"));
  EXPECT_EQ(client.read(3), "b!\n");
}

TEST_F(IoThreads, AnswerHttpAndRedis) {
  class Hello final : public HttpHandler {
    void handle(const HttpRequest& request, HttpReply& reply) noexcept override {
      HttpAnswer answer;
      answer.body = request.body;
      reply.send(answer);
    }
  };
  class Pong final : public RespCommands {
    void command(std::span<const std::string_view>, RespWriter& reply, RespContext&) noexcept override {
      reply.simple("PONG");
    }
  };
  Hello hello;
  std::vector<Listener> listeners(2);
  listeners[0] = lines("http");
  listeners[0].make = [&hello](const Peer& peer) { return make_http_session(hello, peer); };
  listeners[1] = lines("resp");
  listeners[1].make = [](const Peer&) { return make_resp_session(std::make_unique<Pong>()); };
  Result<std::unique_ptr<Io>> opened = Io::open(std::move(listeners), options);
  ASSERT_TRUE(opened);
  (*opened)->start();
  Client http((*opened)->address("http"));
  ASSERT_TRUE(http.send("POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"));
  EXPECT_THAT(http.read_all(), StartsWith("HTTP/1.1 200 OK\r\n"));
  Client resp((*opened)->address("resp"));
  ASSERT_TRUE(resp.send("*1\r\n$4\r\nPING\r\n"));
  EXPECT_EQ(resp.read(7), "+PONG\r\n");
  (*opened)->stop(0s);
}

// Certificates are made once, by the openssl command.
class IoThreadsTls : public IoThreads {
 protected:
  static void SetUpTestSuite() {
    folder = ::testing::TempDir() + "headgate_tls_" + std::to_string(::getpid()) + "/";
    std::filesystem::create_directories(folder);
    const std::string key = " -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 ";
    const std::string quiet = " >/dev/null 2>&1";
    const auto run = [](const std::string& command) { ASSERT_EQ(std::system(command.c_str()), 0) << command; };
    run("openssl req -x509" + key + "-subj /CN=server -keyout " + folder + "key.pem -out " + folder + "cert.pem" +
        quiet);
    run("openssl req -x509" + key + "-subj /CN=ca -keyout " + folder + "ca.key -out " + folder + "ca.pem" + quiet);
    run("openssl req -x509" + key + "-subj /CN=stranger -keyout " + folder + "other.key -out " + folder + "other.pem" +
        quiet);
    run("openssl req -new" + key + "-subj /CN=agent-7 -keyout " + folder + "client.key -out " + folder + "client.csr" +
        quiet);
    run("openssl x509 -req -in " + folder + "client.csr -CA " + folder + "ca.pem -CAkey " + folder +
        "ca.key -CAcreateserial -days 2 -out " + folder + "client.pem" + quiet);
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(folder); }

  void start_tls(const std::string& client_ca = "", const std::string& alpn = "") {
    options.tls.cert = folder + "cert.pem";
    options.tls.key = folder + "key.pem";
    options.tls.client_ca = client_ca;
    Listener listener = lines();
    listener.tls = true;
    listener.alpn = alpn;
    start(listener);
  }

  static std::string folder;
};
std::string IoThreadsTls::folder;

class TlsClient {
 public:
  explicit TlsClient(const std::string& address, const std::string& certificate = "", const std::string& alpn = "")
      : client_(address), context_(SSL_CTX_new(TLS_client_method())) {
    if (!certificate.empty()) {
      SSL_CTX_use_certificate_file(context_, (certificate + ".pem").c_str(), SSL_FILETYPE_PEM);
      SSL_CTX_use_PrivateKey_file(context_, (certificate + ".key").c_str(), SSL_FILETYPE_PEM);
    }
    ssl_ = SSL_new(context_);
    if (!alpn.empty()) {
      const std::string wire = static_cast<char>(alpn.size()) + alpn;
      SSL_set_alpn_protos(ssl_, reinterpret_cast<const unsigned char*>(wire.data()),
                          static_cast<unsigned>(wire.size()));
    }
    SSL_set_fd(ssl_, client_.fd());
    connected_ = SSL_connect(ssl_) == 1;
  }
  ~TlsClient() {
    SSL_free(ssl_);
    SSL_CTX_free(context_);
  }
  TlsClient(const TlsClient&) = delete;
  TlsClient& operator=(const TlsClient&) = delete;

  bool send(std::string_view text) { return SSL_write(ssl_, text.data(), static_cast<int>(text.size())) > 0; }
  std::string read(std::size_t size) {
    std::string text(size, '\0');
    std::size_t got = 0;
    while (got < size) {
      const int count = SSL_read(ssl_, text.data() + got, static_cast<int>(size - got));
      if (count <= 0) break;
      got += static_cast<std::size_t>(count);
    }
    text.resize(got);
    return text;
  }
  [[nodiscard]] bool connected() const noexcept { return connected_; }
  [[nodiscard]] std::string alpn() const {
    const unsigned char* chosen = nullptr;
    unsigned size = 0;
    SSL_get0_alpn_selected(ssl_, &chosen, &size);
    return {reinterpret_cast<const char*>(chosen), size};
  }
  Client& plain() { return client_; }

 private:
  Client client_;
  SSL_CTX* context_;
  SSL* ssl_ = nullptr;
  bool connected_ = false;
};

TEST_F(IoThreadsTls, CarryBytesBothWays) {
  start_tls();
  TlsClient client(address);
  ASSERT_TRUE(client.connected());
  ASSERT_TRUE(client.send("a\n"));
  EXPECT_EQ(client.read(3), "a!\n");
  EXPECT_TRUE(shared->peers[0].tls);
  EXPECT_EQ(shared->peers[0].certificate, "");
  ASSERT_TRUE(client.send("flood\n"));
  EXPECT_EQ(client.read(20 << 20).size(), 20U << 20);
}

TEST_F(IoThreadsTls, ReadAllOfWhatAWaitingSessionWasSent) {
  start_tls();
  TlsClient client(address);
  ASSERT_TRUE(client.send("wait\n" + std::string(10'000, 'b') + "\n"));
  ASSERT_TRUE(client.send(std::string(10'000, 'c') + "\n"));
  first_link()->post([](Session& session) { dynamic_cast<Lines&>(session).go_on(); });
  EXPECT_EQ(client.read(8 + 20'004).size(), 8U + 20'004);
}

TEST_F(IoThreadsTls, KnowVerifiedClientsByNameAndRefuseOthers) {
  start_tls(folder + "ca.pem");
  TlsClient client(address, folder + "client");
  ASSERT_TRUE(client.send("a\n"));
  EXPECT_EQ(client.read(3), "a!\n");
  EXPECT_EQ(shared->peers[0].certificate, "agent-7");
  // In TLS 1.3 a client hears of it at its first read.
  TlsClient nobody(address);
  EXPECT_EQ(nobody.read(1), "");
  TlsClient stranger(address, folder + "other");
  EXPECT_EQ(stranger.read(1), "");
  EXPECT_EQ(shared->peers.size(), 1U);
}

TEST_F(IoThreadsTls, AgreeOnTheProtocol) {
  start_tls("", "h2");
  EXPECT_EQ(TlsClient(address, "", "h2").alpn(), "h2");
  EXPECT_FALSE(TlsClient(address, "", "http/1.1").connected());
  EXPECT_TRUE(TlsClient(address).connected());
}

TEST_F(IoThreadsTls, CloseWhoDoesNotShakeHandsInTime) {
  options.request_within = 1ms;
  start_tls();
  Client client(address);
  EXPECT_EQ(client.read_all(), "");
  EXPECT_EQ(io->counts("lines").timed_out, 1U);
}

TEST_F(IoThreadsTls, CloseWhoSpeaksPlainly) {
  start_tls();
  Client client(address);
  ASSERT_TRUE(client.send("GET / HTTP/1.1\r\n\r\n"));
  client.read_all();
  EXPECT_TRUE(wait_until([this] { return io->counts("lines").open == 0; }));
  EXPECT_TRUE(shared->peers.empty());
}

TEST_F(IoThreadsTls, ReadTheCertificateAgainOrKeepTheOldOne) {
  start_tls();
  TlsClient before(address);
  ASSERT_TRUE(before.connected());
  EXPECT_TRUE(io->reload_tls());
  ASSERT_TRUE(before.send("a\n"));
  EXPECT_EQ(before.read(3), "a!\n");
  std::filesystem::rename(folder + "cert.pem", folder + "cert.away");
  const Result<void> reloaded = io->reload_tls();
  std::filesystem::rename(folder + "cert.away", folder + "cert.pem");
  ASSERT_FALSE(reloaded);
  EXPECT_THAT(reloaded.error().message, StartsWith("tls.cert " + folder + "cert.pem: "));
  EXPECT_TRUE(TlsClient(address).connected());
}

}  // namespace
}  // namespace headgate::net
