//===- LinearTile.h - The parts of a product with a matrix ------*- C++ -*-===//
//
// The code of a row of ProductsLinear.cpp has three parts: what the dots read,
// unpacked from the bytes of a format (LinearUnpack.cpp); the dots of a group
// and what turns them into sums of floats (LinearDots.cpp); and the order of
// tiles, blocks and groups (ProductsLinear.cpp).
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_LIB_CODEGEN_PRODUCTS_LINEARTILE_H
#define QWEN_LIB_CODEGEN_PRODUCTS_LINEARTILE_H

#include "LinearArguments.h"

namespace qwen {

/// What the parts share: the row, and the tile that is emitted now.
struct LinearTile {
  LinearTile(const KernelInfo &kernel, const KernelSchedule &schedule,
             mlir::ModuleOp module);

  /// Whether accumulators are of pairs of tokens and outputs, as smmla's are:
  /// each 128 bits of accumulator v of token 2p have two outputs of the lower
  /// half of vector v, for tokens 2p and 2p + 1; those of accumulator v of
  /// token 2p + 1 have two of the upper half.
  bool inPairs() const;
  bool isEightBits() const { return format == WeightFormat::Q8_0; }
  /// Values that a byte of a quantized format has.
  int64_t valuesPerByte() const { return isEightBits() ? 1 : 2; }
  /// Whether dots lack something that depends on the activations' sum.
  bool isCorrected() const;

  const KernelInfo &kernel;
  const KernelSchedule &schedule;
  const WeightFormat format;
  const int64_t lanes;
  /// Vectors of outputs in the tile.
  int64_t vectors;
  const int64_t groupBytes;
  ProductBuilder b;
};

/// A panel and where its weights are.
struct LinearPanel {
  Value number, weights;
};

/// Where the quantized activations of one row are.
struct ActivationRow {
  Value q, d, sums;
};

/// Groups [first, last) of a block, a multiple of `each`.
struct GroupSpan {
  Value first, last;
  int64_t each;
};

/// body(last - 1, ...body(first, carried)), in passes of what `span` says.
Values overGroups(LinearTile &tile, const GroupSpan &span,
                  llvm::ArrayRef<Value> carried, ProductBuilder::LoopBody body);

//===----------------------------------------------------------------------===//
// Unpack
//===----------------------------------------------------------------------===//

/// Bytes of a chunk of a group: 4 of each output.
inline constexpr int64_t kChunkBytes = kPanelOutputs * 4;

/// Fetches what lies as far behind `line` as the schedule says.
void prefetch(LinearTile &tile, Value line);

/// Vector `v` of a chunk of the group whose chunks begin at `chunks`.
Value loadChunk(LinearTile &tile, Value chunks, int64_t chunk, int64_t v);

/// The weights, as dots take them, that bytes of a chunk have: `part` is below
/// valuesPerByte().
Value unpack(LinearTile &tile, Value bytes, int64_t part);

/// Activations first .. first + 15 of a group, in each 128 bits.
Value sixteenActivations(LinearTile &tile, Value q, int64_t first);

/// Activations 4 * step .. 4 * step + 3 of a group, as GroupDot takes them.
Value activations(LinearTile &tile, Value q, int64_t step);

//===----------------------------------------------------------------------===//
// Dots
//===----------------------------------------------------------------------===//

/// Takes the dot of accumulator i = row * vectors + vector.
using UseDot = llvm::function_ref<void(int64_t i, Value dot)>;

/// start[i] + the dot of the stored weights with the activations of one group,
/// for each accumulator i. Activations are at q[row].
void groupDots(LinearTile &tile, Value chunks, Value column,
               llvm::ArrayRef<Value> q, llvm::ArrayRef<Value> start,
               UseDot use);

/// values[r] in all lanes of the accumulators of row `r`; in pairs, the values
/// of the two rows where smmla has them.
Value forToken(LinearTile &tile, mlir::VectorType type,
               llvm::ArrayRef<Value> values, size_t r);

/// What the dots of vector `v` with activations of this sum lack, for every
/// output; null where it is nothing.
Value correction(LinearTile &tile, llvm::ArrayRef<Value> sums, size_t r,
                 int64_t v);

/// previous = fma(dot, scale, previous) for accumulator `i`, whose dot started
/// from correction().
Value scaled(LinearTile &tile, Value dot, Value scales, int64_t i,
             Value previous);

} // namespace qwen

#endif // QWEN_LIB_CODEGEN_PRODUCTS_LINEARTILE_H
