//===- Tokenizer.h - Text to token ids and back -----------------*- C++ -*-===//
//
// Byte-level BPE that reads the bytes of TokenizerFormat.h in place. It gives
// the ids that Hugging Face's tokenizers for the Qwen family give.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_TEXT_TOKENIZER_H
#define QWEN_RUNTIME_TEXT_TOKENIZER_H

#include "qwen/ABI/TokenizerFormat.h"
#include "text/MarkedText.h"

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qwen {

/// Immutable, so any number of threads may use it at the same time.
class Tokenizer {
public:
  /// Checks `blob` and refers to it: it must outlive the tokenizer and begin at
  /// a multiple of kTokenizerAlign. Throws Error if it violates a rule of
  /// TokenizerFormat.h.
  static Tokenizer fromBlob(std::span<const uint8_t> blob);

  /// Last id + 1, added tokens included. A model may have more logits than
  /// that, as padding.
  int32_t vocabSize() const { return static_cast<int32_t>(header->vocabSize); }

  /// Maximum size of a text for `encode`.
  static constexpr uint64_t kMaxTextBytes =
      std::numeric_limits<int32_t>::max() / 3;

  /// A text with more bytes than this has more tokens than `tokens`, unless it
  /// has spaces that an added token strips. At most kMaxTextBytes.
  uint64_t mostBytes(int64_t tokens) const;

  /// Ids of `text`. Bytes that are not UTF-8 count as U+FFFD. If `allowSpecial`
  /// is false, special tokens in `text` are ordinary text; other added tokens
  /// are still found.
  std::vector<int32_t> encode(std::string_view text,
                              bool allowSpecial = true) const;

  /// Ids of `text`, which is UTF-8. A special token is ordinary text unless the
  /// template wrote all of it.
  std::vector<int32_t> encode(const MarkedText &text) const;

  /// The exact bytes of `ids`, which are not always UTF-8 (see Utf8Stream).
  /// Throws Error for an invalid id.
  std::string decode(std::span<const int32_t> ids) const;

  /// The bytes of one token. Throws Error for an invalid id.
  std::string_view tokenBytes(int32_t id) const;

  /// True for special tokens, which are not part of the text of an answer.
  bool isSpecial(int32_t id) const;

  /// The added token with exactly this text.
  std::optional<int32_t> findAddedToken(std::string_view text) const;

  /// The slots of the merge table, and the added tokens in the order of their
  /// ids.
  std::span<const MergeSlot> mergeTable() const { return merges; }
  std::span<const AddedToken> addedTokens() const { return added; }
  /// TokenizerFlags.
  uint32_t flags() const { return header->flags; }

  std::optional<int32_t> bosToken() const {
    return optionalId(header->bosToken);
  }
  std::optional<int32_t> eosToken() const {
    return optionalId(header->eosToken);
  }
  std::optional<int32_t> padToken() const {
    return optionalId(header->padToken);
  }
  /// The token that the checkpoint appends to a text that is embedded.
  std::optional<int32_t> appendedToken() const {
    return optionalId(header->flags & TokenizerAppendsToken
                          ? header->appendedToken
                          : kNoToken);
  }

private:
  Tokenizer() = default;

  static std::optional<int32_t> optionalId(uint32_t id) {
    if (id == kNoToken)
      return std::nullopt;
    return static_cast<int32_t>(id);
  }

  /// An added token, and its text as it is in the text that is split.
  struct AddedText {
    AddedToken token;
    std::string text;
  };
  /// Added tokens by the first byte of their text, longest first.
  struct AddedIndex {
    std::array<std::vector<AddedText>, 256> byFirstByte;
  };
  /// `maySpecial` says whether a special token may have the bytes between two
  /// offsets.
  template <typename MaySpecial, typename OnText, typename OnToken>
  void splitAdded(const AddedIndex &index, std::string_view text,
                  MaySpecial maySpecial, OnText onText, OnToken onToken) const;
  template <typename MaySpecial>
  std::vector<int32_t> encodeWhere(std::string_view text,
                                   MaySpecial maySpecial) const;

  const TokenizerHeader *header = nullptr;
  std::span<const MergeSlot> merges;
  std::span<const AddedToken> added;
  std::span<const uint32_t> tokenOffsets;
  const char *bytes = nullptr;
  /// Whether bytes of a text may have no token of their own: a text of any
  /// length may then have few tokens, or none.
  bool losesBytes = false;
  /// Added tokens to find before and after normalization.
  AddedIndex addedBefore, addedAfter;
};

/// The bytes of one token; none for an id that only the model has.
std::string_view bytesOf(const Tokenizer &tokenizer, int32_t id);

/// Joins bytes to whole characters. Holds back the start of a character until
/// the rest arrives. Bytes that are not UTF-8 become U+FFFD, one for each
/// maximal part of a character.
class Utf8Stream {
public:
  /// Adds bytes and returns the characters that are complete now.
  std::string push(std::string_view bytes);
  /// Ends the text. Returns U+FFFD if its last character is incomplete, else an
  /// empty string.
  std::string finish();

  /// Number of characters returned so far.
  int64_t count() const { return characters; }
  /// The number of characters before the one that `bytes` would begin or go on
  /// with.
  int64_t place(std::string_view bytes) const;

private:
  std::string held;
  int64_t characters = 0;
};

} // namespace qwen

#endif // QWEN_RUNTIME_TEXT_TOKENIZER_H
