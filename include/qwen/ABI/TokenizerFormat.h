//===- TokenizerFormat.h - Bytes of a compiled tokenizer --------*- C++ -*-===//
//
// The byte-level BPE tokenizer in an artifact, which the runtime reads in
// place. The parts follow each other without gaps; the counts of the header
// give their offsets:
//
//   TokenizerHeader
//   MergeSlot      merges[mergeSlots]
//   AddedToken     added[addedCount]
//   uint32_t       tokenOffsets[vocabSize + 1]
//   uint8_t        tokenBytes[tokenOffsets[vocabSize]]
//
// All numbers are little-endian.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_ABI_TOKENIZERFORMAT_H
#define QWEN_ABI_TOKENIZERFORMAT_H

#include <cstdint>

namespace qwen {

inline constexpr char kTokenizerMagic[8] = {'Q', 'W', 'E', 'N',
                                            'T', 'O', 'K', 0};
inline constexpr uint32_t kTokenizerVersion = 1;

/// The blob begins at a multiple of this in the file and in memory.
inline constexpr uint64_t kTokenizerAlign = 16;

/// All ids are below this limit.
inline constexpr uint32_t kMaxVocabSize = 1u << 24;

/// Maximum number of added tokens.
inline constexpr uint32_t kMaxAddedTokens = 1u << 14;

inline constexpr uint32_t kMaxMergeSlots = 1u << 26;

/// The stored id of a missing token.
inline constexpr uint32_t kNoToken = 0xffffffffu;

/// Bits of TokenizerHeader::flags.
enum TokenizerFlags : uint32_t {
  /// Text is converted to NFC before it is split into words.
  TokenizerNormalizesNfc = 1,
  /// A word of letters has marks (\p{M}), too (Qwen3.5).
  TokenizerMarksJoinLetters = 2,
  /// A text that is embedded ends with TokenizerHeader::appendedToken.
  TokenizerAppendsToken = 4,
  /// A byte without a token becomes TokenizerHeader::unknownToken; without this
  /// flag it is skipped.
  TokenizerHasUnknown = 8,
  /// Bytes without a token that follow each other in a word become one token.
  TokenizerJoinsUnknown = 16,
};

struct TokenizerHeader {
  char magic[8];
  /// kTokenizerVersion.
  uint32_t version;
  /// TokenizerFlags.
  uint32_t flags;
  /// Last id + 1, added tokens included. Every id below it has a token.
  uint32_t vocabSize;
  uint32_t addedCount;
  /// Slots of the merge table: a power of two, at most kMaxMergeSlots, and more
  /// than the number of merges.
  uint32_t mergeSlots;
  /// Tokens that a chat template may name, or kNoToken.
  uint32_t bosToken;
  uint32_t eosToken;
  uint32_t padToken;
  /// 0 without TokenizerAppendsToken.
  uint32_t appendedToken;
  /// 0 without TokenizerHasUnknown.
  uint32_t unknownToken;
  /// The token of each single byte, or kNoToken.
  uint32_t byteTokens[256];
};
static_assert(sizeof(TokenizerHeader) == 48 + 1024);

/// One merge: the tokens `left` and `right` become `result`. Of all possible
/// merges in a word, the one with the least rank comes first; of equals, the
/// leftmost. The table has open addressing: the search for a pair begins at
/// slot mergeHash(left, right, mergeSlots) and goes on slot by slot, around the
/// end, until it meets the pair or a free slot (all fields kNoToken).
struct MergeSlot {
  uint32_t left;
  uint32_t right;
  uint32_t rank;
  uint32_t result;
};
static_assert(sizeof(MergeSlot) == 16);

/// The first slot in the search for a pair in a table of `slots` slots (a power
/// of two).
constexpr uint32_t mergeHash(uint32_t left, uint32_t right, uint32_t slots) {
  const uint64_t pair = uint64_t(left) << 32 | right;
  return uint32_t((pair * 0x9e3779b97f4a7c15u) >> 32) & (slots - 1);
}

/// Bits of AddedToken::flags, named as in tokenizer.json.
enum AddedTokenFlags : uint32_t {
  /// A control token, which is not matched in untrusted text.
  AddedSpecial = 1,
  /// Matched after normalization rather than before.
  AddedNormalized = 2,
  /// Includes the white space before it.
  AddedLstrip = 4,
  /// Includes the white space after it.
  AddedRstrip = 8,
  /// Matched only if no word character is next to it.
  AddedSingleWord = 16,
};

/// A token that is matched in text as a whole. Its bytes are UTF-8 and not
/// empty. Ids ascend.
struct AddedToken {
  uint32_t id;
  /// AddedTokenFlags.
  uint32_t flags;
};
static_assert(sizeof(AddedToken) == 8);

} // namespace qwen

#endif // QWEN_ABI_TOKENIZERFORMAT_H
