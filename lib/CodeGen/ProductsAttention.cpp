//===- ProductsAttention.cpp - The two products of attention --------------===//
//
// q.k and p.v of one page for the query heads that share a kv head. Both are
// tiles of fma chains over a matrix with one line a step: K is [d][64], V is
// [64][d], and the outputs are the columns. Query heads are taken several at a
// time, so that a line that was read serves several chains.
//
//===----------------------------------------------------------------------===//

#include "ProductBuilder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include <bit>

using namespace qwen;
using namespace mlir;

namespace {
class AttentionEmitter {
public:
  AttentionEmitter(const KernelInfo &row, const KernelSchedule &schedule,
                   ModuleOp module)
      : row(row), schedule(schedule), lanes(vectorLanes(row.isa)),
        b(row, module, signature(row, module.getContext())),
        stored(row.format == KernelFormat::F16 ? Type(b.getF16Type())
                                               : Type(b.getF32Type())),
        storedBytes(stored.getIntOrFloatBitWidth() / 8) {}

  void emit() {
    if (row.op == KernelOp::AttentionScores)
      emitScores();
    else
      emitValues();
    b.finish();
  }

private:
  /// AttentionScoresFn or AttentionValuesFn.
  static SmallVector<Type> signature(const KernelInfo &row,
                                     MLIRContext *context) {
    Type pointer = ProductBuilder::pointerType(context);
    SmallVector<Type> types = {pointer, pointer, pointer};
    if (row.op == KernelOp::AttentionScores)
      types.insert(types.begin() + 2, Float32Type::get(context));
    types.append(3, IntegerType::get(context, 64));
    return types;
  }

  /// s[g][j] = (chain over d of q[g][d] * k[d][j]) * scale.
  void emitScores() {
    Value q = b.argument(0), page = b.argument(1), scale = b.argument(2),
          s = b.argument(3), groups = b.argument(4), headDim = b.argument(5),
          n = b.argument(6);
    Value lineBytes = b.integer(kPageTokens * storedBytes);
    auto emitColumns = [&](Value column, int64_t columns) {
      Value matrix = b.at(page, b.mul(column, storedBytes));
      forEachTile(groups, [&](Value first, int64_t heads) {
        const Tile tile = {q,      headDim, headDim, s, b.integer(kPageTokens),
                           column, columns};
        emitTile(tile, first, heads, matrix, lineBytes, scale);
      });
    };
    if (isScalable(row.isa))
      return b.forEachVector(n, schedule.vectors,
                             [&](Value column, int64_t vectors) {
                               emitColumns(column, vectors * lanes);
                             });
    const int64_t columns = schedule.vectors * lanes;
    b.loop(b.integer(0), n, columns,
           [&](Value column) { emitColumns(column, columns); });
  }

  /// o[g][c] = chain over j < n of p[g][j] * v[j][c].
  void emitValues() {
    Value p = b.argument(0), page = b.argument(1), o = b.argument(2),
          groups = b.argument(3), headDim = b.argument(4), n = b.argument(5);
    Value lineBytes = b.mul(headDim, storedBytes);
    auto emitColumns = [&](Value column, int64_t columns) {
      Value matrix = b.at(page, b.mul(column, storedBytes));
      forEachTile(groups, [&](Value first, int64_t heads) {
        const Tile tile = {
            p, b.integer(kPageTokens), n, o, headDim, column, columns};
        emitTile(tile, first, heads, matrix, lineBytes, Value());
      });
    };
    if (isScalable(row.isa))
      return b.forEachVector(headDim, schedule.vectors,
                             [&](Value column, int64_t vectors) {
                               emitColumns(column, vectors * lanes);
                             });
    // A head is a multiple of 8 values: tiles of 16, then at most one of 8, or
    // only those.
    constexpr int64_t least = kPanelRows / 2;
    const int64_t columns = schedule.vectors * lanes;
    Value whole = b.mul(
        b.shiftRight(headDim, std::countr_zero(uint64_t(columns))), columns);
    b.loop(b.integer(0), whole, columns,
           [&](Value column) { emitColumns(column, columns); });
    if (columns > least)
      b.loop(whole, headDim, least,
             [&](Value column) { emitColumns(column, least); });
  }

  /// Outputs [heads][column .. column + columns) of one product.
  struct Tile {
    /// The factors, f32 [g][xStride], and how many of each row are used.
    Value x, xStride, count;
    /// f32 [g][outStride].
    Value out, outStride;
    Value column;
    int64_t columns;
  };

  /// Tiles of the schedule's heads, then one of those that are left: a chain
  /// alone would wait for itself.
  void forEachTile(Value groups,
                   llvm::function_ref<void(Value, int64_t)> body) {
    Value done = b.integer(0);
    for (int64_t heads = schedule.tokens; heads > 0; --heads) {
      Value left = arith::SubIOp::create(b, groups, done);
      Value tiles = arith::DivUIOp::create(b, left, b.integer(heads));
      Value whole = b.add(done, b.mul(tiles, heads));
      b.loop(done, whole, heads, [&](Value first) { body(first, heads); });
      done = whole;
    }
  }

  void emitTile(const Tile &tile, Value first, int64_t heads, Value matrix,
                Value lineBytes, Value scale) {
    Values rows, x;
    for (int64_t r = 0; r < heads; ++r) {
      rows.push_back(b.add(first, b.integer(r)));
      x.push_back(b.at(tile.x, b.mul(b.mul(rows[r], tile.xStride), 4)));
    }
    const int64_t width = std::min(lanes, tile.columns);
    const int64_t vectors = tile.columns / width;
    Values sums =
        b.chains(x, matrix, lineBytes, stored, tile.count, tile.columns, width);
    for (auto [i, sum] : llvm::enumerate(sums)) {
      if (scale)
        sum = arith::MulFOp::create(
            b, sum, b.splat(b.vector(width, b.getF32Type()), scale));
      Value offset = b.add(b.mul(rows[i / vectors], tile.outStride),
                           b.add(tile.column, b.scaled(i % vectors * width)));
      b.store(sum, b.at(tile.out, b.mul(offset, 4)));
    }
  }

  const KernelInfo &row;
  const KernelSchedule &schedule;
  const int64_t lanes;
  ProductBuilder b;
  const Type stored;
  const int64_t storedBytes;
};
} // namespace

void qwen::emitAttention(const KernelInfo &row, const KernelSchedule &schedule,
                         ModuleOp module) {
  AttentionEmitter(row, schedule, module).emit();
}
