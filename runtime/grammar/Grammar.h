//===- Grammar.h - What answers may be like ---------------------*- C++ -*-===//
//
// A grammar says which texts an answer may have. Its state says which tokens
// may come next. One library does the work (LlGuidance.cpp); without it there
// are no grammars.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_GRAMMAR_GRAMMAR_H
#define QWEN_RUNTIME_GRAMMAR_GRAMMAR_H

#include "engine/TokenConstraint.h"
#include "text/Tokenizer.h"

#include <memory>

namespace qwen {

/// The languages of grammars.
enum class GrammarKind : uint8_t {
  /// A JSON schema: the answer is a document of it, on one line.
  JsonSchema,
  /// A regular expression, in Rust's syntax, of the whole answer.
  Regex,
  /// A JSON array of strings: the answer is one of them.
  Choice,
  /// A grammar in llguidance's form of Lark.
  Lark,
  /// What callGrammar writes: the same, with more schemas.
  Calls,
};

/// The text of a grammar.
struct GrammarSource {
  GrammarKind kind;
  std::string text;
};

/// A grammar for the tokens of one model. Any number of threads may use it.
class Grammar {
public:
  virtual ~Grammar() = default;
  /// What may come in an answer, from its first token on. The tokens that end
  /// an answer may come where the text is whole.
  virtual std::unique_ptr<TokenConstraint> start() const = 0;
};

/// Reads grammars for the tokens of one model. Any number of threads may use
/// it.
class GrammarCompiler {
public:
  virtual ~GrammarCompiler() = default;
  /// Throws Error with one line if the text is no grammar, if it has a keyword
  /// that cannot be kept, if no text has its form, or if it is too large.
  virtual std::unique_ptr<Grammar>
  compile(const GrammarSource &source) const = 0;
};

/// Maximum number of bytes of a grammar.
inline constexpr size_t kMostGrammarBytes = size_t{1} << 20;

/// Whether there is a library of grammars.
bool hasGrammars();

/// The compiler for a vocabulary; `ends` are the tokens that end an answer.
/// Takes about a second for a vocabulary of 150,000 tokens. Texts have no added
/// tokens: they stand for marks. `tokenizer` must outlive it. Throws Error if
/// there is no library.
std::unique_ptr<GrammarCompiler>
makeGrammarCompiler(const Tokenizer &tokenizer, std::span<const int32_t> ends);

} // namespace qwen

#endif // QWEN_RUNTIME_GRAMMAR_GRAMMAR_H
