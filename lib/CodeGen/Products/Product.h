//===- Product.h - The function of a product with a packed matrix -*- C++ -*-=//
//
// What all orders of products with a matrix have: the function of a kernel, its
// arguments, where things lie in them, and the loops over panels and tiles. A
// product with quantized weights has three more parts: Unpack.h turns codes
// into bytes, Dot.h multiplies bytes, Scaling.h turns dots into floats.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_LIB_CODEGEN_PRODUCTS_PRODUCT_H
#define QWEN_LIB_CODEGEN_PRODUCTS_PRODUCT_H

#include "Scaling.h"
#include "Unpack.h"

namespace qwen {

/// 1.5 * 2^23. An i32 below 2^22 in magnitude, added to its bits, gives the
/// float that is as much larger: a dot that starts from these bits becomes a
/// float by one subtraction, which is exact and gives +0 for 0. Arm's
/// conversion takes the slots of two.
inline constexpr float kMagic = 12582912.0f;

/// Bytes of a chunk: 4 values of each output.
inline constexpr int64_t kChunkBytes = kPanelOutputs * 4;

/// The groups [first, last), at most `most`, of which an iteration of a loop
/// has `each`. If that is `most`, all are there, and there is no loop.
struct GroupSpan {
  Value first, last;
  int64_t each, most = kBlockGroups;
};

/// A panel and where its weights are.
struct Panel {
  Value number, weights;
};

/// One kernel, the function that is made of it, and its arguments.
struct Product {
  /// Starts the function in `module`. Bytes of quantized formats are of `form`.
  Product(const KernelInfo &kernel, mlir::ModuleOp module, ByteForm form);

  /// Bytes of a panel of the matrix.
  Value panelStride();
  /// Groups of a token.
  Value groups() { return b.shiftRight(k, 5); }
  /// Blocks of a token's activations.
  Value activationBlocks() {
    return b.shiftRight(b.add(k, b.integer(kActivationBlock - 1)), 7);
  }
  /// Activations of `token` from value `first` on.
  Value activationsOf(Value token, Value first) {
    return b.at(q, b.add(b.mul(token, k), first));
  }
  /// The number of the block of weights that group `g` belongs to.
  Value blockOf(Value g);

  /// Calls body(g) for the groups of a span. `carried` has the values that
  /// iterations carry, and after the call those of the last iteration.
  void overGroups(const GroupSpan &span, Values &carried,
                  llvm::function_ref<void(Value)> body);
  /// Likewise body(groups) for the parts of a span of an activation block that
  /// have the same scales.
  void overBlocks(const GroupSpan &span, Values &carried,
                  llvm::function_ref<void(const GroupSpan &)> body);

  /// Where the output `output` of a token lies in `matrix`, which is `out` or
  /// the residual.
  Value outputAt(Value matrix, Value token, Value output) {
    return b.at(matrix, b.add(b.mul(b.mul(token, ld), 4), b.mul(output, 4)));
  }
  /// Fetches what store() reads and writes.
  void prefetchStore(Value output, llvm::ArrayRef<Value> tokens);
  /// Adds bias and residual, one addition each, to a tile of sums, token by
  /// token in vectors of `lanes`, and stores it at the outputs from `output`.
  void store(Value output, llvm::ArrayRef<Value> tokens, Values tile,
             int64_t lanes);

  const KernelInfo &kernel;
  const IsaInfo &isa;
  const WeightFormat format;
  /// None for floats.
  std::optional<Unpack> unpack;
  const Scaling scaling{format};
  ProductBuilder b;
  /// Arguments of LinearF32Fn (whose x is `q`) or LinearQ8Fn.
  Value q, d, sums, weights, bias, residual, out, m, k, ld, panelBegin,
      panelEnd;
};

/// The loops of orders that have the sums of a tile of outputs and tokens in
/// registers:
///
///   for each panel of 16 outputs, or of each of several streams of them
///     for each tile of tokens and outputs
///       the order's sums along K
///       + bias, + residual, store
///
/// Where the length of vectors is known only at run time, a panel is a loop
/// over vectors of its outputs, whose last may have lanes without an output.
/// Panels are outermost so that each weight is read from memory once a call.
struct TileLoops {
  TileLoops(Product &p, int64_t tokens, int64_t vectors, int64_t streams = 0)
      : p(p), tokens(tokens), tileVectors(vectors), streams(streams) {}

  /// Calls body(panels, first output of the tile) for all tiles of outputs, and
  /// finishes the function.
  using PanelsBody = llvm::function_ref<void(llvm::ArrayRef<Panel>, Value)>;
  void overPanels(PanelsBody body);

  /// The sums of a tile for each of `panels`, token by token in vectors.
  using TileSumsOf = llvm::function_ref<llvm::SmallVector<Values>(
      llvm::ArrayRef<Panel> panels, Value output,
      llvm::ArrayRef<Value> tokens)>;
  /// Stores the sums of all tiles. If `prefetches`, each tile fetches what it
  /// stores.
  void overTiles(bool prefetches, TileSumsOf sumsOf);
  /// The tokens of the tile that begins with `first`.
  Values tokensFrom(Value first);

  /// Output `output` of a panel among those of the matrix.
  Value outputOf(const Panel &panel, Value output) {
    return p.b.add(p.b.mul(panel.number, kPanelOutputs), output);
  }

  Product &p;
  const int64_t tokens, tileVectors, streams, lanes = p.isa.lanes;
  /// Bytes from a panel to the one that the loops read next at its place.
  Value nextPanel;
  /// Panels of a tile that is wider than a panel, or 1.
  const int64_t abreast =
      std::max<int64_t>(tileVectors * lanes / kPanelOutputs, 1);
  /// Vectors of outputs of a panel in the tile that is emitted now.
  int64_t vectors = tileVectors / abreast;

private:
  void overAll(PanelsBody body);
  Value overTogether(Value first, int64_t count, bool neighbours, Value stride,
                     PanelsBody body);
  void overVectors(llvm::ArrayRef<Value> numbers, Value stride,
                   PanelsBody body);
};

} // namespace qwen

#endif // QWEN_LIB_CODEGEN_PRODUCTS_PRODUCT_H
