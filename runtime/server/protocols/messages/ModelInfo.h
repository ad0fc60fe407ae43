//===- ModelInfo.h - Models as Anthropic's clients read them ----*- C++ -*-===//

#ifndef QWEN_RUNTIME_SERVER_PROTOCOLS_MESSAGES_MODELINFO_H
#define QWEN_RUNTIME_SERVER_PROTOCOLS_MESSAGES_MODELINFO_H

#include "server/Service.h"

namespace qwen::server::messages {

/// The answer of /v1/models/{model} to a request with the header
/// Anthropic-Version.
nlohmann::ordered_json modelInfo(const std::string &name,
                                 const std::optional<int64_t> &context);
/// The same of /v1/models, whose answer has the models of `list`.
nlohmann::ordered_json modelList(const nlohmann::ordered_json &list);
nlohmann::ordered_json modelList(const Service &service);

} // namespace qwen::server::messages

#endif // QWEN_RUNTIME_SERVER_PROTOCOLS_MESSAGES_MODELINFO_H
