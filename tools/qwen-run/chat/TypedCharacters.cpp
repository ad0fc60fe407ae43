//===- TypedCharacters.cpp - Characters of a terminal's bytes -------------===//

#include "chat/TypedCharacters.h"

#include "qwen/Support/Text.h"

#include <utility>

using namespace qwen;
using namespace qwen::run;

std::optional<char32_t> TypedCharacters::next() {
  while (!bytes.empty()) {
    const DecodedChar c = decodeUtf8(bytes);
    if (c.kind == DecodedChar::Cut)
      break;
    bytes.erase(0, c.length);
    const bool followsReturn = std::exchange(wasReturn, c.codePoint == '\r');
    if (!followsReturn || c.codePoint != '\n')
      return c.codePoint;
  }
  return std::nullopt;
}
