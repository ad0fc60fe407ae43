//===- Blocks.h - Block formats and packed layouts --------------*- C++ -*-===//
//
// The sizes of blocks, groups, panels and pages, and the layout of a matrix in
// the weight image. docs/numerics.md defines the numbers; docs/artifact.md
// shows the bytes.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_ABI_BLOCKS_H
#define QWEN_ABI_BLOCKS_H

#include "qwen/ABI/KvFormats.h"
#include "qwen/ABI/WeightFormats.h"

#include <array>
#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>

namespace qwen {

/// Values along K in an activation block; the last block of a token may be
/// shorter.
inline constexpr int64_t kActivationBlock = 128;

/// Values along K in a group. K of every product is a multiple of it.
inline constexpr int64_t kGroup = 32;
/// Groups in a whole activation block.
inline constexpr int64_t kBlockGroups = kActivationBlock / kGroup;

/// Most values of a token in a call of a kernel that keeps them on the stack:
/// 8 activation blocks, whose chains of operations overlap.
inline constexpr int64_t kStackValues = 8 * kActivationBlock;

/// Outputs in one panel of a matrix. The outputs of a token in the arena are
/// padded to a multiple of it, so that kernels need no code for a partial
/// panel.
inline constexpr int64_t kPanelOutputs = 16;

constexpr int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t alignTo(int64_t a, int64_t b) { return ceilDiv(a, b) * b; }

/// Bytes of a number of all outputs of a panel, from the scales of a header to
/// its minimums or zero points.
inline constexpr int64_t kMinimumOffset = kPanelOutputs * 2;

/// Bytes of the f16 numbers at the front of a header.
constexpr int64_t panelNumberBytes(WeightFormat format) {
  return scalesOf(format).numbers * kMinimumOffset;
}
/// Bytes of the sub-scales behind them, and of the sub-minimums behind those.
constexpr int64_t panelSubScaleBytes(WeightFormat format) {
  const ScaleInfo &scales = scalesOf(format);
  return scales.hasSubBlocks() ? kPanelOutputs * weightBlock(format) /
                                     scales.subBlock * scales.subBits / 8
                               : 0;
}
/// Bytes of the header of one block of a panel, which precedes its codes.
constexpr int64_t panelHeaderBytes(WeightFormat format) {
  return panelNumberBytes(format) +
         scalesOf(format).numbers * panelSubScaleBytes(format);
}

/// Values of an output that lie together in a chunk: value i of a group belongs
/// to step i / kStepValues.
inline constexpr int64_t kStepValues = 4;

/// The place of bits of the codes of a step: byte j of an output in `chunk` of
/// the group has the bits of value j of the step from bit `from` on.
template <typename Integer> struct CodePlace {
  Integer chunk, from;
};

/// Bits of a code that lie together in a byte: `bits` of them, 8 or 4 or 2 or
/// 1, from bit `first` of the code on.
struct CodeField {
  int bits, first;

