//===- CompletionScripts.cpp - Scripts that complete command lines --------===//

#include "CommandTree.h"

#include <algorithm>

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

/// "_qwen_run_cache": the function that completes `command`.
static std::string functionOf(const Command &command) {
  std::string name = "_" + command.fullName();
  std::ranges::replace_if(
      name, [](char c) { return c == '-' || c == ' '; }, '_');
  return name;
}

static bool isProgram(const Command &command) {
  return command.fullName() == command.name();
}

/// `command` and all below it, in the order of the help.
static std::vector<Command> allCommands(const Command &command) {
  std::vector<Command> all = {command};
  for (const Command &each : command.commands())
    for (const Command &below : allCommands(each))
      all.push_back(below);
  return all;
}

/// The commands of `command`, also those that help does not show.
static std::vector<std::string> commandNames(const Command &command) {
  std::vector<std::string> names;
  for (const Command &each : command.commands())
    names.push_back(each.name());
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

/// The value of $command in a command: "" in the program, "cache/list".
static std::string bashPath(const Command &command) {
  std::string path = command.fullName();
  path.erase(0, std::min(path.find(' '), path.size() - 1) + 1);
  std::ranges::replace(path, ' ', '/');
  return isProgram(command) ? "" : path;
}

/// Where bash would complete files else.
static constexpr char kNoFiles[] = "compopt +o default; ";

/// A branch that offers `words` after the commands `before`.
static std::string bashWords(const std::string &pattern,
                             const std::vector<std::string> &words,
                             const std::string &before = "") {
  return "    " + pattern + ") " + before + "COMPREPLY=($(compgen -W " +
         shellQuoted(joined(words, " ")) + " -- \"$cur\")); return;;\n";
}

/// The branches for the values of a command's options.
static std::string bashValues(const Command &command) {
  std::string text, files, others;
  const std::string prefix = bashPath(command) + ":";
  for (const OptionInfo &option : visibleOptions(command)) {
    std::string pattern;
    for (const std::string &name : option.names)
      pattern.append(pattern.empty() ? "" : "|").append(prefix).append(name);
    const ValueKind kind = valueKindOf(option);
    if (!option.choices.empty())
      text += bashWords(pattern, option.choices, kNoFiles);
    else if (kind == ValueKind::Folder)
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
    text += "    " + others + ") " + kNoFiles + "return;;\n";
  return text;
}

/// The branches for options, commands and arguments of a command.
static std::string bashNames(const Command &command) {
  std::vector<std::string> names;
  for (const OptionInfo &option : visibleOptions(command))
    names.insert(names.end(), option.names.begin(), option.names.end());
  const std::string prefix = bashPath(command) + ":";
  const std::string text = bashWords(prefix + "-*", names);
  if (const auto commands = commandNames(command); !commands.empty())
    return text + bashWords(prefix + "*", commands,
                            isProgram(command) ? "" : kNoFiles);
  if (const auto arguments = argumentNames(command); !arguments.empty())
    return text + bashWords(prefix + "*", arguments);
  return text + (argumentsOf(command).empty()
                     ? "    " + prefix + "*) " + kNoFiles + "return;;\n"
                     : "");
}

/// A branch that enters the commands of `command`.
static std::string bashEntry(const Command &command) {
  const std::string path = bashPath(command);
  std::vector<std::string> patterns;
  for (const std::string &name : commandNames(command))
    patterns.emplace_back(path).append(":").append(name);
  return "      " + joined(patterns, "|") +
         ") command=" + (path.empty() ? "" : path + "/") + "$word;;\n";
}

/// Sets `words` to the words of the line. bash splits a:b and a=b at the
/// characters of COMP_WORDBREAKS, and replaces only what follows the last of
/// them: `kept` stays. Of --option=value, `given` is the part before the value.
static constexpr char kBashWords[] =
    R"(  local line=$COMP_LINE words=() word i command= cur prev given= kept=
  for ((i = 0; i <= COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    if [[ $i != 0 && $line != [[:space:]]* ]]; then
      words[${#words[@]}-1]+=$word
    else
      words+=("$word")
    fi
    line=${line#"${line%%[![:space:]]*}"}
    line=${line#"$word"}
  done
  cur=${words[${#words[@]}-1]} prev=${words[${#words[@]}-2]}
  local breaks=${COMP_WORDBREAKS//[^:=]/}
  if [[ $breaks && $cur == *["$breaks"]* ]]; then
    kept=${cur%"${cur##*["$breaks"]}"}
  fi
  if [[ $cur == --*=* ]]; then
    given=${cur%%=*}= prev=${cur%%=*} cur=${cur#*=}
  fi
  for word in "${words[@]:1:${#words[@]}-2}"; do
    case $command:$word in
)";

static constexpr char kBashReplies[] =
    R"(  local replies=("${COMPREPLY[@]}")
  COMPREPLY=()
  for word in "${replies[@]}"; do
    word=$given$word
    if [[ $word != "$kept" ]]; then
      COMPREPLY+=("${word#"$kept"}")
    fi
  done
  if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *: ]]; then
    compopt -o nospace
  fi
)";

static std::string bashScript(const Command &program) {
  const std::string function = functionOf(program);
  std::string entries, values, names;
  for (const Command &command : allCommands(program)) {
    if (!command.commands().empty())
      entries += bashEntry(command);
    values += bashValues(command);
    names += bashNames(command);
  }
  return "# Completion of " + program.name() + " in bash.\n" + function +
         "_replies() {\n  case $command:$prev in\n" + values +
         "  esac\n  case $command:$cur in\n" + names + "  esac\n}\n" +
         function + "() {\n" + kBashWords + entries + "    esac\n  done\n  " +
         "COMPREPLY=()\n  " + function + "_replies\n" + kBashReplies +
         "}\ncomplete -o default -o filenames -F " + function + " " +
         program.name() + "\n";
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

/// The action of zsh that offers `names`.
static std::string zshNames(const std::vector<std::string> &names) {
  return "(" + zshText(joined(names, " ")) + ")";
}

/// The action of zsh that completes a value, by the value's type.
static std::string zshAction(const OptionInfo &option) {
  if (!option.choices.empty())
    return zshNames(option.choices);
  const ValueKind kind = valueKindOf(option);
  return kind == ValueKind::File     ? "_files"
         : kind == ValueKind::Folder ? "_files -/"
                                     : " ";
}

/// The arguments of _arguments for the options of a command.
static std::string zshOptions(const Command &command) {
  std::string text;
  for (const OptionInfo &option : visibleOptions(command)) {
    const std::string all = joined(option.names, " ");
    for (const std::string &name : option.names) {
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

/// What completes the words after the name of a command without commands.
static std::string zshLeaf(const Command &command) {
  std::string text = "_arguments" + zshOptions(command);
  if (argumentsOf(command).empty())
    return text;
  const std::vector<std::string> names = argumentNames(command);
  return text + " \\\n      " +
         shellQuoted("*:argument:" +
                     (names.empty() ? "_files" : zshNames(names)));
}

/// The functions of a command with commands, and of those below it.
static std::string zshFunctions(const Command &command) {
  std::string below, text;
  for (const Command &each : command.commands())
    if (!each.commands().empty())
      below += zshFunctions(each);
  text += below + functionOf(command) +
          "() {\n  local context state line curcontext=$curcontext\n"
          "  local -a commands\n  commands=(\n";
  for (const Command &each : command.commands())
    text += "    " +
            shellQuoted(each.name() + ":" + zshText(summaryOf(each.help()))) +
            "\n";
  const bool takesFiles = isProgram(command);
  text += "  )\n  _arguments -C" + zshOptions(command) +
          " \\\n      '1: :->command' '*:: :->rest'\n"
          "  case $state in\n    command) _describe command commands; " +
          (takesFiles ? "_files; " : "") +
          "return;;\n    rest) ;;\n    *) return;;\n  esac\n"
          "  case $words[1] in\n";
  for (const Command &each : command.commands())
    text += "    " + each.name() + ") " +
            (each.commands().empty() ? zshLeaf(each) : functionOf(each)) +
            ";;\n";
  if (takesFiles)
    text += "    *) _arguments" + zshOptions(command) +
            " \\\n      '*:file:_files';;\n";
  return text + "  esac\n}\n";
}

static std::string zshScript(const Command &program) {
  const std::string function = functionOf(program);
  // As a file of fpath it runs now; a script that is read says what it is for.
  return "#compdef " + program.name() + "\n# Completion of " + program.name() +
         " in zsh.\n" + zshFunctions(program) +
         "if [[ $funcstack[1] == " + function + " ]]; then\n  " + function +
         " \"$@\"\nelse\n  compdef " + function + " " + program.name() +
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

/// The lines for a command and those below it; `seen` is true in them.
static std::string fishCommand(const Command &command, const std::string &start,
                               const std::string &seen) {
  const std::vector<std::string> names = commandNames(command);
  const std::string isHere =
      seen + (seen.empty() || names.empty() ? "" : "; and ") +
      (names.empty() ? ""
                     : "not __fish_seen_subcommand_from " + joined(names, " "));
  const std::string when = start + " -n " + fishQuoted(isHere);
  std::string text;
  for (const Command &each : command.commands())
    text += when + " -a " + each.name() + " -d " +
            fishQuoted(summaryOf(each.help())) + "\n";
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
  if (!arguments.empty())
    text += when + " -a " + fishQuoted(joined(arguments, " ")) + "\n";
  else if (isProgram(command) || !argumentsOf(command).empty())
    text += when + " -F\n";
  for (const Command &each : command.commands())
    text += fishCommand(each, start,
                        seen + (seen.empty() ? "" : "; and ") +
                            "__fish_seen_subcommand_from " + each.name());
  return text;
}

static std::string fishScript(const Command &program) {
  const std::string start = "complete -c " + program.name();
  return "# Completion of " + program.name() + " in fish.\n" + start + " -f\n" +
         fishCommand(program, start, "");
}

std::string qwen::completionScript(const Command &program,
                                   std::string_view shell) {
  return shell == "bash"  ? bashScript(program)
         : shell == "zsh" ? zshScript(program)
                          : fishScript(program);
}
