//===- LlGuidance.h - Grammars of llguidance --------------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_GRAMMAR_LLGUIDANCE_H
#define QWEN_RUNTIME_GRAMMAR_LLGUIDANCE_H

#include "grammar/Grammar.h"

#include "qwen/Support/Error.h"

namespace qwen {

/// An error of llguidance in one line: its first one and, of regular
/// expressions, the one with the cause.
Error llGuidanceError(std::string_view text);

/// makeGrammarCompiler by llguidance.
std::unique_ptr<GrammarCompiler> makeLlGuidance(const Tokenizer &tokenizer,
                                                std::span<const int32_t> ends);

} // namespace qwen

#endif // QWEN_RUNTIME_GRAMMAR_LLGUIDANCE_H
