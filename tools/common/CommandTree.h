//===- CommandTree.h - What a program tells about its options ---*- C++ -*-===//
//
// Completions of shells and manual pages are made by walking the commands and
// options of a program, so that they say what its help says.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_TOOLS_COMMANDTREE_H
#define QWEN_TOOLS_COMMANDTREE_H

#include "CommandLine.h"

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace qwen {

/// The kind of an option's value, by its type.
enum class ValueKind : uint8_t { None, Text, File, Folder };
ValueKind valueKindOf(const OptionInfo &option);

/// The commands of the help.
std::vector<Command> visibleCommands(const Command &command);
/// The options of the help that begin with a dash, with --help and --version.
std::vector<OptionInfo> visibleOptions(const Command &command);
/// What stands without a dash.
std::vector<OptionInfo> argumentsOf(const Command &command);

/// `words` with `separator` between.
std::string joined(const std::vector<std::string> &words,
                   std::string_view separator);

/// The shells of completionScript.
inline constexpr const char *kShells[] = {"bash", "zsh", "fish"};

/// A script of one of kShells that completes commands, options, their names and
/// paths of `program`.
std::string completionScript(const Command &program, std::string_view shell);

/// The manual page of `program` in roff (man(7)), with all its commands.
std::string manualPage(const Command &program);

using PrintFn = std::function<void(const std::string &text)>;
/// Adds the command "completion", which gives a script to `write`.
void addCompletionCommand(const Command &program, const PrintFn &write);
/// Adds the command "man", which the help does not show: it gives the manual
/// page to `write`.
void addManualCommand(const Command &program, const PrintFn &write);

} // namespace qwen

#endif // QWEN_TOOLS_COMMANDTREE_H
