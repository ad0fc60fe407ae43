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

/// Type names of options that take paths. Arguments without a dash are paths in
/// all commands.
inline constexpr char kFileType[] = "FILE";
inline constexpr char kFolderType[] = "FOLDER";

/// Names that completion offers as values of an option that takes others, too.
void suggest(CLI::Option *option, const std::vector<std::string> &names);

/// The values of an option, which completion offers.
struct OptionValue {
  enum Kind : uint8_t { None, Text, File, Folder };
  Kind kind;
  /// All values, or those of suggest().
  std::vector<std::string> names;
  /// Of the help: "INT", "FILE", ...
  std::string type;
};
OptionValue valueOf(CLI::Option &option);

/// The commands of the help.
std::vector<CLI::App *> visibleCommands(CLI::App &app);
/// The options of the help that begin with a dash, those of --help and
/// --version included.
std::vector<CLI::Option *> visibleOptions(CLI::App &app);
/// The names of an option with their dashes: "-n", "--count".
std::vector<std::string> namesOf(const CLI::Option &option);

/// The shells of completionScript.
inline constexpr const char *kShells[] = {"bash", "zsh", "fish"};

/// A script of one of kShells that completes commands, options, their names and
/// paths of the program `app`.
std::string completionScript(CLI::App &app, std::string_view shell);

/// The manual page of `app` in roff (man(7)), with all its commands.
std::string manualPage(CLI::App &app);

using PrintFn = std::function<void(const std::string &text)>;
/// Adds the command "completion", which gives a script to `write`.
void addCompletionCommand(CLI::App &app, const PrintFn &write);
/// Adds the command "man", which the help does not show: it gives the manual
/// page to `write`.
void addManualCommand(CLI::App &app, const PrintFn &write);

} // namespace qwen

#endif // QWEN_TOOLS_COMMANDTREE_H
