//===- ManualPage.cpp - The manual page of a program ----------------------===//

#include "CommandTree.h"

#include "qwen/Support/Version.h"

#include <algorithm>
#include <csignal>
#include <utility>

using namespace qwen;

/// `text` as roff shows it: no character begins a request or an escape, and
/// hyphens can be copied.
static std::string roff(const std::string &text) {
  std::string result;
  bool isFirst = true;
  for (char c : text) {
    if (isFirst && (c == '.' || c == '\''))
      result += "\\&";
    isFirst = c == '\n';
    switch (c) {
    case '\\':
      result += "\\e";
      break;
    case '-':
      result += "\\-";
      break;
    case '\'':
      result += "\\(aq";
      break;
    case '^':
      result += "\\(ha";
      break;
    case '~':
      result += "\\(ti";
      break;
    case '`':
      result += "\\(ga";
      break;
    default:
      result += c;
    }
  }
  return result;
}

static std::string bold(const std::string &text) {
  return "\\fB" + roff(text) + "\\fR";
}
static std::string italic(const std::string &text) {
  return "\\fI" + roff(text) + "\\fR";
}

/// The value of an option, after its names.
static std::string valueText(const OptionInfo &option) {
  if (!option.takesValue)
    return "";
  return " " + italic(option.takesOthers || option.choices.size() > 8
                          ? option.type
                          : joined(option.choices, "|"));
}

static std::string optionText(const OptionInfo &option) {
  std::string text = ".TP\n";
  bool isFirst = true;
  for (const std::string &name : option.names) {
    text += (isFirst ? "" : ", ") + bold(name);
    isFirst = false;
  }
  text += valueText(option) + "\n" + roff(option.help);
  if (option.choices.size() > 8)
    text += roff(": " + joined(option.choices, ", "));
  if (!option.defaultText.empty())
    text += roff("; default is " + option.defaultText);
  if (!option.variable.empty())
    text += roff("; variable ") + bold(option.variable);
  return text + "\n";
}

/// The arguments of a command and its options.
static std::string bodyOf(const Command &command) {
  std::string text;
  for (const OptionInfo &argument : argumentsOf(command))
    text += ".TP\n" + italic(argument.names.front()) + "\n" +
            roff(argument.help) + "\n";
  for (const OptionInfo &option : visibleOptions(command))
    text += optionText(option);
  if (!command.footer().empty())
    text += ".PP\n.nf\n" + roff(command.footer()) + "\n.fi\n";
  return text;
}

/// "qwen-run chat [OPTION]... FILE".
static std::string synopsisOf(const Command &command) {
  std::string text = bold(command.fullName());
  if (command.needsCommand())
    return text + " " + italic("COMMAND") + "\n";
  text += " [" + italic("OPTION") + "]...";
  for (const OptionInfo &info : argumentsOf(command)) {
    const std::string argument = italic(info.names.front());
    text += info.isRequired ? " " + argument : " [" + argument + "]";
    text += info.takesMany ? "..." : "";
  }
  return text + "\n";
}

/// The sections of the commands of `command`, and of those below them.
static std::string sectionsOf(const Command &command) {
  std::string text;
  for (const Command &each : visibleCommands(command))
    text += ".SS " + roff(each.fullName()) + "\n" + roff(each.help()) +
            "\n.PP\n" + synopsisOf(each) + bodyOf(each) + sectionsOf(each);
  return text;
}

/// The rows of ExitCodes.def, and what a signal gives.
static std::string exitStatus() {
  std::vector<std::pair<int, std::string>> rows = {
#define QWEN_EXIT_CODE(Name, Status, Test, Help) {Status, Help},
#include "ExitCodes.def"
      {128 + SIGINT, "SIGINT (Ctrl-C) ended the program."},
      {128 + SIGTERM, "SIGTERM ended the program."}};
  std::ranges::sort(rows);
  std::string text = ".SH EXIT STATUS\n";
  for (const auto &[status, help] : rows)
    text += ".TP\n" + bold(std::to_string(status)) + "\n" + roff(help) + "\n";
  return text;
}

std::string qwen::manualPage(const Command &program) {
  const std::string name = program.name();
  std::string title = name;
  std::ranges::transform(title, title.begin(), [](unsigned char c) {
    return static_cast<char>(std::toupper(c));
  });
  const std::string about = program.help();
  const std::string first = about.substr(0, about.find_first_of(".\n"));
  std::string text = ".TH " + title + " 1 \"\" \"" + name + " " +
                     projectVersion() + "\" \"User Commands\"\n" +
                     ".SH NAME\n" + roff(name) + " \\- " + roff(first) +
                     "\n.SH SYNOPSIS\n";
  if (!program.needsCommand())
    text += synopsisOf(program) + ".br\n";
  text += bold(name) + " " + italic("COMMAND") + " [" + italic("OPTION") +
          "]... [" + italic("ARGUMENT") + "]...\n.SH DESCRIPTION\n" +
          roff(about) + "\n.SH OPTIONS\n" + bodyOf(program) + ".SH COMMANDS\n";
  return text + sectionsOf(program) + exitStatus();
}
