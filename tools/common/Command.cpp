//===- Command.cpp - Commands and their options ---------------------------===//

#include "CommandLine.h"

#include "qwen/Support/Text.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>
#include <utility>

using namespace qwen;

//===----------------------------------------------------------------------===//
// What an option takes
//===----------------------------------------------------------------------===//

/// Names of validators that only hold the names of suggest(). A validator is
/// the one part of an option of CLI11 that can hold them and that the help does
/// not show.
static constexpr std::string_view kSuggested = "suggested:";

Option Option::required(bool isRequired) const {
  handle->required(isRequired);
  return *this;
}

Option Option::type(const std::string &name) const {
  handle->type_name(name);
  return *this;
}

Option Option::choices(const std::vector<std::string> &values) const {
  handle->check(CLI::IsMember(values));
  return *this;
}

Option Option::suggest(const std::vector<std::string> &values) const {
  CLI::Validator holder([](std::string &) { return std::string(); }, "");
  holder.name(std::string(kSuggested) + CLI::detail::join(values, ","));
  handle->check(holder);
  return *this;
}

Option Option::defaultText(const std::string &text) const {
  handle->default_str(text);
  return *this;
}

Option Option::help(const std::string &text) const {
  handle->description(text);
  return *this;
}

Option Option::group(const std::string &heading) const {
  handle->group(heading);
  return *this;
}

Option Option::needs(Option other) const {
  handle->needs(other.handle);
  return *this;
}

Option Option::excludes(Option other) const {
  handle->excludes(other.handle);
  return *this;
}

Option Option::repeatable() const {
  handle->allow_extra_args(false);
  return *this;
}

Option Option::list(char delimiter) const {
  handle->delimiter(delimiter)->allow_extra_args(false);
  return *this;
}

Option Option::variable(const std::string &name) const {
  handle->envname(name);
  return *this;
}

bool Option::isGiven() const { return handle->count() > 0; }

void Option::give(const std::string &value) const { handle->add_result(value); }

//===----------------------------------------------------------------------===//
// What an option is
//===----------------------------------------------------------------------===//

static std::vector<std::string> splitNames(std::string_view text) {
  std::vector<std::string> names;
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    names.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return names;
}

/// The names of suggest().
static std::vector<std::string> suggestedNames(CLI::Option &option) {
  try {
    // The list ends with an exception.
    for (int i = 0;; ++i) {
      const std::string name = option.get_validator(i)->get_name();
      if (name.starts_with(kSuggested))
        return splitNames(std::string_view(name).substr(kSuggested.size()));
    }
  } catch (const CLI::OptionNotFound &) {
    return {};
  }
}

/// The names of choices().
static std::vector<std::string> closedChoices(const std::string &type) {
  // "TEXT:{a,b}", of IsMember.
  const size_t begin = type.find(":{"), end = type.find('}');
  if (begin == type.npos || end == type.npos)
    return {};
  return splitNames(std::string_view(type).substr(begin + 2, end - begin - 2));
}

static std::vector<std::string> namesOf(const CLI::Option &option) {
  std::vector<std::string> names;
  for (const std::string &name : option.get_snames())
    names.push_back("-" + name);
  for (const std::string &name : option.get_lnames())
    names.push_back("--" + name);
  if (names.empty())
    names.push_back(option.get_name(true));
  return names;
}

OptionInfo Option::info() const {
  const std::string type = handle->get_type_name();
  const bool takesValue = handle->get_items_expected_max() > 0;
  std::vector<std::string> choices = closedChoices(type);
  const bool takesOthers = choices.empty();
  if (takesOthers)
    choices = suggestedNames(*handle);
  return {.names = namesOf(*handle),
          .help = handle->get_description(),
          .type = takesValue ? type.substr(0, type.find(":{")) : "",
          .choices = std::move(choices),
          .takesOthers = takesOthers,
          .defaultText = handle->get_default_str(),
          .variable = handle->get_envname(),
          .group = handle->get_group(),
          .isArgument = handle->get_positional(),
          .isRequired = handle->get_required(),
          .takesValue = takesValue,
          .takesMany = handle->get_items_expected_max() > 1};
}

