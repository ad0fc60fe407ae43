//===- Unicode.cpp - UTF-8, classes of characters, NFC --------------------===//

#include "text/Unicode.h"

#include "qwen/Support/Error.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <span>
#include <vector>

using namespace qwen;

void qwen::appendUtf8(std::string &text, char32_t codePoint) {
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t size =
      utf8proc_encode_char(static_cast<utf8proc_int32_t>(codePoint), bytes);
  text.append(reinterpret_cast<const char *>(bytes), size_t(size));
}

bool qwen::isValidUtf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    if (static_cast<uint8_t>(text[i]) < 0x80) {
      ++i;
      continue;
    }
    const DecodedChar c = decodeUtf8(text.substr(i));
    if (c.kind != DecodedChar::Valid)
      return false;
    i += c.length;
  }
  return true;
}

std::string qwen::toValidUtf8(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const DecodedChar c = decodeUtf8(text.substr(i));
    if (c.kind == DecodedChar::Valid)
      result.append(text, i, c.length);
    else
      appendUtf8(result, kReplacementCharacter);
    i += c.length;
  }
  return result;
}

size_t qwen::countCodePoints(std::string_view text) {
  return size_t(std::ranges::count_if(
      text, [](char c) { return !continuesCharacter(c); }));
}

size_t qwen::columnsOf(char32_t codePoint) {
  return size_t(utf8proc_charwidth(static_cast<utf8proc_int32_t>(codePoint)));
}

//===----------------------------------------------------------------------===//
// Other versions of Unicode
//===----------------------------------------------------------------------===//

// Hugging Face's libraries, with which the models were trained, have the
// character classes of Unicode 16.0 and the NFC of 9.0. utf8proc has 15.0 for
// both. These tables are the difference.

namespace {
struct CharRange {
  char32_t first;
  char32_t last;
};
} // namespace

/// Letters of 16.0 that 15.0 lacks.
static constexpr CharRange kNewLetters[] = {
    {0x1c89, 0x1c8a},   {0xa7cb, 0xa7cd},   {0xa7da, 0xa7dc},
    {0x105c0, 0x105f3}, {0x10d4a, 0x10d65}, {0x10d6f, 0x10d85},
    {0x10ec2, 0x10ec4}, {0x11380, 0x11389}, {0x1138b, 0x1138b},
    {0x1138e, 0x1138e}, {0x11390, 0x113b5}, {0x113b7, 0x113b7},
    {0x113d1, 0x113d1}, {0x113d3, 0x113d3}, {0x11bc0, 0x11be0},
    {0x13460, 0x143fa}, {0x16100, 0x1611d}, {0x16d40, 0x16d6c},
    {0x18cff, 0x18cff}, {0x1e5d0, 0x1e5ed}, {0x1e5f0, 0x1e5f0},
    {0x2ebf0, 0x2ee5d}};

/// Numbers of 16.0 that 15.0 lacks.
static constexpr CharRange kNewNumbers[] = {
    {0x10d40, 0x10d49}, {0x116d0, 0x116e3}, {0x11bf0, 0x11bf9},
    {0x16130, 0x16139}, {0x16d70, 0x16d79}, {0x1ccf0, 0x1ccf9},
    {0x1e5f1, 0x1e5fa}};

static constexpr CharRange kNewMarks[] = {
    {0x897, 0x897},     {0x10d69, 0x10d6d}, {0x10efc, 0x10efc},
    {0x113b8, 0x113c0}, {0x113c2, 0x113c2}, {0x113c5, 0x113c5},
    {0x113c7, 0x113ca}, {0x113cc, 0x113d0}, {0x113d2, 0x113d2},
    {0x113e1, 0x113e2}, {0x11f5a, 0x11f5a}, {0x1611e, 0x1612f},
    {0x1e5ee, 0x1e5ef}};

