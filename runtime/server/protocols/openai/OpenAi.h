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

/// The text of a token, or its number as vLLM writes it.
std::string tokenText(const Tokenizer &tokenizer, int32_t id, bool asId);
/// "content" of logprobs: a list with an object for each token.
nlohmann::ordered_json tokenLogprobs(const std::vector<TokenRecord> &tokens,
                                     const Tokenizer &tokenizer,
                                     bool asIds = false);
/// JSON has no infinity.
double finite(float logprob);

} // namespace qwen::server::openai

#endif // QWEN_RUNTIME_SERVER_PROTOCOLS_OPENAI_OPENAI_H
