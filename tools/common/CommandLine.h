//===- CommandLine.h - Command lines and their errors -----------*- C++ -*-===//
//
// Programs, their commands and their options. The library CLI11 reads the
// arguments; only sources of this folder include it, because its headers take
// seconds to compile. Beyond it, numbers are never rounded or wrapped silently,
// and errors are one line with the argument, the found value and the valid
// values.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_TOOLS_COMMANDLINE_H
#define QWEN_TOOLS_COMMANDLINE_H

#include "qwen/Support/Error.h"

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

namespace CLI {
class App;
class Option;
} // namespace CLI

namespace qwen {

class Command;

/// An invalid command line. Mains exit with status 2.
class UsageError : public Error {
public:
  /// Appends how to get the help of `command`.
  UsageError(const Command &command, const std::string &message);
};

/// An invalid value, which Program::parse turns into a UsageError.
class InvalidValue : public Error {
public:
  /// `option` has its dashes.
  InvalidValue(const std::string &option, const std::string &message)
      : Error(option + ": " + message) {}
};

/// Thrown by a command that has done all it was told before its end.
struct CommandDone {};

/// Type names of options that take paths. Arguments without a dash are paths in
/// all commands.
inline constexpr char kFileType[] = "FILE";
inline constexpr char kFolderType[] = "FOLDER";

/// The value of a flag that is given without one.
inline constexpr char kNoValue[] = "true";

//===----------------------------------------------------------------------===//
// Options
//===----------------------------------------------------------------------===//

/// What an option is, as its help shows it.
struct OptionInfo {
  /// The names with their dashes, short ones first: "-n", "--count". The name
  /// of an argument has no dash.
  std::vector<std::string> names;
  std::string help;
  /// The type of a value: "INT", "FILE", ...; empty for a flag.
  std::string type;
  /// All values, or those that completion offers.
  std::vector<std::string> choices;
  /// Whether other values are possible.
  bool takesOthers;
  /// The value without the option, where help shows it.
  std::string defaultText;
  /// The variable of the environment that may hold the value, or empty.
  std::string variable;
  /// The heading of help; empty for an option that help does not show.
  std::string group;
  /// Whether it is an argument, which has no dash.
  bool isArgument;
  bool isRequired;
  bool takesValue;
  bool takesMany;
};

/// An option or argument of a command. It is copied like a pointer, and lives
/// as long as its Program.
class Option {
public:
  explicit Option(CLI::Option *handle) : handle(handle) {}

  // Each function returns the option.
  Option required(bool isRequired = true) const;
  /// Names the type of a value, such as kFileType.
  Option type(const std::string &name) const;
  /// Sets all possible values.
  Option choices(const std::vector<std::string> &values) const;
  /// Sets values that completion offers of an option that takes others, too.
  Option suggest(const std::vector<std::string> &values) const;
  Option defaultText(const std::string &text) const;
  Option help(const std::string &text) const;
  /// Sets the heading of help; an empty one hides the option.
  Option group(const std::string &heading) const;
  Option needs(Option other) const;
  Option excludes(Option other) const;
  /// Each option takes one value, and may be repeated.
  Option repeatable() const;
  /// Each option takes one list of values with `delimiter` between.
  Option list(char delimiter) const;
  /// Names a variable of the environment that may hold the value.
  Option variable(const std::string &name) const;

  /// The long name if there is one, with its dashes.
  std::string name() const;
  OptionInfo info() const;
  /// Whether the command line, or give(), has it.
  bool isGiven() const;
  /// Adds a value, as if the command line had it.
  void give(const std::string &value) const;

private:
  CLI::Option *handle;
};

/// The type of the number in a variable or in its std::optional.
template <typename T> struct NumberOf {
  using Type = T;
};
template <typename T> struct NumberOf<std::optional<T>> {
  using Type = T;
};

/// `text` as a decimal number from `least` to `most`, both finite. Throws
/// InvalidValue, which names `option`. T is a row of NumberTypes.def.
template <typename T>
T parseNumber(const std::string &option, const std::string &text, T least,
              T most);

/// `text` as a number of bytes from `least` to `most`, with or without a unit
/// of 1024: "3", "2k", "4GiB". Throws InvalidValue, which names `option`.
uint64_t parseSize(const std::string &option, const std::string &text,
                   uint64_t least, uint64_t most);

/// The shortest text that parseNumber reads as `value`.
template <typename T> std::string numberText(T value);

//===----------------------------------------------------------------------===//
// Commands
//===----------------------------------------------------------------------===//

/// A command with its options and its own commands. It is copied like a
/// pointer, and lives as long as its Program. What options set is a variable of
/// the caller, or an argument of a function of his; names are "-n,--count", and
/// arguments have no dash. Help shows the value of the variable as the
/// default: a number in the option's range, or a text that is not empty.
class Command {
public:
  using TextFn = std::function<void(const std::string &value)>;
  using TextsFn = std::function<void(const std::vector<std::string> &values)>;

