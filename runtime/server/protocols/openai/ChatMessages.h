//===- ChatMessages.h - The messages of a chat ------------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_SERVER_PROTOCOLS_OPENAI_CHATMESSAGES_H
#define QWEN_RUNTIME_SERVER_PROTOCOLS_OPENAI_CHATMESSAGES_H

#include <nlohmann/json.hpp>

#include <string>

namespace qwen::server {

/// The messages of a request as a chat template reads them: each has a "role"
/// and a "content", which is a string, and may have "tool_calls" as toolCallsOf
/// returns them. `name` is the parameter's. Throws
/// ApiError (400), which names the message.
nlohmann::ordered_json messagesOf(const nlohmann::ordered_json &value,
                                  const std::string &name, bool ignoreUnknown);

/// The JSON schema of the argument of messagesOf.
nlohmann::ordered_json messagesSchema(bool ignoreUnknown);

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_PROTOCOLS_OPENAI_CHATMESSAGES_H
