//===- ModelConfig.h - The model of a checkpoint ----------------*- C++ -*-===//
//
// What the readers of configurations give, and the architectures that they
// know.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_IMPORT_CHECKPOINT_MODELCONFIG_H
#define QWEN_IMPORT_CHECKPOINT_MODELCONFIG_H

#include "qwen/ABI/ModelOutput.h"
#include "qwen/ABI/ModelShape.h"
#include "qwen/ABI/Pruning.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
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
  Qwen1,
  Qwen2Moe,
  Qwen3Moe,
  Qwen3MoeVision,
  Qwen3_5Moe,
  Qwen3_5MoeVision,
  Qwen3Next
};

/// How the layers of an architecture differ from the layers of others.
struct LayerTraits {
  /// Whether q, k and v have biases.
  bool hasBiases = false;
  /// Whether the heads of q and k are normed.
  bool hasHeadNorms = false;
  /// Whether q_proj has a gate of the result of attention, too.
  bool hasGate = false;
  /// Whether layers may have linear attention.
  bool hasLinear = false;
  /// Whether the rotation may cover only a part of each head.
  bool rotatesPart = false;
  /// Whether layers may have experts, and an expert of all tokens with them.
  bool hasExperts = false;
  bool hasSharedExpert = false;
  /// Whether the weights of experts are divided by their sum, whatever
  /// norm_topk_prob says.
  bool normalizesExperts = false;
  /// Whether they are in GGUF files, which have no such key.
  bool normalizesGgufExperts = false;
  /// Whether a tensor of all experts may have the order [experts, K, outputs].
  /// transformers 5 writes [experts, outputs, K].
  bool transposesExperts = false;
  /// Whether projections of linear attention share tensors, key head by key
  /// head.
  bool joinsProjections = false;
};
inline constexpr LayerTraits kQwen2Layers = {.hasBiases = true};
inline constexpr LayerTraits kQwen3Layers = {.hasHeadNorms = true};
inline constexpr LayerTraits kQwen3_5Layers = {.hasHeadNorms = true,
                                               .hasGate = true,
                                               .hasLinear = true,
                                               .rotatesPart = true};

inline constexpr LayerTraits kQwen2MoeLayers = {
    .hasBiases = true, .hasExperts = true, .hasSharedExpert = true};
inline constexpr LayerTraits kQwen3MoeLayers = {
    .hasHeadNorms = true, .hasExperts = true, .normalizesGgufExperts = true};
inline constexpr LayerTraits kQwen3MoeVisionLayers = {
    .hasHeadNorms = true,
    .hasExperts = true,
    .normalizesExperts = true,
    .normalizesGgufExperts = true,
    .transposesExperts = true};
inline constexpr LayerTraits kQwen3_5MoeLayers = {.hasHeadNorms = true,
                                                  .hasGate = true,
                                                  .hasLinear = true,
                                                  .rotatesPart = true,
                                                  .hasExperts = true,
                                                  .hasSharedExpert = true,
                                                  .normalizesExperts = true,
                                                  .normalizesGgufExperts =
                                                      true};
inline constexpr LayerTraits kQwen3NextLayers = {.hasHeadNorms = true,
                                                 .hasGate = true,
                                                 .hasLinear = true,
                                                 .rotatesPart = true,
                                                 .hasExperts = true,
                                                 .hasSharedExpert = true,
                                                 .normalizesGgufExperts = true,
                                                 .joinsProjections = true};

/// An architecture: its names, and what differs outside of layers.
struct ArchitectureInfo {
  /// The name in config.json.
  std::string_view name;
  /// model_type in config.json.
  std::string_view modelType;
  /// The name in GGUF files.
  std::string_view ggufName;
  LayerTraits layers;
  /// Whether positions may have three axes ("mrope"), which are equal in texts.
  bool hasAxes;
  /// Whether it has vision beside the text model, whose keys may be in
  /// text_config.
  bool hasVision;
  /// What users call it, if that is something else.
  std::string_view models = "";
};
inline constexpr ArchitectureInfo kArchitectures[] = {
    {"Qwen2ForCausalLM", "qwen2", "qwen2", kQwen2Layers, /*hasAxes=*/false,
     /*hasVision=*/false, "Qwen2, Qwen2.5"},
    {"Qwen3ForCausalLM", "qwen3", "qwen3", kQwen3Layers, /*hasAxes=*/false,
     /*hasVision=*/false},
    {"Qwen3_5ForCausalLM", "qwen3_5", "qwen35", kQwen3_5Layers,
     /*hasAxes=*/true, /*hasVision=*/false},
    {"Qwen3_5ForConditionalGeneration", "qwen3_5", "", kQwen3_5Layers,
     /*hasAxes=*/true, /*hasVision=*/true, "the text of Qwen3.5"},
    {"Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl", "qwen2vl",
     kQwen2Layers,
     /*hasAxes=*/true, /*hasVision=*/true, "the text of Qwen2.5-VL"},
    {"Qwen3VLForConditionalGeneration", "qwen3_vl", "qwen3vl", kQwen3Layers,
     /*hasAxes=*/true, /*hasVision=*/true, "the text of Qwen3-VL"},
    {"QWenLMHeadModel", "qwen", "", kQwen2Layers, /*hasAxes=*/false,
     /*hasVision=*/false, "Qwen 1"},
    {"Qwen2MoeForCausalLM", "qwen2_moe", "qwen2moe", kQwen2MoeLayers,
     /*hasAxes=*/false, /*hasVision=*/false},
    {"Qwen3MoeForCausalLM", "qwen3_moe", "qwen3moe", kQwen3MoeLayers,
     /*hasAxes=*/false, /*hasVision=*/false},
    {"Qwen3VLMoeForConditionalGeneration", "qwen3_vl_moe", "qwen3vlmoe",
     kQwen3MoeVisionLayers, /*hasAxes=*/true, /*hasVision=*/true,
     "the text of Qwen3-VL-MoE"},
    {"Qwen3_5MoeForCausalLM", "qwen3_5_moe", "qwen35moe", kQwen3_5MoeLayers,
     /*hasAxes=*/true, /*hasVision=*/false},
    {"Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe", "", kQwen3_5MoeLayers,
     /*hasAxes=*/true, /*hasVision=*/true, "the text of Qwen3.5-MoE"},
    {"Qwen3NextForCausalLM", "qwen3_next", "qwen3next", kQwen3NextLayers,
     /*hasAxes=*/false, /*hasVision=*/false},
};
constexpr const ArchitectureInfo &infoOf(Architecture architecture) {
  return kArchitectures[static_cast<size_t>(architecture)];
}
constexpr const LayerTraits &layersOf(Architecture architecture) {
  return infoOf(architecture).layers;
}