  explicit Command(CLI::App *handle) : handle(handle) {}

  Command addCommand(const std::string &name, const std::string &help) const;

  /// Adds a flag, which takes no value; a name with "!" before it sets false.
  Option addFlag(const std::string &names, bool &to,
                 const std::string &help = "") const;
  Option addFlag(const std::string &names, const std::function<void(bool)> &set,
                 const std::string &help = "") const;
  /// Adds a flag that may have a value, else kNoValue: --flag or --flag=value.
  Option addFlagWithValue(const std::string &names, const TextFn &set,
                          const std::string &help = "") const;
  Option addText(const std::string &names, std::string &to,
                 const std::string &help = "") const;
  Option addText(const std::string &names, std::optional<std::string> &to,
                 const std::string &help = "") const;
  Option addText(const std::string &names, const TextFn &set,
                 const std::string &help = "") const;
  /// Adds an option for one text or more.
  Option addTexts(const std::string &names, std::vector<std::string> &to,
                  const std::string &help = "") const;
  Option addTexts(const std::string &names, const TextsFn &set,
                  const std::string &help = "") const;
  /// Adds an option for a number from `least` to `most`, read by parseNumber.
  template <typename Target, typename T = typename NumberOf<Target>::Type>
  Option
  addNumber(const std::string &names, Target &to, const std::string &help,
            std::type_identity_t<T> least,
            std::type_identity_t<T> most = std::numeric_limits<T>::max()) const;
  /// Adds an option for numbers from `least` to `most` with commas between.
  Option addNumbers(const std::string &names, std::vector<int64_t> &to,
                    const std::string &help, int64_t least, int64_t most) const;
  /// Adds an option for an enumerator, by its word; `words` has the words of
  /// the values 0, 1, ...
  template <typename Enum>
  Option addChoice(const std::string &names, Enum &to,
                   const std::vector<std::string> &words,
                   const std::string &help) const {
    return addIndex(
        names, [&to](size_t index) { to = static_cast<Enum>(index); },
        static_cast<size_t>(to), words, help);
  }
  /// Adds an option for bytes from `least` to `most`, with or without a unit of
  /// 1024: 3, 2k, 4GiB. T is int64_t or uint64_t.
  template <typename T>
  Option
  addSize(const std::string &names, T &to, const std::string &help,
          std::type_identity_t<T> least = 0,
          std::type_identity_t<T> most = std::numeric_limits<T>::max()) const;

  /// Sets the heading in help of the options that are added from now on.
  void group(const std::string &heading) const;
  /// Hides the command from help.
  void hide() const;
  /// Sets a text at the end of help.
  void footer(const std::string &text) const;
  /// Makes one of its commands necessary.
  void requireCommand() const;
  /// Calls `run` when all arguments are read.
  void onRun(const std::function<void()> &run) const;
  /// Calls `prepare` before the command's own arguments are read.
  void onBegin(const std::function<void()> &prepare) const;

  std::string name() const;
  /// With the names of the commands around it: "qwen-run cache list".
  std::string fullName() const;
  std::string help() const;
  std::string footer() const;
  bool isHidden() const;
  bool needsCommand() const;
  /// All commands, hidden ones too.
  std::vector<Command> commands() const;
  /// All options and arguments, hidden ones too.
  std::vector<Option> options() const;
  /// The option or argument `name`, which exists.
  Option option(const std::string &name) const;
  std::optional<Option> findOption(const std::string &name) const;
  /// The command that the arguments name, if they are read.
  std::optional<Command> chosen() const;

protected:
  CLI::App *handle;

private:
  Option addIndex(const std::string &names,
                  const std::function<void(size_t)> &set, size_t usual,
                  const std::vector<std::string> &words,
                  const std::string &help) const;
};

/// The names of the commands that the help of `command` shows, with commas
/// between.
std::string commandList(const Command &command);

/// A program with its options and commands.
class Program : public Command {
public:
  Program(const std::string &name, const std::string &help);
  Program(const Program &) = delete;
  Program &operator=(const Program &) = delete;
  ~Program();

  /// Adds --version, which prints `text`.
  void addVersion(const std::string &text) const;
  /// Calls `check` when all arguments are read and before a command runs.
  void onParsed(const std::function<void()> &check) const;

  /// Parses the arguments and runs what onRun gives the command that they name.
  /// Returns false if they ask for a help or a version, which it prints, or if
  /// the command throws CommandDone. Throws UsageError and the other exceptions
  /// of the command.
  bool parse(int argc, const char *const *argv) const;

private:
  std::unique_ptr<CLI::App> app;
};

} // namespace qwen

#endif // QWEN_TOOLS_COMMANDLINE_H
