//===- AnswerView.cpp - How answers look ----------------------------------===//

#include "chat/AnswerView.h"

using namespace qwen;
using namespace qwen::run;

/// What stands in place of hidden reasoning while it goes on.
static constexpr const char *kThinking = "(thinking)";

std::string AnswerView::addReasoning(const std::string &text) {
  std::string output;
  if (!isReasoning) {
    isReasoning = true;
    isShown = !hidesReasoning;
    if (isShown && screen.hasColor)
      output = "\x1b[2m";
    else if (!isShown && screen.hasCursor)
      output = screen.dim(kThinking);
  }
  if (isShown)
    output += screen.isTerminal ? screenText(text) : text;
  return output;
}

std::string AnswerView::endReasoning(bool hasText) {
  if (!isReasoning)
    return "";
  isReasoning = false;
  if (!isShown)
    return screen.hasCursor ? "\r\x1b[K" : "";
  std::string output = screen.hasColor ? "\x1b[22m" : "";
  if (hasText)
    output += "\n\n";
  return output;
}

std::string AnswerView::textOf(const AnswerEvent &event) const {
  std::string text = screen.isTerminal ? screenText(event.text) : event.text;
  switch (event.kind) {
  case AnswerEventKind::ToolCallBegin:
    return (isInLine ? "\n[call " : "[call ") + text + " ";
  case AnswerEventKind::ToolCallEnd:
    return "]";
  default:
    return text;
  }
}

std::string AnswerView::add(const AnswerEvents &events) {
  std::string output;
  for (const AnswerEvent &event : events) {
    if (event.kind == AnswerEventKind::Reasoning) {
      output += addReasoning(event.text);
      continue;
    }
    const bool hasText = !event.text.empty();
    output += endReasoning(hasText);
    const std::string text = textOf(event);
    if (!text.empty())
      isInLine = !text.ends_with('\n');
    output += text;
  }
  return output;
}

std::string AnswerView::finish() {
  isInLine = false;
  return endReasoning(false) + "\n";
}
