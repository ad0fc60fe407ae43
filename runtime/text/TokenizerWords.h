//===- TokenizerWords.h - Words of a text, and their tokens -----*- C++ -*-===//
//
// The pre-tokenizer's regular expression and the merging of one word's bytes.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_TEXT_TOKENIZERWORDS_H
#define QWEN_RUNTIME_TEXT_TOKENIZERWORDS_H

#include "qwen/ABI/TokenizerFormat.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace qwen {

/// The end of the word that begins at `begin` of valid UTF-8. It is the match
/// of
///
///   (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|
///    ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
///
/// (one expression) by the rules of Oniguruma: it tries alternatives in this
/// order, each greedily. Every character is part of a word. With
/// `marksJoinLetters` it is [\p{L}\p{M}]+ in place of \p{L}+, and
/// [^\s\p{L}\p{M}\p{N}]+ in place of [^\s\p{L}\p{N}]+.
size_t wordEnd(std::string_view text, size_t begin,
               bool marksJoinLetters = false);

/// Encodes the words of one text, appending to `ids`.
class WordEncoder {
public:
  /// `sizeHint` is the expected size of all texts. They must outlive the last
  /// call of encode.
  WordEncoder(const TokenizerHeader &header, std::span<const MergeSlot> merges,
              size_t sizeHint, std::vector<int32_t> &ids);

  void encode(std::string_view text);

  /// Whether bytes without a token can leave none: they are skipped, or several
  /// become one.
  static bool losesUnknown(const TokenizerHeader &header) {
    return !(header.flags & TokenizerHasUnknown) ||
           (header.flags & TokenizerJoinsUnknown);
  }

private:
  /// An earlier word: its text and its part of `ids`.
  struct Seen {
    const char *word = nullptr;
    uint32_t size = 0;
    uint32_t idCount = 0;
    uint64_t hash = 0;
    size_t firstId = 0;
  };
  /// One token of the word being merged, linked to its neighbours.
  struct Symbol {
    uint32_t id;
    int32_t previous;
    int32_t next;
  };
  /// A merge of the symbol at `left` with its next one.
  struct Candidate {
    uint32_t rank;
    int32_t left;
    const MergeSlot *merge;

    /// The heap's top has the least rank; of equals, it is the leftmost.
    bool operator<(const Candidate &other) const {
      return rank != other.rank ? rank > other.rank : left > other.left;
    }
  };

  void encodeWord(std::string_view word);
  void addSymbols(std::string_view word);
  void merge(std::string_view word);
  void addCandidate(int32_t left);
  const MergeSlot *findMerge(uint32_t left, uint32_t right) const;

  const TokenizerHeader &header;
  std::span<const MergeSlot> merges;
  std::vector<int32_t> &ids;
  std::vector<Seen> seen;
  std::vector<Symbol> symbols;
  std::vector<Candidate> candidates;
};

} // namespace qwen

#endif // QWEN_RUNTIME_TEXT_TOKENIZERWORDS_H
