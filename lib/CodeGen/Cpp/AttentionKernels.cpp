//===- AttentionKernels.cpp - Softmax of attention, part of CppKernels.cpp ===//

/// Values that take each step of a computation together: a processor looks
/// ahead at too few values, where each takes a chain of steps of its own.
template <int64_t Count>
using Values = float __attribute__((ext_vector_type(Count)));

template <int64_t Count>
QWEN_INLINE static Values<Count> loadValues(const float *at) {
  using Stored [[gnu::aligned(alignof(float))]] = Values<Count>;
  return *reinterpret_cast<const Stored *>(at);
}
template <int64_t Count>
QWEN_INLINE static void storeValues(float *at, Values<Count> values) {
  using Stored [[gnu::aligned(alignof(float))]] = Values<Count>;
  *reinterpret_cast<Stored *>(at) = values;
}

/// The larger score. A zero counts as +0, because instruction sets differ in
/// which zero is the larger.
template <typename Score>
QWEN_INLINE static Score largerScore(Score a, Score b) {
  const Score larger = a > b ? a : b;
  return larger == 0 ? Score(0) : larger;
}

/// The first n values, and `others` in the lanes of the rest.
template <int64_t Count>
QWEN_INLINE static Values<Count> firstOf(Values<Count> values, int64_t n,
                                         float others) {
  using Numbers = int32_t __attribute__((ext_vector_type(Count)));
  Numbers lane;
#pragma clang loop unroll(full)
  for (int32_t i = 0; i < Count; ++i)
    lane[i] = i;
  return lane < Numbers(static_cast<int32_t>(n)) ? values
                                                 : Values<Count>(others);
}

/// The largest of the first n scores of a page.
template <bool IsWhole>
QWEN_INLINE static float largestScore(const float *s, int64_t n) {
  constexpr float kNone = -__builtin_inff();
  Floats lanes = kNone;
#pragma clang loop unroll(full)
  for (int64_t first = 0; first < kPageTokens; first += kVector) {
    Floats scores = load(s + first);
    if constexpr (!IsWhole)
      scores = firstOf<kVector>(scores, n - first, kNone);
    lanes = lanes > scores ? lanes : scores;
  }
  return largerScore(greatestLane(lanes), kNone);
}

/// Adds each 16 of the values to the lanes, in order.
template <int64_t Count>
QWEN_INLINE static Floats addToLanes(Floats lanes, Values<Count> values) {
  if constexpr (Count == kVector) {
    return lanes + values;
  } else {
    lanes = addToLanes<Count / 2>(lanes, values.lo);
    return addToLanes<Count / 2>(lanes, values.hi);
  }
}

namespace {
/// The weights of queries, from their scores and maxima. A query sees the first
/// n slots of the page: all if IsWhole.
template <bool IsWhole> struct PageWeights {
  const float *s;
  int64_t n;
  float *p;
  const float *m;

  /// Of the two queries from `query` on, whose slots take each step together.
  QWEN_INLINE void computeTwo(int64_t query) const {
    constexpr int64_t part = IsWhole ? kPageTokens : kPageTokens / 2;
    int64_t slot = 0;
    for (; slot < n; slot += part) {
      Values<2 * part> x;
      x.lo = differencesAt<part>(query, slot);
      x.hi = differencesAt<part>(query + 1, slot);
      x = expBelow(x);
      keep<part>(x.lo, query, slot);
      keep<part>(x.hi, query + 1, slot);
    }
    clear(query, slot);
    clear(query + 1, slot);
  }

  /// Of one query, in two phases of `Part` slots at a time: few registers last
  /// for a phase, and a processor finds steps of the next slots.
  template <int64_t Part> QWEN_INLINE void computeOne(int64_t query) const {
    // The float below the least one, whose power is +0, too.
    constexpr float below = -0x1.5d3336p+6f;
    static_assert(below < kLeastPower);
    alignas(64) float r[kPageTokens], scale[kPageTokens];
#pragma clang loop unroll(disable)
    for (int64_t slot = 0; slot < n; slot += Part) {
      const Values<Part> any = differencesAt<Part>(query, slot);
      const Values<Part> x = any > below ? any : Values<Part>(below);
      const ReducedPower<Values<Part>> of(x);
      storeValues<Part>(r + slot, of.r);
      storeValues<Part>(scale + slot,
                        x < kLeastPower ? Values<Part>(0) : of.scale);
    }
    int64_t slot = 0;
#pragma clang loop unroll(disable)
    for (; slot < n; slot += Part)
      keep<Part>(expReduced(loadValues<Part>(r + slot),
                            loadValues<Part>(scale + slot)),
                 query, slot);
    clear(query, slot);
  }

private:
  /// Differences from the largest score, which are never positive.
  template <int64_t Count>
  QWEN_INLINE Values<Count> differencesAt(int64_t query, int64_t slot) const {
    return loadValues<Count>(s + query * kPageTokens + slot) - m[query];
  }
  template <int64_t Count>
  QWEN_INLINE void keep(Values<Count> weights, int64_t query,
                        int64_t slot) const {
    if constexpr (!IsWhole)
      weights = firstOf<Count>(weights, n - slot, 0);
    storeValues<Count>(p + query * kPageTokens + slot, weights);
  }
  QWEN_INLINE void clear(int64_t query, int64_t slot) const {
    for (; slot < kPageTokens; slot += kVector)
      store(p + query * kPageTokens + slot, Floats(0));
  }
};
} // namespace

