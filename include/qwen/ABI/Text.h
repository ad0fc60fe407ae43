//===- Text.h - UTF-8, and text that a terminal may see ---------*- C++ -*-===//
//
// What readers of files and writers of messages share.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_ABI_TEXT_H
#define QWEN_ABI_TEXT_H

#include <cstdint>
#include <string>
#include <string_view>

namespace qwen {

inline constexpr char32_t kReplacementCharacter = 0xfffd;

/// What UTF-8 text begins with.
struct DecodedChar {
  enum Kind : uint8_t {
    Valid,
    /// No character begins with these bytes.
    Invalid,
    /// The text ends inside a character.
    Cut,
  };
  /// U+FFFD unless valid.
  char32_t codePoint;
  /// Bytes of it, at least 1: unless valid, the longest start of a character
  /// that they are (what Python and Rust replace by one U+FFFD).
  uint8_t length;
  Kind kind;
};

/// Decodes the first character of `text`, which is not empty.
DecodedChar decodeUtf8(std::string_view text);

/// `text` as one line that is safe on a terminal. Control characters (C0, DEL,
/// C1), ends of lines and controls of the writing direction become escapes as
/// "\n" and "\u001b"; bytes that are not UTF-8 become U+FFFD.
std::string printable(std::string_view text);

/// `text` in quotes, printable, cut after 200 bytes.
std::string quote(std::string_view text);

} // namespace qwen

#endif // QWEN_ABI_TEXT_H
