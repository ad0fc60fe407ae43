//===- Tokenizer.h - Reads a checkpoint's tokenizer -------------*- C++ -*-===//
//
// Converts the files of a Hugging Face checkpoint to the bytes of
// TokenizerFormat.h and the source of the chat template.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_IMPORT_TOKENIZER_TOKENIZER_H
#define QWEN_IMPORT_TOKENIZER_TOKENIZER_H

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace qwen {

struct TokenizerImport {
  /// The bytes of TokenizerFormat.h, which need the alignment kTokenizerAlign.
  std::vector<uint8_t> blob;
  /// Last id + 1, added tokens included.
  uint32_t vocabSize;
  /// Tokens that tokenizer_config.json names.
  std::optional<uint32_t> bosToken, eosToken, padToken;
  /// Jinja source; empty if the checkpoint has no chat template.
  std::string chatTemplate;
  /// The file of the chat template.
  std::filesystem::path chatTemplateFile;
  /// Warnings about harmless oddities in the files, one line each.
  std::vector<std::string> warnings;
};

/// Reads the tokenizer of the checkpoint in `dir`: tokenizer.json, or else
/// vocab.json and merges.txt, with the optional files tokenizer_config.json,
/// added_tokens.json and special_tokens_map.json. Returns nullopt if there is
/// no tokenizer. Throws Error if a file is invalid, if files contradict each
/// other, or if the tokenizer is not of Qwen's kind (byte-level BPE, Qwen's
/// regular expression, NFC or no normalization).
std::optional<TokenizerImport> buildTokenizer(const std::filesystem::path &dir);

} // namespace qwen

#endif // QWEN_IMPORT_TOKENIZER_TOKENIZER_H
