//===- Input.h - From items to messages -------------------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_SERVER_PROTOCOLS_RESPONSES_INPUT_H
#define QWEN_RUNTIME_SERVER_PROTOCOLS_RESPONSES_INPUT_H

#include "server/Parameters.h"

namespace qwen::server::responses {

/// The messages of "input" as Conversation has them. What an answer consisted
/// of, its reasoning, texts and calls, is one message. `name` is the
/// parameter's. Throws ApiError (400), which names the item.
nlohmann::ordered_json inputMessages(const nlohmann::ordered_json &value,
                                     const std::string &name,
                                     const ParameterLimits &limits);

/// The JSON schema of the argument of inputMessages.
nlohmann::ordered_json inputSchema(const ParameterLimits &limits);

} // namespace qwen::server::responses

#endif // QWEN_RUNTIME_SERVER_PROTOCOLS_RESPONSES_INPUT_H
