//===- Unpack.h - Codes to the bytes that dots take -------------*- C++ -*-===//
//
// The part of products with quantized weights that differs by the coding of
// their integers.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_LIB_CODEGEN_PRODUCTS_UNPACK_H
#define QWEN_LIB_CODEGEN_PRODUCTS_UNPACK_H

#include "ProductBuilder.h"

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

/// Turns the chunks of a group in a format of integers into bytes.
class Unpack {
public:
  /// For dots of this kind.
  Unpack(WeightFormat format, ByteForm form, const DotInfo &dot)
      : coding(codingOf(format)), parts(coding.bits == 8 ? 1 : 2),
        upperChunks(coding.bits == 8 ? 0 : coding.bits - 4),
        range(rangeOf(format, form, dot)) {}

  /// The vectors that bytes() needs for chunk `chunk`. The first is
  /// load(chunk, false), an i8 vector. Upper bits of its codes come from other
  /// chunks and follow it. If loadsTwice(), load(chunk, true) comes last: a
  /// second load that LLVM must not merge with the first.
  Values codes(ProductBuilder &b, int64_t chunk,
               function_ref<Value(int64_t, bool)> load) const {
    Values codes = {load(chunk, false)};
    if (upperChunks == 0)
      return codes;
    Value upper = load(chunks() + chunk % upperChunks, false);
    if (b.isArm()) {
      // The upper bits of this chunk alone go to the lowest bits of each
      // nibble.
      upper = b.shiftRight(upper, chunk / upperChunks * upperChunks);
      upper = b.bitAnd(upper, int64_t{0x11} * ((1 << upperChunks) - 1));
    } else if (upperChunks == 1 && chunk % 2 != 0) {
      // Bits of chunks 2i and 2i + 1 have the same place in two chunks, or are
      // neighbours in one.
      upper = b.shiftRight(upper, 1);
    }
    codes.push_back(upper);
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
  /// `codes` has the codes of that chunk, or those of chunks 2i and 2i + 1 in
  /// any order, where one of the two is `chunk`.
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
      return b.lookUp(table, nibbles(b, codes[0], part));
    }
    if (range.factor == 16) {
      // With the highest bit flipped, nibbles are their values in two's
      // complement, which are 16 times as much in the upper half of a byte.
      Value w = b.bitXor(codes[0], int8_t(0x88));
      return part == 0 ? b.shiftLeft(w, 4) : b.bitAnd(w, int8_t(0xF0));
    }
    Value value = upperChunks == 0 ? nibbles(b, codes[0], part)
                                   : withUpperBits(b, codes, chunk, part);
    return b.sub(value, coding.bias - range.bias);
  }

  /// Chunks of a group with the lower bits of codes.
  int64_t chunks() const { return kGroup / 4 / parts; }

  const CodingInfo &coding;
  /// Codes in a byte of a chunk.
  const int64_t parts;
  /// Chunks with the upper bits of codes, which follow those of lower bits.
  const int64_t upperChunks;
  const ByteRange range;

private:
  static ByteRange rangeOf(WeightFormat format, ByteForm form,
                           const DotInfo &dot) {
    // The corrections of a bias would need the sums of more activations.
    if (scalesOf(format).hasSubBlocks() && !dot.isUnsigned &&
        form == ByteForm::Biased)
      form = ByteForm::Exact;
    const CodingInfo &coding = codingOf(format);
    const int64_t bias = coding.bias, most = (1 << coding.bits) - 1;
    if (coding.hasCodebook() || coding.bits == 8) {
      const int64_t least = coding.bits == 8 ? -128 : coding.codebook[0],
                    last = coding.bits == 8 ? 127 : coding.codebook[15];
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

  /// The low nibbles of bytes, or the high ones.
  static Value nibbles(ProductBuilder &b, Value codes, int64_t part) {
    return part == 0 ? b.bitAnd(codes, 15) : b.shiftRight(codes, 4);
  }

  /// The values of codes of 5 and 6 bits, plus their bias.
  Value withUpperBits(ProductBuilder &b, ArrayRef<Value> codes, int64_t chunk,
                      int64_t part) const {
    if (b.isArm())
      return part == 0 ? b.shiftedInto(codes[loadsTwice(b) ? 2 : 0], codes[1],
                                       4, true)
                       : b.shiftedInto(codes[1], codes[0], 4, false);
    // x86 has no shifts of bytes. The upper bits move to bit 4.
    Value lower = nibbles(b, codes[0], part), upper = codes[1];
    const int64_t from = chunk / 2 * 2 + 4 * part;
    if (from < 4)
      upper = b.shiftLeft(upper, 4 - from);
    if (from > 4)
      upper = b.shiftRight(upper, from - 4);
    return b.bitOr(lower, b.bitAnd(upper, ((1 << upperChunks) - 1) << 4));
  }
};

} // namespace qwen

#endif // QWEN_LIB_CODEGEN_PRODUCTS_UNPACK_H
