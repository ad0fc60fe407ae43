//===- Tokenizer.h - Text to token ids and back -----------------*- C++ -*-===//
//
// Byte-level BPE over the bytes of TokenizerFormat.h, used in place. Gives the
// ids that Hugging Face's tokenizers gives for the Qwen family.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_TEXT_TOKENIZER_H
#define QWEN_RUNTIME_TEXT_TOKENIZER_H

#include "qwen/ABI/TokenizerFormat.h"

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qwen {

/// Immutable: any number of threads may use one tokenizer at once.
class Tokenizer {
public:
  /// Checks `blob` and refers to it: it must outlive the tokenizer and begin at
  /// a multiple of kTokenizerAlign. Throws Error for bytes that break any rule
  /// of TokenizerFormat.h.
  static Tokenizer fromBlob(std::span<const uint8_t> blob);

  /// Last id + 1, added tokens included. A model may have more rows than that;
  /// none of them is a token.
  int32_t vocabSize() const { return static_cast<int32_t>(header->vocabSize); }

  /// Bytes of the longest text that `encode` takes.
  static constexpr uint64_t kMaxTextBytes =
      std::numeric_limits<int32_t>::max() / 3;

  /// A text with more bytes than this has more tokens than `tokens`, unless it
  /// has spaces that an added token strips. At most kMaxTextBytes.
  uint64_t mostBytes(int64_t tokens) const;

  /// Ids of `text`. Bytes that are no UTF-8 count as U+FFFD. With
  /// `allowSpecial` false, special tokens that `text` spells out are ordinary
  /// text (added tokens that are not special are found all the same).
  std::vector<int32_t> encode(std::string_view text,
                              bool allowSpecial = true) const;

  /// The bytes of `ids`, exactly; they are not always UTF-8 (see Utf8Stream).
  /// Throws Error for an id that is no token.
  std::string decode(std::span<const int32_t> ids) const;

  /// The bytes of one token. Throws Error for an id that is no token.
  std::string_view tokenBytes(int32_t id) const;

  /// True for special tokens, which readers of generated text are not shown.
  bool isSpecial(int32_t id) const;

  /// The added token that is spelled exactly so.
  std::optional<int32_t> findAddedToken(std::string_view text) const;

  std::optional<int32_t> bosToken() const {
    return optionalId(header->bosToken);
  }
  std::optional<int32_t> eosToken() const {
    return optionalId(header->eosToken);
  }
  std::optional<int32_t> padToken() const {
    return optionalId(header->padToken);
  }

private:
  Tokenizer() = default;

  static std::optional<int32_t> optionalId(uint32_t id) {
    if (id == kNoToken)
      return std::nullopt;
    return static_cast<int32_t>(id);
  }

  /// Added tokens by the first byte of their text, longest first.
  struct AddedIndex {
    std::array<std::vector<AddedToken>, 256> byFirstByte;
  };
  template <typename OnText, typename OnToken>
  void splitAdded(const AddedIndex &index, std::string_view text,
                  bool allowSpecial, OnText onText, OnToken onToken) const;

  const TokenizerHeader *header = nullptr;
  std::span<const MergeSlot> merges;
  std::span<const AddedToken> added;
  std::span<const uint32_t> tokenOffsets;
  const char *bytes = nullptr;
  /// Those that are looked for before and after normalization.
  AddedIndex addedBefore, addedAfter;
};

/// Puts text that comes in pieces together so that no character is cut: a piece
/// that ends inside a character is held back until the rest has come. Bytes
/// that can be no UTF-8 become U+FFFD, one for each maximal part of a
/// character.
class Utf8Stream {
public:
  /// Takes more bytes and returns the whole characters there are now.
  std::string push(std::string_view bytes);
  /// Returns U+FFFD where bytes of a character that never ended are held, else
  /// an empty string, and is as new.
  std::string finish();

private:
  std::string held;
};

} // namespace qwen

#endif // QWEN_RUNTIME_TEXT_TOKENIZER_H
