//===- CommandLine.cpp - Command lines and their errors -------------------===//

#include "CommandLine.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <charconv>

using namespace qwen;

/// An argument in quotes; a long one is cut. Control characters become escapes,
/// so that the error stays one line.
static std::string quoted(const std::string &argument) {
  constexpr size_t kMost = 60;
  const bool cut = argument.size() > kMost;
  return nlohmann::json(argument.substr(0, kMost) + (cut ? "..." : ""))
      .dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

//===----------------------------------------------------------------------===//
// Numbers
//===----------------------------------------------------------------------===//

template <typename T> static std::string numberText(T value) {
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
  throw CLI::ValidationError(
      option, quoted(text) + " is not a " +
                  (std::is_integral_v<T> ? "whole number" : "number") +
                  " from " + numberText(least) + " to " + numberText(most));
}

template int32_t qwen::parseNumber(const std::string &, const std::string &,
                                   int32_t, int32_t);
template int64_t qwen::parseNumber(const std::string &, const std::string &,
                                   int64_t, int64_t);
template uint64_t qwen::parseNumber(const std::string &, const std::string &,
                                    uint64_t, uint64_t);
template float qwen::parseNumber(const std::string &, const std::string &,
                                 float, float);
template double qwen::parseNumber(const std::string &, const std::string &,
                                  double, double);

//===----------------------------------------------------------------------===//
// Errors
//===----------------------------------------------------------------------===//

static std::string commandName(const CLI::App &app) {
  const CLI::App *parent = app.get_parent();
  return (parent ? commandName(*parent) + " " : "") + app.get_name();
}

UsageError::UsageError(const CLI::App &app, const std::string &message)
    : Error(message + " (see " + commandName(app) + " --help)") {}

std::string qwen::commandList(const CLI::App &app) {
  return CLI::detail::join(
      app.get_subcommands([](const CLI::App *command) {
        return !command->get_group().empty();
      }),
      [](const CLI::App *command) { return command->get_name(); }, ", ");
}

/// The name of an option, also of one that help does not show.
static std::string nameOf(const CLI::Option &option) {
  return option.get_group().empty() ? "--" + option.get_single_name()
                                    : option.get_name();
}

/// Describes an argument that `app` does not accept.
static std::string describeUnknown(const CLI::App &app,
                                   const std::string &argument) {
  if (argument.size() > 1 && argument.starts_with('-')) {
    std::string known;
    for (const CLI::Option *option : app.get_options())
      if (option->nonpositional())
        known += (known.empty() ? "" : ", ") + nameOf(*option);
    return "unknown option " + quoted(argument) + "; the options are " + known;
  }
  if (app.get_require_subcommand_min() > 0)
    return "unknown command " + quoted(argument) + "; the commands are " +
           commandList(app);
  return "unexpected argument " + quoted(argument);
}

/// Describes the required argument that is missing.
static std::string describeMissing(const CLI::App &app) {
  for (const CLI::Option *option : app.get_options())
    if (option->get_required() && option->count() == 0)
      return option->get_name() + " is missing";
  return "a command is missing; the commands are " + commandList(app);
}

/// Describes an option with too many values, or the last argument, which lacks
/// its value.
static std::string describeMismatch(const CLI::App &app,
                                    const std::string &lastArgument) {
  for (const CLI::Option *option : app.get_options())
    if (option->count() > 1 &&
        option->count() > static_cast<size_t>(option->get_items_expected_max()))
      return nameOf(*option) + " is given " + std::to_string(option->count()) +
             " times, once is possible";
  return quoted(lastArgument) + " needs a value";
}

static UsageError describe(const CLI::App &app, const CLI::ParseError &error,
                           const std::string &lastArgument) {
  const std::vector<CLI::App *> commands = app.get_subcommands();
  const CLI::App &used = commands.empty() ? app : *commands.front();
  const bool required = dynamic_cast<const CLI::RequiredError *>(&error);
  // A misspelled argument may be the reason that another one is missing.
  if (required || dynamic_cast<const CLI::ExtrasError *>(&error))
    for (const CLI::App *reader : {&app, &used})
      for (const std::string &argument : reader->remaining())
        if (argument != "--")
          return {*reader, describeUnknown(*reader, argument)};
  if (required)
    return {used, describeMissing(used)};
  if (dynamic_cast<const CLI::ArgumentMismatch *>(&error))
    return {used, describeMismatch(used, lastArgument)};
  return {used, error.what()};
}

//===----------------------------------------------------------------------===//
// Parsing
//===----------------------------------------------------------------------===//

/// What a flag may be given: by its variable, in a file of options, or behind
/// an equals sign.
static bool isFlagValue(const std::string &value) {
  constexpr auto kValues =
      std::to_array<std::string_view>({"true", "false", "1", "0", "yes", "no"});
  return std::ranges::count(kValues, CLI::detail::to_lower(value)) > 0;
}

/// Makes the flags of an app and its commands reject other values (--json=7),
/// unless they have a type.
static void checkFlags(CLI::App &app) {
  for (CLI::Option *option : app.get_options())
    if (option->get_items_expected_max() == 0 &&
        option->get_type_name().empty())
      option->check([](const std::string &value) {
        return isFlagValue(value) ? ""
                                  : "a flag takes no value, or 1, 0, yes or "
                                    "no, and is given " +
                                        quoted(value);
      });
  for (CLI::App *command : app.get_subcommands({}))
    checkFlags(*command);
}

void qwen::parseCommandLine(CLI::App &app, int argc, const char *const *argv) {
  checkFlags(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success &) {
    throw;
  } catch (const CLI::ParseError &error) {
    throw describe(app, error, argv[argc - 1]);
  }
}
