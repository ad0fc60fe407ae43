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

using namespace qwen;
using namespace mlir;

namespace {
class PageChains {
public:
  PageChains(const KernelInfo &kernel, const PageChainsSchedule &schedule,
             ModuleOp module)
      : kernel(kernel), schedule(schedule), b(kernel, module) {}

  /// Tiles of the schedule's heads, then of the remaining heads, which read the
  /// page again from the first cache.
  void emit() {
    Value done = b.integer(0);
    if (schedule.tokens > kNarrow) {
      Value isWide = b.isLess(b.integer(kNarrow), groups);
      // Wide tiles have whole vectors only.
      if (!isScores)
        isWide = b.bitAnd(isWide, b.isEqual(b.bitAnd(headDim, lanes - 1), 0));
      done = b.choose(
          isWide, [&] { return emitWide(done); },
          [&] { return Values{done}; })[0];
    }
    for (int64_t heads = std::min(schedule.tokens, kNarrow); heads > 0; --heads)
      done = emitTiles(done, heads);
    b.finish();
  }

private:
  /// Most heads of a tile that a token has: any fewer heads are one tile.
  static constexpr int64_t kNarrow = 8;

  /// Tiles of `heads` heads from `done` on. Returns the end of the last one.
  Value emitTiles(Value done, int64_t heads) {
    Value tiles = b.div(b.sub(groups, done), heads);
    Value whole = b.add(done, b.mul(tiles, heads));
    b.loop(done, whole, heads, [&](Value first) { emitHeads(first, heads); });
    return whole;
  }

  /// Tiles of more than kNarrow heads, which several tokens have: the
  /// schedule's, then one of the remaining heads if these are 4 or 8 fewer. The
  /// code of wide tiles is large, and other numbers have fast narrow tiles.
  Values emitWide(Value done) {
    done = emitTiles(done, schedule.tokens);
    for (int64_t heads = schedule.tokens - 4; heads > kNarrow; heads -= 4) {
      Value isRest = b.isEqual(b.sub(groups, done), heads);
      done = b.choose(
          isRest,
          [&] {
            emitHeads(done, heads);
            return Values{b.add(done, heads)};
          },
          [&] { return Values{done}; })[0];
    }
    return {done};
  }

  /// All columns of `heads` heads from `first` on.
  void emitHeads(Value first, int64_t heads) {
    if (b.isScalable())
      return b.forEachVector(columns, schedule.vectors,
                             [&](Value column, int64_t vectors) {
                               emitTile(first, heads, column, vectors * lanes);
                             });
    // Tiles of whole vectors, fewer and fewer of them, then for a head, which
    // is a multiple of 8 values, of half a vector where that has 8.
    const int64_t multiple =
        isScores || heads > kNarrow ? kPanelOutputs : kPanelOutputs / 2;
    const int64_t widest = vectorsOf(heads) * lanes;
    const int64_t least = std::min(widest, multiple);
    Value done = b.integer(0);
    for (int64_t width = widest; width >= least; width /= 2) {
      Value whole =
          width > least ? b.mul(b.div(columns, width), width) : columns;
      b.loop(done, whole, width,
             [&](Value column) { emitTile(first, heads, column, width); });
      done = whole;
    }
  }

  /// Vectors of a tile of `heads` heads: a chain waits for itself, so that a
  /// tile of fewer heads than the schedule's has more, up to as many sums and
  /// as registers allow beside a line of the matrix for each step that is
  /// loaded at once. AVX-512 takes longer for two vectors that are widened from
  /// f16, and that need factors in registers, than for one or four.
  int64_t vectorsOf(int64_t heads) const {
    const int64_t steps = b.isArm() ? 4 : 1;
    const int64_t growth = lanes == kPanelOutputs && stored == b.f16 ? 4 : 2;
    const int64_t sums =
        growth / 2 * std::min(schedule.tokens, kNarrow) * schedule.vectors;
    int64_t vectors = schedule.vectors;
    while (growth * vectors * heads <= sums &&
           growth * vectors * (heads + steps) + heads <=
               isaInfo(kernel.isa).registers)
      vectors *= growth;
    return vectors;
  }

  /// Outputs [first .. first + heads)[column .. column + width).
  void emitTile(Value first, int64_t heads, Value column, int64_t width) {
    Values lines, rows;
    for (int64_t head = 0; head < heads; ++head) {
      lines.push_back(b.add(first, head));
      rows.push_back(b.at(x, b.mul(lines.back(), xStride), 4));
    }
    ProductBuilder::ReadAhead ahead = {};
    if (schedule.prefetch > 0) {
      // A tile prefetches its share of the next page, by its multiplications: a
      // core waits for few lines at once, so prefetches should be even.
      Value done = b.add(b.mul(first, lineLength), b.mul(column, heads));
      Value bytes = b.mul(b.mul(done, count), storedBytes);
      ahead.pointer = b.at(next, b.div(bytes, groups));
      ahead.stride = arith::CeilDivUIOp::create(
          b, b.integer(storedBytes * width * heads), groups);
      // The lines of a step of a tile that has all heads.
      ahead.lines =
          llvm::divideCeil(storedBytes * width, ProductBuilder::kCacheLine);
    }
    const int64_t each = std::min(lanes, width), vectors = width / each;
    Values sums = b.chains(rows, b.at(page, column, storedBytes), lineBytes,
                           stored, count, width, each, ahead);
    const VectorType floats = b.vector(each, b.f32);
    for (auto [i, sum] : llvm::enumerate(sums)) {
      if (isScores)
        sum = b.mulF(sum, b.splat(floats, b.argument(2)));
      Value line = b.mul(lines[i / size_t(vectors)], lineLength),
            place = b.add(column, b.scaled(int64_t(i) % vectors * each));
      b.store(sum, b.at(out, b.add(line, place), 4));
    }
  }

  const KernelInfo &kernel;
  const PageChainsSchedule &schedule;
  /// Scores: s[g][j] = (chain over d of q[g][d] * k[d][j]) * scale for all
  /// slots of a page; slots from n on hold unknown values. Else o[g][c] = chain
  /// over j < n of p[g][j] * v[j][c].
  const bool isScores = kernel.op == KernelOp::AttentionScores;
  const int64_t lanes = isaInfo(kernel.isa).lanes;
  ProductBuilder b;
  const Type stored = layoutOf(*kvFormat(kernel.format)).codeBits == 16
                          ? Type(b.f16)
                          : Type(b.f32);
  const int64_t storedBytes = stored.getIntOrFloatBitWidth() / 8;
  /// Kernels of scores have a parameter more, the scale behind the page. `next`
  /// is the page that is read next.
  const unsigned outIndex = isScores ? 3 : 2;
  const Value x = b.argument(0), page = b.argument(1),
              out = b.argument(outIndex), groups = b.argument(outIndex + 1),
              headDim = b.argument(outIndex + 2), n = b.argument(outIndex + 3),
              next = b.argument(outIndex + 4), slots = b.integer(kPageTokens);
  /// out[g][c] = chain over i < count of x[g][i] * page[i][c] for c < columns.
  /// x is f32 [groups][xStride], out is f32 [groups][lineLength], and the page
  /// is [count][lineLength] in the cache's format.
  const Value count = isScores ? headDim : n,
              xStride = isScores ? headDim : slots,
              columns = isScores ? n : headDim,
              lineLength = isScores ? slots : headDim,
              lineBytes = b.mul(lineLength, storedBytes);
};
} // namespace

void qwen::emitOrder(const KernelInfo &kernel,
                     const PageChainsSchedule &schedule, ModuleOp module) {
  PageChains(kernel, schedule, module).emit();
}
