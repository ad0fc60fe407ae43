//===- MessageLines.h - From lines to messages ------------------*- C++ -*-===//

#ifndef QWEN_RUN_CHAT_MESSAGELINES_H
#define QWEN_RUN_CHAT_MESSAGELINES_H

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace qwen::run {

/// Joins the lines that a user types. A message is one line, or:
///  - lines that end in a backslash (an odd number of them), which is removed,
///    and the line after them;
///  - the text between """ at the start of a line and """ at the end of this
///    line or of a later one.
class MessageLines {
public:
  /// Takes the next line. Returns whether the message is complete.
  bool add(std::string_view line);
  /// Whether a message has begun.
  bool isOpen() const { return state != State::Empty; }
  /// Whether the message stood between quotes, so that it is no command.
  bool isQuoted() const { return quoted; }
  /// Returns the message, or its lines so far, and forgets it.
  std::string take();

private:
  enum class State : uint8_t { Empty, Continued, Quoted };

  bool addQuoted(std::string_view line);

  State state = State::Empty;
  bool quoted = false;
  std::string text;
};

} // namespace qwen::run

#endif // QWEN_RUN_CHAT_MESSAGELINES_H
