//===- WideVectors.h - Loops in the widest vectors of a CPU -----*- C++ -*-===//

#ifndef QWEN_NUMERICS_WIDEVECTORS_H
#define QWEN_NUMERICS_WIDEVECTORS_H

namespace qwen::numerics {

#ifdef __x86_64__
template <typename Body>
[[gnu::target("avx2")]] inline auto inVectorsOfAvx2(const Body &body) {
  [[clang::always_inline]] return body();
}
#endif

/// Returns body(), whose loops have vectors of AVX2 where the CPU has it. No
/// two operations become one, so the bits are the same. Functions that the
/// loops call must be inline.
template <typename Body> inline auto inWideVectors(const Body &body) {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx2"))
    return inVectorsOfAvx2(body);
#endif
  return body();
}

} // namespace qwen::numerics

#endif // QWEN_NUMERICS_WIDEVECTORS_H
