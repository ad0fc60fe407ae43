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
#include "text/Tools.h"

#include <memory>
#include <stop_token>
#include <string>
#include <vector>

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

/// A text within an answer that has a grammar of its own.
struct InnerText {
  /// Regex or Lark.
  GrammarKind kind;
  std::string text;
  /// The token behind which what stands before the text may come.
  int32_t mark;
  TextPlace place;
};

/// The text of a grammar.
struct GrammarSource {
  GrammarKind kind;
  std::string text;
  /// What parts of the answer keep to besides.
  std::vector<InnerText> inner = {};
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
  /// that cannot be kept, if no text has its form, or if it is too large
  /// (GrammarLimits), and Error of the kind Cancelled soon after a request to
  /// stop.
  virtual std::unique_ptr<Grammar>
  compile(const GrammarSource &source,
          const std::stop_token &stop = {}) const = 0;
};

/// Bounds of a grammar besides SchemaLimits. They are
/// counts, as a bound in seconds would refuse the same grammar under load. To
/// make one takes at most about a second and 200 MB, and a mask about 50 ms.
struct GrammarLimits {
  /// Maximum number of bytes of its text.
  static constexpr size_t kBytes = size_t{1} << 20;
  /// Maximum number of objects of a schema, and of colons, one for each rule,
  /// of a grammar in Lark. Readers recurse along them, by 8 KiB each at most.
  static constexpr size_t kParts = 4096;
  /// Maximum number of states of its lexer, of 1 to 2 KB each.
  static constexpr size_t kStates = 50000;
  /// Steps to make the first states, of about 100 ns each.
  static constexpr uint64_t kFirstSteps = 1000000;
  /// Maximum number of rules that wait at one place of a text: four for each
  /// property that may be left out.
  static constexpr size_t kRulesAtOnce = 20000;
  /// The same of all tokens of a mask.
  static constexpr size_t kRulesOfMask = 200000;
  /// Maximum number of ways in which expressions of Lark that "&" joins go on
  /// together with a byte.
  static constexpr double kJoinedWays = 262144;
};

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
