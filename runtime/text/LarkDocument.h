//===- LarkDocument.h - JSON schemas in grammars of Lark --------*- C++ -*-===//
//
// llguidance makes a double of each number of a JSON schema. So objects and
// arrays around a constant with more digits become rules of Lark, which write
// its digits, and what is in them stays a schema.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_TEXT_LARKDOCUMENT_H
#define QWEN_RUNTIME_TEXT_LARKDOCUMENT_H

#include <nlohmann/json.hpp>

#include <string>

namespace qwen {

/// Documents of a schema in a grammar of Lark.
struct LarkDocument {
  /// The schema as llguidance reads it; empty if it needs rules.
  std::string schema;
  /// What stands for a document in a rule.
  std::string expression;
  /// The rules that the expression needs, a line each.
  std::string rules = {};
};

/// The documents of `part`, a schema in the schema `root` or the same: on one
/// line, in which one space may follow a comma and a colon. Space without a
/// bound is what models repeat until the answer is full. Names of rules begin
/// with `rule`. Throws Error like keptSchema, if the schema has a form of its
/// own, if a reference of a part leads to no definition, and if a keyword
/// around a constant with an inexactNumber has no rule.
LarkDocument larkDocument(const nlohmann::ordered_json &root,
                          const nlohmann::ordered_json &part,
                          const std::string &rule);

} // namespace qwen

#endif // QWEN_RUNTIME_TEXT_LARKDOCUMENT_H
