//===- Turns.h - The messages that a chat template takes --------*- C++ -*-===//
//
// Agents send system messages anywhere. A template may refuse these, or write
// them elsewhere.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_MODEL_TURNS_H
#define QWEN_RUNTIME_MODEL_TURNS_H

#include "model/ChatFormat.h"

#include <nlohmann/json.hpp>

namespace qwen {

/// What a chat template takes.
struct TurnRules {
  /// Whether it writes a system message behind other messages where it stands.
  bool laterSystem = true;
  /// Whether it renders a conversation without a message of the user.
  bool noUser = true;
};

/// The rules of a template, which short conversations show.
TurnRules turnRulesOf(const ChatFormat &format);

/// A conversation as a template with these rules takes it. The system messages
/// at its front become one, with an empty line between their texts. Where the
/// template does not write a later one, it becomes a message of the user, with
/// its text between <system> and </system>: moved to the front, it would change
/// what the prompts of earlier requests begin with. An empty message of the
/// user is added where the template needs one. Each message has a "role" and a
/// "content", which is a string.
nlohmann::ordered_json turnsFor(const TurnRules &rules,
                                const nlohmann::ordered_json &messages);

} // namespace qwen

#endif // QWEN_RUNTIME_MODEL_TURNS_H
