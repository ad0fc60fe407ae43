//===- Conversation.cpp - The messages of a chat --------------------------===//

#include "chat/Conversation.h"

#include "chat/Interrupt.h"

#include "qwen/Support/Error.h"

using namespace qwen;
using namespace qwen::run;
using nlohmann::ordered_json;

Conversation::Conversation(
    const ModelInfo &chatModel, const Tokenizer &chatTokenizer,
    const ChatFormat &chatFormat, bool special,
    const std::function<void(const std::string &)> &reporter)
    : model(chatModel), tokenizer(chatTokenizer), format(chatFormat),
      allowSpecial(special), report(reporter) {}

std::vector<size_t> Conversation::turnStarts() const {
  std::vector<size_t> starts;
  for (size_t i = 0; i < messages.size(); ++i)
    if (messages[i]["role"] == "user")
      starts.push_back(i);
  return starts;
}

Conversation::Messages Conversation::messagesWithout(size_t turns) const {
  Messages rest = messages;
  if (turns) {
    std::vector<size_t> starts = turnStarts();
    starts.push_back(messages.size());
    const auto at = [&](size_t turn) {
      return rest.begin() + static_cast<std::ptrdiff_t>(starts[turn]);
    };
    rest.erase(at(0), at(turns));
  }
  return rest;
}

ordered_json Conversation::variablesWithout(size_t turns) const {
  ordered_json context = variables;
  context["add_generation_prompt"] = true;
  context["messages"] = messagesWithout(turns);
  if (!tools.empty())
    context["tools"] = tools;
  return context;
}

/// The tokens of the conversation without its `turns` oldest turns.
std::vector<int32_t> Conversation::promptWithout(size_t turns) const {
  return format.encode(
      variablesWithout(turns),
      {.allowSpecial = allowSpecial, .stop = [] { return interrupted != 0; }});
}

/// The number of oldest turns to forget, so that a quarter of the context is
/// free for the answer. It is the number of all turns before the last if that
/// does not help.
size_t Conversation::turnsToForget() const {
  const int64_t most = model.context - model.context / 4;
  size_t least = 1;
  for (size_t enough = turnCount() - 1; least < enough;) {
    const size_t middle = (least + enough) / 2;
    if (static_cast<int64_t>(promptWithout(middle).size()) > most)
      least = middle + 1;
    else
      enough = middle;
  }
  return least;
}

void Conversation::reportRefused(const std::string &length) const {
  report("the line gets no answer: it has " + length + " when " +
         model.describeContext());
}

/// addLine, except that Ctrl-C keeps the line and throws Error.
std::optional<std::vector<int32_t>>
Conversation::fitLine(const std::string &line) {
  const uint64_t mostBytes = tokenizer.mostBytes(model.context);
  if (line.size() > mostBytes) {
    reportRefused("more than " + std::to_string(mostBytes) + " bytes");
    return std::nullopt;
  }
  // Checked before rendering, for a template may run out of steps on a very
  // long line.
  const std::vector<int32_t> alone = tokenizer.encode(line, false);
  if (!fits(alone)) {
    reportRefused(std::to_string(alone.size()) + " tokens");
    return std::nullopt;
  }
  const size_t turns = turnCount();
  messages.push_back({{"role", "user"}, {"content", line}});
  std::vector<int32_t> prompt = promptWithout(0);
  const size_t whole = prompt.size();
  size_t forgotten = 0;
  if (!fits(prompt) && turns) {
    forgotten = turnsToForget();
    prompt = promptWithout(forgotten);
  }
  if (!fits(prompt)) {
    messages.pop_back();
    reportRefused(std::to_string(prompt.size()) + " tokens in the chat format");
    return std::nullopt;
  }
  if (forgotten) {
    messages = messagesWithout(forgotten);
    report("the conversation forgets the oldest " + std::to_string(forgotten) +
           " of " + std::to_string(turns) + " turns: it has " +
           std::to_string(whole) + " tokens when " + model.describeContext());
  }
  return prompt;
}

std::optional<std::vector<int32_t>>
Conversation::addLine(const std::string &line) {
  const size_t before = messages.size();
  try {
    return fitLine(line);
  } catch (const Error &error) {
    if (!interrupted)
      throw;
    messages.resize(before);
    report(error.what());
    return std::nullopt;
  }
}

void Conversation::addAnswer(const std::string &text) {
  messages.push_back({{"role", "assistant"}, {"content", text}});
}

std::optional<std::string> Conversation::lastLine() const {
  const std::vector<size_t> starts = turnStarts();
  if (starts.empty())
    return std::nullopt;
  return messages[starts.back()]["content"].get<std::string>();
}

void Conversation::removeTurn() {
  if (const std::vector<size_t> starts = turnStarts(); !starts.empty())
    messages.resize(starts.back());
}

void Conversation::clear() {
  if (const std::vector<size_t> starts = turnStarts(); !starts.empty())
    messages.resize(starts.front());
}

void Conversation::setSystem(const std::string &text) {
  if (!messages.empty() && messages.front()["role"] == "system")
    messages.erase(messages.begin());
  if (!text.empty())
    messages.insert(messages.begin(),
                    ordered_json{{"role", "system"}, {"content", text}});
}
