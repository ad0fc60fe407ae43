//===- LlText.h - Texts within an answer, with grammars ---------*- C++ -*-===//
//
// What of llguidance/lib.rs keeps a text within an answer to a grammar of its
// own (InnerText). The grammar of the answer allows any text there, and this
// takes away tokens: the text may be written with escapes, which no grammar of
// llguidance undoes, and may end where its longest expression would go on.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_GRAMMAR_LLTEXT_H
#define QWEN_RUNTIME_GRAMMAR_LLTEXT_H

#include "grammar/JsonText.h"

#include "qwen/Support/Error.h"

#include <llguidance.h>

#include <array>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

extern "C" {
struct QwenTokens;
struct QwenText;
struct QwenMessage {
  char *text;
  size_t size;
};
/// Makes the first states of a grammar within `limits`, which llguidance does
/// not keep there. Returns 0, or -1 with a message.
int32_t qwen_check_grammar(const char *kind, const char *text,
                           const LlgParserLimits *limits, QwenMessage message);
/// A text that stands as TextPlace says. Returns null with a message.
QwenText *qwen_new_text(const char *kind, const char *text, const char *before,
                        const char *end, bool isJson,
                        const LlgParserLimits *limits, QwenMessage message);
}

namespace qwen {

/// Space for a message.
class LlMessage {
public:
  QwenMessage space() { return {text.data(), text.size()}; }
  Error error() const;

private:
  std::array<char, 4096> text = {};
};

/// The names of tokens for llguidance: their texts, behind a mark if they stand
/// for none.
struct TokenNames {
  std::string bytes;
  std::vector<uint32_t> lengths;
};

/// The tokens of a vocabulary as texts read them.
class LlTokens {
public:
  LlTokens(std::shared_ptr<const TokenTexts> tokenTexts, size_t vocabularySize)
      : texts(std::move(tokenTexts)), size(vocabularySize) {}

  TokenNames names() const;
  std::string_view bytes(int32_t id) const { return texts->bytes(id); }
  /// The tree of all tokens, which the first call makes.
  const QwenTokens *tree() const;

private:
  struct Free {
    void operator()(QwenTokens *tokens) const;
  };

  const std::shared_ptr<const TokenTexts> texts;
  const size_t size;
  mutable std::once_flag isMade;
  mutable std::unique_ptr<QwenTokens, Free> made;
};

/// A text in an answer. It may come several times, each time as a whole.
class LlText {
public:
  /// Takes `text`, which comes from qwen_new_text.
  LlText(QwenText *text, int32_t beforeText,
         std::shared_ptr<const LlTokens> textTokens)
      : first(text), mark(beforeText), tokens(std::move(textTokens)) {}
  /// Copies are for one answer each: they begin it, and share nothing.
  LlText(const LlText &other)
      : first(copyOf(*other.first)), mark(other.mark), tokens(other.tokens) {}
  LlText(LlText &&) = default;
  LlText &operator=(const LlText &) = delete;
  LlText &operator=(LlText &&) = delete;
  ~LlText() = default;

  /// Takes away tokens that may not come (TokenConstraint::allowed).
  void filter(std::span<uint32_t> allowed);
  void accept(int32_t id);

private:
  struct Free {
    void operator()(QwenText *text) const;
  };
  static QwenText *copyOf(const QwenText &text);

  /// Before its first byte.
  std::unique_ptr<QwenText, Free> first;
  /// What may come or has begun; null elsewhere in the answer.
  std::unique_ptr<QwenText, Free> now = nullptr;
  int32_t mark;
  std::shared_ptr<const LlTokens> tokens;
};

} // namespace qwen

#endif // QWEN_RUNTIME_GRAMMAR_LLTEXT_H
