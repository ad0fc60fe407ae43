//===- Tokenizer.h - Reads a checkpoint's tokenizer -------------*- C++ -*-===//
//
// From the files of a Hugging Face directory to the bytes of TokenizerFormat.h
// and the source of the chat template.
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
  /// The tokenizer, as TokenizerFormat.h says. Put it at kTokenizerAlign.
  std::vector<uint8_t> blob;
  /// Last id + 1, added tokens included.
  uint32_t vocabSize;
  /// Tokens that tokenizer_config.json names.
  std::optional<uint32_t> bosToken, eosToken, padToken;
  /// Jinja source; empty where the checkpoint has none.
  std::string chatTemplate;
  /// The file that has it.
  std::filesystem::path chatTemplateFile;
  /// Warnings about harmless oddities in the files, one line each.
  std::vector<std::string> warnings;
};

/// Reads the tokenizer of the checkpoint in `dir`: tokenizer.json, or else
/// vocab.json + merges.txt (with tokenizer_config.json, added_tokens.json and
/// special_tokens_map.json where they are). Returns nullopt where neither is
/// there. Throws Error for files that don't parse or contradict each other,
/// and for tokenizers of another kind than Qwen's (byte-level BPE, Qwen's
/// regular expression, NFC or no normalization).
std::optional<TokenizerImport> buildTokenizer(const std::filesystem::path &dir);

} // namespace qwen

#endif // QWEN_IMPORT_TOKENIZER_TOKENIZER_H
