//===- TokenizerKeys.h - The tokenizer of a GGUF file -----------*- C++ -*-===//

#ifndef QWEN_EXPORT_TOKENIZERKEYS_H
#define QWEN_EXPORT_TOKENIZERKEYS_H

#include "export/GgufHead.h"

#include "artifact/Artifact.h"

#include <string>
#include <vector>

namespace qwen {

/// Adds the keys of the tokenizer, of the tokens that end an answer, and of the
/// chat template: the reverse of readGgufTokenizer. Adds to `warnings` what
/// they do not say. Throws Error if the tokenizer is damaged.
void addTokenizer(const Artifact &artifact, GgufHead &head,
                  std::vector<std::string> &warnings);

} // namespace qwen

#endif // QWEN_EXPORT_TOKENIZERKEYS_H
