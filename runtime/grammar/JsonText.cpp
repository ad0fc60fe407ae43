//===- JsonText.cpp - What of JSON a grammar cannot count -----------------===//

#include "grammar/JsonText.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <utility>

using namespace qwen;

using Fit = JsonText::Fit;
using Place = JsonText::Place;

static bool isDigit(char byte) { return byte >= '0' && byte <= '9'; }

Fit JsonText::push(std::string_view bytes) {
  Fit first = Fit::Yes;
  for (const char byte : bytes)
    if (const Fit fit = pushByte(byte); first == Fit::Yes)
      first = fit;
  return first;
}

Fit JsonText::pushByte(char byte) {
  switch (where) {
  case Place::Name:
  case Place::String:
    return pushInString(byte);
  case Place::Number:
    return pushInNumber(byte);
  case Place::Between:
    break;
  }
  return pushBetween(byte);
}

Fit JsonText::pushBetween(char byte) {
  switch (byte) {
  case '{':
  case '[':
    levels.push_back({.isObject = byte == '{', .hasNameNext = byte == '{'});
    break;
  case '}':
  case ']':
    if (!levels.empty())
      levels.pop_back();
    break;
  case ',':
    if (!levels.empty())
      levels.back().hasNameNext = levels.back().isObject;
    break;
  case '"':
    name.clear();
    where = !levels.empty() && levels.back().hasNameNext ? Place::Name
                                                         : Place::String;
    break;
  default:
    if (byte != '-' && !isDigit(byte))
      break;
    where = Place::Number;
    mostDigits = DigitLimits::kInteger;
    digits = isDigit(byte) ? 1 : 0;
  }
  return Fit::Yes;
}

Fit JsonText::pushInNumber(char byte) {
  if (isDigit(byte))
    return ++digits > mostDigits ? Fit::LongNumber : Fit::Yes;
  switch (byte) {
  case '.':
    mostDigits = DigitLimits::kFraction;
    digits = 0;
    return Fit::Yes;
  case 'e':
  case 'E':
    mostDigits = DigitLimits::kExponent;
    digits = 0;
    return Fit::Yes;
  case '+':
  case '-':
    return Fit::Yes;
  default:
    where = Place::Between;
    return pushBetween(byte);
  }
}

Fit JsonText::pushInString(char byte) {
  if (hexLeft > 0)
    return pushHex(byte);
  if (isEscape)
    return pushEscape(byte);
  if (byte == '\\') {
    isEscape = true;
    return Fit::Yes;
  }
  if (byte == '"')
    return endName();
  if (where == Place::Name)
    name += byte;
  return Fit::Yes;
}

Fit JsonText::pushEscape(char byte) {
  constexpr std::string_view kLetters = "bfnrt", kCharacters = "\b\f\n\r\t";
  isEscape = false;
  if (byte == 'u') {
    hexLeft = 4;
    hex = 0;
    return Fit::Yes;
  }
  const size_t found = kLetters.find(byte);
  if (where == Place::Name)
    name += found == std::string_view::npos ? byte : kCharacters[found];
  return Fit::Yes;
}

Fit JsonText::pushHex(char byte) {
  const int letter = std::tolower(static_cast<unsigned char>(byte));
  hex = hex * 16 +
        static_cast<unsigned>(isDigit(byte) ? byte - '0' : letter - 'a' + 10);
  --hexLeft;
  if (where != Place::Name)
    return Fit::Yes;
  // Control characters, and what may become one.
  constexpr unsigned kSpace = 0x20, kDelete = 0x7f;
  const unsigned least = hex << 4 * hexLeft,
                 most = ((hex + 1) << 4 * hexLeft) - 1;
  if (least >= kSpace && (least > kDelete || most < kDelete))
    return Fit::SameName;
  if (hexLeft == 0)
    name += static_cast<char>(hex);
  return Fit::Yes;
}

