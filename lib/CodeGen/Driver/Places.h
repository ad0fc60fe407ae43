//===- Places.h - Addresses of values ---------------------------*- C++ -*-===//

#ifndef QWEN_LIB_CODEGEN_DRIVER_PLACES_H
#define QWEN_LIB_CODEGEN_DRIVER_PLACES_H

#include "Units.h"

#include "qwen/ABI/DriverABI.h"

namespace qwen::driver {

/// The value at `place` of the arena.
template <typename T = float>
inline T *arenaAt(const Context *context, ArenaOffset place) {
  return reinterpret_cast<T *>(context->arena + place);
}

/// The weight at `place`, or null if it is absent.
template <typename T = float>
inline const T *weightsAt(const Context *context, const WeightPlace &place) {
  if (place.offset < 0)
    return nullptr;
  return reinterpret_cast<const T *>(context->images[place.image] +
                                     place.offset);
}

/// The number of an op's units: another op has written it to `place` of the
/// arena, from 0 to `most`. It is `most` where there is no such place.
inline int64_t unitsAt(const Context *context, ArenaOffset place,
                       int64_t most) {
  if (place < 0)
    return most;
  return std::clamp<int64_t>(*arenaAt<int32_t>(context, place), 0, most);
}

/// The floats of each token; `stride` floats lie from one token to the next.
struct Floats {
  float *values;
  int64_t stride;

  float *of(int64_t token) const { return values + token * stride; }
};

template <typename Place>
inline Floats floatsAt(const Context *context, const Place &place) {
  return {arenaAt(context, place.at), place.stride};
}

/// Quantized activations of `k` values a token; `stride` counts codes.
struct Quantized {
  int8_t *codes;
  float *scales;
  int32_t *sums;
  int64_t k, stride;

  /// The activations from token `token` on.
  Quantized of(int64_t token) const {
    return {codes + token * stride,
            scales + token * ceilDiv(k, kActivationBlock),
            sums + token * (k / kGroup), k, stride};
  }
};

inline Quantized quantizedAt(const Context *context, const BlockPlace &place,
                             int64_t k) {
  // Divisions by constants are shifts then.
  __builtin_assume(k > 0);
  return {arenaAt<int8_t>(context, place.at), arenaAt(context, place.scales),
          arenaAt<int32_t>(context, place.sums), k, place.stride};
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
                       CacheId cache, Bytes bytes) {
  const int64_t first = context->sequences[token] * context->pageTableStride;
  return context->caches[cache] + context->pageTables[first + page] * bytes;
}

/// The rows of fixed caches in which the sequence of `token` keeps `states`
/// states, by the position modulo `states`. All are the same while it keeps
/// one.
inline const int32_t *stateRowsOf(const Context *context, int64_t token,
                                  int64_t states) {
  return context->pageTables - states +
         (context->sequences[token] + 1) * context->pageTableStride;
}

/// The state of the sequence of `token` in the fixed cache `cache`, from byte
/// `layer` on: the one before `token`, or after `after` tokens more. A state
/// has `bytes`. A sequence can also have the `stepBack` states before the
/// present one.
template <typename T = float>
inline T *stateAt(const Context *context, int64_t token, CacheId cache,
                  Bytes bytes, Tokens stepBack, CacheOffset layer,
                  int64_t after = 0) {
  uint8_t *base = context->caches[cache];
  const int64_t states = stepBack + 1;
  const int64_t row =
      stepBack == 0
          ? context->sequences[token]
          : stateRowsOf(context, token,
                        states)[(context->positions[token] + after) % states];
  return reinterpret_cast<T *>(base + row * bytes + layer);
}

} // namespace qwen::driver

#endif // QWEN_LIB_CODEGEN_DRIVER_PLACES_H
