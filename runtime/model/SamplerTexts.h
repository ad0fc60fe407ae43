//===- SamplerTexts.h - Texts of samplers as tokens -------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_MODEL_SAMPLERTEXTS_H
#define QWEN_RUNTIME_MODEL_SAMPLERTEXTS_H

#include "engine/SamplerOptions.h"
#include "text/Tokenizer.h"

namespace qwen {

/// Whether `resolveTexts` has something to do.
bool hasTexts(const SamplerOptions &options);

/// Makes the tokens of the texts of `options`, SamplerOptions::badWords and
/// dryBreakers, as docs/numerics.md says. Throws Error for an empty text.
void resolveTexts(const Tokenizer &tokenizer, SamplerOptions &options);

} // namespace qwen

#endif // QWEN_RUNTIME_MODEL_SAMPLERTEXTS_H