Fit JsonText::endName() {
  const bool isName = std::exchange(where, Place::Between) == Place::Name;
  if (isName) {
    Level &object = levels.back();
    object.hasNameNext = false;
    if ((object.names && object.names->contains(name)) ||
        std::ranges::count(object.more, name))
      return Fit::SameName;
    object.more.push_back(std::move(name));
  }
  return Fit::Yes;
}

void JsonText::settle() {
  for (Level &level : levels) {
    if (level.more.empty())
      continue;
    if (!level.names)
      level.names = std::make_shared<Names>();
    level.names->insert(level.more.begin(), level.more.end());
    level.more.clear();
  }
}

static constexpr size_t kWordBits = 32;

TokenTexts::TokenTexts(const Tokenizer &vocabulary)
    : tokenizer(vocabulary), added(static_cast<size_t>(vocabulary.vocabSize())),
      texts(added.size() / kWordBits + 1), inNames(texts.size()),
      inStrings(texts.size()), between(texts.size()) {
  for (const AddedToken &token : tokenizer.addedTokens())
    added[token.id] = true;
  for (size_t id = 0; id < added.size(); ++id) {
    if (added[id])
      continue;
    const std::string_view text = bytes(static_cast<int32_t>(id));
    const auto quotes = std::ranges::count(text, '"');
    const bool hasBackslash = text.find('\\') != std::string_view::npos;
    const auto digits = std::ranges::count_if(text, isDigit);
    const auto add = [&](Set &set, bool mayMisfit) {
      set[id / kWordBits] |= uint32_t{mayMisfit} << id % kWordBits;
    };
    add(texts, true);
    // A name needs its two marks in one token; a string before it has another.
    add(inNames, quotes >= 1 || hasBackslash);
    add(inStrings, quotes >= 3 || (quotes >= 2 && hasBackslash));
    add(between, quotes >= 2 || (quotes >= 1 && hasBackslash) ||
                     std::cmp_greater(digits, DigitLimits::kExponent));
  }
}

std::span<const uint32_t> TokenTexts::misfits(const JsonText &text) const {
  switch (text.place()) {
  case Place::Name:
    return text.isInEscape() ? texts : inNames;
  case Place::String:
    return inStrings;
  case Place::Number:
    return texts;
  case Place::Between:
    break;
  }
  return between;
}

void AnswerJson::filter(std::span<uint32_t> allowed) const {
  if (!isIn)
    return;
  const std::span<const uint32_t> misfits = texts->misfits(text);
  std::vector<int32_t> longer;
  bool isEmpty = true;
  for (size_t word = 0; word < allowed.size(); ++word) {
    const uint32_t some = word < misfits.size() ? misfits[word] : 0;
    for (uint32_t bits = allowed[word] & some; bits; bits &= bits - 1) {
      const int bit = std::countr_zero(bits);
      const auto id = static_cast<int32_t>(word * kWordBits) + bit;
      JsonText next = text;
      const Fit fit = next.push(texts->bytes(id));
      if (fit != Fit::Yes)
        allowed[word] &= ~(1U << bit);
      if (fit == Fit::LongNumber)
        longer.push_back(id);
    }
    isEmpty &= allowed[word] == 0;
  }
  if (isEmpty)
    for (const int32_t id : longer)
      allowed[static_cast<size_t>(id) / kWordBits] |=
          1U << static_cast<size_t>(id) % kWordBits;
}

void AnswerJson::accept(int32_t id) {
  if (part == JsonPart::None)
    return;
  if (texts->isAdded(id)) {
    if (part == JsonPart::BetweenMarks)
      isOpen = !isOpen;
    isIn = isOpen;
    isBegun = false;
    text = JsonText();
    return;
  }
  if (!isIn)
    return;
  const std::string_view bytes = texts->bytes(id);
  const size_t first = bytes.find_first_not_of(" \n");
  if (!isBegun && part == JsonPart::BetweenMarks &&
      first != std::string_view::npos) {
    isBegun = true;
    isIn = bytes[first] == '{';
  }
  text.push(bytes);
  text.settle();
}
