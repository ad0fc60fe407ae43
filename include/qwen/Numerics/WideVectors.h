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

/// Returns body(). On a CPU with AVX2, LLVM's vectors of its loops have 256
/// bits. LLVM does not contract a multiplication and an addition to an fma, so
/// the bits are the same. Functions that the loops call must be inline.
template <typename Body> inline auto inWideVectors(const Body &body) {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx2"))
    return inVectorsOfAvx2(body);
#endif
  return body();
}

} // namespace qwen::numerics

#endif // QWEN_NUMERICS_WIDEVECTORS_H
