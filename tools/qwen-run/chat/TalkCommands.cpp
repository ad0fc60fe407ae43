//===- TalkCommands.cpp - The commands of a chat --------------------------===//

#include "chat/SavedConversation.h"
#include "chat/Talk.h"
#include "chat/TextEditor.h"

#include "Output.h"

#include "qwen/Support/Error.h"
#include "qwen/Support/Text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <unistd.h>

using namespace qwen;
using namespace qwen::run;
using nlohmann::ordered_json;

//===----------------------------------------------------------------------===//
// The table
//===----------------------------------------------------------------------===//

std::span<const ChatCommandRow> ChatCommandRow::all() {
  static constexpr std::array kRows = std::to_array<ChatCommandRow>({
#define QWEN_CHAT_COMMAND(Name, Argument, Help, Function)                      \
  {Name, Argument, Help, &Talk::Function},
#include "chat/ChatCommands.def"
  });
  return kRows;
}

std::string ChatCommandRow::usage() const {
  return "/" + std::string(name) +
         (argument.empty() ? "" : " " + std::string(argument));
}

std::optional<ChatCommandLine>
qwen::run::parseChatCommand(std::string_view line) {
  constexpr std::string_view kSpaces = " \t\n";
  const size_t end = std::min(line.find_first_of(kSpaces), line.size());
  if (end < 2 || line[0] != '/' ||
      !std::ranges::all_of(
          line.substr(1, end - 1), [](char c) { return c >= 'a' && c <= 'z'; }))
    return std::nullopt;
  const auto rows = ChatCommandRow::all();
  const auto row =
      std::ranges::find(rows, line.substr(1, end - 1), &ChatCommandRow::name);
  if (row == rows.end())
    throw Error("there is no command " + quote(line.substr(0, end)) +
                "; /help lists them, and a message may stand between \"\"\"");
  const size_t begin =
      std::min(line.find_first_not_of(kSpaces, end), line.size());
  std::string argument(line.substr(begin));
  argument.resize(argument.find_last_not_of(kSpaces) + 1);
  if (row->argument.empty() && !argument.empty())
    throw Error(row->usage() + " takes no argument, but there is " +
                quote(argument));
  if (!row->argument.empty() && row->argument[0] != '[' && argument.empty())
    throw Error("/" + std::string(row->name) + " needs " +
                std::string(row->argument));
  return ChatCommandLine{&*row, argument};
}

//===----------------------------------------------------------------------===//
// What commands tell
//===----------------------------------------------------------------------===//

void Talk::noteRow(const std::string &left, const std::string &right) const {
  constexpr size_t kColumn = 26, kNarrow = 2, kLeastRight = 24;
  const size_t width = screenWidth(STDERR_FILENO);
  const bool isNarrow = width < kColumn + kLeastRight;
  const size_t indent = isNarrow ? std::min(kNarrow, width - 2) : kColumn;
  std::string text = isNarrow ? wrapped(left, width) + "\n" : left;
  if (!isNarrow)
    text.append(std::max(kColumn, left.size() + 1) - left.size(), ' ');
  else
    text.append(indent, ' ');
  for (const char c : wrapped(right, width - indent)) {
    text += c;
    if (c == '\n')
      text.append(indent, ' ');
  }
  writeError(text + "\n");
}

void Talk::help(const std::string &) {
  for (const ChatCommandRow &row : ChatCommandRow::all())
    noteRow(row.usage(), std::string(row.help));
  note("A message of several lines stands between \"\"\" and \"\"\", or each "
       "line but the last ends in a backslash. Ctrl-C stops an answer.");
}

//===----------------------------------------------------------------------===//
// The conversation
//===----------------------------------------------------------------------===//

void Talk::clear(const std::string &) {
  conversation.clear();
  note("the conversation is empty");
}

void Talk::setSystem(const std::string &argument) {
  conversation.setSystem(argument);
  note(argument.empty() ? "there is no system message"
                        : "the system message is set");
}

void Talk::regenerate(const std::string &) {
  const std::optional<std::string> message = conversation.lastLine();
  if (!message)
    throw Error("there is no message to answer");
  if (!hasNewSeed)
    ++sampling.seed;
  note("seed " + std::to_string(sampling.seed) +
       (sampling.temperature == 0
            ? "; the temperature is 0, so every seed gives the same answer"
            : ""));
  answerAgain(*message);
}

void Talk::edit(const std::string &) {
  const std::string edited = editText(conversation.lastLine().value_or(""),
                                      tokenizer.mostBytes(info.context));
  if (edited.empty())
    return note("the message is empty, so it is not sent");
  input.remember(edited);
  writeError("> " + screenText(edited) + "\n");
  answerAgain(edited);
}

void Talk::save(const std::string &argument) {
  const std::string text = requestOf({.messages = conversation.messages,
                                      .variables = conversation.variables,
                                      .sampling = sampling,
                                      .count = count},
                                     limits);
  OutputFile file(argument);
  file.write(text.data(), text.size());
  file.commit();
  session.keep();
  note("saved to " + quote(argument));
}

void Talk::load(const std::string &argument) {
  constexpr uint64_t kMostBytes = uint64_t{64} << 20;
  SavedConversation saved = {.sampling = sampling, .count = count};
  const std::string text =
      readDocument(argument, kMostBytes, "no conversation is longer");
  try {
    readRequest(text, limits, saved);
  } catch (const Error &error) {
    throw Error(argument + ": " + error.what());
  }
  conversation.messages = saved.messages;
  conversation.variables = saved.variables;
  sampling = saved.sampling;
  count = saved.count;
  // The seed of a last message without an answer is for its answer.
  hasNewSeed = conversation.messages.back()["role"] == "user";
  note("loaded " + std::to_string(conversation.messages.size()) + " messages" +
       (hasNewSeed ? "; /regen answers the last one" : ""));
}

void Talk::leave(const std::string &) { hasEnded = true; }

//===----------------------------------------------------------------------===//
// Settings
//===----------------------------------------------------------------------===//

void Talk::setThinking(const std::string &argument) {
  if (!model.answerFormat().reasons())
    throw Error("the answers of this model have no reasoning");
  if (argument == "show" || argument == "hide")
    view.hidesReasoning = argument == "hide";
  else if (argument == "on" || argument == "off")
    conversation.variables["enable_thinking"] = argument == "on";
  else
    throw Error("/think needs show, hide, on or off, not " + quote(argument));
  note("reasoning: " + argument);
}

void Talk::setSeed(const std::string &argument) {
  if (!argument.empty()) {
    uint64_t seed = 0;
    const char *end = argument.data() + argument.size();
    const auto [stop, error] = std::from_chars(argument.data(), end, seed);
    if (error != std::errc() || stop != end)
      throw Error("the seed must be a whole number from 0 to " +
                  std::to_string(UINT64_MAX) + ", not " + quote(argument));
    sampling.seed = seed;
    hasNewSeed = true;
  }
  note("seed " + std::to_string(sampling.seed));
}

void Talk::setSampling(const std::string &argument) {
  const size_t space = argument.find(' ');
  const std::string name = argument.substr(0, space);
  if (space != std::string::npos) {
    const size_t begin = argument.find_first_not_of(' ', space);
    setOption(sampling, name, argument.substr(begin), limits);
  } else if (!argument.empty()) {
    throw Error("/set needs NAME VALUE; /set alone lists the names");
  }
  for (const OptionLine &line : describeOptions(sampling))
    if (argument.empty())
      noteRow(line.name + " " + line.value, line.help);
    else if (line.name == name)
      note(line.name + " " + line.value);
}
