//===- Attention.cpp - Cache append and attention -------------------------===//

#include "Places.h"

#include "qwen/CodeGen/Driver/Driver.h"

using namespace qwen;
using namespace qwen::driver;

namespace {
/// The rotation of one head, or of its first values, behind the per-head norm
/// where there is one.
struct Rotation {
  RopeFn *rope;
  NormRopeFn *normRope;
  /// The norm of heads, if only a part of each head is rotated.
  RmsNormF32Fn *headNorm;
  const float *norm;
  float eps;
  /// cos and sin of all tokens.
  FloatRows cos, sin;
  /// `half` is half of the values that are rotated.
  int64_t headDim, half;
  /// headDim floats for headNorm.
  float *normed;

  QWEN_SPECIALISED void call(const float *x, int64_t token, float *y) const {
    const float *c = cos.of(token), *s = sin.of(token);
    if (normRope)
      return normRope(x, norm, c, s, half, eps, y);
    if (headNorm) {
      headNorm(x, norm, headDim, eps, normed);
      x = normed;
    }
    rope(x, c, s, half, y);
    for (int64_t i = 2 * half; i < headDim; ++i)
      y[i] = x[i];
  }
};

/// The rotation of heads; behind `scratch` are headDim floats for headNorm.
template <typename Arguments, typename Instance>
QWEN_SPECIALISED Rotation rotationOf(const Context *context,
                                     const Arguments &of, const Instance &fixed,
                                     float *scratch) {
  return {fixed.rope,
          fixed.normRope,
          fixed.headNorm,
          weightsAt(context, of.norm),
          of.eps,
          rowsAt(context, of.cos),
          rowsAt(context, of.sin),
          fixed.headDim,
          fixed.half,
          scratch};
}

/// The place of a layer's cache in a page.
struct CacheLayout {
  /// Bytes of one head's keys, and of the layer's keys. A head's values have as
  /// many as its keys.
  int64_t headBytes, keyBytes;
  CacheId cache;
  Bytes pageBytes;
  CacheOffset layer;

  template <typename Instance>
  CacheLayout(const Instance &fixed, CacheOffset layer)
      : headBytes(fixed.headDim * kPageTokens * fixed.elementBytes),
        keyBytes(fixed.kvHeads * headBytes), cache(fixed.cache),
        pageBytes(fixed.pageBytes), layer(layer) {}

  /// The keys of a head in page `page` of the sequence of `token`.
  uint8_t *keys(const Context *context, int64_t token, int64_t page,
                int64_t head) const {
    return pageOf(context, token, page, cache, pageBytes) + layer +
           head * headBytes;
  }
};
} // namespace

//===----------------------------------------------------------------------===//
// Append
//===----------------------------------------------------------------------===//

