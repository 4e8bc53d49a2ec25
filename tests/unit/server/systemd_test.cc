// The service manager's protocol, over real sockets.
#include "server/systemd.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "support/cells.h"

namespace headgate::server {
namespace {

using testing::HasSubstr;

// A datagram socket that a service manager would read from.
class Manager {
 public:
  // `path` may begin with @.
  explicit Manager(const std::string& path) : socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    if (path[0] == '@') address.sun_path[0] = '\0';
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
    EXPECT_EQ(::bind(socket_, reinterpret_cast<sockaddr*>(&address), size), 0);
    ::setenv("NOTIFY_SOCKET", path.c_str(), 1);
  }
  Manager(const Manager&) = delete;
  Manager& operator=(const Manager&) = delete;
  ~Manager() {
    ::unsetenv("NOTIFY_SOCKET");
    ::close(socket_);
  }
  std::string read() const {
    char buffer[1000];
    const ssize_t got = ::recv(socket_, buffer, sizeof(buffer), MSG_DONTWAIT);
    return got < 0 ? "nothing" : std::string(buffer, static_cast<std::size_t>(got));
  }

 private:
  int socket_;
};

TEST(Systemd, NotifiesByASocketInAFolder) {
  const test::TempFolder folder;
  const Manager manager(folder.file("notify"));
  EXPECT_TRUE(notify("READY=1\nSTATUS=fine"));
  EXPECT_EQ(manager.read(), "READY=1\nSTATUS=fine");
  EXPECT_TRUE(notify("STOPPING=1"));
  EXPECT_EQ(manager.read(), "STOPPING=1");
}

TEST(Systemd, NotifiesByAnAbstractSocket) {
  const Manager manager("@headgate-test-" + std::to_string(::getpid()));
  EXPECT_TRUE(notify("READY=1"));
  EXPECT_EQ(manager.read(), "READY=1");
}

TEST(Systemd, NotifiesNobodyIfNobodyAsks) {
  ::unsetenv("NOTIFY_SOCKET");
  EXPECT_FALSE(notify("READY=1"));
  for (const std::string& path :
       {std::string("/nowhere/at/all"), std::string("relative"), std::string(""), "/" + std::string(200, 'x')}) {
    ::setenv("NOTIFY_SOCKET", path.c_str(), 1);
    EXPECT_FALSE(notify("READY=1")) << path;
  }
  ::unsetenv("NOTIFY_SOCKET");
}

// Sockets at descriptors of our choice, and the variables that speak of them.
class InheritedTest : public testing::Test {
 protected:
  static constexpr int kFirst = 500;
  ~InheritedTest() override {
    for (int i = 0; i < given_; ++i) ::close(kFirst + i);
    for (const char* name : {"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"}) ::unsetenv(name);
  }
  void give(int socket) {
    ASSERT_EQ(::dup2(socket, kFirst + given_), kFirst + given_);  // without close-on-exec
    ::close(socket);
    ++given_;
  }
  static int listening() {
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(::listen(socket, 1), 0);
    return socket;
  }
  void announce(const char* names, int pid = ::getpid()) const {
    ::setenv("LISTEN_PID", std::to_string(pid).c_str(), 1);
    ::setenv("LISTEN_FDS", std::to_string(given_).c_str(), 1);
    ::setenv("LISTEN_FDNAMES", names, 1);
  }
  static std::string wrong() {
    auto sockets = inherited_sockets(kFirst);
    return sockets ? "taken" : sockets.error().message;
  }
  int given_ = 0;
};

TEST_F(InheritedTest, TakesSocketsByNameAndClosesThemOnExec) {
  give(listening());
  give(listening());
  announce("grpc:http");
  auto sockets = inherited_sockets(kFirst);
  ASSERT_TRUE(sockets.has_value()) << sockets.error().message;
  ASSERT_EQ(sockets->size(), 2U);
  EXPECT_EQ((*sockets)[0].name, "grpc");
  EXPECT_EQ((*sockets)[0].descriptor, kFirst);
  EXPECT_TRUE((*sockets)[0].address.starts_with("127.0.0.1:")) << (*sockets)[0].address;
  EXPECT_EQ((*sockets)[1].name, "http");
  for (const InheritedSocket& socket : *sockets) EXPECT_EQ(::fcntl(socket.descriptor, F_GETFD), FD_CLOEXEC);
  EXPECT_EQ(std::getenv("LISTEN_FDS"), nullptr);
  EXPECT_EQ(std::getenv("LISTEN_PID"), nullptr);
  EXPECT_EQ(std::getenv("LISTEN_FDNAMES"), nullptr);
  EXPECT_TRUE(inherited_sockets(kFirst)->empty()) << "once";
}

TEST_F(InheritedTest, TakesUnixSocketsToo) {
  const test::TempFolder folder;
  const std::string path = folder.file("s");
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  ASSERT_EQ(::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(::listen(socket, 1), 0);
  give(socket);
  announce("resp");
  auto sockets = inherited_sockets(kFirst);
  ASSERT_TRUE(sockets.has_value()) << sockets.error().message;
  EXPECT_EQ(sockets->at(0).address, "unix:" + path);
}

TEST_F(InheritedTest, LeavesAloneWhatIsMeantForAnotherProcess) {
  give(listening());
  announce("http", ::getpid() + 1);
  EXPECT_TRUE(inherited_sockets(kFirst)->empty());
  EXPECT_EQ(std::getenv("LISTEN_FDS"), nullptr);
}

TEST_F(InheritedTest, RefusesWhatItCannotServe) {
  give(listening());
  announce("dns");
  EXPECT_EQ(wrong(),
            "a socket of the service manager must be named http, resp or grpc (FileDescriptorName= of its unit), got "
            "\"dns\"");
  announce("");
  EXPECT_THAT(wrong(), HasSubstr("got \"\""));
  give(listening());
  announce("http:http");
  EXPECT_EQ(wrong(), "the service manager gives two sockets named http; one is enough");
  announce("http");
  EXPECT_THAT(wrong(), HasSubstr("got \"\"")) << "the second has no name";
  ::setenv("LISTEN_PID", std::to_string(::getpid()).c_str(), 1);
  ::setenv("LISTEN_FDS", "many", 1);
  EXPECT_EQ(wrong(), "LISTEN_FDS must be a number from 0 to 16, got \"many\"");
}

TEST_F(InheritedTest, RefusesSocketsThatDoNotListen) {
  give(::socket(AF_INET, SOCK_STREAM, 0));
  announce("http");
  EXPECT_EQ(wrong(),
            "the socket named http that the service manager gives must be a listening stream socket (ListenStream=, "
            "Accept=no)");
  ::close(kFirst);
  announce("http");
  EXPECT_THAT(wrong(), HasSubstr("must be a listening stream socket"));
}

TEST(Systemd, TheUnitsFitTheServer) {
  const std::string folder = HEADGATE_SOURCE_DIR "/packaging/";
  const std::string service = test::read_bytes(folder + "headgate.service");
  EXPECT_THAT(service, HasSubstr("\nType=notify\n"));
  EXPECT_THAT(service, HasSubstr("\nExecStart=/usr/bin/headgate serve --config /etc/headgate/headgate.yaml\n"));
  EXPECT_THAT(service, HasSubstr("\nExecReload=/bin/kill -HUP $MAINPID\n"));
  EXPECT_THAT(service, HasSubstr("\nEnvironment=HEADGATE_DATA=/var/lib/headgate\n"));
  EXPECT_THAT(test::read_bytes(folder + "headgate.socket"), HasSubstr("\nFileDescriptorName=http\n"));
}

}  // namespace
}  // namespace headgate::server
