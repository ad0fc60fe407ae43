//===- ModelShape.h - Sizes of a model --------------------------*- C++ -*-===//
//
// The importer reads these facts from the checkpoint; the manifest stores them
// with each program (docs/artifact.md).
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_ABI_MODELSHAPE_H
#define QWEN_ABI_MODELSHAPE_H

#include "qwen/ABI/Blocks.h"
#include "qwen/ABI/KernelABI.h"
#include "qwen/Support/Fact.h"

#include <cstdint>
#include <optional>
#include <span>
#include <tuple>

namespace qwen {

/// The largest sizes that readers accept: values of a token, layers or heads,
/// and positions.
inline constexpr int64_t kMaxModelWidth = 1 << 24;
inline constexpr int64_t kMaxModelCount = 1 << 16;
inline constexpr int64_t kMaxModelPosition = int64_t{1} << 30;

/// The name of the frequencies of the rotary embedding in the weight image.
inline constexpr char kFrequenciesName[] = "rope.frequencies";

/// The sizes and constants of a decoder. kvHeads divides heads, and heads *
/// headDim is a multiple of kGroup; kShapeFacts has the ranges.
struct ModelShape {
  /// Number of ids of the embedding and of logits of a token.
  int64_t vocabSize;
  int64_t hiddenSize;
  int64_t layers;
  int64_t heads;
  int64_t kvHeads;
  int64_t headDim;
  int64_t intermediateSize;
  double ropeTheta;
  double rmsNormEps;
  /// Whether the embedding is also the matrix of lm_head.
  bool tied;
};

/// The keys of a program's model in the manifest and in IR (qwen.model).
inline constexpr Fact<ModelShape> kShapeFacts[] = {
    {"vocab_size", &ModelShape::vocabSize, 1, INT32_MAX},
    {"hidden_size", &ModelShape::hiddenSize, kGroup, kMaxModelWidth, kGroup},
    {"layers", &ModelShape::layers, 1, kMaxModelCount},
    {"heads", &ModelShape::heads, 1, kMaxModelCount},
    {"kv_heads", &ModelShape::kvHeads, 1, kMaxModelCount},
    {"head_dim", &ModelShape::headDim, 16, 256, 8},
    {"intermediate_size", &ModelShape::intermediateSize, kGroup, kMaxModelWidth,
     kGroup},
    {"rope_theta", &ModelShape::ropeTheta, 1e-30, 1e30},
    {"rms_norm_eps", &ModelShape::rmsNormEps, 1e-30, 1},
    {"tied", &ModelShape::tied}};

/// Experts in place of a feed-forward network.
struct ExpertsShape {
  int64_t count;
  /// The number of experts that a token chooses.
  int64_t active;
  /// Values between the products of an expert.
  int64_t width;
  /// The same of the expert of all tokens; 0: there is none.
  int64_t sharedWidth = 0;
  /// Whether the weights of a token's experts are divided by their sum.
  bool normalized = false;

  bool operator==(const ExpertsShape &) const = default;
};

/// The keys of "experts" there.
inline constexpr Fact<ExpertsShape> kExpertsFacts[] = {
    {"count", &ExpertsShape::count, 1, kMaxExperts},
    {"active", &ExpertsShape::active, 1, kMaxExperts},
    {"width", &ExpertsShape::width, kGroup, kMaxModelWidth, kGroup},
    {"shared_width", &ExpertsShape::sharedWidth, 0, kMaxModelWidth, kGroup},
    {"normalized", &ExpertsShape::normalized}};

/// YaRN (https://arxiv.org/abs/2309.00071), as transformers computes it.
struct Yarn {
  /// The number of times that the context is longer than it was in training.
  double factor;
  /// Positions in training.
  int64_t positions;
  /// Rotations within these positions: frequencies with at least `fast` stay,
  /// those with at most `slow` are divided by `factor`, and those between them
  /// change from one to the other.
  double fast = 32, slow = 1;
  /// Factor of cos and sin.
  double scale = 1;

  bool operator==(const Yarn &) const = default;
};

/// The keys of "yarn" there.
inline constexpr Fact<Yarn> kYarnFacts[] = {
    {"factor", &Yarn::factor, 1, 1e6},
    {"positions", &Yarn::positions, 1, kMaxModelPosition},
    {"fast", &Yarn::fast, 1e-6, 1e6},
    {"slow", &Yarn::slow, 1e-6, 1e6},
    {"scale", &Yarn::scale, 1e-6, 1e6}};

/// A decoder, with the parts that only some models have. A new part is a
/// struct, its facts, a member and a row of kModelParts: IR and manifest then
/// have it.
struct ModelParts : ModelShape {
  /// How the rotary embedding is scaled. The code and the weight image have
  /// what follows of it.
  std::optional<Yarn> yarn;
  /// The shape of the layers that have experts.
  std::optional<ExpertsShape> experts;

  /// Factor of cos and sin of the rotary embedding.
  double ropeScale() const { return yarn ? yarn->scale : 1; }
};

/// A part: its key in the manifest and in IR, and the keys of its facts.
template <typename Part> struct ModelPart {
  const char *key;
  std::optional<Part> ModelParts::*member;
  std::span<const Fact<Part>> facts;
};
inline constexpr std::tuple kModelParts = {
    ModelPart<Yarn>{"yarn", &ModelParts::yarn, kYarnFacts},
    ModelPart<ExpertsShape>{"experts", &ModelParts::experts, kExpertsFacts}};

/// Calls `visit` with each row of kModelParts.
template <typename Visit> constexpr void visitModelParts(const Visit &visit) {
  std::apply([&](const auto &...part) { (visit(part), ...); }, kModelParts);
}

} // namespace qwen

#endif // QWEN_ABI_MODELSHAPE_H