std::string Option::name() const {
  return handle->nonpositional() ? (handle->get_lnames().empty() ? "-" : "--") +
                                       handle->get_single_name()
                                 : handle->get_name(true);
}

//===----------------------------------------------------------------------===//
// Adding options
//===----------------------------------------------------------------------===//

/// What a flag may be given: by its variable, in a file of options, or behind
/// an equals sign.
static bool isFlagValue(const std::string &value) {
  constexpr auto kValues =
      std::to_array<std::string_view>({"true", "false", "1", "0", "yes", "no"});
  return std::ranges::count(kValues, CLI::detail::to_lower(value)) > 0;
}

/// Makes a flag reject other values (--json=7).
static Option withoutValue(CLI::Option *flag) {
  flag->check([](const std::string &value) {
    return isFlagValue(value)
               ? ""
               : "a flag takes no value, or 1, 0, yes or no, and is given " +
                     quote(value);
  });
  return Option(flag);
}

Option Command::addFlag(const std::string &names, bool &to,
                        const std::string &help) const {
  return withoutValue(handle->add_flag(names, to, help));
}

Option Command::addFlag(const std::string &names,
                        const std::function<void(bool)> &set,
                        const std::string &help) const {
  return withoutValue(handle->add_flag_function(
      names, [set](int64_t count) { set(count > 0); }, help));
}

Option Command::addFlagWithValue(const std::string &names, const TextFn &set,
                                 const std::string &help) const {
  CLI::Option *option = handle->add_option(
      names,
      [set](const CLI::results_t &values) {
        set(values.front());
        return true;
      },
      help);
  option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)->expected(0);
  return Option(option);
}

Option Command::addText(const std::string &names, std::string &to,
                        const std::string &help) const {
  return Option(handle->add_option(names, to, help)->default_str(to));
}

Option Command::addText(const std::string &names,
                        std::optional<std::string> &to,
                        const std::string &help) const {
  return Option(handle->add_option(names, to, help));
}

Option Command::addText(const std::string &names, const TextFn &set,
                        const std::string &help) const {
  const auto take = [set](const CLI::results_t &values) {
    set(values.front());
    return true;
  };
  return Option(handle->add_option(names, take, help)->type_name("TEXT"));
}

Option Command::addTexts(const std::string &names, std::vector<std::string> &to,
                         const std::string &help) const {
  return Option(handle->add_option(names, to, help));
}

Option Command::addTexts(const std::string &names, const TextsFn &set,
                         const std::string &help) const {
  const auto take = [set](const CLI::results_t &values) {
    set(values);
    return true;
  };
  return Option(handle->add_option(names, take, help)
                    ->type_name("TEXT")
                    ->expected(CLI::detail::expected_max_vector_size));
}

template <typename Target, typename T>
Option Command::addNumber(const std::string &names, Target &to,
                          const std::string &help,
                          std::type_identity_t<T> least,
                          std::type_identity_t<T> most) const {
  const std::string option = names.substr(names.rfind(',') + 1);
  CLI::Option *added = handle->add_option(
      names,
      [&to, option, least, most](const CLI::results_t &texts) {
        to = parseNumber<T>(option, texts.front(), least, most);
        return true;
      },
      help);
  added->type_name(std::is_integral_v<T> ? "INT" : "FLOAT");
  if constexpr (std::is_same_v<Target, T>)
    if (to >= least && to <= most)
      added->default_str(numberText(to));
  return Option(added);
}

#define QWEN_NUMBER(T)                                                         \
  template Option Command::addNumber(const std::string &, T &,                 \
                                     const std::string &, T, T) const;         \
  template Option Command::addNumber(const std::string &, std::optional<T> &,  \
                                     const std::string &, T, T) const;
#include "NumberTypes.def"

Option Command::addNumbers(const std::string &names, std::vector<int64_t> &to,
                           const std::string &help, int64_t least,
                           int64_t most) const {
  const std::string option = names.substr(names.rfind(',') + 1);
  const auto set = [&to, option, least,
                    most](const std::vector<std::string> &texts) {
    for (const std::string &text : texts)
      to.push_back(parseNumber<int64_t>(option, text, least, most));
  };
  return addTexts(names, set, help).list(',').type("INT,...");
}

