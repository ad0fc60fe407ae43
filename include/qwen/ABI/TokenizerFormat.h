//===- TokenizerFormat.h - Bytes of a compiled tokenizer --------*- C++ -*-===//
//
// A byte-level BPE tokenizer as it lies in the artifact, used in place. The
// parts follow each other without gaps, and the counts of the header alone say
// where each begins:
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

/// Ids are below this.
inline constexpr uint32_t kMaxVocabSize = 1u << 24;

/// At most this many added tokens.
inline constexpr uint32_t kMaxAddedTokens = 1u << 14;

inline constexpr uint32_t kMaxMergeSlots = 1u << 26;

/// Stands for "no such token" where an id is stored.
inline constexpr uint32_t kNoToken = 0xffffffffu;

/// Bits of TokenizerHeader::flags.
enum TokenizerFlags : uint32_t {
  /// Text is brought to NFC before it is split into words.
  TokenizerNormalizesNfc = 1,
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
  /// Slots of the merge table: a power of two, at most kMaxMergeSlots, more
  /// than there are merges.
  uint32_t mergeSlots;
  /// Tokens that a chat template may name; kNoToken where there is none.
  uint32_t bosToken;
  uint32_t eosToken;
  uint32_t padToken;
  uint32_t reserved[2];
  /// Token of each single byte.
  uint32_t byteTokens[256];
};
static_assert(sizeof(TokenizerHeader) == 48 + 1024);

/// One merge: `left` followed by `right` may become `result`; of all merges
/// that a word allows, the one of least rank is done first, and of equals the
/// leftmost. An open-addressing table: a pair is found by looking from slot
/// mergeHash(left, right, mergeSlots) on, one by one and around the end, until
/// the pair or a free slot (rank kNoToken, the other fields too) is met.
struct MergeSlot {
  uint32_t left;
  uint32_t right;
  uint32_t rank;
  uint32_t result;
};
static_assert(sizeof(MergeSlot) == 16);

/// Slot of a merge table of `slots` (a power of two) where the search for a
/// pair begins.
constexpr uint32_t mergeHash(uint32_t left, uint32_t right, uint32_t slots) {
  const uint64_t pair = uint64_t(left) << 32 | right;
  return uint32_t((pair * 0x9e3779b97f4a7c15u) >> 32) & (slots - 1);
}

/// Bits of AddedToken::flags, named as in tokenizer.json.
enum AddedTokenFlags : uint32_t {
  /// A control token: not matched in text that must not hold any.
  AddedSpecial = 1,
  /// Matched after normalization rather than before.
  AddedNormalized = 2,
  /// Takes the white space before it.
  AddedLstrip = 4,
  /// Takes the white space after it.
  AddedRstrip = 8,
  /// Matched only where no word character is beside it.
  AddedSingleWord = 16,
};

/// A token that is found in text as a whole; its bytes, which are UTF-8 and not
/// empty, are what is looked for. Ids ascend.
struct AddedToken {
  uint32_t id;
  /// AddedTokenFlags.
  uint32_t flags;
};
static_assert(sizeof(AddedToken) == 8);

} // namespace qwen

#endif // QWEN_ABI_TOKENIZERFORMAT_H
