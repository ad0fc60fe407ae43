//===- TokenizerWords.cpp - Words of a text, and their tokens -------------===//

#include "text/TokenizerWords.h"

#include "text/Unicode.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <bit>

using namespace qwen;

//===----------------------------------------------------------------------===//
// Words
//===----------------------------------------------------------------------===//

namespace {

/// A character and its class; `size` is 0 at the end of the text.
struct ClassedChar {
  char32_t codePoint;
  CharClass kind;
  uint8_t size;

  bool is(CharClass wanted) const { return size && kind == wanted; }
};

} // namespace

/// The character at `at`; marks are letters with `marksJoinLetters`.
static ClassedChar charAt(std::string_view text, size_t at,
                          bool marksJoinLetters = false) {
  if (at >= text.size())
    return {0, CharClass::Other, 0};
  const DecodedChar c = decodeUtf8(text.substr(at));
  CharClass kind = charClass(c.codePoint);
  if (marksJoinLetters && kind == CharClass::Other && isMark(c.codePoint))
    kind = CharClass::Letter;
  return {c.codePoint, kind, c.length};
}

/// The offset of the first character from `at` on that has another class.
static size_t skip(std::string_view text, size_t at, CharClass kind,
                   bool marksJoinLetters) {
  for (;;) {
    const ClassedChar c = charAt(text, at, marksJoinLetters);
    if (!c.is(kind))
      return at;
    at += c.size;
  }
}

/// The lower-case letter at `at` if contractions have it, else 0. Case folding
/// also turns U+017F into s.
static char foldedLetter(std::string_view text, size_t at) {
  const ClassedChar c = charAt(text, at);
  if (c.codePoint == 0x17f)
    return 's';
  if (c.codePoint >= 'A' && c.codePoint <= 'Z')
    return char(c.codePoint - 'A' + 'a');
  return c.codePoint >= 'a' && c.codePoint <= 'z' ? char(c.codePoint) : char(0);
}

/// The end of the contraction that begins with the apostrophe at `begin`, or
/// `begin` if there is none.
static size_t contractionEnd(std::string_view text, size_t begin) {
  const size_t first = begin + 1;
  switch (foldedLetter(text, first)) {
  case 's':
    return first + charAt(text, first).size;
  case 't':
  case 'm':
  case 'd':
    return first + 1;
  case 'r':
  case 'v':
    return foldedLetter(text, first + 1) == 'e' ? first + 2 : begin;
  case 'l':
    return foldedLetter(text, first + 1) == 'l' ? first + 2 : begin;
  default:
    return begin;
  }
}

/// The end of a word of white space at `begin`, which belongs to no letters or
/// marks after it.
static size_t spaceEnd(std::string_view text, size_t begin) {
  size_t end = begin, lastBegin = begin, newlineEnd = begin;
  for (;;) {
    const ClassedChar c = charAt(text, end);
    if (!c.is(CharClass::Space) && !c.is(CharClass::Newline))
      break;
    lastBegin = end;
    end += c.size;
    if (c.kind == CharClass::Newline)
      newlineEnd = end;
  }
  if (newlineEnd > begin)
    return newlineEnd;
  // The last space belongs to the word after it.
  if (end < text.size() && lastBegin > begin)
    return lastBegin;
  return end;
}

size_t qwen::wordEnd(std::string_view text, size_t begin,
                     bool marksJoinLetters) {
  const auto skipAll = [&](size_t at, CharClass kind) {
    return skip(text, at, kind, marksJoinLetters);
  };
  const ClassedChar first = charAt(text, begin, marksJoinLetters);
  if (first.codePoint == '\'')
    if (const size_t end = contractionEnd(text, begin); end > begin)
      return end;
  const size_t second = begin + first.size;
  switch (first.kind) {
  case CharClass::Letter:
    return skipAll(second, CharClass::Letter);
  case CharClass::Number:
    return second;
  case CharClass::Other:
  case CharClass::Space: {
    const ClassedChar next = charAt(text, second, marksJoinLetters);
    if (next.is(CharClass::Letter))
      return skipAll(second, CharClass::Letter);
    if (first.kind == CharClass::Space &&
        (first.codePoint != ' ' || !next.is(CharClass::Other)))
      return spaceEnd(text, begin);
    const size_t end = skipAll(second, CharClass::Other);
    return skipAll(end, CharClass::Newline);
  }
  case CharClass::Newline:
    return spaceEnd(text, begin);
  }
  return second;
}

//===----------------------------------------------------------------------===//
// Merging
//===----------------------------------------------------------------------===//

