//===- CommandTree.cpp - What a program tells about its options -----------===//

#include "CommandTree.h"

#include <algorithm>
#include <iterator>
#include <memory>

using namespace qwen;

/// Names of validators that only hold the names of suggest(). A validator is
/// the one part of an option of CLI11 that can hold them and that the help does
/// not show.
static constexpr std::string_view kSuggested = "suggested:";

static std::vector<std::string> splitNames(std::string_view text) {
  std::vector<std::string> names;
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    names.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return names;
}

void qwen::suggest(CLI::Option *option, const std::vector<std::string> &names) {
  CLI::Validator holder([](std::string &) { return std::string(); }, "");
  holder.name(std::string(kSuggested) + CLI::detail::join(names, ","));
  option->check(holder);
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

OptionValue qwen::valueOf(CLI::Option &option) {
  if (option.get_items_expected_max() == 0)
    return {OptionValue::None, {}, ""};
  // "TEXT:{a,b}", of IsMember.
  const std::string type = option.get_type_name();
  const std::string first = type.substr(0, type.find(':'));
  OptionValue value = {OptionValue::Text, suggestedNames(option), first};
  const size_t begin = type.find(":{"), end = type.find('}');
  if (begin != type.npos && end != type.npos)
    value.names =
        splitNames(std::string_view(type).substr(begin + 2, end - begin - 2));
  if (option.get_positional() || first.starts_with(kFileType) ||
      first.starts_with("PATH"))
    value.kind = OptionValue::File;
  if (first.starts_with(kFolderType))
    value.kind = OptionValue::Folder;
  return value;
}

std::vector<CLI::App *> qwen::visibleCommands(CLI::App &app) {
  // An empty group hides a command.
  return app.get_subcommands(
      [](const CLI::App *command) { return !command->get_group().empty(); });
}

std::vector<CLI::Option *> qwen::visibleOptions(CLI::App &app) {
  return app.get_options([](const CLI::Option *option) {
    return option->nonpositional() && !option->get_group().empty();
  });
}

std::vector<std::string> qwen::namesOf(const CLI::Option &option) {
  std::vector<std::string> names;
  for (const std::string &name : option.get_snames())
    names.push_back("-" + name);
  for (const std::string &name : option.get_lnames())
    names.push_back("--" + name);
  return names;
}

void qwen::addCompletionCommand(CLI::App &app, const PrintFn &write) {
  const auto shell = std::make_shared<std::string>();
  const std::vector<std::string> shells(std::begin(kShells), std::end(kShells));
  CLI::App *command = app.add_subcommand(
      "completion", "Print a script that completes commands in a shell");
  const std::string name = app.get_name();
  command->footer("bash: source <(" + name + " completion bash)\n" +
                  "zsh:  source <(" + name +
                  " completion zsh), after compinit\n" + "fish: " + name +
                  " completion fish | source");
  suggest(command
              ->add_option("SHELL", *shell,
                           "Shell; its file of start needs the line below")
              ->required()
              ->check(CLI::IsMember(shells)),
          shells);
  command->callback(
      [&app, shell, write] { write(completionScript(app, *shell)); });
}

void qwen::addManualCommand(CLI::App &app, const PrintFn &write) {
  CLI::App *command = app.add_subcommand("man", "Print the manual page (roff)");
  command->group("");
  command->callback([&app, write] { write(manualPage(app)); });
}
