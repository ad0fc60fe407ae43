//===- Tokenizer.cpp - Text to token ids and back -------------------------===//
//
// The encoder splits a text at its added tokens, converts the rest to NFC,
// splits it into words and merges the bytes of each word (TokenizerWords.cpp).
//
//===----------------------------------------------------------------------===//

#include "text/Tokenizer.h"

#include "qwen/Support/Error.h"
#include "text/TokenizerWords.h"
#include "text/Unicode.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <deque>
#include <utility>

using namespace qwen;

//===----------------------------------------------------------------------===//
// Reading the blob
//===----------------------------------------------------------------------===//

[[noreturn]] static void fail(const std::string &what) {
  throw Error("damaged tokenizer: " + what);
}

namespace {

/// Reads arrays from the front of the blob.
struct BlobReader {
  std::span<const uint8_t> rest;

  template <typename T> std::span<const T> take(uint64_t count) {
    const uint64_t size = count * sizeof(T);
    if (size > rest.size())
      fail("it ends " + std::to_string(size - rest.size()) +
           " bytes before its tables do");
    const auto *data = reinterpret_cast<const T *>(rest.data());
    rest = rest.subspan(size);
    return {data, size_t(count)};
  }
};

} // namespace

static void checkMerges(std::span<const MergeSlot> merges, uint32_t vocabSize) {
  // Every start reads the whole table, so the loop has no early exit and
  // compilers vectorize it.
  uint32_t bad = 0, used = 0;
  for (const MergeSlot &slot : merges) {
    const uint32_t isFree =
        (slot.left & slot.right & slot.rank & slot.result) == kNoToken;
    const uint32_t isMerge = (slot.left < vocabSize) &
                             (slot.right < vocabSize) &
                             (slot.result < vocabSize) & (slot.rank < kNoToken);
    bad |= 1 ^ (isFree | isMerge);
    used += isMerge;
  }
  if (bad)
    fail("a merge names an id that is no token");
  if (used == merges.size())
    fail("its merge table has no free slot");
}

static void checkHeader(const TokenizerHeader &header) {
  if (std::memcmp(header.magic, kTokenizerMagic, sizeof(header.magic)) != 0)
    fail("its magic number is missing");
  if (header.version != kTokenizerVersion)
    throw Error("the tokenizer has format version " +
                std::to_string(header.version) + " and this program reads " +
                std::to_string(kTokenizerVersion) +
                ": compile the model again");
  const uint32_t size = header.vocabSize;
  if (size == 0 || size > kMaxVocabSize)
    fail("its vocabulary size is " + std::to_string(size));
  if (header.flags >= 2 * TokenizerJoinsUnknown)
    fail("unknown flags " + std::to_string(header.flags));
  if (header.addedCount > kMaxAddedTokens || header.addedCount > size)
    fail(std::to_string(header.addedCount) + " added tokens");
  if (!std::has_single_bit(header.mergeSlots) ||
      header.mergeSlots > kMaxMergeSlots)
    fail("its merge table has " + std::to_string(header.mergeSlots) + " slots");
  for (uint32_t id : {header.bosToken, header.eosToken, header.padToken,
                      header.appendedToken})
    if (id != kNoToken && id >= size)
      fail("id " + std::to_string(id) + " of a named token is no token");
  if (header.unknownToken >= size)
    fail("id " + std::to_string(header.unknownToken) +
         " of bytes without a token is no token");
}

