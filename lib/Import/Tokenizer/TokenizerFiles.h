//===- TokenizerFiles.h - Contents of tokenizer files -----------*- C++ -*-===//
//
// TokenizerFiles.cpp reads the files; Tokenizer.cpp writes the blob.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_LIB_IMPORT_TOKENIZER_TOKENIZERFILES_H
#define QWEN_LIB_IMPORT_TOKENIZER_TOKENIZERFILES_H

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace qwen {

/// The tokenizer of a checkpoint. Words of the vocabulary and of merges are in
/// the byte-level alphabet; added tokens are plain text.
struct TokenizerFiles {
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

  std::filesystem::path vocabFile, mergesFile;
  std::map<std::string, uint32_t, std::less<>> vocab;
  /// In the order of their ranks.
  std::vector<Merge> merges;
  std::map<uint32_t, Added> added;
  std::map<std::string, uint32_t, std::less<>> addedIds;
  bool normalizesNfc = true;
  /// Texts of the special tokens that a config names.
  std::optional<std::string> bosToken, eosToken, padToken;
  std::string chatTemplate;
  std::filesystem::path chatTemplateFile;
  std::vector<std::string> warnings;
};

/// Reads all tokenizer files in `dir`. Returns nullopt if there is no
/// tokenizer. Throws Error like buildTokenizer.
std::optional<TokenizerFiles>
readTokenizerFiles(const std::filesystem::path &dir);

} // namespace qwen

#endif // QWEN_LIB_IMPORT_TOKENIZER_TOKENIZERFILES_H
