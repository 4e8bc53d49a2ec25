// A real PostgreSQL in a directory of its own, reached through a socket there, which ends with the test.
#pragma once

#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <pqxx/pqxx>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/redis_server.h"

namespace headgate::test {

class PostgresServer {
 public:
  // One for all tests of a process, since it takes seconds to make; each asks for a database of its own.
  static PostgresServer& shared() {
    static PostgresServer server;
    return server;
  }

  PostgresServer() : directory_(make_directory()) {
    run({binary("initdb"), "--pgdata", data(), "--auth", "trust", "--username", "tester", "--no-sync", "--encoding",
         "UTF8", "--locale", "C"});
    std::ofstream(data() + "/postgresql.conf", std::ios::app)
        << "listen_addresses = ''\nunix_socket_directories = '" << directory_.string()
        << "'\nfsync = off\nshared_buffers = 32MB\nmax_connections = 60\nautovacuum = off\n";
    start();
  }
  ~PostgresServer() {
    end(SIGQUIT);
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }
  PostgresServer(const PostgresServer&) = delete;
  PostgresServer& operator=(const PostgresServer&) = delete;

  [[nodiscard]] std::string url(const std::string& database) const {
    return "postgresql://tester@/" + database + "?host=" + directory_.string();
  }
  // An empty one; its URL.
  std::string new_database() {
    const std::string name = "db" + std::to_string(++databases_);
    pqxx::connection connection(url("postgres"));
    pqxx::nontransaction work(connection);
    work.exec("CREATE DATABASE " + name);
    return url(name);
  }

  // From the test's own thread: it ends with the thread that started it.
  void start() {
    pid_ = spawn({binary("postgres"), "-D", data()});
    if (!eventually([this] { return answers(); }, std::chrono::seconds{30})) {
      throw std::runtime_error("postgres does not start; see " + directory_.string());
    }
  }
  // At once, without closing connections, as after a crash.
  void crash() { end(SIGQUIT); }
  // All of it stands still; connections stay open.
  void freeze() const { signal_all(SIGSTOP); }
  void thaw() const { signal_all(SIGCONT); }

 private:
  static std::filesystem::path make_directory() {
    // In memory where that is possible, for it writes a great many files.
    const bool in_memory = ::access("/dev/shm", W_OK) == 0;
    const std::filesystem::path where = in_memory ? "/dev/shm" : std::filesystem::temp_directory_path();
    std::string path = (where / "headgate-pg-XXXXXX").string();
    if (::mkdtemp(path.data()) == nullptr) throw std::runtime_error("no temporary directory");
    if (const passwd* owner = servant()) {
      if (::chown(path.c_str(), owner->pw_uid, owner->pw_gid) != 0) throw std::runtime_error("chown failed");
    }
    return path;
  }
  // Whom to be for PostgreSQL, which refuses to run as root. None: stay who we are.
  static const passwd* servant() { return ::getuid() == 0 ? ::getpwnam("postgres") : nullptr; }

  static std::string binary(const std::string& name) {
    std::vector<std::string> found;
    for (const auto& version : std::filesystem::directory_iterator("/usr/lib/postgresql")) {
      const auto path = version.path() / "bin" / name;
      if (std::filesystem::exists(path)) found.push_back(path.string());
    }
    if (found.empty()) throw std::runtime_error("there is no " + name + " under /usr/lib/postgresql");
    return *std::max_element(found.begin(), found.end());
  }
  [[nodiscard]] std::string data() const { return (directory_ / "data").string(); }

  [[nodiscard]] bool answers() const {
    try {
      return pqxx::connection(url("postgres")).is_open();
    } catch (const std::exception&) {
      return false;
    }
  }

  [[nodiscard]] pid_t spawn(const std::vector<std::string>& line) const {
    std::vector<char*> argv;
    for (const std::string& word : line) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    const passwd* const owner = servant();
    const std::string log = (directory_ / "log").string();
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    if (owner != nullptr && (::setgid(owner->pw_gid) != 0 || ::setuid(owner->pw_uid) != 0)) ::_exit(126);
    ::prctl(PR_SET_PDEATHSIG, SIGQUIT);  // after setuid, which clears it
    const int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (out < 0 || ::dup2(out, STDOUT_FILENO) < 0 || ::dup2(out, STDERR_FILENO) < 0) ::_exit(125);
    if (::chdir("/") != 0) ::_exit(124);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  void run(const std::vector<std::string>& line) const {
    int status = 0;
    if (::waitpid(spawn(line), &status, 0) < 0 || status != 0) {
      throw std::runtime_error(line[0] + " failed; see " + directory_.string());
    }
  }
  // Its children too, each of which leads a group of its own.
  void signal_all(int signal) const {
    const std::string self = std::to_string(pid_);
    ::kill(pid_, signal);
    std::ifstream children("/proc/" + self + "/task/" + self + "/children");
    for (pid_t child = 0; children >> child;) ::kill(child, signal);
  }
  void end(int signal) {
    if (pid_ <= 0) return;
    thaw();
    ::kill(pid_, signal);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

  const std::filesystem::path directory_;
  int databases_ = 0;
  pid_t pid_ = -1;
};

}  // namespace headgate::test