/// Maxima and sums of all queries have loops of their own, because the steps of
/// one query's wait for each other.
template <bool IsWhole>
QWEN_INLINE static void softmaxPage(const float *s, int64_t queries, int64_t n,
                                    float *p, float *m, float *l) {
  for (int64_t r = 0; r < queries; ++r)
    m[r] = largestScore<IsWhole>(s + r * kPageTokens, n);
  const PageWeights<IsWhole> weights = {s, n, p, m};
  int64_t r = 0;
  if (qwenLanes == kVector)
    for (; r + 1 < queries; r += 2)
      weights.computeTwo(r);
  for (; r < queries; ++r)
    if (qwenLanes == 4)
      weights.template computeOne<16>(r);
    else
      weights.template computeOne<32>(r);
  for (r = 0; r < queries; ++r)
    l[r] = sumOfLanes(addToLanes<kPageTokens>(
        0, loadValues<kPageTokens>(p + r * kPageTokens)));
}

void qwenCppSoftmaxPage(const float *s, int64_t queries, int64_t n, float *p,
                        float *m, float *l) {
  if (n == kPageTokens)
    softmaxPage<true>(s, queries, kPageTokens, p, m, l);
  else
    softmaxPage<false>(s, queries, n, p, m, l);
}

template <int64_t Count>
QWEN_INLINE static void mergeValues(const float *old, float a,
                                    const float *page, float b, float *merged) {
  storeValues<Count>(merged,
                     loadValues<Count>(old) * a + loadValues<Count>(page) * b);
}

/// Results may be where the old state is: each value is read before it is
/// written.
void qwenCppMergePage(const float *old, const float *page, int64_t queries,
                      int64_t headDim, float *merged) {
  static_assert(kStateQueries == kVector);
  const int64_t l = alignTo(queries, kStateQueries);
  int64_t row = 2 * l;
  for (int64_t first = 0; first < queries; first += kVector) {
    const Floats before = load(old + first), next = load(page + first);
    const Floats m = largerScore(before, next);
    Values<2 * kVector> powers;
    powers.lo = before - m;
    powers.hi = next - m;
    powers = expBelow(powers);
    const Floats a = powers.lo, b = powers.hi;
    store(merged + first, m);
    store(merged + l + first,
          load(old + l + first) * a + load(page + l + first) * b);
    const int64_t count = std::min(queries - first, kVector);
    for (int64_t r = 0; r < count; ++r, row += headDim) {
      int64_t i = row;
      for (; i + 32 <= row + headDim; i += 32)
        mergeValues<32>(old + i, a[r], page + i, b[r], merged + i);
      for (; i < row + headDim; i += 8)
        mergeValues<8>(old + i, a[r], page + i, b[r], merged + i);
    }
  }
}
