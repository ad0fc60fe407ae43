//===- Base64.cpp - Bytes as text -----------------------------------------===//

#include "qwen/Support/Base64.h"

#include <algorithm>
#include <cstdint>

using namespace qwen;

static constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

std::string qwen::toBase64(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t count = std::min<size_t>(bytes.size() - i, 3);
    uint32_t bits = 0;
    for (size_t j = 0; j < 3; ++j)
      bits = bits << 8 |
             (j < count ? static_cast<uint8_t>(bytes[i + j]) : uint8_t{0});
    for (size_t j = 0; j < 4; ++j)
      text += j <= count ? kDigits[bits >> (18 - 6 * j) & 63] : '=';
  }
  return text;
}

std::optional<std::string> qwen::fromBase64(std::string_view text) {
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  const std::string_view digits =
      text.substr(0, text.find_last_not_of('=') + 1);
  for (char c : digits) {
    const size_t digit = kDigits.find(c);
    if (digit == kDigits.npos)
      return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count >= 8) {
      count -= 8;
      bytes += static_cast<char>(bits >> count);
    }
  }
  if (text.size() % 4 != 0 || text.size() - digits.size() > 2)
    return std::nullopt;
  return bytes;
}
