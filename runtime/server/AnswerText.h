//===- AnswerText.h - The text of an answer, as a stream --------*- C++ -*-===//

#ifndef QWEN_RUNTIME_SERVER_ANSWERTEXT_H
#define QWEN_RUNTIME_SERVER_ANSWERTEXT_H

#include "text/Tokenizer.h"

#include <optional>
#include <string>
#include <vector>

namespace qwen::server {

/// The bytes of a token; none for an id that only the model has.
std::string_view bytesOf(const Tokenizer &tokenizer, int32_t id);

/// Counts the characters of tokens.
class CharacterCount {
public:
  /// Adds the bytes of a token. Returns the number of characters before the one
  /// that they begin or go on with.
  int64_t push(std::string_view bytes);
  /// Ends the text. Returns the number of its characters.
  int64_t finish();

private:
  Utf8Stream characters;
  int64_t count = 0;
};

/// The number of characters of a text in UTF-8.
int64_t characterCount(std::string_view text);

/// Turns the bytes of tokens into texts that may be shown: whole
/// characters, and nothing that may be the start of a stop string. The texts
/// joined do not depend on how the bytes are split.
class AnswerText {
public:
  /// No stop string may be empty. `includeStop`: a stop string that is found
  /// belongs to the text.
  explicit AnswerText(std::vector<std::string> stops = {},
                      bool includeStop = false);

  /// Adds the bytes of a token and returns the text that may be shown now. The
  /// text ends at the first stop string, however many bytes follow.
  std::string push(std::string_view bytes);
  /// Ends the text and returns what was held back.
  std::string finish();
  /// The stop string that ended the text.
  const std::optional<std::string> &stop() const { return found; }

private:
  /// Cuts `held` at the stop string that ends first.
  bool findStop();
  /// Bytes at the end of `held` that may start a stop string.
  size_t startOfStop() const;

  std::vector<std::string> stops;
  bool includeStop;
  Utf8Stream characters;
  std::string held;
  std::optional<std::string> found;
};

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_ANSWERTEXT_H
