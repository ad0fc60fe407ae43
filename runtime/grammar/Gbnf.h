//===- Gbnf.h - Grammars of llama.cpp ---------------------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_GRAMMAR_GBNF_H
#define QWEN_RUNTIME_GRAMMAR_GBNF_H

#include <string>
#include <string_view>

namespace qwen {

/// Whether a grammar is in GBNF, whose rules have "::=".
bool isGbnf(std::string_view text);

/// A grammar in GBNF, the form of llama.cpp (grammars/README.md there), as one
/// in llguidance's form of Lark. Rules that do not contain themselves become
/// expressions; of other rules, each longest part without such a rule is an
/// expression. The lexer takes the longest text of an expression, so that a
/// rule that contains itself may have fewer texts than in GBNF, and never
/// others. Throws Error with the line for what is no GBNF, and for tokens in
/// rules (<think>, <[7]>, !<think>), which are not converted.
std::string larkOfGbnf(std::string_view text);

} // namespace qwen

#endif // QWEN_RUNTIME_GRAMMAR_GBNF_H