Tokenizer Tokenizer::fromBlob(std::span<const uint8_t> blob) {
  if (reinterpret_cast<uintptr_t>(blob.data()) % kTokenizerAlign)
    fail("it is not aligned to " + std::to_string(kTokenizerAlign) + " bytes");
  Tokenizer result;
  BlobReader reader{blob};
  result.header = reader.take<TokenizerHeader>(1).data();
  const TokenizerHeader &header = *result.header;
  checkHeader(header);
  const uint32_t size = header.vocabSize;
  result.merges = reader.take<MergeSlot>(header.mergeSlots);
  result.added = reader.take<AddedToken>(header.addedCount);
  result.tokenOffsets = reader.take<uint32_t>(uint64_t(size) + 1);
  result.bytes = reinterpret_cast<const char *>(reader.rest.data());

  checkMerges(result.merges, size);
  uint32_t descends = result.tokenOffsets[0];
  for (uint32_t id = 0; id < size; ++id)
    descends |= result.tokenOffsets[id] > result.tokenOffsets[id + 1];
  if (descends)
    fail("its token offsets do not ascend from 0");
  if (result.tokenOffsets[size] != reader.rest.size())
    fail("it has " + std::to_string(reader.rest.size()) +
         " bytes of tokens and its offsets say " +
         std::to_string(result.tokenOffsets[size]));
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const uint32_t id = header.byteTokens[byte];
    if (id == kNoToken)
      result.losesBytes |= WordEncoder::losesUnknown(header);
    else if (id >= size ||
             result.tokenBytes(int32_t(id)) != std::string(1, char(byte)))
      fail("the token of byte " + std::to_string(byte) + " is another");
  }
  int64_t last = -1;
  for (const AddedToken &token : result.added) {
    if (token.id <= last || token.id >= size)
      fail("id " + std::to_string(token.id) + " of an added token");
    last = token.id;
    if (token.flags >= 2 * AddedSingleWord)
      fail("unknown flags of added token " + std::to_string(token.id));
    const std::string_view text = result.tokenBytes(int32_t(token.id));
    if (text.empty() || !isValidUtf8(text))
      fail("added token " + std::to_string(token.id) + " has no text");
    const bool isAfter = token.flags & AddedNormalized;
    // Such a token is found in text that is normalized.
    std::string found =
        isAfter && (result.header->flags & TokenizerNormalizesNfc)
            ? toNfc(text)
            : std::string(text);
    AddedIndex &index = isAfter ? result.addedAfter : result.addedBefore;
    index.byFirstByte[uint8_t(found[0])].push_back({token, std::move(found)});
  }
  // Longer tokens have precedence.
  const auto isBefore = [](const AddedText &a, const AddedText &b) {
    return a.text.size() != b.text.size() ? a.text.size() > b.text.size()
                                          : a.token.id < b.token.id;
  };
  for (AddedIndex *index : {&result.addedBefore, &result.addedAfter})
    for (std::vector<AddedText> &tokens : index->byFirstByte)
      std::sort(tokens.begin(), tokens.end(), isBefore);
  return result;
}

//===----------------------------------------------------------------------===//
// Tokens
//===----------------------------------------------------------------------===//

std::string_view Tokenizer::tokenBytes(int32_t id) const {
  if (id < 0 || id >= vocabSize())
    throw Error("token id " + std::to_string(id) +
                " is not in the vocabulary of " + std::to_string(vocabSize()) +
                " tokens");
  const uint32_t begin = tokenOffsets[size_t(id)];
  return {bytes + begin, tokenOffsets[size_t(id) + 1] - begin};
}

uint64_t Tokenizer::mostBytes(int64_t tokens) const {
  if (losesBytes)
    return kMaxTextBytes;
  // NFC shrinks a text most where 7 bytes become 2: U+1FBE U+0308 U+0301
  // becomes U+0390.
  constexpr uint64_t kShrinks = 4;
  uint64_t longest = 1;
  for (size_t id = 0; id + 1 < tokenOffsets.size(); ++id)
    longest =
        std::max<uint64_t>(longest, tokenOffsets[id + 1] - tokenOffsets[id]);
  const uint64_t tokenBytes = longest * kShrinks;
  return uint64_t(tokens) > kMaxTextBytes / tokenBytes
             ? kMaxTextBytes
             : uint64_t(tokens) * tokenBytes;
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  for (int32_t id : ids)
    text += tokenBytes(id);
  return text;
}

bool Tokenizer::isSpecial(int32_t id) const {
  const auto found =
      std::ranges::lower_bound(added, int64_t{id}, {}, &AddedToken::id);
  return found != added.end() && int64_t(found->id) == id &&
         (found->flags & AddedSpecial);
}

std::optional<int32_t> Tokenizer::findAddedToken(std::string_view text) const {
  for (const AddedToken &token : added)
    if (tokenBytes(int32_t(token.id)) == text)
      return int32_t(token.id);
  return std::nullopt;
}

//===----------------------------------------------------------------------===//
// Encoding
//===----------------------------------------------------------------------===//

/// The character before `end`.
static char32_t charBefore(std::string_view text, size_t end) {
  size_t begin = end - 1;
  while (begin > 0 && continuesCharacter(text[begin]))
    --begin;
  return decodeUtf8(text.substr(begin)).codePoint;
}

static bool isSpace(char32_t c) {
  const CharClass kind = charClass(c);
  return kind == CharClass::Space || kind == CharClass::Newline;
}

