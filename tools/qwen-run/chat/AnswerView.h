//===- AnswerView.h - How answers look --------------------------*- C++ -*-===//

#ifndef QWEN_RUN_CHAT_ANSWERVIEW_H
#define QWEN_RUN_CHAT_ANSWERVIEW_H

#include "chat/Screen.h"
#include "text/AnswerFormat.h"

namespace qwen::run {

/// Turns the events of answers into what standard output gets. A terminal gets
/// reasoning in dim letters, or not at all, calls of tools as "[call NAME
/// ARGUMENTS]", and no control characters of the model. A program gets the text
/// as it is, with the marks of reasoning.
class AnswerView {
public:
  explicit AnswerView(const Screen &screen) : screen(screen) {}

  bool hidesReasoning = false;

  /// Whether the parser must tell reasoning and calls from text.
  bool splits() const { return screen.hasColor || hidesReasoning; }
  /// What these events add to the output.
  std::string add(const AnswerEvents &events);
  /// The end of an answer.
  std::string finish();

private:
  std::string addReasoning(const std::string &text);
  std::string endReasoning(bool hasText);
  /// What an event besides reasoning shows.
  std::string textOf(const AnswerEvent &event) const;

  const Screen screen;
  /// Whether the last event was reasoning, and whether it is shown.
  bool isReasoning = false, isShown = false;
  /// Whether the last line that was shown has text.
  bool isInLine = false;
};

} // namespace qwen::run

#endif // QWEN_RUN_CHAT_ANSWERVIEW_H
