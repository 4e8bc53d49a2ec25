// Any configuration, from its file, variables and flags: refused with a bounded number of problems, or read as
// something that prints as a document which reads as the same.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "fuzz/steps.h"
#include "server/config.h"

namespace {

using namespace headgate;
using test::check_that;

constexpr std::size_t kMostBytes = 16 << 10;
constexpr std::ptrdiff_t kMostLines = 400;  // a hundred problems, of a few lines each

// A file in memory.
class File {
 public:
  explicit File(const char* name) : descriptor_(::memfd_create(name, MFD_CLOEXEC)) {}
  [[nodiscard]] std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }
  void write(std::string_view text) const {
    check_that(::ftruncate(descriptor_, 0) == 0, "the file can be emptied");
    check_that(::pwrite(descriptor_, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()),
               "the file can be written");
  }

 private:
  int descriptor_;
};

// "name=value" on each line.
std::map<std::string, std::string> pairs_in(std::string_view text, const std::string& prefix) {
  std::map<std::string, std::string> pairs;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    pairs[prefix + std::string(line.substr(0, equals))] = line.substr(equals + 1);
  }
  return pairs;
}

}  // namespace

// The file, a line of ----, variables without HEADGATE_, a line of ----, flags.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > kMostBytes) return 0;
  static const File kFile("config");
  constexpr std::string_view kLine = "----\n";
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  const auto part = [&] {
    const std::size_t end = std::min(rest.find(kLine), rest.size());
    const std::string_view taken = rest.substr(0, end);
    rest.remove_prefix(std::min(end + kLine.size(), rest.size()));
    return taken;
  };
  const std::string_view document = part();
  server::ConfigSources sources;
  sources.environment = pairs_in(part(), "HEADGATE_");
  sources.flags = pairs_in(part(), "");
  kFile.write(document);
  sources.file = kFile.path();
  const Result<server::Config> config = server::read_config(sources);
  if (!config) {
    const std::string& message = config.error().message;
    check_that(!message.empty() && std::count(message.begin(), message.end(), '\n') < kMostLines,
               "problems are told, and not without end");
    return 0;
  }
  const std::string printed = server::print_config(*config);
  // What is secret is left out, so the rest may not stand alone; and $ may stand for a variable.
  const bool whole =
      printed.find("is set, and not shown") == std::string::npos && printed.find('$') == std::string::npos;
  if (!whole) return 0;
  static const File kPrinted("printed");
  kPrinted.write(printed);
  server::ConfigSources again;
  again.file = kPrinted.path();
  const Result<server::Config> same = server::read_config(again);
  check_that(same.has_value(), "what is printed can be read");
  check_that(server::print_config(*same) == printed, "what is printed reads as the same");
  return 0;
}
