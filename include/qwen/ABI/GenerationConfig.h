//===- GenerationConfig.h - Sampling defaults of a model --------*- C++ -*-===//
//
// The importer reads them, the manifest stores them ("generation" in
// docs/artifact.md), and the sampler uses them as defaults.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_ABI_GENERATIONCONFIG_H
#define QWEN_ABI_GENERATIONCONFIG_H

#include "qwen/Support/Fact.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace qwen {

class JsonValue;

/// The sampling options that the checkpoint recommends. A missing option has
/// the default of transformers.
struct GenerationConfig {
  bool doSample = false;
  double temperature = 1.0;
  /// 0 keeps all.
  int64_t topK = 50;
  double topP = 1.0;
  double minP = 0.0;
  double repetitionPenalty = 1.0;
  std::optional<int32_t> bosTokenId;
  /// Ids that end an answer; may be empty.
  std::vector<int32_t> eosTokenIds;
};

/// The keys of the manifest and of generation_config.json.
inline constexpr Fact<GenerationConfig> kSamplingFacts[] = {
    {"do_sample", &GenerationConfig::doSample},
    {"temperature", &GenerationConfig::temperature, 0, 1e6},
    {"top_k", &GenerationConfig::topK, 0, INT32_MAX},
    {"top_p", &GenerationConfig::topP, 0, 1},
    {"min_p", &GenerationConfig::minP, 0, 1},
    {"repetition_penalty", &GenerationConfig::repetitionPenalty, 1e-6, 1e6}};

/// Reads the sampling options that the object `root` has. A top_k of null keeps
/// all; other options of null are missing. Throws Error for types and ranges.
void parseSampling(const JsonValue &root, GenerationConfig &generation);

/// Reads the special tokens that `root` has and `generation` lacks. Throws
/// Error for ids that are not below `vocabSize`.
void parseSpecialTokens(const JsonValue &root, int64_t vocabSize,
                        GenerationConfig &generation);

} // namespace qwen

#endif // QWEN_ABI_GENERATIONCONFIG_H
