#include "cli/arguments.h"

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>

namespace headgate::cli {

Argument Argument::value_name(const char* name) {
  option_->type_name(name);
  return *this;
}

Argument Argument::check(const ValueCheck& check) {
  option_->check(CLI::Validator([check](const std::string& value) { return check(value); }, ""));
  return *this;
}

Argument Argument::one_value_each() {
  option_->allow_extra_args(false);
  return *this;
}

Argument Argument::at_most(int values) {
  option_->expected(0, values);
  return *this;
}

Argument Argument::hidden() {
  option_->group("");
  return *this;
}

Arguments Arguments::command(const char* name) {
  CLI::App* below = app_->add_subcommand(name);
  // Unexpected words are reported by the program, with a suggestion.
  below->allow_extras();
  app_->require_subcommand(0, 1);
  return Arguments(*below);
}

template <typename T>
Argument Arguments::option(const std::string& name, T& into) {
  return Argument(*app_->add_option(name, into));
}
template Argument Arguments::option(const std::string& name, std::string& into);
template Argument Arguments::option(const std::string& name, std::vector<std::string>& into);
template Argument Arguments::option(const std::string& name, int& into);
template Argument Arguments::option(const std::string& name, std::int64_t& into);
template Argument Arguments::option(const std::string& name, double& into);
template Argument Arguments::option(const std::string& name, std::optional<int>& into);
template Argument Arguments::option(const std::string& name, std::optional<double>& into);

Argument Arguments::option(const std::string& name, const std::function<void(const std::string&)>& told) {
  return Argument(*app_->add_option_function<std::string>(name, told));
}

Argument Arguments::flag(const std::string& name, bool& into) { return Argument(*app_->add_flag(name, into)); }

Argument Arguments::flag(const std::string& name, std::string& into, const std::string& otherwise) {
  return Argument(*app_->add_flag(name + "{" + otherwise + "}", into));
}

bool Arguments::given() const { return app_->parsed(); }

std::vector<std::string> Arguments::unexpected() const { return app_->remaining(); }

std::vector<Arguments::Declared> Arguments::declared() const {
  std::vector<Declared> all;
  for (const CLI::Option* option : app_->get_options()) {
    if (option->get_group().empty()) continue;  // hidden
    for (const std::string& name : option->get_lnames()) {
      all.push_back({"--" + name, option->get_expected_max() > 0});
    }
  }
  return all;
}

ArgumentParser::ArgumentParser() : app_(std::make_unique<CLI::App>()) { app_->allow_extras(); }

ArgumentParser::~ArgumentParser() = default;

Arguments ArgumentParser::program() { return Arguments(*app_); }

ArgumentParser::Parsed ArgumentParser::parse(int argc, char** argv, std::string& message) {
  try {
    app_->parse(argc, argv);
    return Parsed::kDone;
  } catch (const CLI::CallForHelp&) {
    return Parsed::kHelpWanted;
  } catch (const CLI::ParseError& error) {
    message = error.what();
    return Parsed::kFailed;
  }
}

}  // namespace headgate::cli
