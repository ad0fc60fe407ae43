//===- CallGrammar.h - Which calls an answer has ----------------*- C++ -*-===//
//
// What a request promises about calls of tools, as a grammar of the answer.
// Each format of calls writes the rules of its own calls
// (CallFormat::writeRules).
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_TEXT_CALLGRAMMAR_H
#define QWEN_RUNTIME_TEXT_CALLGRAMMAR_H

#include "text/CallParser.h"
#include "text/Tokenizer.h"

#include <set>

namespace qwen {

/// The tokens of a vocabulary that stand before and behind a call.
struct CallMarks {
  int32_t open, close;
  /// kCallOpen and kCallClose. Throws Error if there are no such tokens.
  static CallMarks of(const Tokenizer &tokenizer);
};

/// The grammar in Lark of an answer that calls some of `tools` as `rules` say.
/// A call stands between its marks. Its arguments are an object of the tool's
/// schema, or any object for the tools whose index is in `loose`. Throws Error
/// if the format cannot keep a schema.
std::string callGrammar(const CallFormat &format, const Tools &tools,
                        const CallRules &rules, CallMarks marks,
                        const std::set<size_t> &loose = {});

} // namespace qwen

#endif // QWEN_RUNTIME_TEXT_CALLGRAMMAR_H
