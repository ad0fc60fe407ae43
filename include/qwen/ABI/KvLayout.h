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
/// positions, then their scales. Floats are keys [headDim][64] and values
/// [64][headDim]. Integers are in chunks of 4, which an instruction multiplies:
/// keyCode() and valueCode() say where.
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

/// Integers that an instruction multiplies and adds.
inline constexpr int64_t kCodeChunk = 4;

/// The place of value `i` of the key of a slot among the codes of a page of
/// integers: [headDim / 4][64][4]. The sum of a score goes over `i`.
constexpr int64_t keyCode(int64_t slot, int64_t i) {
  return (i / kCodeChunk * kPageTokens + slot) * kCodeChunk + i % kCodeChunk;
}
/// The place of value `i` of the value of a slot: [64 / 4][headDim][4]. The sum
/// of an output goes over slots.
constexpr int64_t valueCode(int64_t slot, int64_t i, int64_t headDim) {
  return (slot / kCodeChunk * headDim + i) * kCodeChunk + slot % kCodeChunk;
}

/// The query of a head for keys in integers: int8 [headDim], their scale in f32
/// and their sum in int32, which takes fewer bytes than f32 [headDim].
struct KvQuery {
  static constexpr int64_t scaleOffset(int64_t headDim) { return headDim; }
  static constexpr int64_t sumOffset(int64_t headDim) { return headDim + 4; }
  static constexpr int64_t bytes(int64_t headDim) { return headDim + 8; }
};

/// Values in a block of the Hadamard transform of queries and keys in integers:
/// the largest power of two that divides `headDim`.
constexpr int64_t headBlock(int64_t headDim) { return headDim & -headDim; }

/// Least magnitude of a scale that weights are divided by, 2^-100.
inline constexpr float kLeastScale = 0x1p-100f;

} // namespace qwen

#endif // QWEN_ABI_KVLAYOUT_H
