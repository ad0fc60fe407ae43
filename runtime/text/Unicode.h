//===- Unicode.h - UTF-8, classes of characters, NFC ------------*- C++ -*-===//
//
// Unicode for the tokenizer and the chat templates, based on utf8proc.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_TEXT_UNICODE_H
#define QWEN_RUNTIME_TEXT_UNICODE_H

#include "qwen/Support/Text.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace qwen {

void appendUtf8(std::string &text, char32_t codePoint);

/// Whether a byte of UTF-8 is not the first of its character.
inline bool continuesCharacter(char byte) { return (byte & 0xC0) == 0x80; }

bool isValidUtf8(std::string_view text);

/// `text` with U+FFFD in place of bytes that are not UTF-8, like Python's
/// errors="replace".
std::string toValidUtf8(std::string_view text);

/// Number of columns of a terminal that a character takes: 0, 1 or 2.
size_t columnsOf(char32_t codePoint);

/// Number of characters of valid UTF-8.
size_t countCodePoints(std::string_view text);

/// The classes (Unicode 16.0) that the tokenizer's regular expression
/// distinguishes.
enum class CharClass : uint8_t {
  /// \p{L}
  Letter,
  /// \p{N}
  Number,
  /// \r or \n
  Newline,
  /// \s without the above
  Space,
  Other,
};
CharClass charClass(char32_t codePoint);

/// \p{M} of Unicode 16.0.
bool isMark(char32_t codePoint);

/// Whether \w of a regular expression matches the character.
bool isWordChar(char32_t codePoint);

/// `text`, which must be valid UTF-8, in Normalization Form C of Unicode 9.0.
/// Takes linear time except for the sorting of marks.
std::string toNfc(std::string_view text);

/// A quick check: true if toNfc certainly changes nothing.
bool isSurelyNfc(std::string_view text);

} // namespace qwen

#endif // QWEN_RUNTIME_TEXT_UNICODE_H
