//===- ToolGrammar.h - The grammar of the calls of a request ----*- C++ -*-===//

#ifndef QWEN_RUNTIME_GRAMMAR_TOOLGRAMMAR_H
#define QWEN_RUNTIME_GRAMMAR_TOOLGRAMMAR_H

#include "grammar/Grammar.h"
#include "text/CallGrammar.h"

namespace qwen {

/// The grammar of an answer with `calls`, which have rules. A tool that is not
/// strict loses the keywords of its schema that cannot be kept; its other
/// keywords hold. Throws Error like GrammarCompiler::compile, and if the schema
/// of a strict tool, or the grammar of a text, cannot be kept.
std::unique_ptr<Grammar> makeToolGrammar(const GrammarCompiler &compiler,
                                         const CallOptions &calls,
                                         CallMarks marks,
                                         const std::stop_token &stop = {});

} // namespace qwen

#endif // QWEN_RUNTIME_GRAMMAR_TOOLGRAMMAR_H
