//===- Thinking.h - The reasoning in an answer ------------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_SERVER_THINKING_H
#define QWEN_RUNTIME_SERVER_THINKING_H

#include "text/Tokenizer.h"

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace qwen::server {

/// The tokens <think> and </think> of a model.
struct ThinkTokens {
  int32_t open, close;
  /// What follows </think> in chat templates: two newlines.
  std::vector<int32_t> after;
};

/// Nothing if the model does not have both.
std::optional<ThinkTokens> thinkTokens(const Tokenizer &tokenizer);

/// Finds the reasoning in an answer: all between <think>, which is the first
/// token or stands in the prompt, and </think>.
class Thinking {
public:
  /// No token is reasoning without `tokens`, which must outlive this.
  /// `budget` is the maximum number of tokens of the reasoning.
  Thinking(const ThinkTokens *tokens, const Tokenizer &tokenizer,
           std::span<const int32_t> prompt, std::optional<int64_t> budget);

  /// The token that the answer gets next, because the budget is used up.
  std::optional<int32_t> next() const;
  /// Whether the next token begins or ends the reasoning if it is `id`.
  bool isMark(int32_t id) const;
  /// Takes the next token of the answer.
  void push(int32_t id);
  /// Whether the text that comes is reasoning.
  bool isInside() const { return inside; }
  /// Number of tokens of the reasoning, without <think> and </think>.
  int64_t count() const { return reasoned; }

  /// `text`, of the tokens since the last mark, without the newlines beside
  /// marks.
  std::string trim(std::string text);

private:
  const ThinkTokens *const tokens;
  const std::optional<int64_t> budget;
  bool inside = false;
  bool isFirst = true;
  int64_t reasoned = 0;
  /// Number of tokens that have come because the budget is used up.
  size_t given = 0;
  /// No text has come since a mark.
  bool afterMark = false;
  /// Newlines that are held back, as </think> may follow.
  std::string newlines;
};

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_THINKING_H
