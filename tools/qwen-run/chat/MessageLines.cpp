//===- MessageLines.cpp - From lines to messages --------------------------===//

#include "chat/MessageLines.h"

using namespace qwen::run;

static constexpr std::string_view kQuotes = "\"\"\"";

bool MessageLines::addQuoted(std::string_view line) {
  const bool ends = line.ends_with(kQuotes);
  if (ends)
    line.remove_suffix(kQuotes.size());
  // No line is empty because of the quotes.
  if (!line.empty() || !ends) {
    if (!text.empty())
      text += '\n';
    text += line;
  }
  if (ends)
    state = State::Empty;
  return ends;
}

bool MessageLines::add(std::string_view line) {
  if (state == State::Quoted)
    return addQuoted(line);
  if (state == State::Empty) {
    quoted = line.starts_with(kQuotes);
    if (quoted) {
      state = State::Quoted;
      line.remove_prefix(kQuotes.size());
      return line.empty() ? false : addQuoted(line);
    }
  }
  const size_t end = line.find_last_not_of('\\') + 1;
  if ((line.size() - end) % 2 == 1) {
    line.remove_suffix(1);
    text += line;
    text += '\n';
    state = State::Continued;
    return false;
  }
  text += line;
  state = State::Empty;
  return true;
}

std::string MessageLines::take() {
  state = State::Empty;
  return std::exchange(text, "");
}
