//===- ModelCard.h - A model as Codex reads it ------------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_SERVER_PROTOCOLS_RESPONSES_MODELCARD_H
#define QWEN_RUNTIME_SERVER_PROTOCOLS_RESPONSES_MODELCARD_H

#include "server/Service.h"

namespace qwen::server::responses {

/// An element of "models" of Codex's catalogue (ModelInfo of
/// codex-rs/protocol/src/openai_models.rs): one with a member missing makes
/// Codex drop the whole list. It has the members that releases from 0.143 on
/// need.
nlohmann::ordered_json modelCard(const Service &service,
                                 const std::string &name);

} // namespace qwen::server::responses

#endif // QWEN_RUNTIME_SERVER_PROTOCOLS_RESPONSES_MODELCARD_H
