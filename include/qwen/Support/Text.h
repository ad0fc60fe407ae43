//===- Text.h - UTF-8 and printable text ------------------------*- C++ -*-===//
//
// Functions that readers of files and writers of messages share.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_SUPPORT_TEXT_H
#define QWEN_SUPPORT_TEXT_H

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace qwen {

inline constexpr char32_t kReplacementCharacter = 0xfffd;

/// The first character of a text, or the invalid bytes in its place.
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
  /// Number of its bytes, at least 1. Of invalid bytes, the longest start of a
  /// character, which Python and Rust replace by one U+FFFD.
  uint8_t length;
  Kind kind;
};

/// Decodes the first character of `text`, which is not empty.
DecodedChar decodeUtf8(std::string_view text);

/// `text` as one line that is safe on a terminal. Control characters (C0, DEL,
/// C1), ends of lines and controls of the writing direction become escapes such
/// as "\n" and "\u001b"; bytes that are not UTF-8 become U+FFFD.
std::string printable(std::string_view text);

/// `text` in quotes, printable and cut after 200 bytes.
std::string quote(std::string_view text);

/// `text` without `spaces` at its ends.
std::string_view trimmed(std::string_view text, std::string_view spaces);

/// "a, b and c".
std::string listed(std::span<const std::string> items);

} // namespace qwen

#endif // QWEN_SUPPORT_TEXT_H
