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

/// Quantized activations of `k` values a token. The first `inTiles` tokens have
/// `layout`, the tokens behind their tiles follow each other.
struct Quantized {
  int8_t *codes;
  float *scales;
  int32_t *sums;
  int64_t k;
  ActivationLayoutInfo layout = activationLayout(ActivationLayout::Rows);
  int64_t inTiles = 0;

  /// The place of the code of value `value` of token `token`.
  int8_t *codeOf(int64_t token, int64_t value) const {
    return codes + (token < inTiles ? layout.codeAt(token, value, k)
                                    : inTiles * layout.codes(k) +
                                          (token - inTiles) * k + value);
  }
  /// The place of the scale of activation block `block` of token `token`.
  float *scaleOf(int64_t token, int64_t block) const {
    return scales + (token < inTiles ? layout.scaleAt(token, block, k)
                                     : token * blocks() + block);
  }
  int32_t *sumsOf(int64_t token) const { return sums + token * (k / kGroup); }
  int64_t blocks() const { return ceilDiv(k, kActivationBlock); }

  /// The activations from token `token` on, which begins a tile or is behind
  /// the tiles.
  Quantized from(int64_t token) const {
    return {codeOf(token, 0), scaleOf(token, 0),
            sumsOf(token),    k,
            layout,           std::max<int64_t>(inTiles - token, 0)};
  }

  /// Calls write(codes, scales, sums) with memory for values
  /// [first, first + size) of a token, which begin at a block, and returns its
  /// result. The memory is where the values lie, or, of a token in a tile,
  /// `scratch`, which has quantizedFloats(size, 1) floats.
  template <typename Write>
  QWEN_SPECIALISED int32_t write(int64_t token, int64_t first, int64_t size,
                                 float *scratch, const Write &write) const {
    const int64_t block = first / kActivationBlock;
    int32_t *toSums = sumsOf(token) + first / kGroup;
    if (token >= inTiles)
      return write(codeOf(token, first), scaleOf(token, block), toSums);
    auto *row = reinterpret_cast<int8_t *>(scratch);
    float *rowScales = scratch + alignTo(size, kActivationBlock) / 4;
    const int32_t result = write(row, rowScales, toSums);
    for (int64_t i = 0; i < size; i += layout.values)
      copyValues(row + i, layout.values, codeOf(token, first + i));
    for (int64_t i = 0; i * kActivationBlock < size; ++i)
      *scaleOf(token, block + i) = rowScales[i];
    return result;
  }
};

/// Copies token `token` of `from` to token `copy` of `to`.
QWEN_SPECIALISED void copyToken(const Quantized &from, int64_t token,
                                const Quantized &to, int64_t copy) {
  copyValues(from.sumsOf(token), from.k / kGroup, to.sumsOf(copy));
  if (token >= from.inTiles && copy >= to.inTiles) {
    copyValues(from.codeOf(token, 0), from.k, to.codeOf(copy, 0));
    copyValues(from.scaleOf(token, 0), from.blocks(), to.scaleOf(copy, 0));
    return;
  }
  // The lines of all layouts have whole groups.
  for (int64_t i = 0; i < from.k; i += kGroup)
    __builtin_memcpy_inline(to.codeOf(copy, i), from.codeOf(token, i), kGroup);
  for (int64_t i = 0; i < from.blocks(); ++i)
    *to.scaleOf(copy, i) = *from.scaleOf(token, i);
}

/// The activations of `m` tokens at `place`. `tiles` says how many of the
/// tokens lie in tiles.
inline Quantized quantizedAt(const Context *context, const BlockPlace &place,
                             int64_t k, const TokenTiles &tiles = {},
                             int64_t m = 0) {
  // Divisions by constants are shifts then.
  __builtin_assume(k > 0);
  return {arenaAt<int8_t>(context, place.at),
          arenaAt(context, place.scales),
          arenaAt<int32_t>(context, place.sums),
          k,
          tiles.layoutInfo(),
          tiles.inTiles(m)};
}

/// Calls write(codes, scales, sums) for at most kStackValues values of token
/// `token` of `to`, and flags the token if that returns not 0.
template <typename Write>
QWEN_SPECIALISED void
writeBlocks(const CountOfCall &count, OpId op, const Quantized &to,
            int64_t token, int64_t first, int64_t size, const Write &write) {
  alignas(64) float scratch[quantizedFloats(kStackValues, 1)];
  flag(count, token, op, to.write(token, first, size, scratch, write));
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
