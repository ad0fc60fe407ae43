//===- CommandLine.cpp - Parsing of command lines and its errors ----------===//

#include "CommandLine.h"

#include "qwen/Support/Text.h"

#include <CLI/CLI.hpp>

#include <array>
#include <charconv>

using namespace qwen;

//===----------------------------------------------------------------------===//
// Numbers
//===----------------------------------------------------------------------===//

template <typename T> std::string qwen::numberText(T value) {
  std::array<char, 40> text;
  const auto [end, error] =
      std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), end};
}

template <typename T>
T qwen::parseNumber(const std::string &option, const std::string &text, T least,
                    T most) {
  T value = 0;
  const char *end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data(), end, value);
  // NaN is in no range.
  if (error == std::errc() && last == end && value >= least && value <= most)
    return value;
  throw InvalidValue(
      option, quote(text) + " is not a " +
                  (std::is_integral_v<T> ? "whole number" : "number") +
                  " from " + numberText(least) + " to " + numberText(most));
}

#define QWEN_NUMBER(T)                                                         \
  template std::string qwen::numberText(T);                                    \
  template T qwen::parseNumber(const std::string &, const std::string &, T, T);
#include "NumberTypes.def"

/// The bytes that "4GiB" says, or nothing if `text` is no size.
static std::optional<uint64_t> bytesOf(std::string text) {
  uint64_t bytes = 0;
  // CLI11 would wrap a number below 0.
  if (text.empty() || text[0] < '0' || text[0] > '9')
    return std::nullopt;
  try {
    if (CLI::AsSizeValue(false)(text).empty() &&
        CLI::detail::lexical_cast(text, bytes))
      return bytes;
  } catch (const CLI::ValidationError &) {
    // Another unit, or a number that is not whole.
    return std::nullopt;
  }
  return std::nullopt;
}

uint64_t qwen::parseSize(const std::string &option, const std::string &text,
                         uint64_t least, uint64_t most) {
  const std::optional<uint64_t> bytes = bytesOf(text);
  if (bytes && *bytes >= least && *bytes <= most)
    return *bytes;
  throw InvalidValue(option, quote(text) + " is not a number of bytes from " +
                                 numberText(least) + " to " + numberText(most) +
                                 ", such as 500MiB or 4GiB");
}

//===----------------------------------------------------------------------===//
// Errors
//===----------------------------------------------------------------------===//

UsageError::UsageError(const Command &command, const std::string &message)
    : Error(message + " (see " + command.fullName() + " --help)") {}

/// Describes an argument that `command` does not accept.
static std::string describeUnknown(const Command &command,
                                   const std::string &argument) {
  if (argument.size() > 1 && argument.starts_with('-')) {
    std::string known;
    for (const Option &option : command.options())
      if (!option.info().isArgument)
        known += (known.empty() ? "" : ", ") + option.name();
    return "unknown option " + quote(argument) + "; the options are " + known;
  }
  if (command.needsCommand())
    return "unknown command " + quote(argument) + "; the commands are " +
           commandList(command);
  return "unexpected argument " + quote(argument);
}

/// Describes the required argument that is missing.
static std::string describeMissing(const Command &command) {
  for (const Option &option : command.options())
    if (option.info().isRequired && !option.isGiven())
      return option.name() + " is missing";
  return "a command is missing; the commands are " + commandList(command);
}

/// Describes an option with too many values, or the last argument, which lacks
/// its value.
static std::string describeMismatch(const CLI::App &app,
                                    const std::string &lastArgument) {
  for (const CLI::Option *option : app.get_options())
    if (option->count() > 1 &&
        option->count() > static_cast<size_t>(option->get_items_expected_max()))
      return Option(const_cast<CLI::Option *>(option)).name() + " is given " +
             std::to_string(option->count()) + " times, once is possible";
  return quote(lastArgument) + " needs a value";
}

static UsageError describe(CLI::App &app, const CLI::ParseError &error,
                           const std::string &lastArgument) {
  const std::vector<CLI::App *> commands = app.get_subcommands();
  CLI::App &used = commands.empty() ? app : *commands.front();
  const bool required = dynamic_cast<const CLI::RequiredError *>(&error);
  // A misspelled argument may be the reason that another one is missing.
  if (required || dynamic_cast<const CLI::ExtrasError *>(&error))
    for (CLI::App *reader : {&app, &used})
      for (const std::string &argument : reader->remaining())
        if (argument != "--")
          return {Command(reader), describeUnknown(Command(reader), argument)};
  if (required)
    return {Command(&used), describeMissing(Command(&used))};
  if (dynamic_cast<const CLI::ArgumentMismatch *>(&error))
    return {Command(&used), describeMismatch(used, lastArgument)};
  return {Command(&used), error.what()};
}

//===----------------------------------------------------------------------===//
// Programs
//===----------------------------------------------------------------------===//

Program::Program(const std::string &name, const std::string &help)
    : Command(nullptr), app(std::make_unique<CLI::App>(help, name)) {
  handle = app.get();
}

Program::~Program() = default;

void Program::addVersion(const std::string &text) const {
  app->set_version_flag("--version", text);
}

void Program::onParsed(const std::function<void()> &check) const {
  app->parse_complete_callback(check);
}

bool Program::parse(int argc, const char *const *argv) const {
  try {
    app->parse(argc, argv);
  } catch (const CommandDone &) {
    return false;
  } catch (const CLI::Success &request) {
    // Prints what the arguments ask for.
    app->exit(request);
    return false;
  } catch (const InvalidValue &error) {
    throw UsageError(chosen().value_or(*this), error.what());
  } catch (const CLI::ParseError &error) {
    throw describe(*app, error, argv[argc - 1]);
  }
  return true;
}
