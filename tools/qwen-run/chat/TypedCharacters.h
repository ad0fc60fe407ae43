//===- TypedCharacters.h - Characters of a terminal's bytes -----*- C++ -*-===//

#ifndef QWEN_RUN_CHAT_TYPEDCHARACTERS_H
#define QWEN_RUN_CHAT_TYPEDCHARACTERS_H

#include <optional>
#include <string>

namespace qwen::run {

/// The characters that a terminal sends as bytes, one by one. Bytes that are
/// not UTF-8 become U+FFFD, and take no byte of the next key along. A carriage
/// return and the newline behind it are one carriage return.
class TypedCharacters {
public:
  void add(char byte) { bytes += byte; }

  /// The next character, or nothing while its last byte is missing.
  std::optional<char32_t> next();

  /// Forgets a character that has not come whole.
  void clear() { bytes.clear(); }

private:
  std::string bytes;
  bool wasReturn = false;
};

} // namespace qwen::run

#endif // QWEN_RUN_CHAT_TYPEDCHARACTERS_H
