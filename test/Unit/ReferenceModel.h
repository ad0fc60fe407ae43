//===- ReferenceModel.h - A model in plain C++ ------------------*- C++ -*-===//
//
// Qwen written out with the references of lib/Numerics, one token after the
// other. It has nothing in common with the compiler and the driver but these
// and the encoders.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_TEST_UNIT_REFERENCEMODEL_H
#define QWEN_TEST_UNIT_REFERENCEMODEL_H

#include "qwen/ABI/KernelOps.h"
#include "qwen/ABI/StoredTypes.h"

#include <optional>
#include <vector>

namespace qwen::test {

using Values = std::vector<float>;

/// A packed matrix [n][k]; an empty one is that of a layer without it.
struct Matrix {
  WeightFormat format = WeightFormat::F32;
  int64_t n = 0, k = 0;
  std::vector<uint8_t> panels;

  Matrix() = default;
  /// Packs values [n][k]. Throws Error where they cannot be encoded.
  Matrix(WeightFormat format, int64_t n, int64_t k, const Values &values);
  /// Packs stored values. Keeps the integers and scales of an output where
  /// `format` holds them.
  Matrix(WeightFormat format, int64_t n, int64_t k, StoredType type,
         const uint8_t *stored);

  /// The weights of output `id`.
  Values output(int32_t id) const;
  /// The product with x [k], plus bias and residual [n], which may be empty.
  Values times(const Values &x, Values bias = {}, Values residual = {}) const;
};

/// What attention does to the heads of queries and keys.
struct Rotation {
  int64_t headDim;
  float eps;
  /// cos and sin of the position, for half of the values that are rotated: the
  /// first ones of a head.
  Values cos, sin;

  /// The rotated heads of x, normed first where `norm` is not empty.
  Values rotated(const Values &x, const Values &norm) const;
};

/// How keys and values lie in pages, and the kernels that know it.
struct KvKernels {
  KvLayout layout;
  AppendKFn *appendK;
  AppendVFn *appendV;
  AttentionScoresFn *scores;
  AttentionValuesFn *values;
  /// Null where scores read f32 queries.
  EncodeQueryFn *encodeQuery = nullptr;

  KvKernels(const KvLayout &layout, AppendKFn *appendK, AppendVFn *appendV,
            AttentionScoresFn *scores, AttentionValuesFn *values)
      : layout(layout), appendK(appendK), appendV(appendV), scores(scores),
        values(values) {}
  /// The references of a format.
  KvKernels(KvFormat format);
};

/// The keys and values of one layer and one sequence.
class AttentionCache {
public:
  AttentionCache(const KvKernels &kernels, int64_t kvHeads, int64_t headDim)
      : kernels(kernels), kvHeads(kvHeads), headDim(headDim) {}

  /// Appends those of the next position [kvHeads][headDim]. Throws Error where
  /// one is not finite.
  void append(const Values &k, const Values &v);
  /// The attention of rotated queries [heads][headDim] over all positions.
  Values attend(const Values &queries) const;

private:
  /// Bytes of one head of a page.
  int64_t headBytes() const { return kernels.layout.headBytes(headDim); }

  KvKernels kernels;
  int64_t kvHeads, headDim;
  int64_t positions = 0;
  /// Pages of the keys and of the values of all KV heads.
  std::vector<std::vector<uint8_t>> keys, values;
};

/// A layer's gated delta rule. Its heads of keys and values divide the values
/// of q, k and v of a token.
struct ReferenceDeltaRule {
  int64_t keyHeads, keyDim, valueHeads, valueDim;
  /// Consecutive value heads that share a key head.
  int64_t sharing;
  Matrix qkv = {}, z = {}, a = {}, b = {};
  /// rate is exp(A_log), bias dt_bias.
  Values convolution = {}, rate = {}, bias = {}, norm = {};
};

/// A layer's experts.
struct ReferenceExperts {
  struct Expert {
    Matrix gate, up, down;
  };

  Matrix router;
  int64_t active;
  /// Whether the weights of a token's experts are divided by their sum.
  bool normalized;
  std::vector<Expert> experts = {};
  /// The expert of all tokens, and the product whose sigmoid is its weight.
  std::optional<Expert> shared = {};
  Matrix sharedGate = {};

  /// The sum of the experts of a token's values x. Throws Error where a logit
  /// is not finite.
  Values sum(const Values &x) const;
};

/// The weights of a layer. Norms of heads and biases are empty in models
/// without them, the gate of attention too.
struct ReferenceLayer {
  Values inputNorm, postNorm, qNorm, kNorm, qBias, kBias, vBias;
  Matrix q, k, v, o, gate, up, down;
  /// In place of gate, up and down.
  std::optional<ReferenceExperts> experts = {};
  Matrix attentionGate = {};
  /// In place of q, k and v.
  std::optional<ReferenceDeltaRule> delta = {};
};

/// A model of one or more layers.
struct ReferenceModel {
  int64_t kvHeads, headDim;
  float eps;
  KvFormat cache;
  /// Of rotary embedding, for half of the values that are rotated.
  Values frequencies;
  Values finalNorm;
  Matrix embedding;
  /// None if the embedding is the head, too.
  std::optional<Matrix> head;
  std::vector<ReferenceLayer> layers;
  /// Factor of cos and sin.
  float ropeScale = 1;

  /// The logits of a token with these hidden values.
  Values logits(const Values &hidden) const {
    return (head ? *head : embedding).times(hidden);
  }
};

/// A draft head: a model of one layer with its own norms, and what comes before
/// the layer.
struct ReferenceDraftHead {
  ReferenceModel model;
  Values embeddingNorm, hiddenNorm;
  /// The halves of fc.
  Matrix embedding, hidden;

  /// What the layer reads: of token `id` behind the one with the row `row`.
  Values input(int32_t id, const Values &row) const;
};

/// What the products of a layer read of a token.
struct LayerInputs {
  Values qkv, o, gateUp, down;
};

/// A sequence that a model runs.
class ReferenceSequence {
public:
  /// `model` must outlive the sequence.
  explicit ReferenceSequence(const ReferenceModel &model);

  /// Runs token `id` at the next position and returns its hidden values.
  Values next(int32_t id);
  /// Runs all layers over x at the next position and returns its hidden values.
  Values run(Values x);
  /// Runs a layer over the values of the token before it, whose position is the
  /// next of the layer, and returns the values after it. Fills `inputs`.
  Values runLayer(size_t number, const Values &x, int32_t position,
                  LayerInputs *inputs = nullptr);

private:
  /// What a layer's delta rule keeps between tokens.
  struct DeltaState {
    Values convolution, heads;
  };

  /// The result of a layer's mixer, which o_proj takes.
  Values attend(size_t layer, const Values &x, const Rotation &rotation);
  Values applyDeltaRule(const ReferenceDeltaRule &delta, DeltaState &state,
                        const Values &x) const;

  const ReferenceModel &model;
  /// Of each layer.
  std::vector<AttentionCache> caches;
  std::vector<DeltaState> states;
  int32_t position = 0;
};

} // namespace qwen::test

#endif // QWEN_TEST_UNIT_REFERENCEMODEL_H
