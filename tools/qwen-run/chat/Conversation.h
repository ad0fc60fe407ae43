//===- Conversation.h - The messages of a chat ------------------*- C++ -*-===//

#ifndef QWEN_RUN_CHAT_CONVERSATION_H
#define QWEN_RUN_CHAT_CONVERSATION_H

#include "artifact/Manifest.h"
#include "model/ChatFormat.h"

#include <nlohmann/json.hpp>

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace qwen::run {

/// The messages so far. A turn is a message of the user with what follows it up
/// to the next one. Messages before the first turn, such as the system's, are
/// never forgotten.
class Conversation {
public:
  using Messages = nlohmann::ordered_json::array_t;

  /// `report` tells the user one line. All arguments must outlive the object.
  Conversation(const ModelInfo &model, const Tokenizer &tokenizer,
               const ChatFormat &format, bool allowSpecial,
               const std::function<void(const std::string &)> &report);

  /// The template's variables besides the messages.
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();
  Messages messages;
  /// Tools that the model may call, in OpenAI's form.
  nlohmann::ordered_json tools = nlohmann::ordered_json::array();

  /// Adds a message of the user and returns the prompt for its answer. Forgets
  /// the oldest turns if the context is too small for all. Returns nothing and
  /// changes nothing if the message does not fit even so, or if Ctrl-C ends the
  /// rendering. Reports each of the three.
  std::optional<std::vector<int32_t>> addLine(const std::string &line);
  void addAnswer(const std::string &text);
  /// The message of the user in the last turn, if there is one.
  std::optional<std::string> lastLine() const;
  /// Removes the last turn, if there is one.
  void removeTurn();
  /// Removes all turns.
  void clear();
  /// Sets the message of the system, the first one; an empty text removes it.
  void setSystem(const std::string &text);
  size_t turnCount() const { return turnStarts().size(); }

  /// The number of tokens of `prompt`, the last that addLine returned, that the
  /// next prompt may begin with.
  int64_t snapshotAt(std::span<const int32_t> prompt) const {
    return format.conversationLength(prompt, variablesWithout(0),
                                     {.allowSpecial = allowSpecial});
  }

private:
  /// The indices of the messages that begin turns.
  std::vector<size_t> turnStarts() const;
  /// The messages without the `turns` oldest turns.
  Messages messagesWithout(size_t turns) const;
  /// The template's variables with these messages.
  nlohmann::ordered_json variablesWithout(size_t turns) const;
  std::vector<int32_t> promptWithout(size_t turns) const;
  std::optional<std::vector<int32_t>> fitLine(const std::string &line);
  size_t turnsToForget() const;
  bool fits(const std::vector<int32_t> &tokens) const {
    return static_cast<int64_t>(tokens.size()) <= model.context;
  }
  void reportRefused(const std::string &length) const;

  const ModelInfo &model;
  const Tokenizer &tokenizer;
  const ChatFormat &format;
  const bool allowSpecial;
  const std::function<void(const std::string &)> &report;
};

} // namespace qwen::run

#endif // QWEN_RUN_CHAT_CONVERSATION_H
