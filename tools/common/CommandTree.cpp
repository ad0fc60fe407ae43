//===- CommandTree.cpp - What a program tells about its options -----------===//

#include "CommandTree.h"

#include <iterator>
#include <memory>

using namespace qwen;

ValueKind qwen::valueKindOf(const OptionInfo &option) {
  if (!option.takesValue)
    return ValueKind::None;
  if (option.type.starts_with(kFolderType))
    return ValueKind::Folder;
  if (option.isArgument || option.type.starts_with(kFileType) ||
      option.type.starts_with("PATH"))
    return ValueKind::File;
  return ValueKind::Text;
}

std::vector<Command> qwen::visibleCommands(const Command &command) {
  std::vector<Command> visible;
  for (const Command &each : command.commands())
    if (!each.isHidden())
      visible.push_back(each);
  return visible;
}

std::vector<OptionInfo> qwen::visibleOptions(const Command &command) {
  std::vector<OptionInfo> visible;
  for (const Option &option : command.options())
    if (OptionInfo info = option.info();
        !info.isArgument && !info.group.empty())
      visible.push_back(std::move(info));
  return visible;
}

std::vector<OptionInfo> qwen::argumentsOf(const Command &command) {
  std::vector<OptionInfo> arguments;
  for (const Option &option : command.options())
    if (OptionInfo info = option.info(); info.isArgument)
      arguments.push_back(std::move(info));
  return arguments;
}

std::string qwen::joined(const std::vector<std::string> &words,
                         std::string_view separator) {
  std::string text;
  for (const std::string &word : words) {
    if (&word != &words.front())
      text += separator;
    text += word;
  }
  return text;
}

void qwen::addCompletionCommand(const Command &program, const PrintFn &write) {
  const auto shell = std::make_shared<std::string>();
  const std::vector<std::string> shells(std::begin(kShells), std::end(kShells));
  const Command command = program.addCommand(
      "completion", "Print a script that completes commands in a shell");
  const std::string name = program.name();
  command.footer("bash: source <(" + name + " completion bash)\n" +
                 "zsh:  source <(" + name +
                 " completion zsh), after compinit\n" + "fish: " + name +
                 " completion fish | source");
  command
      .addText("SHELL", *shell, "Shell; its file of start needs the line below")
      .required()
      .choices(shells);
  // The program may move, its commands do not.
  command.onRun(
      [program, shell, write] { write(completionScript(program, *shell)); });
}

void qwen::addManualCommand(const Command &program, const PrintFn &write) {
  const Command command =
      program.addCommand("man", "Print the manual page (roff)");
  command.hide();
  command.onRun([program, write] { write(manualPage(program)); });
}