/// Calls `onText` and `onToken` for the parts of `text`, in order.
template <typename MaySpecial, typename OnText, typename OnToken>
void Tokenizer::splitAdded(const AddedIndex &index, std::string_view text,
                           MaySpecial maySpecial, OnText onText,
                           OnToken onToken) const {
  size_t done = 0;
  for (size_t i = 0; i < text.size();) {
    const AddedToken *match = nullptr;
    size_t end = 0;
    for (const auto &[token, spelled] : index.byFirstByte[uint8_t(text[i])]) {
      end = i + spelled.size();
      if (text.substr(i, spelled.size()) == spelled &&
          (!(token.flags & AddedSpecial) || maySpecial(i, end))) {
        match = &token;
        break;
      }
    }
    if (!match) {
      ++i;
      continue;
    }
    size_t begin = i;
    i = end;
    if ((match->flags & AddedSingleWord) &&
        ((begin > 0 && isWordChar(charBefore(text, begin))) ||
         (end < text.size() &&
          isWordChar(decodeUtf8(text.substr(end)).codePoint))))
      continue;
    if (match->flags & AddedLstrip)
      while (begin > done && isSpace(charBefore(text, begin)))
        do
          --begin;
        while (begin > done && continuesCharacter(text[begin]));
    if (match->flags & AddedRstrip)
      while (i < text.size()) {
        const DecodedChar next = decodeUtf8(text.substr(i));
        if (!isSpace(next.codePoint))
          break;
        i += next.length;
      }
    if (begin > done)
      onText(text.substr(done, begin - done));
    onToken(int32_t(match->id));
    done = i;
  }
  if (done < text.size())
    onText(text.substr(done));
}

template <typename MaySpecial>
std::vector<int32_t> Tokenizer::encodeWhere(std::string_view text,
                                            MaySpecial maySpecial) const {
  if (text.size() > kMaxTextBytes)
    throw Error("a text of " + std::to_string(text.size()) +
                " bytes is too long for the tokenizer");
  // Replacing invalid bytes can triple the size.
  std::string repaired;
  if (!isValidUtf8(text)) {
    repaired = toValidUtf8(text);
    text = repaired;
  }
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 4 + 4);
  // WordEncoder refers to earlier words, so normalized text must live on.
  std::deque<std::string> normalized;
  WordEncoder words(*header, merges, text.size(), ids);
  const auto onToken = [&](int32_t id) { ids.push_back(id); };
  splitAdded(
      addedBefore, text, maySpecial,
      [&](std::string_view part) {
        const auto first = static_cast<size_t>(part.data() - text.data());
        const size_t size = part.size();
        // The places in a normalized text are not known: all of it counts.
        bool isChanged = false;
        if ((header->flags & TokenizerNormalizesNfc) && !isSurelyNfc(part)) {
          part = normalized.emplace_back(toNfc(part));
          isChanged = true;
        }
        splitAdded(
            addedAfter, part,
            [&](size_t begin, size_t end) {
              return maySpecial(first + (isChanged ? 0 : begin),
                                first + (isChanged ? size : end));
            },
            [&](std::string_view plain) { words.encode(plain); }, onToken);
      },
      onToken);
  return ids;
}

std::vector<int32_t> Tokenizer::encode(std::string_view text,
                                       bool allowSpecial) const {
  return encodeWhere(text,
                     [allowSpecial](size_t, size_t) { return allowSpecial; });
}

std::vector<int32_t> Tokenizer::encode(const MarkedText &text) const {
  return encodeWhere(text.bytes(), [&](size_t begin, size_t end) {
    return text.isWritten(begin, end);
  });
}

//===----------------------------------------------------------------------===//
// Streams of bytes
//===----------------------------------------------------------------------===//

std::string_view qwen::bytesOf(const Tokenizer &tokenizer, int32_t id) {
  return id >= 0 && id < tokenizer.vocabSize() ? tokenizer.tokenBytes(id) : "";
}

std::string Utf8Stream::push(std::string_view bytes) {
  held += bytes;
  std::string text;
  size_t i = 0;
  while (i < held.size()) {
    const DecodedChar c = decodeUtf8(std::string_view(held).substr(i));
    if (c.kind == DecodedChar::Cut)
      break;
    if (c.kind == DecodedChar::Valid)
      text.append(held, i, c.length);
    else
      appendUtf8(text, kReplacementCharacter);
    i += c.length;
  }
  held.erase(0, i);
  characters += static_cast<int64_t>(countCodePoints(text));
  return text;
}

std::string Utf8Stream::finish() {
  characters += held.empty() ? 0 : 1;
  return toValidUtf8(std::exchange(held, {}));
}

int64_t Utf8Stream::place(std::string_view bytes) const {
  // Bytes that do not go on with a character end it.
  const bool isEnd =
      !held.empty() && !bytes.empty() && !continuesCharacter(bytes[0]);
  return characters + (isEnd ? 1 : 0);
}
