//===- Unpack.h - Codes to the bytes that dots take -------------*- C++ -*-===//
//
// The part of products with quantized weights that differs by the coding of
// their integers.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_LIB_CODEGEN_PRODUCTS_UNPACK_H
#define QWEN_LIB_CODEGEN_PRODUCTS_UNPACK_H

#include "ProductBuilder.h"

#include <algorithm>

namespace qwen {

/// The bytes that an order asks for.
enum class ByteForm : uint8_t {
  /// Factor 1 and any bias. Unpacking takes the fewest instructions, which
  /// counts where each tile unpacks.
  Biased,
  /// Bias 0 and any factor. A dot takes the fewest instructions, which counts
  /// where many tokens share the unpacked bytes.
  Scaled,
  /// The value of the code.
  Exact,
};

/// A byte is factor * value + bias, from `least` to `most`.
struct ByteRange {
  int64_t factor, bias, least, most;
};

/// Whether products take codes of `bits` bits. Unpack knows codes of one field,
/// and codes with 4 lower bits and a field of upper bits. Orders take chunks in
/// pairs, and codes of 1 bit have one chunk.
constexpr bool isUnpacked(int64_t bits) {
  return codeFields(bits) == 1
             ? bits > 1
             : codeFields(bits) == 2 && codeField(bits, 0).bits == 4;
}
static_assert(std::ranges::all_of(kCodingInfos, [](const CodingInfo &coding) {
  return coding.isFloat || isUnpacked(coding.bits);
}));

/// Turns the chunks of a group in a format of integers into bytes.
class Unpack {
public:
  /// For dots of this kind.
  Unpack(WeightFormat format, ByteForm form, const DotInfo &dot)
      : Unpack(codingOf(format), scalesOf(format).hasSubBlocks(), form, dot) {}
  Unpack(const CodingInfo &coding, bool hasSubBlocks, ByteForm form,
         const DotInfo &dot)
      : coding(coding), lower(codeField(coding.bits, 0)),
        upper(codeFields(coding.bits) > 1 ? codeField(coding.bits, 1)
                                          : CodeField{0, 0}),
        parts(8 / lower.bits), upperChunks(upper.bits),
        range(rangeOf(coding, hasSubBlocks, form, dot)) {}

  /// The vectors that bytes() needs for chunk `chunk`. The first is
  /// load(chunk, false), an i8 vector. Upper bits of its codes come from other
  /// chunks and follow it. If loadsTwice(), load(chunk, true) comes last: a
  /// second load that LLVM must not merge with the first.
  Values codes(ProductBuilder &b, int64_t chunk,
               function_ref<Value(int64_t, bool)> load) const {
    Values codes = {load(chunk, false)};
    if (upperChunks == 0)
      return codes;
    const CodePlace place = upper.placeOf(chunk);
    Value others = load(place.chunk, false);
    if (b.isArm()) {
      // The upper bits of this chunk alone go to the lowest bits of each
      // nibble.
      others = b.shiftRight(others, place.from);
      others = b.bitAnd(others, int64_t{0x11} * upper.mask());
    } else if (upperChunks == 1 && chunk % 2 != 0) {
      // Bits of chunks 2i and 2i + 1 have the same place in two chunks, or are
      // neighbours in one.
      others = b.shiftRight(others, 1);
    }
    codes.push_back(others);
    if (loadsTwice(b))
      codes.push_back(load(chunk, true));
    return codes;
  }

  /// Whether each of the two parts of a register of codes overwrites it. A copy
  /// for the second part would take a slot of the vectors' pipes; a second load
  /// takes none.
  bool loadsTwice(const ProductBuilder &b) const {
    return upperChunks != 0 && b.isArm() && !b.isScalable();
  }

