//===- TokenizerBlob.h - The tokenizer of an artifact -----------*- C++ -*-===//
//
// Converts the tokenizer of a checkpoint to the bytes of TokenizerFormat.h and
// the source of the chat template.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_IMPORT_TOKENIZER_TOKENIZERBLOB_H
#define QWEN_IMPORT_TOKENIZER_TOKENIZERBLOB_H

#include "qwen/Import/Checkpoint/CheckpointTokenizer.h"

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
  /// Tokens that the checkpoint names.
  std::optional<uint32_t> bosToken, eosToken, padToken;
  /// Jinja source; empty if the checkpoint has no chat template.
  std::string chatTemplate;
  /// The file of the chat template.
  std::filesystem::path chatTemplateFile;
  /// Warnings about harmless oddities in the files, one line each.
  std::vector<std::string> warnings;
};

/// Makes the tables of `from`. Throws Error, with the file, if its parts
/// contradict each other or its vocabulary is not byte-level.
TokenizerImport buildTokenizer(CheckpointTokenizer from);

} // namespace qwen

#endif // QWEN_IMPORT_TOKENIZER_TOKENIZERBLOB_H
