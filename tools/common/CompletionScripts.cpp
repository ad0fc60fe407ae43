//===- CompletionScripts.cpp - Scripts that complete command lines --------===//

#include "CommandTree.h"

#include <algorithm>
#include <map>

using namespace qwen;

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
static std::string functionOf(const Command &app) {
  std::string name = "_" + app.name();
  std::ranges::replace(name, '-', '_');
  return name;
}

static bool isProgram(const Command &command) {
  return command.fullName() == command.name();
}

/// `app` and its commands; the first is `app`.
static std::vector<Command> allCommands(const Command &app) {
  std::vector<Command> all = {app};
  for (const Command &command : visibleCommands(app))
    all.push_back(command);
  return all;
}

static std::vector<std::string> commandNames(const Command &app) {
  std::vector<std::string> names;
  for (const Command &command : visibleCommands(app))
    names.push_back(command.name());
  return names;
}

/// The names of the first argument of a command, if it takes names.
static std::vector<std::string> argumentNames(const Command &command) {
  const std::vector<OptionInfo> arguments = argumentsOf(command);
  return arguments.empty() ? std::vector<std::string>()
                           : arguments.front().choices;
}

//===----------------------------------------------------------------------===//
// bash
//===----------------------------------------------------------------------===//

/// A branch that offers `words`.
static std::string bashWords(const std::string &pattern,
                             const std::vector<std::string> &words) {
  return "    " + pattern + ") COMPREPLY=($(compgen -W " +
         shellQuoted(joined(words, " ")) + " -- \"$cur\")); return;;\n";
}

/// The branches for the values of options.
static std::string bashValues(const Command &app) {
  std::string text;
  for (const Command &command : allCommands(app)) {
    const std::string prefix = isProgram(command) ? ":" : command.name() + ":";
    std::string files, others;
    for (const OptionInfo &option : visibleOptions(command)) {
      std::string pattern;
      for (const std::string &name : option.names)
        pattern.append(pattern.empty() ? "" : "|").append(prefix).append(name);
      if (!option.choices.empty())
        text += bashWords(pattern, option.choices);
      else if (const ValueKind kind = valueKindOf(option);
               kind == ValueKind::Folder)
        text += "    " + pattern +
                ") COMPREPLY=($(compgen -d -- \"$cur\")); return;;\n";
      else if (kind == ValueKind::File)
        files += (files.empty() ? "" : "|") + pattern;
      else if (kind == ValueKind::Text)
        others += (others.empty() ? "" : "|") + pattern;
    }
    if (!files.empty())
      text += "    " + files + ") return;;\n";
    if (!others.empty())
      text += "    " + others + ") compopt +o default; return;;\n";
  }
  return text;
}

static std::string bashScript(const Command &app) {
  const std::string function = functionOf(app);
  std::string text =
      "# Completion of " + app.name() + " in bash.\n" + function + "() {\n" +
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
      joined(commandNames(app), "|") +
      R"() command=${COMP_WORDS[i]}; break;;
    esac
  done
  case $command:$prev in
)" + bashValues(app) +
      "  esac\n  case $command:$cur in\n";
  for (const Command &command : allCommands(app)) {
    std::vector<std::string> names;
    for (const OptionInfo &option : visibleOptions(command))
      for (const std::string &name : option.names)
        names.push_back(name);
    const std::string prefix = (isProgram(command) ? "" : command.name()) + ":";
    text += bashWords(prefix + "-*", names);
    if (isProgram(command))
      text += bashWords(prefix + "*", commandNames(app));
    else if (const auto arguments = argumentNames(command); !arguments.empty())
      text += bashWords(prefix + "*", arguments);
  }
  return text + "  esac\n}\ncomplete -o default -o filenames -F " + function +
         " " + app.name() + "\n";
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
static std::string zshAction(const OptionInfo &option) {
  const ValueKind kind = valueKindOf(option);
  if (!option.choices.empty())
    return "(" + joined(option.choices, " ") + ")";
  return kind == ValueKind::File     ? "_files"
         : kind == ValueKind::Folder ? "_files -/"
                                     : " ";
}