  /// The bytes of step chunk + part * chunks(): 4 values of each output.
  /// `codes` has the codes of that chunk, or the codes of chunks 2i and 2i + 1
  /// in any order, where one of the two is `chunk`.
  Value bytes(ProductBuilder &b, ArrayRef<Value> codes, int64_t chunk,
              int64_t part) const {
    if (coding.bits == 8) {
      if (range.bias == 0)
        return codes[0];
      // w + 128 is w with its sign bit flipped.
      return b.bitXor(codes[0], -128);
    }
    if (coding.hasCodebook()) {
      SmallVector<int8_t> table;
      for (int8_t value : coding.codebook)
        table.push_back(int8_t(value + range.bias));
      return b.lookUp(table, lowerBits(b, codes[0], part));
    }
    if (range.factor == 16) {
      // With the highest bit flipped, nibbles are their values in two's
      // complement, which are 16 times as much in the upper half of a byte.
      Value w = b.bitXor(codes[0], int8_t(0x88));
      return part == 0 ? b.shiftLeft(w, 4) : b.bitAnd(w, int8_t(0xF0));
    }
    Value value = upperChunks == 0 ? lowerBits(b, codes[0], part)
                                   : withUpperBits(b, codes, chunk, part);
    return b.sub(value, coding.bias - range.bias);
  }

  /// Chunks of a group with the lower bits of codes.
  int64_t chunks() const { return kGroup / 4 / parts; }

  const CodingInfo &coding;
  /// The lower bits of codes, and the upper ones; those are 0 bits of a code of
  /// 8, 4, 2 or 1.
  const CodeField lower, upper;
  /// Codes in a byte of a chunk.
  const int64_t parts;
  /// Chunks with the upper bits of codes, which follow the chunks of lower
  /// bits.
  const int64_t upperChunks;
  const ByteRange range;

private:
  static ByteRange rangeOf(const CodingInfo &coding, bool hasSubBlocks,
                           ByteForm form, const DotInfo &dot) {
    // The corrections of a bias would need the sums of more activations.
    if (hasSubBlocks && !dot.isUnsigned && form == ByteForm::Biased)
      form = ByteForm::Exact;
    const int64_t bias = coding.bias, most = (1 << coding.bits) - 1;
    if (coding.hasCodebook() || coding.bits == 8) {
      const int64_t least = coding.bits == 8 ? -128 : coding.codebook[0],
                    last = coding.bits == 8 ? 127 : coding.codebook[most];
      const int64_t added =
          form == ByteForm::Biased && dot.isUnsigned ? 128 : 0;
      return {1, added, least + added, last + added};
    }
    if (bias == 0 || form == ByteForm::Biased)
      return {1, bias, 0, most};
    if (coding.bits == 4 && form == ByteForm::Scaled)
      return {16, 0, -128, 112};
    return {1, 0, -bias, most - bias};
  }

  /// The lower bits of the codes of a part.
  Value lowerBits(ProductBuilder &b, Value codes, int64_t part) const {
    const int64_t from = lower.placeOf(part * chunks()).from;
    Value bits = from == 0 ? codes : b.shiftRight(codes, from);
    // Zeros have come from above the highest.
    return from + lower.bits == 8 ? bits : b.bitAnd(bits, lower.mask());
  }

  /// The values of codes of 5 and 6 bits, plus their bias.
  Value withUpperBits(ProductBuilder &b, ArrayRef<Value> codes, int64_t chunk,
                      int64_t part) const {
    if (b.isArm())
      return part == 0 ? b.shiftedInto(codes[loadsTwice(b) ? 2 : 0], codes[1],
                                       4, true)
                       : b.shiftedInto(codes[1], codes[0], 4, false);
    // x86 has no shifts of bytes. The upper bits move to bit 4.
    Value low = lowerBits(b, codes[0], part), others = codes[1];
    const int64_t from =
        upper.placeOf(chunk / 2 * 2 + part * chunks()).from - upper.first;
    if (from < 0)
      others = b.shiftLeft(others, -from);
    if (from > 0)
      others = b.shiftRight(others, from);
    return b.bitOr(low, b.bitAnd(others, upper.mask() << upper.first));
  }
};

} // namespace qwen

#endif // QWEN_LIB_CODEGEN_PRODUCTS_UNPACK_H
