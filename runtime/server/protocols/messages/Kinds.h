//===- Kinds.h - Values of the Messages API ---------------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_SERVER_PROTOCOLS_MESSAGES_KINDS_H
#define QWEN_RUNTIME_SERVER_PROTOCOLS_MESSAGES_KINDS_H

#include "server/Parameters.h"

namespace qwen::server::messages {

/// An array of tools as a chat template reads them. Tools that a server of
/// Anthropic's runs are left out, with a note.
extern const OwnKind kToolList;
/// {"kind", "name", "isParallel"}, the members of ToolChoice.
extern const OwnKind kToolChoice;
/// {"thinks"}, and "budget" if the reasoning has one.
extern const OwnKind kThinkingConfig;
/// Whether the reasoning of earlier turns stays; null if the request does not
/// say.
extern const OwnKind kContextManagement;
/// {"effort"} if there is one, and {"grammar"}, what
/// GrammarParameters::addGrammar takes.
extern const OwnKind kOutputConfig;
/// What addGrammar takes.
extern const OwnKind kOutputFormat;

} // namespace qwen::server::messages

#endif // QWEN_RUNTIME_SERVER_PROTOCOLS_MESSAGES_KINDS_H
