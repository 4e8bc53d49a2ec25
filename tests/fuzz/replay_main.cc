// Runs a fuzz target over saved inputs, where there is no fuzzer: headgate_fuzz_replay TARGET PATH..., where a path is
// a file or a folder of files.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace {

struct FuzzTarget {
  std::string_view name;
  int (*run)(const std::uint8_t* data, std::size_t size);
};

}  // namespace

#include "fuzz_targets.inc"

int main(int argc, char** argv) {
  const std::string_view wanted = argc > 1 ? argv[1] : "";
  const auto* const target = std::find_if(std::begin(kFuzzTargets), std::end(kFuzzTargets),
                                          [&](const FuzzTarget& one) { return one.name == wanted; });
  if (target == std::end(kFuzzTargets)) {
    std::fprintf(stderr, "usage: headgate_fuzz_replay TARGET PATH...; the targets are:");
    for (const FuzzTarget& one : kFuzzTargets) std::fprintf(stderr, " %s", one.name.data());
    std::fprintf(stderr, "\n");
    return 2;
  }
  std::vector<std::filesystem::path> inputs;
  for (int i = 2; i < argc; ++i) {
    if (std::filesystem::is_directory(argv[i])) {
      for (const auto& entry : std::filesystem::directory_iterator(argv[i])) inputs.push_back(entry.path());
    } else {
      inputs.emplace_back(argv[i]);
    }
  }
  std::sort(inputs.begin(), inputs.end());
  for (const auto& path : inputs) {
    std::ifstream file(path, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    if (!file) {
      std::fprintf(stderr, "%s cannot be read\n", path.c_str());
      return 1;
    }
    // The name goes first, so that a crash tells which input it was.
    std::printf("%s\n", path.c_str());
    std::fflush(stdout);
    target->run(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  }
  std::printf("%zu inputs replayed\n", inputs.size());
  return inputs.empty() ? 1 : 0;
}
