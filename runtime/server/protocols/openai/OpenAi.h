//===- OpenAi.h - What OpenAI's protocols share -----------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_SERVER_PROTOCOLS_OPENAI_OPENAI_H
#define QWEN_RUNTIME_SERVER_PROTOCOLS_OPENAI_OPENAI_H

#include "server/Generation.h"

namespace qwen::server::openai {

/// Errors are {"error": {"message", "type", "param", "code"}}, and a stream
/// ends with [DONE].
extern const Framing kFraming;

/// The usage of an answer without drawn tokens.
nlohmann::ordered_json promptUsage(const Generation &generation);

} // namespace qwen::server::openai

#endif // QWEN_RUNTIME_SERVER_PROTOCOLS_OPENAI_OPENAI_H
