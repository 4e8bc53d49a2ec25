// What a command takes from the command line: options, flags and words. CLI11 does the parsing, behind this header: it
// is a library of headers alone, and every file that includes it compiles it again, which takes 20 s.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11's own
class App;
class Option;
}  // namespace CLI

namespace headgate::cli {

// Looks at a value before it is taken: empty if it is good, otherwise what must hold and what came.
using ValueCheck = std::function<std::string(const std::string& value)>;

// One option of a command, while it is declared.
class Argument {
 public:
  explicit Argument(CLI::Option& option) noexcept : option_(&option) {}
  Argument value_name(const char* name);  // in messages about a missing value
  Argument check(const ValueCheck& check);
  Argument one_value_each();  // --set A --set B, but not --set A B
  Argument at_most(int values);
  Argument hidden();  // from help, completions and suggestions

 private:
  CLI::Option* option_;
};

// The arguments of one command. A handle: copies mean the same command, which belongs to the ArgumentParser.
class Arguments {
 public:
  explicit Arguments(CLI::App& app) noexcept : app_(&app) {}

  // A command below this one; at most one of them is given.
  Arguments command(const char* name);

  // "--name", or "name" for a word that stands without one. `into` must outlive parsing. T is one of the types that
  // arguments.cc instantiates it for: texts, numbers, lists of texts and optional numbers.
  template <typename T>
  Argument option(const std::string& name, T& into);
  Argument option(const std::string& name, const std::function<void(const std::string&)>& told);
  Argument flag(const std::string& name, bool& into);
  // --name, which means `otherwise`, or --name=VALUE.
  Argument flag(const std::string& name, std::string& into, const std::string& otherwise);

  // After parsing.
  [[nodiscard]] bool given() const;
  [[nodiscard]] std::vector<std::string> unexpected() const;  // words that it does not take, in order

  struct Declared {
    std::string name;  // "--name"
    bool takes_value = false;
  };
  [[nodiscard]] std::vector<Declared> declared() const;  // options and flags that are not hidden

 private:
  CLI::App* app_;
};

class ArgumentParser {
 public:
  ArgumentParser();
  ~ArgumentParser();
  ArgumentParser(const ArgumentParser&) = delete;
  ArgumentParser& operator=(const ArgumentParser&) = delete;

  [[nodiscard]] Arguments program();

  enum class Parsed : std::uint8_t { kDone, kHelpWanted, kFailed };
  // `message` is what is wrong, where it failed.
  Parsed parse(int argc, char** argv, std::string& message);

 private:
  std::unique_ptr<CLI::App> app_;
};

}  // namespace headgate::cli
