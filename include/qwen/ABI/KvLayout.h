//===- KvLayout.h - How keys and values lie in a page -----------*- C++ -*-===//
//
// The keys of a KV head in a page are one range of bytes, and its values are
// another one of the same size. Only the kernels that append to a page and read
// it (KernelOps.def) interpret these bytes; all others copy whole pages.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_ABI_KVLAYOUT_H
#define QWEN_ABI_KVLAYOUT_H

#include <cstdint>

namespace qwen {

/// Positions in one page of the KV cache.
inline constexpr int64_t kPageTokens = 64;

/// How the keys of a head, or its values, lie in a page: the codes of all
/// positions, then their scales.
struct KvLayout {
  /// Bits of a code. A code is a float, or an integer that a scale multiplies.
  int64_t codeBits;
  /// Bytes of the scales of a position; 0 of floats.
  int64_t scaleBytes;
  /// Whether codes are unsigned: a kernel subtracts half of their range from
  /// each code that it loads.
  bool hasOffset;

  /// Bytes of the codes of a position. The size of a head, `headDim`, is a
  /// multiple of 8.
  constexpr int64_t codeBytes(int64_t headDim) const {
    return headDim * codeBits / 8;
  }
  /// Bytes of a position.
  constexpr int64_t slotBytes(int64_t headDim) const {
    return codeBytes(headDim) + scaleBytes;
  }
  /// Bytes of a page, a multiple of 64.
  constexpr int64_t headBytes(int64_t headDim) const {
    return kPageTokens * slotBytes(headDim);
  }
  /// Where the scales of a page begin.
  constexpr int64_t scalesOffset(int64_t headDim) const {
    return kPageTokens * codeBytes(headDim);
  }
  constexpr bool isFloat() const { return scaleBytes == 0; }
};

} // namespace qwen

#endif // QWEN_ABI_KVLAYOUT_H
