//===- TokenizerBlob.cpp - Writes the tokenizer's blob --------------------===//

#include "qwen/Import/Tokenizer/TokenizerBlob.h"

#include "qwen/ABI/TokenizerFormat.h"
#include "qwen/Support/Error.h"
#include "qwen/Support/Text.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <tuple>

using namespace qwen;

//===----------------------------------------------------------------------===//
// The byte-level alphabet
//===----------------------------------------------------------------------===//

namespace {

class ByteAlphabet {
public:
  ByteAlphabet() {
    byteOfChar.fill(-1);
    for (int byte = 0; byte < 256; ++byte)
      byteOfChar[byteCharacter(uint8_t(byte))] = int16_t(byte);
  }

  /// Appends the bytes of `word` and returns true. Returns false if a character
  /// represents no byte, and sets `odd` to the first one.
  bool appendBytes(std::string &bytes, std::string_view word,
                   char32_t &odd) const {
    for (size_t i = 0; i < word.size();) {
      utf8proc_int32_t c = 0;
      const utf8proc_ssize_t size = utf8proc_iterate(
          reinterpret_cast<const utf8proc_uint8_t *>(word.data()) + i,
          utf8proc_ssize_t(word.size() - i), &c);
      if (size <= 0 || size_t(c) >= byteOfChar.size() ||
          byteOfChar[size_t(c)] < 0) {
        odd = size > 0 ? char32_t(c) : char32_t(0xfffd);
        return false;
      }
      bytes.push_back(char(byteOfChar[size_t(c)]));
      i += size_t(size);
    }
    return true;
  }

private:
  std::array<int16_t, 0x180> byteOfChar;
};

} // namespace

//===----------------------------------------------------------------------===//
// From the checkpoint's tokenizer to tables
//===----------------------------------------------------------------------===//

[[noreturn]] static void fail(const std::filesystem::path &file,
                              const std::string &what) {
  throw Error(part::file(file.string()) + ": " + what);
}

/// The bytes of every token, by id.
static std::vector<std::string> tokensById(const CheckpointTokenizer &from,
                                           const ByteAlphabet &alphabet) {
  const std::filesystem::path &file = from.vocabFile;
  // The vocabulary may contain added tokens, with the same ids.
  size_t count = from.vocab.size();
  for (const auto &[id, added] : from.added) {
    const auto found = from.vocab.find(added.text);
    if (found == from.vocab.end())
      ++count;
    else if (found->second != id)
      fail(file, "token " + quote(added.text) + " has id " +
                     std::to_string(found->second) + " and as an added one " +
                     std::to_string(id));
  }
  if (count == 0)
    fail(file, "has no tokens");

  // `count` different ids below `count` have no gaps.
  std::vector<const std::string *> names(count);
  const auto claim = [&](uint32_t id, const std::string &name) {
    if (id >= count)
      return;
    if (names[id] && *names[id] != name) {
      const auto &[first, second] = std::minmax(*names[id], name);
      fail(file, "tokens " + quote(first) + " and " + quote(second) +
                     " both have id " + std::to_string(id));
    }
    names[id] = &name;
  };
  for (const auto &[word, id] : from.vocab)
    claim(id, word);
  for (const auto &[id, added] : from.added)
    claim(id, added.text);
  const auto hole = std::find(names.begin(), names.end(), nullptr);
  if (hole != names.end())
    fail(file, "no token has id " + std::to_string(hole - names.begin()) +
                   ": the ids of " + std::to_string(count) +
                   " tokens have holes or are used twice");

  std::vector<std::string> tokens(count);
  for (const auto &[word, id] : from.vocab) {
    if (from.added.count(id))
      continue;
    char32_t odd = 0;
    if (!alphabet.appendBytes(tokens[id], word, odd)) {
      std::array<char, 16> code;
      std::snprintf(code.data(), code.size(), "U+%04X", unsigned(odd));
      fail(file, "token " + quote(word) + " has " + code.data() +
                     ", which is not of the byte-level alphabet");
    }
  }
  for (const auto &[id, added] : from.added)
    tokens[id] = added.text;
  return tokens;
}

static std::vector<MergeSlot> mergeTable(CheckpointTokenizer &from) {
  const uint64_t wanted = from.merges.size() + from.merges.size() / 2 + 1;
  if (wanted > kMaxMergeSlots)
    fail(from.mergesFile,
         std::to_string(from.merges.size()) + " merges are too many");
  const uint32_t slots = std::bit_ceil(uint32_t(wanted));
  std::vector<MergeSlot> table(slots, {kNoToken, kNoToken, kNoToken, kNoToken});
  size_t repeated = 0;
  for (size_t rank = 0; rank < from.merges.size(); ++rank) {
    const CheckpointTokenizer::Merge &merge = from.merges[rank];
    const auto id = [&](const std::string &word) {
      const auto found = from.vocab.find(word);
      if (found == from.vocab.end())
        fail(from.mergesFile, merge.where + " needs the token " + quote(word) +
                                  ", which is not in the vocabulary");
      return found->second;
    };
    const uint32_t left = id(merge.left), right = id(merge.right);
    const uint32_t result = id(merge.left + merge.right);
    uint32_t i = mergeHash(left, right, slots);
    while (table[i].rank != kNoToken &&
           (table[i].left != left || table[i].right != right))
      i = (i + 1) & (slots - 1);
    repeated += table[i].rank != kNoToken;
    table[i] = {left, right, uint32_t(rank), result};
  }
  if (repeated)
    from.warnings.push_back(from.mergesFile.string() + ": " +
                            std::to_string(repeated) +
                            " merges stand there twice; the last one counts");
  return table;
}

