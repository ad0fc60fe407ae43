//===- CompletionScripts.cpp - Scripts that complete command lines --------===//

#include "CommandTree.h"

#include <algorithm>
#include <map>

using namespace qwen;

static std::string joinedWords(const std::vector<std::string> &words,
                               const char *separator) {
  return CLI::detail::join(words, separator);
}

/// `text` in single quotes of a POSIX shell.
static std::string shellQuoted(const std::string &text) {
  std::string result = "'";
  for (char c : text)
    result += c == '\'' ? "'\\''" : std::string(1, c);
  return result + "'";
}

/// The first sentence of a help text, on a line of a list.
static std::string summaryOf(const std::string &help) {
  const size_t end = std::min(help.find('\n'), help.find("; "));
  return help.substr(0, std::min(end, size_t{100}));
}

/// "_qwen_run": the function that completes `app`.
static std::string functionOf(const CLI::App &app) {
  std::string name = "_" + app.get_name();
  std::ranges::replace(name, '-', '_');
  return name;
}

/// `app` and its commands; the first is `app`.
static std::vector<CLI::App *> allCommands(CLI::App &app) {
  std::vector<CLI::App *> all = {&app};
  for (CLI::App *command : visibleCommands(app))
    all.push_back(command);
  return all;
}

static std::vector<std::string> commandNames(CLI::App &app) {
  std::vector<std::string> names;
  for (const CLI::App *command : visibleCommands(app))
    names.push_back(command->get_name());
  return names;
}

/// The names of the first argument of a command, if it takes names.
static std::vector<std::string> argumentNames(CLI::App &command) {
  for (CLI::Option *option : command.get_options())
    if (option->get_positional())
      return valueOf(*option).names;
  return {};
}

//===----------------------------------------------------------------------===//
// bash
//===----------------------------------------------------------------------===//

/// A branch that offers `words`.
static std::string bashWords(const std::string &pattern,
                             const std::vector<std::string> &words) {
  return "    " + pattern + ") COMPREPLY=($(compgen -W " +
         shellQuoted(joinedWords(words, " ")) + " -- \"$cur\")); return;;\n";
}

/// The branches for the values of options.
static std::string bashValues(CLI::App &app) {
  std::string text;
  for (CLI::App *command : allCommands(app)) {
    const std::string prefix =
        command == &app ? ":" : command->get_name() + ":";
    std::string files, others;
    for (CLI::Option *option : visibleOptions(*command)) {
      const OptionValue value = valueOf(*option);
      std::string pattern;
      for (const std::string &name : namesOf(*option))
        pattern.append(pattern.empty() ? "" : "|").append(prefix).append(name);
      if (!value.names.empty())
        text += bashWords(pattern, value.names);
      else if (value.kind == OptionValue::Folder)
        text += "    " + pattern +
                ") COMPREPLY=($(compgen -d -- \"$cur\")); return;;\n";
      else if (value.kind == OptionValue::File)
        files += (files.empty() ? "" : "|") + pattern;
      else if (value.kind == OptionValue::Text)
        others += (others.empty() ? "" : "|") + pattern;
    }
    if (!files.empty())
      text += "    " + files + ") return;;\n";
    if (!others.empty())
      text += "    " + others + ") compopt +o default; return;;\n";
  }
  return text;
}

static std::string bashScript(CLI::App &app) {
  const std::string function = functionOf(app);
  std::string text =
      "# Completion of " + app.get_name() + " in bash.\n" + function +
      "() {\n" +
      R"(  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command= i
  COMPREPLY=()
  # bash makes words of --option=value.
  if [[ $cur == = ]]; then
    cur=
  elif [[ $prev == = ]]; then
    prev=${COMP_WORDS[COMP_CWORD-2]}
  fi
  for ((i = 1; i < COMP_CWORD; i++)); do
    case ${COMP_WORDS[i]} in
      )" +
      joinedWords(commandNames(app), "|") +
      R"() command=${COMP_WORDS[i]}; break;;
    esac
  done
  case $command:$prev in
)" + bashValues(app) +
      "  esac\n  case $command:$cur in\n";
  for (CLI::App *command : allCommands(app)) {
    std::vector<std::string> names;
    for (const CLI::Option *option : visibleOptions(*command))
      for (const std::string &name : namesOf(*option))
        names.push_back(name);
    const std::string prefix =
        (command == &app ? "" : command->get_name()) + ":";
    text += bashWords(prefix + "-*", names);
    if (command == &app)
      text += bashWords(prefix + "*", commandNames(app));
    else if (const auto arguments = argumentNames(*command); !arguments.empty())
      text += bashWords(prefix + "*", arguments);
  }
  return text + "  esac\n}\ncomplete -o default -o filenames -F " + function +
         " " + app.get_name() + "\n";
}

//===----------------------------------------------------------------------===//
// zsh
//===----------------------------------------------------------------------===//

/// `text` for a part of a specification of _arguments, which ":" and "]" end.
static std::string zshText(const std::string &text) {
  std::string result;
  for (char c : text)
    result +=
        std::string(c == ':' || c == '[' || c == ']' || c == '\\', '\\') + c;
  return result;
}