  constexpr int mask() const { return (1 << bits) - 1; }
  /// The place of the field in step `step` of a group. A field takes as many
  /// chunks as it has bits, so that the fields before it take `first`.
  template <typename Integer>
  constexpr CodePlace<Integer> placeOf(const Integer &step) const {
    return {first + step % bits, step / bits * bits};
  }
};

/// The number of fields of a code of `bits` bits, from 1 to 8: the powers of
/// two whose sum is `bits`.
constexpr int codeFields(int64_t bits) {
  return std::popcount(static_cast<uint64_t>(bits));
}
/// Field `index` of a code of `bits` bits. The first is the largest and has the
/// lowest bits.
constexpr CodeField codeField(int64_t bits, int index) {
  int first = 0, left = static_cast<int>(bits);
  for (; index > 0; --index) {
    const int field = static_cast<int>(std::bit_floor(unsigned(left)));
    first += field;
    left -= field;
  }
  return {static_cast<int>(std::bit_floor(unsigned(left))), first};
}

/// The bytes of an output in a chunk.
using ChunkBytes = std::array<uint8_t, kStepValues>;

/// The chunks of a group whose codes have `Bits` bits.
template <int64_t Bits>
constexpr std::array<ChunkBytes, Bits> chunksOf(const uint8_t *codes) {
  // Four codes at a time, whose bits stay in their bytes.
  uint32_t chunks[Bits] = {};
  for (int index = 0; index < codeFields(Bits); ++index) {
    const CodeField field = codeField(Bits, index);
    const uint32_t mask = 0x01010101u * static_cast<uint32_t>(field.mask());
    for (int64_t step = 0; step < kGroup / kStepValues; ++step) {
      const uint8_t *from = codes + kStepValues * step;
      const ChunkBytes values = {from[0], from[1], from[2], from[3]};
      const CodePlace place = field.placeOf(step);
      chunks[place.chunk] |=
          (std::bit_cast<uint32_t>(values) >> field.first & mask) << place.from;
    }
  }
  return std::bit_cast<std::array<ChunkBytes, Bits>>(chunks);
}

/// The code of `Bits` bits of value `i` of a group, where byteOf(chunk) is byte
/// i % kStepValues of the output in a chunk.
template <int64_t Bits, typename ByteOf>
constexpr uint8_t codeIn(int64_t i, const ByteOf &byteOf) {
  int code = 0;
  for (int index = 0; index < codeFields(Bits); ++index) {
    const CodeField field = codeField(Bits, index);
    const CodePlace place = field.placeOf(i / kStepValues);
    code |= (byteOf(place.chunk) >> place.from & field.mask()) << field.first;
  }
  return static_cast<uint8_t>(code);
}

/// Bytes of one group of a panel, without the header.
constexpr int64_t panelGroupBytes(WeightFormat format) {
  return kGroup * kPanelOutputs * codingOf(format).bits / 8;
}

/// Bytes of a whole block of a panel of a quantized format.
constexpr int64_t panelBlockBytes(WeightFormat format) {
  return panelHeaderBytes(format) +
         weightBlock(format) / kGroup * panelGroupBytes(format);
}

/// Bytes of a panel, kPanelOutputs outputs of a matrix [n][k]. Panels follow
/// each other without gaps; zeros (scale +0) fill the last one.
///
/// * f32, bf16: float [k][16] or their upper halves, so that outputs are lanes.
/// * Quantized formats: [ceil(k / weightBlock)] blocks of 16 f16 scales, 16 f16
///   minimums or zero points where the format has them, their sub-scales and
///   sub-minimums, then groups of 32 values. A group is chunks of 64 bytes, 4
///   bytes of each output, as many as a code has bits. CodeField says where
///   the bits lie:
///   * 8 bits: 8 chunks; byte j of an output in chunk c is the code of value
///     4c + j.
///   * 4 bits: 4 chunks; byte j of an output in chunk c has the code of value
///     4c + j in the low nibble and the code of 4c + j + 16 in the high one.
///   * 5 bits: these 4 chunks, with the lower 4 bits, and a chunk whose byte j
///     has the fifth bit of value 4s + j at bit s.
///   * 6 bits: these 4 chunks and two more; byte j of chunk 4 + s % 2 has the
///     upper two bits of value 4s + j from bit s / 2 * 2 on.
///   * 2 bits: 2 chunks; byte j of an output in chunk c has the code of value
///     4c + j + 8h from bit 2h on.
///   Sub-scales, and likewise sub-minimums, are rows of 16 bytes, one for each
///   output:
///   * 8 bits: row j has the byte of sub-block j.
///   * 6 bits, 8 sub-blocks: row r < 4 has the lower 4 bits of sub-block 2r in
///     the low nibble and 4 bits of 2r + 1 in the high one; row 4 + r has the
///     upper two bits of sub-block 4r + i from bit 2i on.
constexpr int64_t panelBytes(WeightFormat format, int64_t k) {
  const int64_t values = k / kGroup * panelGroupBytes(format);
  if (!isQuantized(format))
    return values;
  return values + ceilDiv(k, weightBlock(format)) * panelHeaderBytes(format);
}

/// Bytes of a whole packed matrix.
inline int64_t packedBytes(WeightFormat format, int64_t n, int64_t k) {
  return ceilDiv(n, kPanelOutputs) * panelBytes(format, k);
}

} // namespace qwen

#endif // QWEN_ABI_BLOCKS_H
