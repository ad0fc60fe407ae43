//===- Linear.h - Products with a packed matrix -----------------*- C++ -*-===//
//
// The base of all orders. A product with quantized weights has four parts:
// Unpack.h turns codes into bytes, Dot.h multiplies bytes, Scaling.h turns dots
// into floats, and the order is the loop nest. Each order has a file.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_LIB_CODEGEN_PRODUCTS_LINEAR_H
#define QWEN_LIB_CODEGEN_PRODUCTS_LINEAR_H

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

/// One kernel, the function that is made of it, and its arguments.
class Linear {
protected:
  /// Starts the function in `module`. Bytes of quantized formats are of `form`.
  Linear(const KernelInfo &kernel, mlir::ModuleOp module, ByteForm form);

  /// Bytes of a panel of the matrix.
  Value panelStride();
  /// Groups of a token.
  Value groups() { return b.shiftRight(k, 5); }
  /// Blocks of a token's activations.
  Value activationBlocks();
  /// Activations of `token` from value `first` on, and its scale of a block.
  Value activationsOf(Value token, Value first) {
    return b.at(q, b.add(b.mul(token, k), first));
  }

  /// The groups [first, last), at most `most`, of which an iteration of a loop
  /// has `each`. If that is `most`, all are there, and there is no loop.
  struct GroupSpan {
    Value first, last;
    int64_t each, most = kBlockGroups;
  };
  /// Calls body(g) for the groups of a span. `carried` has the values that
  /// iterations carry, and after the call those of the last iteration.
  void overGroups(const GroupSpan &span, Values &carried,
                  llvm::function_ref<void(Value)> body);
  /// Likewise body(groups) for the parts of a span of an activation block that
  /// have the same scales.
  void overBlocks(const GroupSpan &span, Values &carried,
                  llvm::function_ref<void(const GroupSpan &)> body);
  /// The number of the block of weights that group `g` belongs to.
  Value blockOf(Value g);

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
  /// Null for floats.
  const std::unique_ptr<Unpack> unpack;
  ProductBuilder b;
  /// Arguments of LinearF32Fn (whose x is `q`) or LinearQ8Fn.
  Value q, d, sums, weights, bias, residual, out, m, k, ld, panelBegin,
      panelEnd;
};

/// A panel and where its weights are.
struct Panel {
  Value number, weights;
};

/// What the loops over tiles read of an order's schedule.
struct TileSchedule {
  int64_t tokens, vectors, unroll = 1, prefetch = 0, streams = 0;
};

/// Orders that have the sums of a tile of outputs and tokens in registers.
class TileOrder : public Linear {
public:
  virtual ~TileOrder() = default;
  void emit();

protected:
  TileOrder(const KernelInfo &kernel, const TileSchedule &schedule,
            mlir::ModuleOp module, ByteForm form)
      : Linear(kernel, module, form), schedule(schedule) {}

  /// For each panel, the sums of the tile at its outputs from `output` on,
  /// token by token in vectors.
  virtual llvm::SmallVector<Values> tileSums(llvm::ArrayRef<Panel> panels,
                                             Value output,
                                             llvm::ArrayRef<Value> tokens) = 0;
  /// The tiles of the panels' outputs from `output` on.
  virtual void emitTiles(llvm::ArrayRef<Panel> panels, Value output);

  /// Output `output` of a panel among those of the matrix.
  Value outputOf(const Panel &panel, Value output) {
    return b.add(b.mul(panel.number, kPanelOutputs), output);
  }

  const TileSchedule schedule;
  const int64_t lanes = isa.lanes;
  /// Bytes from a panel to the one that the loops read next at its place.
  Value nextPanel;
  /// Panels of a tile that is wider than a panel, or 1.
  const int64_t abreast =
      std::max<int64_t>(schedule.vectors * lanes / kPanelOutputs, 1);
  /// Vectors of outputs of a panel in the tile that is emitted now.
  int64_t vectors = schedule.vectors / abreast;

private:
  void emitAll();
  Value emitTogether(Value first, int64_t count, bool neighbours, Value stride);
  void emitPanels(llvm::ArrayRef<Value> numbers, Value stride);
};

} // namespace qwen

#endif // QWEN_LIB_CODEGEN_PRODUCTS_LINEAR_H
