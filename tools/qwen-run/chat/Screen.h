//===- Screen.h - Text on terminals -----------------------------*- C++ -*-===//

#ifndef QWEN_RUN_CHAT_SCREEN_H
#define QWEN_RUN_CHAT_SCREEN_H

#include <cstddef>
#include <string>
#include <string_view>

namespace qwen::run {

/// `text` as it is safe on a terminal: newlines and tabs stay, other control
/// characters become escapes as in `printable`.
std::string screenText(std::string_view text);

/// Number of columns of a line of valid UTF-8.
size_t lineColumns(std::string_view line);

/// The words of valid UTF-8 in lines of at most `width` columns, which is at
/// least 2. Newlines stay; other lines that begin here are indented by `indent`
/// spaces. A longer word is cut between characters.
std::string wrapped(std::string_view text, size_t width, size_t indent = 0);

enum class ColorMode { Auto, Always, Never };

/// What a terminal can do.
struct Screen {
  bool isTerminal = false;
  /// Whether text may be dim (SGR).
  bool hasColor = false;
  /// Whether the cursor moves: not with TERM=dumb, and not without TERM.
  bool hasCursor = false;

  /// `text` in dim letters, if there are some.
  std::string dim(const std::string &text) const;
};

/// The screen of a descriptor. Auto: letters may be dim on a terminal, unless
/// NO_COLOR is set and not empty (https://no-color.org) or TERM is "dumb".
Screen screenOf(int descriptor, ColorMode mode);

/// Number of columns of the terminal, at least 2; 80 if it is unknown.
size_t screenWidth(int descriptor);

} // namespace qwen::run

#endif // QWEN_RUN_CHAT_SCREEN_H
