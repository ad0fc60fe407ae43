//===- Blocks.h - Messages of content blocks --------------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_SERVER_PROTOCOLS_MESSAGES_BLOCKS_H
#define QWEN_RUNTIME_SERVER_PROTOCOLS_MESSAGES_BLOCKS_H

#include "server/Parameters.h"

namespace qwen::server::messages {

/// The parameter "system", a text or text blocks, as messages of a chat
/// template, one for each block. `name` is the parameter's. Throws ApiError
/// (400), which names the block.
nlohmann::ordered_json systemTurns(const nlohmann::ordered_json &value,
                                   const std::string &name,
                                   const ParameterLimits &limits);

/// The parameter "messages" as a chat template reads it (Conversation): results
/// of tools become messages of their own, and so does each text of a system
/// message. Notes blocks that it leaves out. Throws ApiError (400).
nlohmann::ordered_json conversationTurns(const nlohmann::ordered_json &value,
                                         const std::string &name,
                                         const ParameterLimits &limits);

nlohmann::ordered_json systemSchema(const ParameterLimits &limits);
nlohmann::ordered_json conversationSchema(const ParameterLimits &limits);

} // namespace qwen::server::messages

#endif // QWEN_RUNTIME_SERVER_PROTOCOLS_MESSAGES_BLOCKS_H