/// Characters of 15.0 that 9.0 lacks and that compose or have a combining
/// class. NFC of 9.0 leaves them alone.
static constexpr CharRange kInertMarks[] = {
    {0x7fd, 0x7fd},     {0x898, 0x89f},     {0x8ca, 0x8d3},
    {0x9fe, 0x9fe},     {0xc3c, 0xc3c},     {0xd3b, 0xd3c},
    {0xeba, 0xeba},     {0x1715, 0x1715},   {0x1abf, 0x1ace},
    {0x1df6, 0x1dfa},   {0xa82c, 0xa82c},   {0x10d24, 0x10d27},
    {0x10eab, 0x10eac}, {0x10efd, 0x10eff}, {0x10f46, 0x10f50},
    {0x10f82, 0x10f85}, {0x11070, 0x11070}, {0x1133b, 0x1133b},
    {0x1145e, 0x1145e}, {0x11839, 0x1183a}, {0x11930, 0x11930},
    {0x11938, 0x11938}, {0x1193d, 0x1193e}, {0x11943, 0x11943},
    {0x119e0, 0x119e0}, {0x11a34, 0x11a34}, {0x11a47, 0x11a47},
    {0x11a99, 0x11a99}, {0x11d42, 0x11d42}, {0x11d44, 0x11d45},
    {0x11d97, 0x11d97}, {0x11f41, 0x11f42}, {0x16ff0, 0x16ff1},
    {0x1e08f, 0x1e08f}, {0x1e130, 0x1e136}, {0x1e2ae, 0x1e2ae},
    {0x1e2ec, 0x1e2ef}, {0x1e4ec, 0x1e4ef}};

static bool isIn(std::span<const CharRange> ranges, char32_t c) {
  const auto found = std::ranges::lower_bound(ranges, c, {}, &CharRange::last);
  return found != ranges.end() && found->first <= c;
}

//===----------------------------------------------------------------------===//
// Classes
//===----------------------------------------------------------------------===//

static CharClass classify(char32_t c) {
  switch (c) {
  case '\r':
  case '\n':
    return CharClass::Newline;
  case '\t':
  case '\v':
  case '\f':
  case ' ':
  case 0x85:
  case 0xa0:
  case 0x1680:
  case 0x2028:
  case 0x2029:
  case 0x202f:
  case 0x205f:
  case 0x3000:
    return CharClass::Space;
  default:
    break;
  }
  if (c >= 0x2000 && c <= 0x200a)
    return CharClass::Space;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
  case UTF8PROC_CATEGORY_LU:
  case UTF8PROC_CATEGORY_LL:
  case UTF8PROC_CATEGORY_LT:
  case UTF8PROC_CATEGORY_LM:
  case UTF8PROC_CATEGORY_LO:
    return CharClass::Letter;
  case UTF8PROC_CATEGORY_ND:
  case UTF8PROC_CATEGORY_NL:
  case UTF8PROC_CATEGORY_NO:
    return CharClass::Number;
  case UTF8PROC_CATEGORY_CN:
    return isIn(kNewLetters, c)   ? CharClass::Letter
           : isIn(kNewNumbers, c) ? CharClass::Number
                                  : CharClass::Other;
  default:
    return CharClass::Other;
  }
}

CharClass qwen::charClass(char32_t codePoint) {
  static const std::array<CharClass, 128> ascii = [] {
    std::array<CharClass, 128> table;
    for (char32_t c = 0; c < table.size(); ++c)
      table[c] = classify(c);
    return table;
  }();
  return codePoint < ascii.size() ? ascii[codePoint] : classify(codePoint);
}

bool qwen::isMark(char32_t codePoint) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(codePoint))) {
  case UTF8PROC_CATEGORY_MN:
  case UTF8PROC_CATEGORY_MC:
  case UTF8PROC_CATEGORY_ME:
    return true;
  case UTF8PROC_CATEGORY_CN:
    return isIn(kNewMarks, codePoint);
  default:
    return false;
  }
}

