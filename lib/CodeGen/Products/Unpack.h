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
  Unpack(WeightFormat format, ByteForm form, const DotInfo &dot);

  /// The vectors that bytes() needs for chunk `chunk`. The first is
  /// load(chunk, false), an i8 vector. Upper bits of its codes come from other
  /// chunks and follow it. If loadsTwice(), load(chunk, true) comes last: a
  /// second load that LLVM must not merge with the first.
  Values codes(ProductBuilder &b, int64_t chunk,
               function_ref<Value(int64_t, bool)> load) const;

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
              int64_t part) const;

  /// Chunks of a group with the lower bits of codes.
  int64_t chunks() const { return kGroup / 4 / parts; }

private:
  Value withUpperBits(ProductBuilder &b, ArrayRef<Value> codes, int64_t chunk,
                      int64_t part) const;

  const CodingInfo &coding;

public:
  /// Codes in a byte of a chunk.
  const int64_t parts;
  /// Chunks with the upper bits of codes, which follow those of lower bits.
  const int64_t upperChunks;
  const ByteRange range;
};

} // namespace qwen

#endif // QWEN_LIB_CODEGEN_PRODUCTS_UNPACK_H
