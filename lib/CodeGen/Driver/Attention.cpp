//===- Attention.cpp - Cache append and attention -------------------------===//

#include "Places.h"

#include "qwen/CodeGen/Driver/Driver.h"

using namespace qwen;
using namespace qwen::driver;

namespace {
/// The rotation of one head, of its first values, or of none, behind the
/// per-head norm where there is one.
struct Rotation {
  RopeFn *rope;
  NormRopeFn *normRope;
  /// The norm of heads, if only a part of each head is rotated.
  RmsNormF32Fn *headNorm;
  const float *norm;
  float eps;
  /// cos and sin of all tokens.
  Floats cos, sin;
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
    if (rope)
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
          floatsAt(context, of.cos),
          floatsAt(context, of.sin),
          fixed.headDim,
          fixed.half,
          scratch};
}

/// The rotation without norms.
template <typename Arguments, typename Instance>
QWEN_SPECIALISED Rotation plainRotationOf(const Context *context,
                                          const Arguments &of,
                                          const Instance &fixed) {
  return {.rope = fixed.rope,
          .normRope = nullptr,
          .headNorm = nullptr,
          .norm = nullptr,
          .eps = 0,
          .cos = floatsAt(context, of.cos),
          .sin = floatsAt(context, of.sin),
          .headDim = fixed.headDim,
          .half = fixed.half,
          .normed = nullptr};
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
      : headBytes(fixed.headBytes), keyBytes(fixed.kvHeads * headBytes),
        cache(fixed.cache), pageBytes(fixed.pageBytes), layer(layer) {}

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
  const Floats keys = floatsAt(context, of.keys),
               values = floatsAt(context, of.values);
  const int64_t headDim = fixed.headDim;
  float *scratch = fixed.scratch;
  const Rotation rotation = rotationOf(context, of, fixed, scratch + headDim);
  const CacheLayout layout(fixed, of.layer);
  forUnits(
      context, thread, context->tokens() * fixed.kvHeads,
      [&](int64_t unit) QWEN_SPECIALISED_LAMBDA {
        const int64_t token = unit / fixed.kvHeads, head = unit % fixed.kvHeads;
        const auto [page, slot] = slotOf(context, token);
        uint8_t *keysOfHead = layout.keys(context, token, page, head);
        uint8_t *valuesOfHead = keysOfHead + layout.keyBytes;
        rotation.call(keys.of(token) + head * headDim, token, scratch);
        const int32_t badK = fixed.appendK(scratch, headDim, slot, keysOfHead);
        const int32_t badV = fixed.appendV(values.of(token) + head * headDim,
                                           headDim, slot, valuesOfHead);
        flag(context, token, of.op, badK | badV);
      });
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

namespace {
/// Attention of one op, with its instance's constants.
template <typename Instance> struct Attention {
  const Context *context;
  Rotation rotation;
  Floats queries, out;
  OpId op;
  Instance fixed;

  /// Tokens that see the same pages. The first sees `visible` positions. The
  /// others see as many or, if attention is `causal`, each one position more
  /// than the token before, in the same page.
  struct Run {
    int64_t start, count, head, visible;
    bool causal;
  };
  /// `pages` has the keys and values of the head. Page `number` is valid until
  /// the next one is read.
  template <typename Pages>
  QWEN_SPECIALISED void run(const Run &of, const Pages &pages) const;

private:
  /// What attention of a run keeps in `scratch`.
  struct Memory {
    /// Queries of all tokens; the queries of a token lie side by side.
    int64_t queries;
    /// Rotated queries, f32 [queries][headDim] or KvQuery [queries]; scores,
    /// and in their place weights, [queries][kPageTokens].
    float *query, *score;
    /// A rotated query that is encoded, [headDim].
    float *head;
  };
  /// M, L and O of a run's queries: maxima, sums and outputs of softmax so far.
  struct State {
    float *m, *l, *o;
  };

  State stateAt(float *m, int64_t count) const {
    const int64_t padded = alignTo(count, kStateQueries);
    return {m, m + padded, m + 2 * padded};
  }
  QWEN_SPECIALISED void rotateQuery(const float *x, int64_t token,
                                    int64_t number, const Memory &in) const;
  QWEN_SPECIALISED void rotate(const Run &of, const Memory &in) const;
  QWEN_SPECIALISED void lastPage(const Run &of, int64_t slots, const Memory &in,
                                 const uint8_t *v, const State &to) const;
  QWEN_SPECIALISED void write(const Run &of, const State &from) const;
};
} // namespace

/// Writes query `number` of a run.
template <typename Instance>
void Attention<Instance>::rotateQuery(const float *x, int64_t token,
                                      int64_t number, const Memory &in) const {
  const int64_t headDim = fixed.headDim;
  if constexpr (requires { fixed.encodeQuery; })
    if (fixed.encodeQuery) {
      rotation.call(x, token, in.head);
      auto *codes = reinterpret_cast<uint8_t *>(in.query) +
                    number * KvQuery::bytes(headDim);
      return flag(context, token, op,
                  fixed.encodeQuery(in.head, headDim, codes));
    }
  rotation.call(x, token, in.query + number * headDim);
}

template <typename Instance>
void Attention<Instance>::rotate(const Run &of, const Memory &in) const {
  const int64_t groupQueries = fixed.groupQueries, headDim = fixed.headDim;
  const int64_t size = groupQueries * headDim;
  for (int64_t i = 0; i < of.count; ++i) {
    const float *x = queries.of(of.start + i) + of.head * size;
    for (int64_t g = 0; g < groupQueries; ++g)
      rotateQuery(x + g * headDim, of.start + i, i * groupQueries + g, in);
  }
}

/// Softmax and values of the last page, of which the first token sees `slots`
/// slots: token by token where each sees one slot more than the one before.
template <typename Instance>
void Attention<Instance>::lastPage(const Run &of, int64_t slots,
                                   const Memory &in, const uint8_t *v,
                                   const State &to) const {
  const int64_t headDim = fixed.headDim;
  const int64_t together = of.causal ? fixed.groupQueries : in.queries;
  for (int64_t first = 0; first < in.queries; first += together) {
    float *score = in.score + first * kPageTokens;
    fixed.softmax(score, together, slots, score, to.m + first, to.l + first);
    fixed.values(score, v, to.o + first * headDim, together, headDim, slots, v);
    ++slots;
  }
}

template <typename Instance>
void Attention<Instance>::write(const Run &of, const State &from) const {
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
/// merged into it. The products prefetch the next read, the page's values and
/// then the next page's keys: a page is too short for the prefetcher of the
/// processor.
template <typename Instance>
template <typename Pages>
void Attention<Instance>::run(const Run &of, const Pages &pages) const {
  const int64_t headDim = fixed.headDim;
  const int64_t most = fixed.groupQueries * fixed.blockTokens;
  const int64_t stateSize = alignTo(attentionState(most, headDim), 16);
  Memory in = {fixed.groupQueries * of.count, fixed.scratch, nullptr, nullptr};
  in.score = in.query + alignTo(most * headDim, 16);
  float *ofPage = in.score + most * kPageTokens;
  in.head = ofPage;
  float *state = ofPage + stateSize;
  rotate(of, in);
  const int64_t last = (of.visible - 1) / kPageTokens;
  const int64_t slots = (of.visible - 1) % kPageTokens + 1;
  for (int64_t page = 0; page <= last; ++page) {
    const uint8_t *k = pages.read(page);
    const uint8_t *v = k + pages.keyBytes();
    const State to = stateAt(page == 0 ? state : ofPage, in.queries);
    fixed.scores(
        in.query, k, fixed.scale, in.score, in.queries, headDim,
        page < last ? kPageTokens : slots + (of.causal ? of.count - 1 : 0), v);
    if (page < last) {
      fixed.softmax(in.score, in.queries, kPageTokens, in.score, to.m, to.l);
      fixed.values(in.score, v, to.o, in.queries, headDim, kPageTokens,
                   pages.next(page));
    } else {
      lastPage(of, slots, in, v, to);
    }
    if (page > 0)
      fixed.merge(state, ofPage, in.queries, headDim, state);
  }
  write(of, stateAt(state, in.queries));
}

/// Calls compute(head, first, last) for the thread's units. A unit is a KV head
/// of a block of tokens, with all query heads that share it, so that they share
/// each read of keys and values. The first and the last block follow each
/// other, then the second and the one before the last: threads have equal work
/// although later tokens of a prompt see more.
template <typename Instance, typename Compute>
QWEN_SPECIALISED static void
forTokenBlocks(const Context *context, int32_t thread, OpId op,
               const Instance &fixed, const Compute &compute) {
  const int64_t tokens = context->tokens();
  const int64_t kvHeads = fixed.kvHeads, blockTokens = fixed.blockTokens;
  const int64_t blocks = ceilDiv(tokens, blockTokens);
  forStolenUnits(context, thread, op, blocks * kvHeads, 1, 1,
                 [&](int64_t begin, int64_t end) QWEN_SPECIALISED_LAMBDA {
                   for (int64_t unit = begin; unit < end; ++unit) {
                     const int64_t turn = unit / kvHeads, head = unit % kvHeads;
                     const int64_t block =
                         turn % 2 ? blocks - 1 - turn / 2 : turn / 2;
                     compute(head, block * blockTokens,
                             std::min((block + 1) * blockTokens, tokens));
                   }
                 });
}

//===----------------------------------------------------------------------===//
// Attention over the cache
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
/// The pages of a sequence: that of `token`.
struct CachePages {
  const Context *context;
  const CacheLayout &layout;
  int64_t token, head;

  int64_t keyBytes() const { return layout.keyBytes; }
  const uint8_t *read(int64_t number) const {
    return layout.keys(context, token, number, head);
  }
  const uint8_t *next(int64_t number) const { return read(number + 1); }
};
} // namespace

QWEN_ENTRY(Attention, Attention) {
  const AttentionArguments of = arguments;
  const Attention<AttentionInstance> attention = {
      context,
      rotationOf(context, of, fixed,
                 fixed.scratch + attentionScratch(fixed.groupQueries,
                                                  fixed.headDim,
                                                  fixed.blockTokens)),
      floatsAt(context, of.queries),
      floatsAt(context, of.out),
      of.op,
      fixed};
  const CacheLayout layout(fixed, of.layer);
  forTokenBlocks(
      context, thread, of.op, fixed,
      [&](int64_t head, int64_t first, int64_t last) QWEN_SPECIALISED_LAMBDA {
        for (int64_t start = first; start < last;) {
          const int64_t count = runLength(context, start, last);
          attention.run({start, count, head,
                         context->positions[start] + int64_t{1},
                         /*causal=*/true},
                        CachePages{context, layout, start, head});
          start += count;
        }
      });
}

//===----------------------------------------------------------------------===//
// Attention over the call
//===----------------------------------------------------------------------===//

/// The field of `token`: the tokens around it of its sequence or, with
/// `windows`, of its window. It sees them as a cache that has no others.
static inline Range fieldOf(const Context *context, int64_t token,
                            bool windows) {
  const auto isSame = [&](int64_t other) {
    return context->sequences[other] == context->sequences[token] &&
           (!windows || context->windows[other] == context->windows[token]);
  };
  Range field = {token, token + 1};
  while (field.begin > 0 && isSame(field.begin - 1))
    --field.begin;
  while (field.end < context->tokens() && isSame(field.end))
    ++field.end;
  return field;
}

namespace {
/// The pages of a field, in f32: `memory` has one at a time.
struct CallPages {
  const Context *context;
  const CallAttentionInstance &fixed;
  const Rotation &rotation;
  Floats keys, values;
  OpId op;
  float *memory;
  Range field;
  int64_t head;

  int64_t keyBytes() const {
    return fixed.headDim * kPageTokens * int64_t{sizeof(float)};
  }
  QWEN_SPECIALISED const uint8_t *read(int64_t number) const {
    const int64_t headDim = fixed.headDim;
    auto *const keysOfPage = reinterpret_cast<uint8_t *>(memory);
    float *rotated = memory + 2 * headDim * kPageTokens;
    const int64_t first = field.begin + number * kPageTokens;
    const int64_t count = std::min(kPageTokens, field.end - first);
    for (int64_t slot = 0; slot < count; ++slot) {
      const int64_t token = first + slot;
      rotation.call(keys.of(token) + head * headDim, token, rotated);
      const int32_t badK = fixed.appendK(rotated, headDim, slot, keysOfPage);
      const int32_t badV =
          fixed.appendV(values.of(token) + head * headDim, headDim, slot,
                        keysOfPage + keyBytes());
      flag(context, token, op, badK | badV);
    }
    return next(number);
  }
  /// All pages lie in one place.
  const uint8_t *next(int64_t) const {
    return reinterpret_cast<const uint8_t *>(memory);
  }
};
} // namespace

QWEN_ENTRY(CallAttention, CallAttention) {
  const CallAttentionArguments of = arguments;
  const Rotation rotation = plainRotationOf(context, of, fixed);
  const Attention<CallAttentionInstance> attention = {
      context,
      rotation,
      floatsAt(context, of.queries),
      floatsAt(context, of.out),
      of.op,
      fixed};
  CallPages pages = {context,
                     fixed,
                     rotation,
                     floatsAt(context, of.keys),
                     floatsAt(context, of.values),
                     of.op,
                     fixed.scratch + attentionScratch(fixed.groupQueries,
                                                      fixed.headDim,
                                                      fixed.blockTokens),
                     {},
                     0};
  const bool causal = fixed.causal != 0;
  forTokenBlocks(
      context, thread, of.op, fixed,
      [&](int64_t head, int64_t first, int64_t last) QWEN_SPECIALISED_LAMBDA {
        pages.head = head;
        for (int64_t start = first; start < last;) {
          pages.field = fieldOf(context, start, fixed.windows != 0);
          const int64_t before = start - pages.field.begin;
          int64_t end = std::min(last, pages.field.end);
          // Tokens that see more than the one before share a page.
          if (causal)
            end = std::min(end, start + kPageTokens - before % kPageTokens);
          attention.run(
              {start, end - start, head,
               causal ? before + 1 : pages.field.end - pages.field.begin,
               causal},
              pages);
          start = end;
        }
      });
}