bool qwen::isWordChar(char32_t codePoint) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(codePoint))) {
  case UTF8PROC_CATEGORY_LU:
  case UTF8PROC_CATEGORY_LL:
  case UTF8PROC_CATEGORY_LT:
  case UTF8PROC_CATEGORY_LM:
  case UTF8PROC_CATEGORY_LO:
  case UTF8PROC_CATEGORY_MN:
  case UTF8PROC_CATEGORY_MC:
  case UTF8PROC_CATEGORY_ME:
  case UTF8PROC_CATEGORY_ND:
  case UTF8PROC_CATEGORY_NL:
  case UTF8PROC_CATEGORY_PC:
    return true;
  default:
    return codePoint == 0x200c || codePoint == 0x200d;
  }
}

//===----------------------------------------------------------------------===//
// NFC
//===----------------------------------------------------------------------===//

bool qwen::isSurelyNfc(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const uint8_t byte = static_cast<uint8_t>(text[i]);
    // U+0000..U+02FF: Latin letters, no marks.
    if (byte < 0x80) {
      ++i;
      continue;
    }
    if (byte < 0xcc) {
      i += 2;
      continue;
    }
    // U+4000..U+9FFF, U+FF00..U+FFFF: most of CJK and its full-width forms.
    if ((byte >= 0xe4 && byte <= 0xe9) ||
        (byte == 0xef && static_cast<uint8_t>(text[i + 1]) >= 0xbc)) {
      i += 3;
      continue;
    }
    return false;
  }
  return true;
}

namespace {

/// Decomposes characters, collects them and composes them again.
class NfcRun {
public:
  void add(char32_t c);
  /// Appends the composed characters to `result` and removes them.
  void flush(std::string &result);

private:
  void orderMarks();
  static uint64_t combiningClass(utf8proc_int32_t c) {
    return uint64_t(utf8proc_get_property(c)->combining_class);
  }
  static void check(utf8proc_ssize_t result) {
    if (result < 0)
      throw Error(std::string("cannot normalize text: ") +
                  utf8proc_errmsg(result));
  }

  std::vector<utf8proc_int32_t> chars;
  /// Where the marks at the end of `chars` begin.
  size_t marks = 0;
  std::vector<uint64_t> keys;
};

} // namespace

void NfcRun::add(char32_t c) {
  // No canonical decomposition is longer than four.
  std::array<utf8proc_int32_t, 8> parts;
  int boundary = 0;
  const utf8proc_ssize_t count =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts.data(),
                              parts.size(), UTF8PROC_DECOMPOSE, &boundary);
  check(count);
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    const bool isStarter = combiningClass(parts[size_t(i)]) == 0;
    if (isStarter)
      orderMarks();
    chars.push_back(parts[size_t(i)]);
    if (isStarter)
      marks = chars.size();
  }
}

/// Sorts the marks at the end by their class; equals keep their order.
/// (utf8proc needs quadratic time for this.)
void NfcRun::orderMarks() {
  if (chars.size() - marks < 2)
    return;
  keys.clear();
  for (size_t i = marks; i < chars.size(); ++i)
    keys.push_back(combiningClass(chars[i]) << 56 | uint64_t(i) << 21 |
                   uint64_t(chars[i]));
  std::ranges::sort(keys);
  for (size_t i = 0; i < keys.size(); ++i)
    chars[marks + i] = utf8proc_int32_t(keys[i] & 0x1fffff);
}

void NfcRun::flush(std::string &result) {
  orderMarks();
  const utf8proc_ssize_t size = utf8proc_normalize_utf32(
      chars.data(), utf8proc_ssize_t(chars.size()),
      utf8proc_option_t(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  check(size);
  for (utf8proc_ssize_t i = 0; i < size; ++i)
    appendUtf8(result, char32_t(chars[size_t(i)]));
  chars.clear();
  marks = 0;
}

std::string qwen::toNfc(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  NfcRun run;
  for (size_t i = 0; i < text.size();) {
    const DecodedChar c = decodeUtf8(text.substr(i));
    if (isIn(kInertMarks, c.codePoint)) {
      run.flush(result);
      result.append(text, i, c.length);
    } else {
      run.add(c.codePoint);
    }
    i += c.length;
  }
  run.flush(result);
  return result;
}
