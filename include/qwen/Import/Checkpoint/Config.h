//===- Config.h - Configuration of a checkpoint's model ---------*- C++ -*-===//
//
// Readers of config.json and generation_config.json, with the keys of the
// published checkpoints and with those that transformers 5 writes.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_IMPORT_CHECKPOINT_CONFIG_H
#define QWEN_IMPORT_CHECKPOINT_CONFIG_H

#include "qwen/ABI/GenerationConfig.h"
#include "qwen/ABI/ModelOutput.h"
#include "qwen/ABI/ModelShape.h"
#include "qwen/Numerics/Math.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qwen {

/// The rows of kArchitectures. Qwen2 is Qwen2.5's architecture, too. Of models
/// with vision, only the text is read; Qwen3_5 is Qwen3_5Vision without it.
enum class Architecture : uint8_t {
  Qwen2,
  Qwen3,
  Qwen3_5,
  Qwen3_5Vision,
  Qwen2_5Vision,
  Qwen3Vision,
  Qwen1
};

/// How the layers of an architecture differ from those of the others.
struct ArchitectureInfo {
  /// The name in config.json.
  std::string_view name;
  /// model_type in config.json.
  std::string_view modelType;
  /// The name in GGUF files.
  std::string_view ggufName;
  /// Whether q, k and v have biases.
  bool hasBiases;
  /// Whether the heads of q and k are normed.
  bool hasHeadNorms;
  /// Whether layers have linear or gated attention, norms by 1 + w and a
  /// rotation of a part of each head.
  bool isHybrid = false;
  /// Whether positions may have three axes ("mrope"), which are equal in texts.
  bool hasAxes = false;
  /// Whether it has vision beside the text model, whose keys may be in
  /// text_config.
  bool hasVision = false;
  /// What users call it, if that is something else.
  std::string_view models = "";
};
inline constexpr ArchitectureInfo kArchitectures[] = {
    {"Qwen2ForCausalLM", "qwen2", "qwen2", /*hasBiases=*/true,
     /*hasHeadNorms=*/false, /*isHybrid=*/false, /*hasAxes=*/false,
     /*hasVision=*/false, "Qwen2, Qwen2.5"},
    {"Qwen3ForCausalLM", "qwen3", "qwen3", /*hasBiases=*/false,
     /*hasHeadNorms=*/true},
    {"Qwen3_5ForCausalLM", "qwen3_5", "qwen35", /*hasBiases=*/false,
     /*hasHeadNorms=*/true,
     /*isHybrid=*/true, /*hasAxes=*/true},
    {"Qwen3_5ForConditionalGeneration", "qwen3_5", "", /*hasBiases=*/false,
     /*hasHeadNorms=*/true, /*isHybrid=*/true, /*hasAxes=*/true,
     /*hasVision=*/true, "the text of Qwen3.5"},
    {"Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl", "", /*hasBiases=*/true,
     /*hasHeadNorms=*/false, /*isHybrid=*/false, /*hasAxes=*/true,
     /*hasVision=*/true, "the text of Qwen2.5-VL"},
    {"Qwen3VLForConditionalGeneration", "qwen3_vl", "", /*hasBiases=*/false,
     /*hasHeadNorms=*/true, /*isHybrid=*/false, /*hasAxes=*/true,
     /*hasVision=*/true, "the text of Qwen3-VL"},
    {"QWenLMHeadModel", "qwen", "", /*hasBiases=*/true, /*hasHeadNorms=*/false,
     /*isHybrid=*/false, /*hasAxes=*/false, /*hasVision=*/false, "Qwen 1"},
};
constexpr const ArchitectureInfo &infoOf(Architecture architecture) {
  return kArchitectures[static_cast<size_t>(architecture)];
}

/// The heads of linear attention.
struct DeltaRuleShape {
  int64_t keyHeads, keyDim, valueHeads, valueDim;

  /// Values of a token that the short convolution takes: q, k and v.
  int64_t channels() const {
    return 2 * keyHeads * keyDim + valueHeads * valueDim;
  }
};

/// A model of a supported architecture.
struct ModelConfig : ModelShape {
  Architecture architecture;
  ModelOutput output = {};
  /// Whether each layer has linear attention; empty in models without it.
  std::vector<bool> isLinear;
  DeltaRuleShape deltaRule{};
  /// Whether the first value heads of all key heads come first (DeltaRuleOp).
  bool interleavesValueHeads = false;
  /// The values of a head that are rotated, its first ones.
  int64_t rotatedDim;
  /// Maximum number of positions: max_position_embeddings, with YaRN what its
  /// factor makes of the positions in training, of a Qwen 1 seq_length.
  int64_t maxPosition;
  std::optional<numerics::Yarn> yarn;
  /// Factor of cos and sin.
  double ropeScale = 1;
  /// "FILE: KEY" of a quantization config, or empty. Such a config announces
  /// integers; it has no effect if the tensors are floats.
  std::string quantization;
  /// Its quant_method, or empty.
  std::string quantMethod;
  /// Lines of the summary, printable.
  std::vector<std::string> notes;
};

/// Gives `model` these parameters of YaRN and as many positions as they make
/// of those in training. `attentionFactor` is the factor of cos and sin.
void setYarn(ModelConfig &model, const numerics::Yarn &yarn,
             double attentionFactor);

/// Adds a note about the unknown keys `names`, if there are any.
void noteUnknownKeys(const std::vector<std::string> &names, ModelConfig &model);

/// Throws Error, which begins with `path`, for a head_dim or a K of a product
/// that is not supported (ModelShape).
void checkSizes(const std::string &path, const ModelShape &model);

/// Reads `dir`/config.json. Throws Error, with the file and the key, for
///  * a file that is missing, unreadable or not a JSON object;
///  * a key that is missing, of a wrong type or out of range;
///  * sizes that disagree;
///  * unsupported features: architecture, activation, rotary embeddings that
///    are scaled in other ways than YaRN, or partial where the architecture is
///    not a hybrid, sliding windows, biases in the attention of Qwen3, code
///    of its own (auto_map), and all that Known.h lists as a FixedKey.
/// Keys that nobody reads and that are not known are a note.
ModelConfig readModelConfig(const std::filesystem::path &dir);

/// Reads `dir`/generation_config.json, which may be missing. Special tokens
/// that it lacks come from `dir`/config.json. Throws Error like
/// readModelConfig, and for ids outside of the vocabulary.
GenerationConfig readGenerationConfig(const std::filesystem::path &dir,
                                      const ModelConfig &model);

} // namespace qwen

#endif // QWEN_IMPORT_CHECKPOINT_CONFIG_H