static std::vector<AddedToken> addedTable(const CheckpointTokenizer &from) {
  std::vector<AddedToken> table;
  table.reserve(from.added.size());
  for (const auto &[id, added] : from.added)
    table.push_back({id, added.flags});
  return table;
}

//===----------------------------------------------------------------------===//
// The blob
//===----------------------------------------------------------------------===//

template <typename T>
static void append(std::vector<uint8_t> &blob, const T *data, size_t count) {
  const auto *bytes = reinterpret_cast<const uint8_t *>(data);
  blob.insert(blob.end(), bytes, bytes + count * sizeof(T));
}

/// Sets the tokens of single bytes, and what becomes of bytes without one.
static void setByteTokens(CheckpointTokenizer &from, TokenizerHeader &header) {
  std::vector<size_t> missing;
  for (size_t byte = 0; byte < std::size(header.byteTokens); ++byte) {
    const auto found = from.vocab.find(byteLevel(std::string(1, char(byte))));
    header.byteTokens[byte] =
        found == from.vocab.end() ? kNoToken : found->second;
    if (found == from.vocab.end())
      missing.push_back(byte);
  }
  if (missing.empty())
    return;
  if (missing.size() == std::size(header.byteTokens))
    fail(from.vocabFile,
         "has no token for any byte: not a byte-level vocabulary");
  const std::string what = "no token for " + std::to_string(missing.size()) +
                           " of 256 bytes (" + std::to_string(missing[0]) +
                           " is the first)";
  std::string becomes = "skipped, as Hugging Face tokenizers does it";
  if (from.unknownToken) {
    const auto unknown = from.vocab.find(*from.unknownToken);
    if (unknown == from.vocab.end())
      fail(from.vocabFile, what + " when unk_token " +
                               quote(*from.unknownToken) +
                               ", which they would become, is not in the "
                               "vocabulary either; with null they are skipped");
    header.flags |= TokenizerHasUnknown;
    if (from.joinsUnknown)
      header.flags |= TokenizerJoinsUnknown;
    header.unknownToken = unknown->second;
    becomes = "the token " + quote(*from.unknownToken);
  }
  from.warnings.push_back(from.vocabFile.string() + ": " + what +
                          ": in a text they are " + becomes);
}

/// Sets the tokens that a config names. Warns about names of other tokens.
static void setNamedTokens(CheckpointTokenizer &from, TokenizerImport &result,
                           TokenizerHeader &header) {
  using Named = std::tuple<const char *, const std::optional<std::string> &,
                           std::optional<uint32_t> &, uint32_t &>;
  std::optional<uint32_t> appended;
  for (const auto &[key, text, id, field] :
       {Named{"bos_token", from.bosToken, result.bosToken, header.bosToken},
        Named{"eos_token", from.eosToken, result.eosToken, header.eosToken},
        Named{"pad_token", from.padToken, result.padToken, header.padToken},
        Named{"the appended token", from.appendedToken, appended,
              header.appendedToken}}) {
    field = kNoToken;
    if (!text)
      continue;
    const auto found = from.addedIds.find(*text);
    if (found != from.addedIds.end())
      id = field = found->second;
    else
      from.warnings.push_back(from.checkpoint.string() + ": " + key + " " +
                              quote(*text) +
                              " is not an added token and is ignored");
  }
  if (appended)
    header.flags |= TokenizerAppendsToken;
  else
    header.appendedToken = 0;
}

TokenizerImport qwen::buildTokenizer(CheckpointTokenizer from) {
  static_assert(std::endian::native == std::endian::little);
  const ByteAlphabet alphabet;
  const std::vector<std::string> tokens = tokensById(from, alphabet);
  const std::vector<MergeSlot> merges = mergeTable(from);
  const std::vector<AddedToken> added = addedTable(from);

  TokenizerImport result;
  result.vocabSize = uint32_t(tokens.size());
  result.chatTemplate = std::move(from.chatTemplate);
  result.chatTemplateFile = std::move(from.chatTemplateFile);

  TokenizerHeader header{};
  std::memcpy(header.magic, kTokenizerMagic, sizeof(header.magic));
  header.version = kTokenizerVersion;
  header.flags = (from.normalizesNfc ? TokenizerNormalizesNfc : 0) |
                 (from.marksJoinLetters ? TokenizerMarksJoinLetters : 0);
  header.vocabSize = result.vocabSize;
  header.addedCount = uint32_t(added.size());
  header.mergeSlots = uint32_t(merges.size());
  setByteTokens(from, header);
  setNamedTokens(from, result, header);
  result.warnings = std::move(from.warnings);

  std::vector<uint32_t> offsets = {0};
  uint64_t size = 0;
  for (const std::string &token : tokens) {
    size += token.size();
    if (size >= kNoToken)
      fail(from.vocabFile, "has tokens of more than 4 GiB");
    offsets.push_back(uint32_t(size));
  }
  append(result.blob, &header, 1);
  append(result.blob, merges.data(), merges.size());
  append(result.blob, added.data(), added.size());
  append(result.blob, offsets.data(), offsets.size());
  for (const std::string &token : tokens)
    append(result.blob, token.data(), token.size());
  return result;
}
