//===- GenerationConfig.h - How a model wants to be sampled -----*- C++ -*-===//
//
// What the importer reads, the manifest carries ("generation" in
// docs/artifact.md) and the sampler starts from.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_ABI_GENERATIONCONFIG_H
#define QWEN_ABI_GENERATIONCONFIG_H

#include <cstdint>
#include <optional>
#include <vector>

namespace qwen {

/// How the checkpoint's authors want it sampled. What they don't say has the
/// value that transformers gives it.
struct GenerationConfig {
  bool doSample = false;
  double temperature = 1.0;
  /// 0 keeps all.
  int64_t topK = 50;
  double topP = 1.0;
  double minP = 0.0;
  double repetitionPenalty = 1.0;
  std::optional<int32_t> bosTokenId;
  /// Ids that end an answer; may be none.
  std::vector<int32_t> eosTokenIds;
};

} // namespace qwen

#endif // QWEN_ABI_GENERATIONCONFIG_H
