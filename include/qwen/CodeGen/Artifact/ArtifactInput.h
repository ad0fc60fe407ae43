//===- ArtifactInput.h - Parts of an artifact besides its code --*- C++ -*-===//

#ifndef QWEN_CODEGEN_ARTIFACT_ARTIFACTINPUT_H
#define QWEN_CODEGEN_ARTIFACT_ARTIFACTINPUT_H

#include "qwen/ABI/Quantization.h"
#include "qwen/Import/Checkpoint/Checkpoint.h"
#include "qwen/Import/Tokenizer/TokenizerBlob.h"

#include <cstdint>
#include <optional>
#include <string>

namespace qwen {

/// The source of all parts of the artifact except the code.
struct ArtifactInput {
  /// Name of the model (checkpointName).
  std::string name;
  /// Maximum number of positions in a sequence.
  int64_t context;
  const Checkpoint *checkpoint;
  const std::optional<TokenizerImport> *tokenizer;
  Quantization quantization = {};
};

} // namespace qwen

#endif // QWEN_CODEGEN_ARTIFACT_ARTIFACTINPUT_H
