//===- Text.cpp - UTF-8 and printable text --------------------------------===//

#include "qwen/Support/Text.h"

#include <array>
#include <cstdio>

using namespace qwen;

DecodedChar qwen::decodeUtf8(std::string_view text) {
  const auto at = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = at(0);
  if (lead < 0x80)
    return {lead, 1, DecodedChar::Valid};
  // The range of the second byte excludes overlong forms, surrogates and code
  // points above U+10FFFF.
  uint8_t length = 0, low = 0x80, high = 0xbf;
  if (lead >= 0xc2 && lead <= 0xdf) {
    length = 2;
  } else if (lead >= 0xe0 && lead <= 0xef) {
    length = 3;
    if (lead == 0xe0)
      low = 0xa0;
    else if (lead == 0xed)
      high = 0x9f;
  } else if (lead >= 0xf0 && lead <= 0xf4) {
    length = 4;
    if (lead == 0xf0)
      low = 0x90;
    else if (lead == 0xf4)
      high = 0x8f;
  } else {
    return {kReplacementCharacter, 1, DecodedChar::Invalid};
  }
  char32_t codePoint = lead & (0x7f >> length);
  for (uint8_t i = 1; i < length; ++i) {
    if (i == text.size())
      return {kReplacementCharacter, i, DecodedChar::Cut};
    if (at(i) < low || at(i) > high)
      return {kReplacementCharacter, i, DecodedChar::Invalid};
    codePoint = codePoint << 6 | (at(i) & 0x3f);
    low = 0x80;
    high = 0xbf;
  }
  return {codePoint, length, DecodedChar::Valid};
}

/// Whether `c` is a control character, ends a line or sets the writing
/// direction.
static bool isControl(char32_t c) {
  const auto isWithin = [&](char32_t first, char32_t last) {
    return c >= first && c <= last;
  };
  return c < 0x20 || isWithin(0x7f, 0x9f) || c == 0x61c ||
         isWithin(0x200e, 0x200f) || isWithin(0x2028, 0x202e) ||
         isWithin(0x2066, 0x2069);
}

std::string qwen::printable(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const DecodedChar c = decodeUtf8(text.substr(i));
    if (c.kind != DecodedChar::Valid) {
      result += "\ufffd";
    } else if (c.codePoint == '\n') {
      result += "\\n";
    } else if (c.codePoint == '\r') {
      result += "\\r";
    } else if (c.codePoint == '\t') {
      result += "\\t";
    } else if (isControl(c.codePoint)) {
      std::array<char, 8> code;
      std::snprintf(code.data(), code.size(), "\\u%04x",
                    static_cast<unsigned>(c.codePoint));
      result += code.data();
    } else {
      result.append(text, i, c.length);
    }
    i += c.length;
  }
  return result;
}

std::string qwen::quote(std::string_view text) {
  constexpr size_t kMost = 200;
  std::string quoted = "\"";
  for (const char c : text.substr(0, kMost)) {
    if (c == '"' || c == '\\')
      quoted += '\\';
    quoted += c;
  }
  quoted += text.size() > kMost ? "...\"" : "\"";
  return printable(quoted);
}

std::string_view qwen::trimmed(std::string_view text, std::string_view spaces) {
  const size_t first = text.find_first_not_of(spaces);
  if (first == std::string_view::npos)
    return {};
  return text.substr(first, text.find_last_not_of(spaces) + 1 - first);
}

std::string qwen::listed(std::span<const std::string> items) {
  std::string list;
  for (size_t i = 0; i < items.size(); ++i) {
    const bool isLast = i + 1 == items.size();
    list += (i == 0 ? "" : isLast ? " and " : ", ") + items[i];
  }
  return list;
}
