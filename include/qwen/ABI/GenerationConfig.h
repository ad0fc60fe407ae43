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
#include <set>
#include <string>
#include <type_traits>
#include <vector>

namespace qwen {

class JsonValue;

/// The type of a sampling option in files.
template <typename T>
using StoredSampling =
    std::conditional_t<std::is_integral_v<T>, int64_t, double>;

/// The sampling options that the checkpoint recommends. SamplerOptions.def
/// describes them. A missing option has the default of transformers.
struct GenerationConfig {
  bool doSample = false;
#define QWEN_MODEL_SAMPLING(Type, Field, Name, Default, Least, Most, Valid,    \
                            Needed, Help, Usual, ...)                          \
  StoredSampling<Type> Field = Usual;
#include "qwen/ABI/SamplerOptions.def"
  std::optional<int32_t> bosTokenId;
  /// Ids that end an answer; may be empty.
  std::vector<int32_t> eosTokenIds;
};

/// The keys of the manifest and of generation_config.json.
inline constexpr Fact<GenerationConfig> kSamplingFacts[] = {
    {"do_sample", &GenerationConfig::doSample},
#define QWEN_MODEL_SAMPLING(Type, Field, Name, Default, Least, Most, Valid,    \
                            Needed, Help, Usual, StoredLeast, StoredMost, ...) \
  {#Name, &GenerationConfig::Field, StoredLeast, StoredMost},
#include "qwen/ABI/SamplerOptions.def"
};

/// Reads the sampling options that the object `root` has. An option of null has
/// no effect on what is drawn: a top_k of null keeps all. Throws Error for
/// types and ranges.
void parseSampling(const JsonValue &root, GenerationConfig &generation);

/// Reads the special tokens that `generation` lacks from `root`. An id beyond a
/// vocabulary of `vocabSize` tokens goes to `beyond` as "KEY ID"; if `beyond`
/// is null, it is an Error.
void parseSpecialTokens(const JsonValue &root, int64_t vocabSize,
                        GenerationConfig &generation,
                        std::set<std::string> *beyond = nullptr);

/// The id of `value`, or nullopt for one beyond the vocabulary, like
/// parseSpecialTokens.
std::optional<int32_t> parseSpecialToken(const JsonValue &value,
                                         int64_t vocabSize,
                                         std::set<std::string> *beyond);

} // namespace qwen

#endif // QWEN_ABI_GENERATIONCONFIG_H
