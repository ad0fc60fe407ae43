//===- TokenCut.h - What removes unlikely tokens ----------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_ENGINE_SAMPLERS_TOKENCUT_H
#define QWEN_RUNTIME_ENGINE_SAMPLERS_TOKENCUT_H

#include "engine/SamplerOptions.h"
#include "engine/samplers/Candidates.h"

namespace qwen {

/// What a cut knows besides the candidates.
struct CutInputs {
  /// A random number in [0, 1) that nothing else uses.
  double coin;
  /// Mirostat's bound of the surprise of a token, in bits.
  double mu;
  /// Number of tokens of the vocabulary, without padding.
  size_t tokens;
};

/// Removes candidates, never all, or changes their logits, before a token is
/// drawn from the rest.
struct TokenCut {
  /// Whether the options ask for it.
  bool (*isOn)(const SamplerOptions &options);
  void (*apply)(const SamplerOptions &options, Candidates &candidates,
                const CutInputs &inputs);
};

namespace cut {
#define QWEN_CUT(Name, Text) extern const TokenCut Name;
#include "engine/samplers/Samplers.def"
/// Takes the place of all others.
extern const TokenCut Mirostat;
} // namespace cut

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_SAMPLERS_TOKENCUT_H