/// The arguments of _arguments for the options of a command.
static std::string zshOptions(const Command &command) {
  std::string text;
  for (const OptionInfo &option : visibleOptions(command)) {
    const std::vector<std::string> &names = option.names;
    const std::string all = joined(names, " ");
    for (const std::string &name : names) {
      // "--x=" takes a value in this or in the next word.
      const bool isLong = name.starts_with("--");
      const bool takes = option.takesValue;
      std::string form = "(" + all + ")";
      form.append(name).append(takes ? isLong ? "=" : "+" : "").append("[");
      form += zshText(summaryOf(option.help));
      form +=
          takes ? "]:" + zshText(option.type) + ":" + zshAction(option) : "]";
      text.append(" \\\n      ").append(shellQuoted(form));
    }
  }
  return text;
}

static std::string zshScript(const Command &app) {
  const std::string function = functionOf(app);
  std::string text = "#compdef " + app.name() + "\n# Completion of " +
                     app.name() + " in zsh.\n" + function +
                     "() {\n  local context state line curcontext=$curcontext\n"
                     "  local -a commands\n  commands=(\n";
  for (const Command &command : visibleCommands(app))
    text +=
        "    " +
        shellQuoted(command.name() + ":" + zshText(summaryOf(command.help()))) +
        "\n";
  text += "  )\n  _arguments -C" + zshOptions(app) +
          " \\\n      '1: :->command' '*:: :->rest'\n"
          "  case $state in\n"
          "    command) _describe command commands; _files; return;;\n"
          "    rest) ;;\n    *) return;;\n  esac\n  case $words[1] in\n";
  for (const Command &command : visibleCommands(app)) {
    const std::vector<std::string> names = argumentNames(command);
    text += "    " + command.name() + ") _arguments" + zshOptions(command) +
            " \\\n      " +
            shellQuoted(
                "*:argument:" +
                (names.empty() ? "_files" : "(" + joined(names, " ") + ")")) +
            ";;\n";
  }
  text += "    *) _arguments" + zshOptions(app) +
          " \\\n      '*:file:_files';;\n  esac\n}\n";
  // As a file of fpath it runs now; a script that is read says what it is for.
  return text + "if [[ $funcstack[1] == " + function + " ]]; then\n  " +
         function + " \"$@\"\nelse\n  compdef " + function + " " + app.name() +
         "\nfi\n";
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

static std::string fishScript(const Command &app) {
  const std::string complete = "complete -c " + app.name();
  std::string text =
      "# Completion of " + app.name() + " in fish.\n" + complete + " -f\n";
  const std::string names = joined(commandNames(app), " ");
  const std::string none =
      fishQuoted("not __fish_seen_subcommand_from " + names);
  for (const Command &command : visibleCommands(app))
    text.append(complete)
        .append(" -n ")
        .append(none)
        .append(" -a ")
        .append(command.name())
        .append(" -d ")
        .append(fishQuoted(summaryOf(command.help())))
        .append("\n");
  for (const Command &command : allCommands(app)) {
    const std::string when =
        complete + " -n " +
        (isProgram(command)
             ? none
             : fishQuoted("__fish_seen_subcommand_from " + command.name()));
    for (const OptionInfo &option : visibleOptions(command)) {
      text += when;
      for (const std::string &name : option.names)
        text += name.starts_with("--") ? " -l " + name.substr(2)
                                       : " -s " + name.substr(1);
      const ValueKind kind = valueKindOf(option);
      if (!option.choices.empty())
        text += " -x -a " + fishQuoted(joined(option.choices, " "));
      else if (kind == ValueKind::Folder)
        text += " -x -a '(__fish_complete_directories)'";
      else if (kind == ValueKind::File)
        text += " -r -F";
      else if (kind == ValueKind::Text)
        text += " -x";
      text += " -d " + fishQuoted(summaryOf(option.help)) + "\n";
    }
    const std::vector<std::string> arguments = argumentNames(command);
    text += when +
            (arguments.empty() ? " -F"
                               : " -a " + fishQuoted(joined(arguments, " "))) +
            "\n";
  }
  return text;
}

std::string qwen::completionScript(const Command &app, std::string_view shell) {
  return shell == "bash"  ? bashScript(app)
         : shell == "zsh" ? zshScript(app)
                          : fishScript(app);
}
