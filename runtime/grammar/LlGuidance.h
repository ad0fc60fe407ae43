//===- LlGuidance.h - Grammars of llguidance --------------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_GRAMMAR_LLGUIDANCE_H
#define QWEN_RUNTIME_GRAMMAR_LLGUIDANCE_H

#include "grammar/Grammar.h"

namespace qwen {

/// makeGrammarCompiler by llguidance.
std::unique_ptr<GrammarCompiler> makeLlGuidance(const Tokenizer &tokenizer,
                                                std::span<const int32_t> ends);

} // namespace qwen

#endif // QWEN_RUNTIME_GRAMMAR_LLGUIDANCE_H
