//===- PageChains.cpp - The two products of attention ---------------------===//
//
// q.k and p.v of one page, for the query heads that share a kv head. The
// innermost loop goes along the chains of a tile, a line of the page a step: K
// is [d][64], V is [64][d], and outputs are the columns. The sums of a tile
// stay in registers. A tile takes several heads, so that a line that was read
// serves several chains. Then come the next columns and the next heads; nothing
// is unpacked but f16, as it is loaded.
//
//             columns
//   heads   +--------+--------+
//   of a    | step v | next   |   each tile: all lines of the page
//   tile    +--------+--------+
//
//===----------------------------------------------------------------------===//

#include "ProductBuilder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include <bit>

using namespace qwen;
using namespace mlir;

namespace {
class PageChains {
public:
  PageChains(const KernelInfo &kernel, const PageChainsSchedule &schedule,
             ModuleOp module)
      : kernel(kernel), schedule(schedule), lanes(isaInfo(kernel.isa).lanes),
        b(kernel, module),
        stored(kernel.format == KernelFormat::F16 ? Type(b.getF16Type())
                                                  : Type(b.getF32Type())),
        storedBytes(stored.getIntOrFloatBitWidth() / 8) {}

  void emit() {
    const bool scores = kernel.op == KernelOp::AttentionScores;
    // Scores have a scale behind the page.
    const unsigned out = scores ? 3 : 2;
    Product product;
    product.x = b.argument(0);
    product.page = b.argument(1);
    product.out = b.argument(out);
    product.groups = b.argument(out + 1);
    Value headDim = b.argument(out + 2), n = b.argument(out + 3);
    product.next = b.argument(out + 4);
    if (scores) {
      // s[g][j] = (chain over d of q[g][d] * k[d][j]) * scale. A page has all
      // slots, of which those behind n hold anything.
      product.scale = b.argument(2);
      product.count = product.xStride = headDim;
      product.columns = n;
      product.lineLength = b.integer(kPageTokens);
      product.multiple = kPanelOutputs;
    } else {
      // o[g][c] = chain over j < n of p[g][j] * v[j][c].
      product.count = n;
      product.xStride = b.integer(kPageTokens);
      product.columns = product.lineLength = headDim;
      product.multiple = kPanelOutputs / 2;
    }
    product.lineBytes = b.mul(product.lineLength, storedBytes);
    emitProduct(product);
    b.finish();
  }

private:
  /// out[g][c] = (chain over i < count of x[g][i] * page[i][c]) * scale, for
  /// c < columns.
  struct Product {
    /// f32 [groups][xStride] and [groups][lineLength].
    Value x, xStride, out;
    Value groups, count, columns;
    /// The page, [count][lineLength] in the cache's format, and the page that
    /// is read next.
    Value page, lineLength, lineBytes, next;
    /// Null for 1.
    Value scale;
    /// Columns may be computed up to a multiple of this.
    int64_t multiple = 0;
  };

  /// Tiles of the schedule's heads, then one tile of the remaining heads, which
  /// reads the page again from the first cache.
  void emitProduct(const Product &product) {
    Value done = b.integer(0);
    for (int64_t heads = schedule.tokens; heads > 0; --heads) {
      Value left = b.sub(product.groups, done);
      Value tiles = arith::DivUIOp::create(b, left, b.integer(heads));
      Value whole = b.add(done, b.mul(tiles, heads));
      b.loop(done, whole, heads,
             [&](Value first) { emitRows(product, first, heads); });
      done = whole;
    }
  }

  /// All columns of `heads` rows from `first` on.
  void emitRows(const Product &product, Value first, int64_t heads) {
    if (b.isScalable())
      return b.forEachVector(product.columns, schedule.vectors,
                             [&](Value column, int64_t vectors) {
                               emitTile(product, first, heads, column,
                                        vectors * lanes);
                             });
    // Tiles of whole vectors, fewer and fewer of them, then for a head, which
    // is a multiple of 8 values, of half a vector where that has 8.
    const int64_t widest = vectorsOf(heads) * lanes;
    const int64_t least = std::min(widest, product.multiple);
    Value done = b.integer(0);
    for (int64_t columns = widest; columns >= least; columns /= 2) {
      Value whole = product.columns;
      if (columns > least)
        whole = b.mul(b.shiftRight(whole, std::countr_zero(uint64_t(columns))),
                      columns);
      b.loop(done, whole, columns, [&](Value column) {
        emitTile(product, first, heads, column, columns);
      });
      done = whole;
    }
  }

  /// Vectors of a tile of `heads` rows: a chain waits for itself, so that a
  /// tile of fewer heads than the schedule's has more, up to as many sums and
  /// as registers allow beside a line of the matrix for each step that is
  /// loaded at once.
  int64_t vectorsOf(int64_t heads) const {
    const int64_t steps = kernel.arch() == Arch::AArch64 ? 4 : 1;
    int64_t vectors = schedule.vectors;
    while (2 * vectors * heads <= schedule.tokens * schedule.vectors &&
           2 * vectors * (heads + steps) + heads <=
               isaInfo(kernel.isa).registers)
      vectors *= 2;
    return vectors;
  }

  /// Outputs [first .. first + heads)[column .. column + columns).
  void emitTile(const Product &product, Value first, int64_t heads,
                Value column, int64_t columns) {
    Values rows, x;
    for (int64_t r = 0; r < heads; ++r) {
      rows.push_back(b.add(first, b.integer(r)));
      x.push_back(b.at(product.x, b.mul(b.mul(rows[r], product.xStride), 4)));
    }
    const int64_t width = std::min(lanes, columns);
    const int64_t vectors = columns / width;
    ProductBuilder::ReadAhead ahead = {};
    if (schedule.prefetch > 0) {
      // A tile prefetches its share of the next page, by its multiplications: a
      // core waits for few lines at once, so prefetches should be even.
      Value done =
          b.add(b.mul(first, product.lineLength), b.mul(column, heads));
      Value bytes = b.mul(b.mul(done, product.count), storedBytes);
      ahead.pointer =
          b.at(product.next, arith::DivUIOp::create(b, bytes, product.groups));
      ahead.stride = arith::CeilDivUIOp::create(
          b, b.integer(storedBytes * columns * heads), product.groups);
      // The lines of a step of a tile that has all heads.
      ahead.lines =
          llvm::divideCeil(storedBytes * columns, ProductBuilder::kCacheLine);
    }
    Values sums = b.chains(x, b.at(product.page, b.mul(column, storedBytes)),
                           product.lineBytes, stored, product.count, columns,
                           width, ahead);
    for (auto [i, sum] : llvm::enumerate(sums)) {
      if (product.scale)
        sum = arith::MulFOp::create(
            b, sum, b.splat(b.vector(width, b.getF32Type()), product.scale));
      Value to = b.add(b.mul(rows[i / vectors], product.lineLength),
                       b.add(column, b.scaled(i % vectors * width)));
      b.store(sum, b.at(product.out, b.mul(to, 4)));
    }
  }

  const KernelInfo &kernel;
  const PageChainsSchedule &schedule;
  const int64_t lanes;
  ProductBuilder b;
  const Type stored;
  const int64_t storedBytes;
};
} // namespace

void qwen::emitOrder(const KernelInfo &kernel,
                     const PageChainsSchedule &schedule, ModuleOp module) {
  PageChains(kernel, schedule, module).emit();
}
