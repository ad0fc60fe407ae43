//===- Unpack.h - Codes to the bytes that dots take -------------*- C++ -*-===//
//
// What codings of integers do differently in products with quantized weights.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_LIB_CODEGEN_PRODUCTS_UNPACK_H
#define QWEN_LIB_CODEGEN_PRODUCTS_UNPACK_H

#include "ProductBuilder.h"

namespace qwen {

/// What an order takes as bytes.
enum class ByteForm : uint8_t {
  /// Factor 1, any bias: the fewest instructions, where each tile unpacks.
  Biased,
  /// Bias 0, any factor: the fewest for a dot, where many tokens share the
  /// unpacked bytes.
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

  /// What bytes() takes of chunk `chunk`: load(chunk, false), an i8 vector.
  /// Upper bits of its codes come from other chunks and follow it. If the code
  /// loadsTwice(), load(chunk, true) comes last, a second load that LLVM must
  /// not merge with the first.
  Values codes(ProductBuilder &b, int64_t chunk,
               llvm::function_ref<Value(int64_t, bool)> load) const;

  /// Whether both bytes of a code are made in the place of a register's, which
  /// would take a copy in a slot of the vectors' pipes. A load takes none.
  bool loadsTwice(const ProductBuilder &b) const {
    return upperChunks != 0 && b.isArm() && !b.isScalable();
  }

  /// The bytes of step chunk + part * chunks(): 4 values of each output.
  /// `codes` has the codes of that chunk, or those of chunks 2i and 2i + 1 in
  /// any order, where one of the two is `chunk`.
  Value bytes(ProductBuilder &b, llvm::ArrayRef<Value> codes, int64_t chunk,
              int64_t part) const;

  /// Chunks of a group that have the lower bits of codes, and the codes that a
  /// byte of one has.
  int64_t chunks() const { return kGroup / 4 / parts; }

private:
  Value withUpperBits(ProductBuilder &b, llvm::ArrayRef<Value> codes,
                      int64_t chunk, int64_t part) const;

  const CodingInfo &coding;

public:
  const int64_t parts;
  /// The chunks of upper bits behind them.
  const int64_t upperChunks;
  const ByteRange range;
};

} // namespace qwen

#endif // QWEN_LIB_CODEGEN_PRODUCTS_UNPACK_H
