//===- DriverAttention.h - Batches and attention of the driver --*- C++ -*-===//

#ifndef QWEN_TEST_UNIT_DRIVERATTENTION_H
#define QWEN_TEST_UNIT_DRIVERATTENTION_H

#include "DriverCall.h"
#include "ReferenceModel.h"

#include "qwen/CodeGen/Driver/Driver.h"
#include "qwen/Numerics/Kernels.h"
#include "qwen/Numerics/Math.h"

#include <cmath>

namespace qwen::test {

/// The tokens of one call.
struct Batch {
  std::vector<int32_t> sequences, positions;
};

/// Cuts sequences of `lengths` tokens into calls. A call has any part of each
/// sequence; sequences follow each other or are mixed.
inline std::vector<Batch> randomBatches(const std::vector<int64_t> &lengths,
                                        Random &random) {
  std::vector<Batch> batches;
  std::vector<int64_t> done(lengths.size());
  while (done != lengths) {
    std::vector<int64_t> end;
    for (size_t s = 0; s < lengths.size(); ++s)
      end.push_back(random.between(done[s], lengths[s]));
    const bool mixed = random.between(0, 2) == 0;
    Batch batch;
    while (done != end) {
      const auto s = static_cast<size_t>(
          random.between(0, static_cast<int64_t>(lengths.size()) - 1));
      const int64_t stop =
          mixed ? std::min(end[s], done[s] + random.between(1, 3)) : end[s];
      for (; done[s] < stop; ++done[s]) {
        batch.sequences.push_back(static_cast<int32_t>(s));
        batch.positions.push_back(static_cast<int32_t>(done[s]));
      }
    }
    if (!batch.positions.empty())
      batches.push_back(std::move(batch));
  }
  return batches;
}

/// The cache: pages of all sequences, in no order.
struct Pages {
  int64_t bytes, perSequence;
  std::vector<int32_t> tables;
  std::vector<uint8_t> pool;
  uint8_t *base;

  Pages(int64_t bytes, const std::vector<int64_t> &lengths, Random &random)
      : bytes(bytes),
        perSequence(ceilDiv(*std::ranges::max_element(lengths), kPageTokens)),
        tables(lengths.size() * static_cast<size_t>(perSequence)),
        pool(tables.size() * static_cast<size_t>(bytes), 0xFF),
        base(pool.data()) {
    for (size_t i = 0; i < tables.size(); ++i) {
      const auto other =
          static_cast<size_t>(random.between(0, static_cast<int64_t>(i)));
      tables[i] = tables[other];
      tables[other] = static_cast<int32_t>(i);
    }
  }
};

/// Sets what a call of `batch` reads. All must outlive the call.
inline void bind(Context &context, const Batch &batch, Pages &pages,
                 Memory &arena, Memory &image) {
  context.images = image.images();
  context.arena = arena.at<uint8_t>(0);
  context.caches = &pages.base;
  context.pageTables = pages.tables.data();
  context.pageTableStride = pages.perSequence;
  context.sequences = batch.sequences.data();
  context.positions = batch.positions.data();
}

/// Whether all bits are the same.
inline bool isSame(const float *found, const Values &expected) {
  return std::memcmp(found, expected.data(), expected.size() * sizeof(float)) ==
         0;
}

inline Values frequenciesOf(int64_t headDim) {
  Values frequencies;
  for (int64_t i = 0; i < headDim / 2; ++i)
    frequencies.push_back(numerics::ropeInvFreq(10000, i, headDim));
  return frequencies;
}

/// Constants of attention, and where its values lie.
struct AttentionOps {
  int64_t kvHeads, groupQueries, headDim;
  KvKernels cache = KvFormat::F32;
  int64_t pageBytes, blockTokens;
  float eps;
  /// Queries, keys and values of a token lie side by side.
  int64_t projected, stride;
  int64_t cos, sin, ropeStride;
  /// The result has room for `room` tokens.
  int64_t out, outStride, room;
  float ropeScale = 1;
  /// Whether keys and queries are rotated.
  bool rotates = true;

  int64_t heads() const { return kvHeads * groupQueries; }
  /// Values of the queries, the keys and the values of a token.
  int64_t projectedValues() const { return (heads() + 2 * kvHeads) * headDim; }
  /// Bytes of a layer in a page.
  int64_t layerBytes() const {
    return 2 * kvHeads * cache.layout.headBytes(headDim);
  }

  /// Cos or sin, and half of the values that they rotate.
  FloatPlace table(int64_t place) const {
    return rotates ? floatPlace(place, ropeStride) : floatPlace(-1, 0);
  }
  Length half() const { return Length(rotates ? headDim / 2 : 0); }
  float scale() const {
    return static_cast<float>(1 / std::sqrt(static_cast<double>(headDim)));
  }

  /// For calls of `tokens` tokens, with room for `spare` more behind them.
  void reserve(Memory &arena, int64_t tokens, int64_t padding,
               int64_t spare = 0) {
    room = tokens + spare;
    stride = projectedValues() + padding;
    ropeStride = headDim / 2 + padding;
    outStride = heads() * headDim + padding;
    projected = arena.reserve(tokens * stride);
    cos = arena.reserve(tokens * ropeStride);
    sin = arena.reserve(tokens * ropeStride);
    out = arena.reserve(room * outStride);
  }

  void makeTable(const Context *context, int32_t thread,
                 int64_t frequencies) const {
    qwenDriverRopeTable(context, thread,
                        {.frequencies = weightAt(frequencies),
                         .cos = floatPlace(cos, ropeStride),
                         .sin = floatPlace(sin, ropeStride),
                         .half = Length(headDim / 2),
                         .scale = ropeScale,
                         .op = OpId(0)},
                        {.kernel = numerics::ropeTable});
  }

