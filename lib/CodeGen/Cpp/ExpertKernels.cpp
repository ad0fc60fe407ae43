//===- ExpertKernels.cpp - Kernels of experts, part of CppKernels.cpp -----===//

/// The number of the first of the greatest values; n is a multiple of 16. Lanes
/// keep their first one, and zeros are equal.
QWEN_INLINE static int32_t greatestOf(const float *values, int64_t n) {
  const Integers lanes = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  Floats best = load(values);
  Integers number = lanes;
  for (int64_t i = kVector; i < n; i += kVector) {
    const Floats next = load(values + i);
    const Integers isGreater = next > best;
    best = isGreater ? next : best;
    number = isGreater ? lanes + static_cast<int32_t>(i) : number;
  }
  const Integers isFirst = best == Floats(greatestLane(best));
  return __builtin_reduce_min(isFirst ? number : Integers(INT32_MAX));
}

int32_t qwenCppChooseExperts(const float *logits, int64_t n, int64_t chosen,
                             int32_t *ids, float *p) {
  constexpr float kTaken = -__builtin_inff();
  // The logits of experts that are not chosen yet. The padding behind the last
  // expert is never chosen.
  float left[kMaxExperts];
  Integers isBad = 0;
  Floats most = kTaken;
  int64_t padded = 0;
  for (; padded < n; padded += kVector) {
    const int64_t count = std::min(n - padded, kVector);
    const Floats values = loadSome(logits + padded, count);
    isBad |= notFinite(values);
    store(left + padded, values);
    for (int64_t i = count; i < kVector; ++i)
      left[padded + i] = kTaken;
    const Floats all = load(left + padded);
    most = all > most ? all : most;
  }
  if (__builtin_reduce_or(isBad)) {
    for (int32_t i = 0; i < chosen; ++i)
      ids[i] = i;
    return 1;
  }
  const float greatest = greatestLane(most);
  // A lane without a term adds exp(-infinity), which is +0.
  Floats sums = 0;
  for (int64_t i = 0; i < padded; i += kVector)
    sums = sums + cpp::exp(load(left + i) - greatest);
  const float sum = sumOfLanes(sums);

  for (int64_t i = 0; i < chosen; ++i)
    left[greatestOf(left, padded)] = kTaken;
  for (int32_t id = 0, i = 0; id < n; ++id)
    if (left[id] == kTaken) {
      ids[i] = id;
      p[i++] = logits[id];
    }
  for (int64_t i = 0; i < chosen; i += kVector) {
    const int64_t count = std::min(chosen - i, kVector);
    storeSome(p + i, cpp::exp(loadSome(p + i, count) - greatest) / sum, count);
  }
  return 0;
}

void qwenCppAddScaled(const float *x, float w, int64_t n, float *y) {
  for (int64_t i = 0; i < n; i += kVector)
    store(y + i, load(y + i) + w * load(x + i));
}
