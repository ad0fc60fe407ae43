//===- LineInput.h - Where the lines of a chat come from --------*- C++ -*-===//

#ifndef QWEN_RUN_CHAT_LINEINPUT_H
#define QWEN_RUN_CHAT_LINEINPUT_H

#include <cstdint>
#include <string>

namespace qwen::run {

enum class ReadResult : uint8_t {
  Line,
  /// Ctrl-C.
  Interrupted,
  /// The input has ended, with Ctrl-D on a terminal.
  End,
};

/// Standard input, line by line.
class LineInput {
public:
  LineInput() = default;
  LineInput(const LineInput &) = delete;
  LineInput &operator=(const LineInput &) = delete;
  virtual ~LineInput() = default;

  /// Reads the next line, without its newline, with a prompt on a terminal. On
  /// an interrupt, `line` is what had been typed, as far as that is known.
  /// Throws Error.
  virtual ReadResult next(const std::string &prompt, std::string &line) = 0;
  /// Adds a message to those that the user can recall.
  virtual void remember(const std::string &message) {}
};

/// Reads without an editor: no terminal, or one that lacks a cursor.
class PlainInput final : public LineInput {
public:
  /// Cuts a longer line after `mostBytes` + 1 bytes.
  PlainInput(uint64_t mostBytes, bool hasPrompt)
      : mostBytes(mostBytes), hasPrompt(hasPrompt) {}

  ReadResult next(const std::string &prompt, std::string &line) override;

private:
  const uint64_t mostBytes;
  const bool hasPrompt;
  std::string held;
  bool ended = false;
};

} // namespace qwen::run

#endif // QWEN_RUN_CHAT_LINEINPUT_H