/// Softmax attention to all earlier positions, with the heads of ModelShape.
struct FullAttention {
  bool operator==(const FullAttention &) const = default;
};

/// The gated delta rule, and its heads.
struct LinearAttention {
  int64_t keyHeads, keyDim, valueHeads, valueDim;

  /// Values of a token that the short convolution takes: q, k and v.
  int64_t channels() const {
    return 2 * keyHeads * keyDim + valueHeads * valueDim;
  }
  bool operator==(const LinearAttention &) const = default;
};

/// What mixes the tokens in a layer.
using LayerKind = std::variant<FullAttention, LinearAttention>;

/// What a layer computes of each token alone: a feed-forward network of
/// intermediateSize, or the experts of ModelParts.
enum class MlpKind : uint8_t { Dense, Experts };

/// What says that weights are quantized, and how. It has no effect if all
/// tensors are floats.
struct QuantizationConfig {
  /// The file and the key that have it; empty if there is none. A file may have
  /// it without a key.
  std::string file, key;
  /// Its quant_method, or empty.
  std::string method;
  nlohmann::json value;

  /// "FILE: KEY", for messages.
  std::string name() const { return file + (key.empty() ? "" : ": " + key); }
};

/// The key of a size in a container, and in its first checkpoints.
struct SizeKey {
  int64_t ModelShape::*size;
  const char *key;
  const char *older = nullptr;
};

/// YaRN that a caller asks for, as config.json has it: the other parameters
/// have their defaults.
struct RopeScaling {
  /// The number of times that the context is longer than it was in training.
  double factor;
  /// Positions in training; by default the checkpoint's maximum.
  std::optional<int64_t> positions = {};
};

/// A model of a supported architecture.
struct ModelConfig : ModelParts {
  Architecture architecture;
  ModelOutput output = {};
  /// The ids that its draft head can guess, ascending; empty: all.
  std::vector<int32_t> draftTokens = {};
  /// One for each layer.
  std::vector<LayerKind> layerKinds;
  std::vector<MlpKind> mlpKinds;
  /// Whether it is a GGUF file. Values of a hybrid differ from a folder's.
  bool isGguf = false;
  /// Whether the first value heads of all key heads come first (DeltaRuleOp).
  bool interleavesValueHeads = false;
  /// The values of a head that are rotated, its first ones.
  int64_t rotatedDim;
  /// Maximum number of positions: max_position_embeddings, with YaRN what its
  /// factor makes of the positions in training, of a Qwen 1 seq_length.
  int64_t maxPosition;
  QuantizationConfig quantization;
  /// Whether a draft head does not share the model's embedding.
  bool hasOwnDraftEmbedding = false;
  /// What was removed of the checkpoint.
  Pruning pruning = {};
  /// Lines of the summary, printable.
  std::vector<std::string> notes;

  /// The experts of a layer, or null.
  const ExpertsShape *expertsOf(int64_t layer) const {
    return mlpKinds[static_cast<size_t>(layer)] == MlpKind::Experts ? &*experts
                                                                    : nullptr;
  }
  /// Sets what the layers compute. A model without a layer of experts has none.
  void setMlpKinds(std::vector<MlpKind> kinds) {
    mlpKinds = std::move(kinds);
    if (std::ranges::find(mlpKinds, MlpKind::Experts) == mlpKinds.end())
      experts.reset();
  }
};

} // namespace qwen

#endif // QWEN_IMPORT_CHECKPOINT_MODELCONFIG_H
