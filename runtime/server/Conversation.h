//===- Conversation.h - What a chat protocol asks ---------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_SERVER_CONVERSATION_H
#define QWEN_RUNTIME_SERVER_CONVERSATION_H

#include "server/Generation.h"

#include <map>
#include <string>

namespace qwen::server {

class Service;

/// Which calls of tools an answer has.
struct ToolChoice {
  enum Kind : uint8_t { None, Auto, Required, Named };
  Kind kind = Auto;
  /// The function that a Named choice calls.
  std::string name = {};
  /// Whether the answer may have several calls.
  bool isParallel = true;
};

/// A conversation that the model is to continue. Each chat protocol makes one
/// of its request. What the answer may be like is in AnswerParameters.
struct Conversation {
  /// What a request calls its parameters, for errors.
  struct Names {
    std::string messages, tools, choice, parallel;
    /// Behind the name of a tool that promises to keep its schema, and of one
    /// whose text has a grammar.
    std::string strict, grammar = {};
  };
  Names names;
  /// As a chat template reads them: each has a "role" and a "content", which is
  /// a string, and may have "reasoning_content", "tool_calls" with arguments
  /// that are objects, and "tool_call_id". System messages may stand anywhere,
  /// and there may be no message (turnsFor).
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  /// Functions that the answer may call, as a chat template reads them:
  /// {"type": "function", "function": {"name", "description", "parameters",
  /// "strict"}}. A protocol with tools of other kinds writes them as functions,
  /// and their calls back in its own form.
  nlohmann::ordered_json tools = nlohmann::ordered_json::array();
  /// What texts of functions keep to, by the names of these. Each is a promise,
  /// as "strict" is.
  std::map<std::string, TextGrammar> grammars = {};
  ToolChoice choice = {};
  /// Further variables of the chat template.
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();
  /// Whether the chat template begins the answer.
  bool addGenerationPrompt = true;
  /// Whether the answer continues the last message.
  bool continueFinalMessage = false;
};

/// Sets variables of the chat template for a word of how much the model is to
/// think; "none": not at all.
void setEffort(nlohmann::ordered_json &variables, const std::string &word);
/// Sets whether the model is to think, if it has a choice.
void setThinking(nlohmann::ordered_json &variables, bool thinks);

/// The arguments of a call that a request has: an object, or the text of one.
/// Others become {}: a call may be broken or cut, and an error would stay in
/// the history of an agent that sends back what it got.
nlohmann::ordered_json callArguments(const nlohmann::ordered_json &value);

/// Throws Error if the model answers no conversations.
void requireChat(const Service &service);

/// How the calls of an answer are read, in this format of the model. Throws
/// ApiError (400) if it must call a function that is none of the tools.
CallOptions callsOf(const Conversation &conversation, const CallFormat *format);

/// The answer to a conversation. Throws ApiError (400), which names a
/// parameter.
GenerationTask taskOf(const Service &service,
                      const AnswerParameters &parameters,
                      const Conversation &conversation);

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_CONVERSATION_H