Option Command::addIndex(const std::string &names,
                         const std::function<void(size_t)> &set, size_t usual,
                         const std::vector<std::string> &words,
                         const std::string &help) const {
  const auto take = [set, words](const std::string &word) {
    set(static_cast<size_t>(std::ranges::find(words, word) - words.begin()));
  };
  return addText(names, take, help).choices(words).defaultText(words[usual]);
}

/// "4GiB", as addSize reads it.
static std::string sizeText(uint64_t bytes) {
  constexpr const char *kUnits[] = {"", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; bytes && bytes % 1024 == 0 && unit + 1 < std::size(kUnits); ++unit)
    bytes /= 1024;
  return std::to_string(bytes) + kUnits[unit];
}

template <typename T>
Option Command::addSize(const std::string &names, T &to,
                        const std::string &help, std::type_identity_t<T> least,
                        std::type_identity_t<T> most) const {
  const std::string option = names.substr(names.rfind(',') + 1);
  const auto take = [&to, option, least, most](const std::string &text) {
    to = static_cast<T>(parseSize(option, text, static_cast<uint64_t>(least),
                                  static_cast<uint64_t>(most)));
  };
  const bool isRule = to < least || to == std::numeric_limits<T>::max();
  return addText(names, take, help)
      .type("SIZE")
      .defaultText(isRule ? "" : sizeText(static_cast<uint64_t>(to)));
}

template Option Command::addSize(const std::string &, int64_t &,
                                 const std::string &, int64_t, int64_t) const;
template Option Command::addSize(const std::string &, uint64_t &,
                                 const std::string &, uint64_t, uint64_t) const;

//===----------------------------------------------------------------------===//
// Commands
//===----------------------------------------------------------------------===//

Command Command::addCommand(const std::string &name,
                            const std::string &help) const {
  return Command(handle->add_subcommand(name, help));
}

void Command::group(const std::string &heading) const {
  handle->option_defaults()->group(heading);
}

// An empty group hides a command.
void Command::hide() const { handle->group(""); }
bool Command::isHidden() const { return handle->get_group().empty(); }

void Command::footer(const std::string &text) const { handle->footer(text); }
void Command::requireCommand() const { handle->require_subcommand(1); }
void Command::onRun(const std::function<void()> &run) const {
  handle->callback(run);
}
void Command::onBegin(const std::function<void()> &prepare) const {
  handle->preparse_callback([prepare](size_t) { prepare(); });
}

std::string Command::name() const { return handle->get_name(); }
std::string Command::help() const { return handle->get_description(); }
std::string Command::footer() const { return handle->get_footer(); }
bool Command::needsCommand() const {
  return handle->get_require_subcommand_min() > 0;
}

std::string Command::fullName() const {
  CLI::App *parent = handle->get_parent();
  return (parent ? Command(parent).fullName() + " " : "") + name();
}

std::vector<Command> Command::commands() const {
  std::vector<Command> all;
  for (CLI::App *command : handle->get_subcommands({}))
    all.emplace_back(command);
  return all;
}

std::vector<Option> Command::options() const {
  std::vector<Option> all;
  for (CLI::Option *option : handle->get_options({}))
    all.emplace_back(option);
  return all;
}

Option Command::option(const std::string &name) const {
  return Option(handle->get_option(name));
}

std::optional<Option> Command::findOption(const std::string &name) const {
  if (CLI::Option *option = handle->get_option_no_throw(name))
    return Option(option);
  return std::nullopt;
}

std::optional<Command> Command::chosen() const {
  const std::vector<CLI::App *> parsed = handle->get_subcommands();
  if (parsed.empty())
    return std::nullopt;
  return Command(parsed.front());
}

std::string qwen::commandList(const Command &command) {
  std::string names;
  for (const Command &each : command.commands())
    if (!each.isHidden())
      names += (names.empty() ? "" : ", ") + each.name();
  return names;
}
