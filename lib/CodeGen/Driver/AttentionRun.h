//===- AttentionRun.h - Attention of tokens that share pages ----*- C++ -*-===//

#ifndef QWEN_LIB_CODEGEN_DRIVER_ATTENTIONRUN_H
#define QWEN_LIB_CODEGEN_DRIVER_ATTENTIONRUN_H

#include "Places.h"

#include "qwen/ABI/DriverABI.h"

namespace qwen::driver {

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

    int64_t pages() const { return ceilDiv(visible, kPageTokens); }
  };
  /// `pages` has the keys and values of the head. Page `number` is valid until
  /// the next one is read.
  template <typename Pages>
  QWEN_SPECIALISED void run(const Run &of, const Pages &pages) const;

  /// What attention of a run keeps in `scratch`.
  struct Memory {
    /// Queries of all tokens; the queries of a token lie side by side.
    int64_t queries;
    /// Rotated queries, f32 [queries][headDim] or KvQuery [queries]; scores,
    /// and in their place weights, [queries][kPageTokens].
    float *query, *score;
    /// The states of a page, and of all pages so far.
    float *ofPage, *state;
    /// A rotated query that is encoded, [headDim]; the state of a page has its
    /// place later.
    float *head;
  };
  /// M, L and O of queries: maxima, sums and outputs of softmax so far.
  struct State {
    float *m, *l, *o;
  };

  static State stateAt(float *m, int64_t count) {
    const int64_t padded = alignTo(count, kStateQueries);
    return {m, m + padded, m + 2 * padded};
  }
  /// The memory of a run, with its queries.
  QWEN_SPECIALISED Memory begin(const Run &of) const;
  /// The state of one page.
  template <typename Pages>
  QWEN_SPECIALISED void compute(const Run &of, const Pages &pages,
                                int64_t number, const Memory &in,
                                float *to) const;
  /// Merges pages into the state of the run. Page 0 sets the state.
  template <typename Pages>
  QWEN_SPECIALISED void mergePages(const Run &of, const Pages &pages,
                                   Range numbers, const Memory &in) const;
  /// Writes the results of `count` queries of a run, from query `first` on.
  QWEN_SPECIALISED void write(const Run &of, int64_t first, int64_t count,
                              const State &from) const;

private:
  QWEN_SPECIALISED void rotateQuery(const float *x, int64_t token,
                                    int64_t number, const Memory &in) const;
  QWEN_SPECIALISED void lastPage(const Run &of, int64_t slots, const Memory &in,
                                 const uint8_t *v, const State &to) const;
};

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
auto Attention<Instance>::begin(const Run &of) const -> Memory {
  const int64_t groupQueries = fixed.groupQueries, headDim = fixed.headDim;
  const int64_t most = groupQueries * fixed.blockTokens;
  float *query = fixed.scratch;
  float *score = query + alignTo(most * headDim, 16);
  float *ofPage = score + most * kPageTokens;
  float *state = ofPage + alignTo(attentionState(most, headDim), 16);
  const Memory in = {
      groupQueries * of.count, query, score, ofPage, state, ofPage};
  const int64_t size = groupQueries * headDim;
  for (int64_t i = 0; i < of.count; ++i) {
    const float *x = queries.of(of.start + i) + of.head * size;
    for (int64_t g = 0; g < groupQueries; ++g)
      rotateQuery(x + g * headDim, of.start + i, i * groupQueries + g, in);
  }
  return in;
}

/// Softmax and values of the last page. The first token sees `slots` slots of
/// the page. With causal attention each next token sees one slot more, so the
/// tokens are computed one by one.
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
void Attention<Instance>::write(const Run &of, int64_t first, int64_t count,
                                const State &from) const {
  const int64_t groupQueries = fixed.groupQueries, headDim = fixed.headDim;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t token = of.start + (first + i) / groupQueries;
    const int64_t head = of.head * groupQueries + (first + i) % groupQueries;
    fixed.finish(from.o + i * headDim, from.l[i], headDim,
                 out.of(token) + head * headDim);
  }
}

/// The products prefetch the next read, the page's values and then the next
/// page's keys: a page is too short for the prefetcher of the processor.
template <typename Instance>
template <typename Pages>
void Attention<Instance>::compute(const Run &of, const Pages &pages,
                                  int64_t number, const Memory &in,
                                  float *to) const {
  const int64_t headDim = fixed.headDim;
  const bool isLast = number + 1 == of.pages();
  const int64_t slots = (of.visible - 1) % kPageTokens + 1;
  const State state = stateAt(to, in.queries);
  const uint8_t *k = pages.read(number);
  const uint8_t *v = k + pages.keyBytes();
  fixed.scores(in.query, k, fixed.scale, in.score, in.queries, headDim,
               isLast ? slots + (of.causal ? of.count - 1 : 0) : kPageTokens,
               v);
  if (isLast)
    return lastPage(of, slots, in, v, state);
  fixed.softmax(in.score, in.queries, kPageTokens, in.score, state.m, state.l);
  fixed.values(in.score, v, state.o, in.queries, headDim, kPageTokens,
               pages.next(number));
}

template <typename Instance>
template <typename Pages>
void Attention<Instance>::mergePages(const Run &of, const Pages &pages,
                                     Range numbers, const Memory &in) const {
  for (int64_t page = numbers.begin; page < numbers.end; ++page) {
    compute(of, pages, page, in, page == 0 ? in.state : in.ofPage);
    if (page > 0)
      fixed.merge(in.state, in.ofPage, in.queries, fixed.headDim, in.state);
  }
}

template <typename Instance>
template <typename Pages>
void Attention<Instance>::run(const Run &of, const Pages &pages) const {
  const Memory in = begin(of);
  mergePages(of, pages, {0, of.pages()}, in);
  write(of, 0, in.queries, stateAt(in.state, in.queries));
}

} // namespace qwen::driver

#endif // QWEN_LIB_CODEGEN_DRIVER_ATTENTIONRUN_H