/// The action of zsh that completes a value, by the value's type.
static std::string zshAction(const OptionValue &value) {
  if (!value.names.empty())
    return "(" + joinedWords(value.names, " ") + ")";
  return value.kind == OptionValue::File     ? "_files"
         : value.kind == OptionValue::Folder ? "_files -/"
                                             : " ";
}

/// The arguments of _arguments for the options of a command.
static std::string zshOptions(CLI::App &command) {
  std::string text;
  for (CLI::Option *option : visibleOptions(command)) {
    const std::vector<std::string> names = namesOf(*option);
    const OptionValue value = valueOf(*option);
    const std::string all = joinedWords(names, " ");
    for (const std::string &name : names) {
      // "--x=" takes a value in this or in the next word.
      const bool isLong = name.starts_with("--");
      const bool takes = value.kind != OptionValue::None;
      std::string form = "(" + all + ")";
      form.append(name).append(takes ? isLong ? "=" : "+" : "").append("[");
      form += zshText(summaryOf(option->get_description()));
      form += takes ? "]:" + zshText(value.type) + ":" + zshAction(value) : "]";
      text.append(" \\\n      ").append(shellQuoted(form));
    }
  }
  return text;
}

static std::string zshScript(CLI::App &app) {
  const std::string function = functionOf(app);
  std::string text = "#compdef " + app.get_name() + "\n# Completion of " +
                     app.get_name() + " in zsh.\n" + function +
                     "() {\n  local context state line curcontext=$curcontext\n"
                     "  local -a commands\n  commands=(\n";
  for (const CLI::App *command : visibleCommands(app))
    text += "    " +
            shellQuoted(command->get_name() + ":" +
                        zshText(summaryOf(command->get_description()))) +
            "\n";
  text += "  )\n  _arguments -C" + zshOptions(app) +
          " \\\n      '1: :->command' '*:: :->rest'\n"
          "  case $state in\n"
          "    command) _describe command commands; _files; return;;\n"
          "    rest) ;;\n    *) return;;\n  esac\n  case $words[1] in\n";
  for (CLI::App *command : visibleCommands(app)) {
    const std::vector<std::string> names = argumentNames(*command);
    text += "    " + command->get_name() + ") _arguments" +
            zshOptions(*command) + " \\\n      " +
            shellQuoted("*:argument:" +
                        (names.empty() ? "_files"
                                       : "(" + joinedWords(names, " ") + ")")) +
            ";;\n";
  }
  text += "    *) _arguments" + zshOptions(app) +
          " \\\n      '*:file:_files';;\n  esac\n}\n";
  // As a file of fpath it runs now; a script that is read says what it is for.
  return text + "if [[ $funcstack[1] == " + function + " ]]; then\n  " +
         function + " \"$@\"\nelse\n  compdef " + function + " " +
         app.get_name() + "\nfi\n";
}

//===----------------------------------------------------------------------===//
// fish
//===----------------------------------------------------------------------===//

/// `text` in single quotes of fish.
static std::string fishQuoted(const std::string &text) {
  std::string result = "'";
  for (char c : text)
    result += std::string(c == '\'' || c == '\\', '\\') + c;
  return result + "'";
}

static std::string fishScript(CLI::App &app) {
  const std::string complete = "complete -c " + app.get_name();
  std::string text =
      "# Completion of " + app.get_name() + " in fish.\n" + complete + " -f\n";
  const std::string names = joinedWords(commandNames(app), " ");
  const std::string none =
      fishQuoted("not __fish_seen_subcommand_from " + names);
  for (const CLI::App *command : visibleCommands(app))
    text.append(complete)
        .append(" -n ")
        .append(none)
        .append(" -a ")
        .append(command->get_name())
        .append(" -d ")
        .append(fishQuoted(summaryOf(command->get_description())))
        .append("\n");
  for (CLI::App *command : allCommands(app)) {
    const std::string when =
        complete + " -n " +
        (command == &app ? none
                         : fishQuoted("__fish_seen_subcommand_from " +
                                      command->get_name()));
    for (CLI::Option *option : visibleOptions(*command)) {
      const OptionValue value = valueOf(*option);
      text += when;
      for (const std::string &name : option->get_snames())
        text += " -s " + name;
      for (const std::string &name : option->get_lnames())
        text += " -l " + name;
      if (!value.names.empty())
        text += " -x -a " + fishQuoted(joinedWords(value.names, " "));
      else if (value.kind == OptionValue::Folder)
        text += " -x -a '(__fish_complete_directories)'";
      else if (value.kind == OptionValue::File)
        text += " -r -F";
      else if (value.kind == OptionValue::Text)
        text += " -x";
      text += " -d " + fishQuoted(summaryOf(option->get_description())) + "\n";
    }
    const std::vector<std::string> arguments = argumentNames(*command);
    text +=
        when +
        (arguments.empty() ? " -F"
                           : " -a " + fishQuoted(joinedWords(arguments, " "))) +
        "\n";
  }
  return text;
}

std::string qwen::completionScript(CLI::App &app, std::string_view shell) {
  return shell == "bash"  ? bashScript(app)
         : shell == "zsh" ? zshScript(app)
                          : fishScript(app);
}