/// Longer words rarely occur twice, so their ids are not kept.
static constexpr size_t kMaxSeenSize = 64;

WordEncoder::WordEncoder(const TokenizerHeader &tokenizerHeader,
                         std::span<const MergeSlot> mergeTable, size_t sizeHint,
                         std::vector<int32_t> &output)
    : header(tokenizerHeader), merges(mergeTable), ids(output),
      seen(std::bit_ceil(std::clamp<size_t>(sizeHint / 8, 16, 1 << 15))) {}

void WordEncoder::encode(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const size_t end =
        wordEnd(text, i, header.flags & TokenizerMarksJoinLetters);
    encodeWord(text.substr(i, end - i));
    i = end;
  }
}

void WordEncoder::encodeWord(std::string_view word) {
  if (word.size() == 1) {
    if (const uint32_t id = header.byteTokens[uint8_t(word[0])]; id != kNoToken)
      ids.push_back(int32_t(id));
    else if (header.flags & TokenizerHasUnknown)
      ids.push_back(int32_t(header.unknownToken));
    return;
  }
  if (word.size() > kMaxSeenSize)
    return merge(word);
  const uint64_t hash = XXH3_64bits(word.data(), word.size());
  Seen &slot = seen[hash & (seen.size() - 1)];
  if (slot.hash == hash && std::string_view(slot.word, slot.size) == word) {
    // By index, because the vector may grow.
    for (size_t i = 0; i < slot.idCount; ++i)
      ids.push_back(ids[slot.firstId + i]);
    return;
  }
  const size_t firstId = ids.size();
  merge(word);
  slot = {word.data(), uint32_t(word.size()), uint32_t(ids.size() - firstId),
          hash, firstId};
}

const MergeSlot *WordEncoder::findMerge(uint32_t left, uint32_t right) const {
  const auto slots = uint32_t(merges.size());
  for (uint32_t i = mergeHash(left, right, slots);; i = (i + 1) & (slots - 1)) {
    const MergeSlot &slot = merges[i];
    if (slot.left == left && slot.right == right)
      return &slot;
    if (slot.rank == kNoToken)
      return nullptr;
  }
}

void WordEncoder::addCandidate(int32_t left) {
  const int32_t right = symbols[size_t(left)].next;
  if (right < 0)
    return;
  const MergeSlot *found =
      findMerge(symbols[size_t(left)].id, symbols[size_t(right)].id);
  if (!found)
    return;
  candidates.push_back({found->rank, left, found});
  std::push_heap(candidates.begin(), candidates.end());
}

/// Makes a symbol of each byte that has a token. The others are skipped before
/// anything merges, so that their neighbours may merge, or become the unknown
/// token, which may merge as any other.
void WordEncoder::addSymbols(std::string_view word) {
  symbols.clear();
  bool isAfterUnknown = false;
  for (const char byte : word) {
    uint32_t id = header.byteTokens[uint8_t(byte)];
    const bool isUnknown = id == kNoToken;
    if (isUnknown) {
      if (!(header.flags & TokenizerHasUnknown) ||
          (isAfterUnknown && (header.flags & TokenizerJoinsUnknown)))
        continue;
      id = header.unknownToken;
    }
    isAfterUnknown = isUnknown;
    const auto i = int32_t(symbols.size());
    symbols.push_back({id, i - 1, i + 1});
  }
  if (!symbols.empty())
    symbols.back().next = -1;
}

void WordEncoder::merge(std::string_view word) {
  addSymbols(word);
  if (symbols.empty())
    return;
  candidates.clear();
  for (size_t i = 0; i < symbols.size(); ++i)
    addCandidate(int32_t(i));
  while (!candidates.empty()) {
    std::pop_heap(candidates.begin(), candidates.end());
    const Candidate best = candidates.back();
    candidates.pop_back();
    Symbol &left = symbols[size_t(best.left)];
    // An earlier merge may have replaced either side.
    if (left.id != best.merge->left || left.next < 0 ||
        symbols[size_t(left.next)].id != best.merge->right)
      continue;
    Symbol &right = symbols[size_t(left.next)];
    left.id = best.merge->result;
    left.next = right.next;
    right.id = kNoToken;
    if (left.next >= 0)
      symbols[size_t(left.next)].previous = best.left;
    if (left.previous >= 0)
      addCandidate(left.previous);
    addCandidate(best.left);
  }
  for (int32_t i = 0; i >= 0; i = symbols[size_t(i)].next)
    ids.push_back(int32_t(symbols[size_t(i)].id));
}