  /// `norm` is the place of the weights of the heads' norm, or -1.
  void append(const Context *context, int32_t thread, int64_t norm,
              int64_t layer, int32_t op) const {
    const int64_t keys = projected + 4 * heads() * headDim;
    Values scratch(static_cast<size_t>(appendScratch(headDim)));
    qwenDriverAppend(
        context, thread,
        {.keys = floatPlace(keys, stride),
         .values = floatPlace(keys + 4 * kvHeads * headDim, stride),
         .cos = table(cos),
         .sin = table(sin),
         .norm = weightAt(norm),
         .eps = eps,
         .layer = CacheOffset(layer * layerBytes()),
         .op = OpId(op)},
        {.kvHeads = Heads(kvHeads),
         .headDim = Length(headDim),
         .half = half(),
         .headBytes = Bytes(cache.layout.headBytes(headDim)),
         .cache = CacheId(0),
         .pageBytes = Bytes(pageBytes),
         .scratch = scratch.data(),
         .rope = rotates && norm < 0 ? numerics::rope : nullptr,
         .normRope = norm < 0 ? nullptr : numerics::normRope,
         .headNorm = nullptr,
         .appendK = cache.appendK,
         .appendV = cache.appendV});
  }

  void attend(const Context *context, int32_t thread, int64_t norm,
              int64_t layer, int32_t op) const {
    Values scratch(static_cast<size_t>(
        attentionScratch(groupQueries, headDim, blockTokens)));
    qwenDriverAttention(context, thread,
                        {.queries = floatPlace(projected, stride),
                         .cos = table(cos),
                         .sin = table(sin),
                         .norm = weightAt(norm),
                         .out = floatPlace(out, outStride),
                         .eps = eps,
                         .layer = CacheOffset(layer * layerBytes()),
                         .op = OpId(op)},
                        {.kvHeads = Heads(kvHeads),
                         .groupQueries = Heads(groupQueries),
                         .headDim = Length(headDim),
                         .half = half(),
                         .headBytes = Bytes(cache.layout.headBytes(headDim)),
                         .cache = CacheId(0),
                         .pageBytes = Bytes(pageBytes),
                         .scale = scale(),
                         .blockTokens = Tokens(blockTokens),
                         .room = Tokens(room),
                         .scratch = scratch.data(),
                         .rope = rotates && norm < 0 ? numerics::rope : nullptr,
                         .normRope = norm < 0 ? nullptr : numerics::normRope,
                         .headNorm = nullptr,
                         .encodeQuery = cache.encodeQuery,
                         .scores = cache.scores,
                         .values = cache.values,
                         .softmax = numerics::softmaxPage,
                         .merge = numerics::mergePage,
                         .finish = numerics::finishAttention});
  }

  /// Attention over keys and values of the call.
  void attendToCall(const Context *context, int32_t thread, bool causal,
                    bool windows, int32_t op) const {
    const int64_t keys = projected + 4 * heads() * headDim;
    Values scratch(static_cast<size_t>(callAttentionScratch(
                       groupQueries, headDim, blockTokens)),
                   NAN);
    qwenDriverCallAttention(
        context, thread,
        {.queries = floatPlace(projected, stride),
         .keys = floatPlace(keys, stride),
         .values = floatPlace(keys + 4 * kvHeads * headDim, stride),
         .cos = table(cos),
         .sin = table(sin),
         .out = floatPlace(out, outStride),
         .op = OpId(op)},
        {.kvHeads = Heads(kvHeads),
         .groupQueries = Heads(groupQueries),
         .headDim = Length(headDim),
         .half = half(),
         .causal = Flag(causal),
         .windows = Flag(windows),
         .scale = scale(),
         .blockTokens = Tokens(blockTokens),
         .scratch = scratch.data(),
         .rope = rotates ? numerics::rope : nullptr,
         .appendK = numerics::reference<KernelOp::AppendK>(KernelFormat::F32),
         .appendV = numerics::reference<KernelOp::AppendV>(KernelFormat::F32),
         .scores =
             numerics::reference<KernelOp::AttentionScores>(KernelFormat::F32),
         .values =
             numerics::reference<KernelOp::AttentionValues>(KernelFormat::F32),
         .softmax = numerics::softmaxPage,
         .merge = numerics::mergePage,
         .finish = numerics::finishAttention});
  }
};

/// Queries, keys and values of a token, and its attention.
struct AttentionToken {
  Values projected, expected;
};

/// The tokens of a sequence, with attention of a plain loop over them, from
/// token `first` on.
inline std::vector<AttentionToken>
plainAttention(const AttentionOps &ops, const std::vector<Values> &projected,
               const Values &queryNorm, const Values &keyNorm,
               int64_t first = 0) {
  AttentionCache cache(ops.cache, ops.kvHeads, ops.headDim);
  const Values frequencies = frequenciesOf(ops.headDim);
  const auto half = static_cast<size_t>(ops.half());
  std::vector<AttentionToken> result;
  for (const Values &x : projected) {
    Rotation rotation = {ops.headDim, ops.eps, Values(half), Values(half)};
    numerics::ropeTable(static_cast<int32_t>(result.size()), frequencies.data(),
                        ops.half(), rotation.cos.data(), rotation.sin.data());
    const auto keys = x.begin() + ops.heads() * ops.headDim;
    const auto values = keys + ops.kvHeads * ops.headDim;
    cache.append(rotation.rotated({keys, values}, keyNorm), {values, x.end()});
    result.push_back({x, {}});
    if (std::ssize(result) > first)
      result.back().expected =
          cache.attend(rotation.rotated({x.begin(), keys}, queryNorm));
  }
  return result;
}

} // namespace qwen::test

#endif // QWEN_TEST_UNIT_DRIVERATTENTION_H
