//===- TokenizerFiles.h - What tokenizer files say --------------*- C++ -*-===//
//
// Between the readers of the files (TokenizerFiles.cpp) and the writer of the
// blob (Tokenizer.cpp).
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

/// One tokenizer as its files spell it: words of the vocabulary and of the
/// merges are in the byte-level alphabet, added tokens are plain text.
struct TokenizerFiles {
  struct Merge {
    std::string left;
    std::string right;
    /// Where it stands: "line 3" or "merge 2", for messages.
    std::string where;
  };
  struct Added {
    std::string text;
    /// AddedTokenFlags.
    uint32_t flags;
  };

  std::filesystem::path vocabFile, mergesFile;
  std::map<std::string, uint32_t, std::less<>> vocab;
  /// Best first.
  std::vector<Merge> merges;
  std::map<uint32_t, Added> added;
  std::map<std::string, uint32_t, std::less<>> addedIds;
  bool normalizesNfc = true;
  /// Texts of the tokens that have a name, where they have one.
  std::optional<std::string> bosToken, eosToken, padToken;
  std::string chatTemplate;
  std::filesystem::path chatTemplateFile;
  std::vector<std::string> warnings;
};

/// Reads all files of a tokenizer that `dir` has, or nullopt where there is
/// none. Throws Error as buildTokenizer does.
std::optional<TokenizerFiles>
readTokenizerFiles(const std::filesystem::path &dir);

} // namespace qwen

#endif // QWEN_LIB_IMPORT_TOKENIZER_TOKENIZERFILES_H
