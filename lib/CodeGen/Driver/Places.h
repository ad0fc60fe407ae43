//===- Places.h - Addresses of values ---------------------------*- C++ -*-===//

#ifndef QWEN_LIB_CODEGEN_DRIVER_PLACES_H
#define QWEN_LIB_CODEGEN_DRIVER_PLACES_H

#include "Units.h"

#include "qwen/ABI/Blocks.h"

namespace qwen::driver {

/// The value at `place` of the arena.
template <typename T = float>
inline T *arenaAt(const Context *context, int64_t place) {
  return reinterpret_cast<T *>(context->arena + place);
}

/// The weight at `place` of the image, or null where that is -1.
template <typename T = float>
inline const T *weightsAt(const Context *context, int64_t place) {
  return place < 0 ? nullptr
                   : reinterpret_cast<const T *>(context->weights + place);
}

inline int64_t wantedToken(const Context *context, int64_t row) {
  return context->wantedRows[row];
}

/// Quantized activations of `k` values a token.
struct Quantized {
  int8_t *codes;
  float *scales;
  int32_t *sums;
  int64_t k;

  /// Those from token `token` on; `stride` is that of the codes.
  Quantized at(int64_t token, int64_t stride) const {
    return {codes + token * stride,
            scales + token * ceilDiv(k, kActivationBlock),
            sums + token * (k / kGroup), k};
  }
};

inline Quantized quantizedAt(const Context *context, int64_t codes,
                             int64_t scales, int64_t sums, int64_t k) {
  return {arenaAt<int8_t>(context, codes), arenaAt(context, scales),
          arenaAt<int32_t>(context, sums), k};
}

/// A position's page of a sequence, and its slot there.
struct Slot {
  int64_t page, slot;
};
inline Slot slotOf(const Context *context, int64_t token) {
  const int64_t position = context->positions[token];
  return {position / kPageTokens, position % kPageTokens};
}

/// Page `page` of the sequence of `token` in the paged cache `cache`; a page
/// has `bytes`.
inline uint8_t *pageOf(const Context *context, int64_t token, int64_t page,
                       int64_t cache, int64_t bytes) {
  const int64_t first = context->sequences[token] * context->pageTableStride;
  return context->caches[cache] + context->pageTables[first + page] * bytes;
}

/// The bytes of the sequence of `token` in the fixed cache `cache`, from byte
/// `layer` on; a sequence has `bytes`.
template <typename T = float>
inline T *stateAt(const Context *context, int64_t token, int64_t cache,
                  int64_t bytes, int64_t layer) {
  return reinterpret_cast<T *>(context->caches[cache] +
                               context->sequences[token] * bytes + layer);
}

} // namespace qwen::driver

#endif // QWEN_LIB_CODEGEN_DRIVER_PLACES_H
