//===- LineEditor.h - Lines of a terminal, with libedit ---------*- C++ -*-===//

#ifndef QWEN_RUN_CHAT_LINEEDITOR_H
#define QWEN_RUN_CHAT_LINEEDITOR_H

#include "chat/History.h"
#include "chat/LineInput.h"

#include <memory>
#include <optional>

namespace qwen::run {

/// Edits lines on the terminal of standard input and standard error, with the
/// history of the user. libedit gives the keys; it reads the user's
/// .editrc. A paste of several lines is one line with newlines (bracketed
/// paste).
class LineEditor final : public LineInput {
public:
  /// Sets the locale of characters. `history` may be null.
  explicit LineEditor(std::unique_ptr<History> history);
  ~LineEditor() override;

  /// Whether libedit can show characters: it needs a locale of UTF-8.
  static bool isPossible();

  ReadResult next(const std::string &prompt, std::string &line) override;
  void remember(const std::string &message) override;

  /// What libedit's functions know.
  struct State;

private:
  const std::unique_ptr<State> state;
  std::unique_ptr<History> history;
};

} // namespace qwen::run

#endif // QWEN_RUN_CHAT_LINEEDITOR_H
