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
static std::string valueText(CLI::Option &option) {
  const OptionValue value = valueOf(option);
  if (value.kind == OptionValue::None)
    return "";
  return " " + italic(value.names.empty() || value.names.size() > 8
                          ? value.type
                          : CLI::detail::join(value.names, "|"));
}

static std::string optionText(CLI::Option &option) {
  std::string text = ".TP\n";
  bool isFirst = true;
  for (const std::string &name : namesOf(option)) {
    text += (isFirst ? "" : ", ") + bold(name);
    isFirst = false;
  }
  text += valueText(option) + "\n" + roff(option.get_description());
  const OptionValue value = valueOf(option);
  if (value.names.size() > 8)
    text += roff(": " + CLI::detail::join(value.names, ", "));
  if (!option.get_default_str().empty())
    text += roff("; default is " + option.get_default_str());
  if (!option.get_envname().empty())
    text += roff("; variable ") + bold(option.get_envname());
  return text + "\n";
}

/// The arguments of a command and its options.
static std::string bodyOf(CLI::App &command) {
  std::string text;
  for (CLI::Option *option : command.get_options())
    if (option->get_positional())
      text += ".TP\n" + italic(option->get_name(true)) + "\n" +
              roff(option->get_description()) + "\n";
  for (CLI::Option *option : visibleOptions(command))
    text += optionText(*option);
  if (!command.get_footer().empty())
    text += ".PP\n.nf\n" + roff(command.get_footer()) + "\n.fi\n";
  return text;
}

/// "qwen-run chat [OPTION]... FILE".
static std::string synopsisOf(CLI::App &command, const std::string &name) {
  std::string text = bold(name) + " [" + italic("OPTION") + "]...";
  for (CLI::Option *option : command.get_options())
    if (option->get_positional()) {
      const std::string argument = italic(option->get_name(true));
      text += option->get_required() ? " " + argument : " [" + argument + "]";
      text += option->get_items_expected_max() > 1 ? "..." : "";
    }
  return text + "\n";
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

std::string qwen::manualPage(CLI::App &app) {
  const std::string &name = app.get_name();
  std::string title = name;
  std::ranges::transform(title, title.begin(), [](unsigned char c) {
    return static_cast<char>(std::toupper(c));
  });
  const std::string about = app.get_description();
  const std::string first = about.substr(0, about.find_first_of(".\n"));
  std::string text = ".TH " + title + " 1 \"\" \"" + name + " " +
                     projectVersion() + "\" \"User Commands\"\n" +
                     ".SH NAME\n" + roff(name) + " \\- " + roff(first) +
                     "\n.SH SYNOPSIS\n";
  const std::vector<CLI::App *> commands = visibleCommands(app);
  if (app.get_require_subcommand_min() == 0)
    text += synopsisOf(app, name) + ".br\n";
  text += bold(name) + " " + italic("COMMAND") + " [" + italic("OPTION") +
          "]... [" + italic("ARGUMENT") + "]...\n.SH DESCRIPTION\n" +
          roff(about) + "\n.SH OPTIONS\n" + bodyOf(app) + ".SH COMMANDS\n";
  for (CLI::App *command : commands)
    text += ".SS " + roff(name + " " + command->get_name()) + "\n" +
            roff(command->get_description()) + "\n.PP\n" +
            synopsisOf(*command, name + " " + command->get_name()) +
            bodyOf(*command);
  return text + exitStatus();
}
