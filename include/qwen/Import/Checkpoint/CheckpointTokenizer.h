//===- CheckpointTokenizer.h - The tokenizer of a checkpoint ----*- C++ -*-===//

#ifndef QWEN_IMPORT_CHECKPOINT_CHECKPOINTTOKENIZER_H
#define QWEN_IMPORT_CHECKPOINT_CHECKPOINTTOKENIZER_H

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace qwen {

/// Hashes texts of all kinds.
struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const {
    return std::hash<std::string_view>()(text);
  }
};

/// The tokenizer of a checkpoint. Words of the vocabulary and of merges are in
/// the byte-level alphabet; added tokens are plain text.
struct CheckpointTokenizer {
  struct Merge {
    std::string left;
    std::string right;
    /// Its place in the file, for messages: "line 3" or "merge 2".
    std::string where;
  };
  struct Added {
    std::string text;
    /// AddedTokenFlags.
    uint32_t flags;
  };

  /// The folder or file of the checkpoint.
  std::filesystem::path checkpoint;
  std::filesystem::path vocabFile, mergesFile;
  std::unordered_map<std::string, uint32_t, TextHash, std::equal_to<>> vocab;
  /// In the order of their ranks.
  std::vector<Merge> merges;
  std::map<uint32_t, Added> added;
  std::map<std::string, uint32_t, std::less<>> addedIds;
  bool normalizesNfc = true;
  /// Whether words of letters have marks, too.
  bool marksJoinLetters = false;
  /// The word of the vocabulary that bytes without a token become. Without one
  /// they are skipped.
  std::optional<std::string> unknownToken;
  /// Whether such bytes that follow each other in a word become one token.
  bool joinsUnknown = false;
  /// Texts of the special tokens that a config names.
  std::optional<std::string> bosToken, eosToken, padToken;
  /// Text of the token that ends a text that is embedded.
  std::optional<std::string> appendedToken;
  std::string chatTemplate;
  std::filesystem::path chatTemplateFile;
  std::vector<std::string> warnings;

  /// Adds a merge "left right" of `file`; throws Error for another text.
  void addMerge(const std::filesystem::path &file, std::string_view text,
                std::string where);

  /// Adds an added token of `file`, with AddedTokenFlags. A later one with the
  /// same id and text is ignored; throws Error for one that contradicts.
  void addAdded(const std::filesystem::path &file, uint32_t id,
                const std::string &text, uint32_t flags);
};

/// Reads the tokenizer in the folder `dir`: tokenizer.json, or else vocab.json
/// and merges.txt, or else qwen.tiktoken, with the optional files
/// tokenizer_config.json, added_tokens.json and special_tokens_map.json.
/// Returns nullopt if there is no tokenizer. Throws Error if a file is invalid,
/// if files contradict each other, or if the tokenizer is not of Qwen's kind
/// (byte-level BPE, Qwen's regular expression, NFC or no normalization).
std::optional<CheckpointTokenizer>
readTokenizerFiles(const std::filesystem::path &dir);

/// Reads the text of the file `file`, Qwen 1's qwen.tiktoken. The tokenizer has
/// Qwen 1's special tokens, and ChatML as template. Throws Error for a line
/// that is not a token and its id, from 0 without holes, and for a token that
/// earlier ones do not merge to.
CheckpointTokenizer readTiktoken(const std::filesystem::path &file,
                                 std::string_view text);

/// The character of the byte-level alphabet for `byte`: the byte itself if it
/// is printable Latin-1, else one from U+0100 on.
char32_t byteCharacter(uint8_t byte);
/// `bytes` in the byte-level alphabet.
std::string byteLevel(std::string_view bytes);

} // namespace qwen

#endif // QWEN_IMPORT_CHECKPOINT_CHECKPOINTTOKENIZER_H