/// A unit is a KV head of one token.
QWEN_ENTRY(Append, Append) {
  const AppendArguments of = arguments;
  const FloatRows keys = rowsAt(context, of.keys),
                  values = rowsAt(context, of.values);
  const int64_t headDim = fixed.headDim, elementBytes = fixed.elementBytes;
  float *scratch = fixed.scratch;
  const Rotation rotation = rotationOf(context, of, fixed, scratch + headDim);
  const CacheLayout layout(fixed, of.layer);
  forUnits(context, thread, context->tokens * fixed.kvHeads,
           [&](int64_t unit) QWEN_SPECIALISED_LAMBDA {
             const int64_t token = unit / fixed.kvHeads,
                           head = unit % fixed.kvHeads;
             const auto [page, slot] = slotOf(context, token);
             uint8_t *keysOfHead = layout.keys(context, token, page, head);
             uint8_t *valuesOfHead = keysOfHead + layout.keyBytes;
             rotation.call(keys.of(token) + head * headDim, token, scratch);
             const int32_t badK = fixed.appendK(
                 scratch, headDim, keysOfHead + slot * elementBytes);
             const int32_t badV =
                 fixed.appendV(values.of(token) + head * headDim, headDim,
                               valuesOfHead + slot * headDim * elementBytes);
             flag(context, token, of.op, badK | badV);
           });
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

/// The number of tokens from `start` on, before `last`, that follow each other
/// in one page of one sequence: they see the same pages, so one run takes them.
static inline int64_t runLength(const Context *context, int64_t start,
                                int64_t last) {
  const int64_t page = slotOf(context, start).page;
  int64_t token = start;
  while (token < last &&
         context->sequences[token] == context->sequences[start] &&
         context->positions[token] ==
             context->positions[start] + (token - start) &&
         slotOf(context, token).page == page)
    ++token;
  return token - start;
}

namespace {
/// Attention of one op, with its instance's constants.
struct Attention {
  const Context *context;
  Rotation rotation;
  CacheLayout cache;
  FloatRows queries, out;
  AttentionInstance fixed;

  QWEN_SPECIALISED void run(int64_t start, int64_t count, int64_t head) const;

private:
  /// Tokens that see the same pages. Each sees all positions of a page, but for
  /// the last page.
  struct Run {
    int64_t start, count, head;
    /// Queries of all tokens; the queries of a token lie side by side.
    int64_t queries;
    /// Rotated queries [queries][headDim]; scores and weights
    /// [queries][kPageTokens].
    float *query, *score, *weight;
  };
  /// M, L and O of a run's queries: maxima, sums and outputs of softmax so far.
  struct State {
    float *m, *l, *o;
  };

  State stateAt(float *m, int64_t count) const {
    const int64_t padded = alignTo(count, kStateQueries);
    return {m, m + padded, m + 2 * padded};
  }
  QWEN_SPECIALISED void rotate(const Run &of) const;
  QWEN_SPECIALISED void lastPage(const Run &of, const uint8_t *v,
                                 const State &to) const;
  QWEN_SPECIALISED void write(const Run &of, const State &from) const;
};
} // namespace

void Attention::rotate(const Run &of) const {
  const int64_t groupQueries = fixed.groupQueries, headDim = fixed.headDim;
  const int64_t size = groupQueries * headDim;
  for (int64_t i = 0; i < of.count; ++i) {
    const float *x = queries.of(of.start + i) + of.head * size;
    for (int64_t g = 0; g < groupQueries; ++g)
      rotation.call(x + g * headDim, of.start + i,
                    of.query + i * size + g * headDim);
  }
}

/// Softmax and values of the page with the run's own positions, token by token,
/// because each token sees one slot more than the one before.
void Attention::lastPage(const Run &of, const uint8_t *v,
                         const State &to) const {
  const int64_t groupQueries = fixed.groupQueries, headDim = fixed.headDim;
  const int64_t visible = slotOf(context, of.start).slot + 1;
  for (int64_t i = 0; i < of.count; ++i) {
    const int64_t first = i * groupQueries;
    fixed.softmax(of.score + first * kPageTokens, groupQueries, visible + i,
                  of.weight + first * kPageTokens, to.m + first, to.l + first);
    fixed.values(of.weight + first * kPageTokens, v, to.o + first * headDim,
                 groupQueries, headDim, visible + i, v);
  }
}

void Attention::write(const Run &of, const State &from) const {
  const int64_t groupQueries = fixed.groupQueries, headDim = fixed.headDim;
  for (int64_t i = 0; i < of.count; ++i) {
    float *y = out.of(of.start + i) + of.head * groupQueries * headDim;
    for (int64_t g = 0; g < groupQueries; ++g) {
      const int64_t query = i * groupQueries + g;
      fixed.finish(from.o + query * headDim, from.l[query], headDim,
                   y + g * headDim);
    }
  }
}

/// The state of the run starts as the first page's; the following pages are
/// merged to the other of two states in turn. The products prefetch the next
/// read, the page's values and then the next page's keys: a page is too short
/// for the prefetcher of the processor.
void Attention::run(int64_t start, int64_t count, int64_t head) const {
  const int64_t headDim = fixed.headDim;
  const int64_t most = fixed.groupQueries * fixed.blockTokens;
  const int64_t stateSize = alignTo(attentionState(most, headDim), 16);
  Run of = {start,         count,   head,   fixed.groupQueries * count,
            fixed.scratch, nullptr, nullptr};
  of.score = of.query + alignTo(most * headDim, 16);
  of.weight = of.score + most * kPageTokens;
  float *ofPage = of.weight + most * kPageTokens;
  float *state = ofPage + stateSize, *spare = state + stateSize;
  rotate(of);
  const auto [last, slot] = slotOf(context, start);
  for (int64_t page = 0; page <= last; ++page) {
    const uint8_t *k = cache.keys(context, start, page, head);
    const uint8_t *v = k + cache.keyBytes;
    const State to = stateAt(page == 0 ? state : ofPage, of.queries);
    fixed.scores(of.query, k, fixed.scale, of.score, of.queries, headDim,
                 page < last ? kPageTokens : slot + count, v);
    if (page < last) {
      fixed.softmax(of.score, of.queries, kPageTokens, of.weight, to.m, to.l);
      fixed.values(of.weight, v, to.o, of.queries, headDim, kPageTokens,
                   cache.keys(context, start, page + 1, head));
    } else {
      lastPage(of, v, to);
    }
    if (page == 0)
      continue;
    fixed.merge(state, ofPage, of.queries, headDim, spare);
    std::swap(state, spare);
  }
  write(of, stateAt(state, of.queries));
}

/// A unit is a KV head of a block of tokens, with all query heads that share
/// it, so that they share each read of the cache. The first and the last block
/// follow each other, then the second and the one before the last: threads have
/// equal work although later tokens of a prompt see more.
QWEN_ENTRY(Attention, Attention) {
  const AttentionArguments of = arguments;
  const int64_t kvHeads = fixed.kvHeads, blockTokens = fixed.blockTokens;
  const Attention attention = {
      context,
      rotationOf(context, of, fixed,
                 fixed.scratch + attentionScratch(fixed.groupQueries,
                                                  fixed.headDim, blockTokens)),
      CacheLayout(fixed, of.layer),
      rowsAt(context, of.queries),
      rowsAt(context, of.out),
      fixed};
  const int64_t tokens = context->tokens;
  const int64_t blocks = ceilDiv(tokens, blockTokens);
  const auto compute = [&](int64_t begin, int64_t end) QWEN_SPECIALISED_LAMBDA {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t turn = unit / kvHeads, head = unit % kvHeads;
      const int64_t block = turn % 2 ? blocks - 1 - turn / 2 : turn / 2;
      const int64_t last = std::min((block + 1) * blockTokens, tokens);
      for (int64_t start = block * blockTokens; start < last;) {
        const int64_t count = runLength(context, start, last);
        attention.run(start, count, head);
        start += count;
      }
    }
  };
  forStolenUnits(context, thread, of.op, blocks * kvHeads, 1, 1, compute);
}
