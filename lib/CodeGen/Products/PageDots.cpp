//===- PageDots.cpp - The two products of attention in integers -----------===//
//
// q.k and p.v of one page in codes of 8 bits, for the query heads that share a
// kv head. Codes lie in chunks of 4 (KvLayout.h), which an instruction
// multiplies for each column. The innermost loop goes along the dots of a tile,
// whose sums stay in registers. A tile takes several heads, so that a chunk
// that was read serves several dots. Then come the next columns and the next
// heads.
//
//             columns
//   heads   +--------+--------+
//   of a    | step v | next   |   each tile: all chunks of the page
//   tile    +--------+--------+
//
// For p.v, the weights of a tile become codes first.
//
//===----------------------------------------------------------------------===//

#include "Product.h"

using namespace qwen;
using namespace mlir;

namespace {
class PageDots {
public:
  PageDots(const KernelInfo &kernel, const PageDotsSchedule &schedule,
           ModuleOp module)
      : kernel(kernel), schedule(schedule), b(kernel, module) {}

  /// Tiles of the schedule's heads, then one tile of the remaining heads, which
  /// reads the page again from the first cache.
  void emit() {
    if (!isScores) {
      codes = b.scratch((schedule.tokens + 1) * kPageTokens);
      if (isa.dot.kind != DotKind::Vpdpbusd) {
        offsetRow = b.at(codes, schedule.tokens * kPageTokens);
        b.fill(offsetRow, kPageTokens, kMostInteger * 0x01010101);
      }
      readSlotScales();
    }
    Value done = b.integer(0);
    for (int64_t heads = schedule.tokens; heads > 0; --heads) {
      Value whole =
          b.add(done, b.mul(b.div(b.sub(groups, done), heads), heads));
      b.loop(done, whole, heads, [&](Value first) { emitHeads(first, heads); });
      done = whole;
    }
    b.finish();
  }

private:
  /// Values of a head in a step of the innermost loop, which divides the size
  /// of any head; and values or slots in a longer step.
  static constexpr int64_t kStep = 8, kLongStep = 32;

  /// All columns of `heads` heads from `first` on: tiles of whole vectors,
  /// fewer and fewer of them, then of half a vector where that has 8 lanes.
  void emitHeads(Value first, int64_t heads) {
    Values rows;
    if (isScores)
      for (int64_t head = 0; head < heads; ++head)
        rows.push_back(b.at(argument, b.add(first, head), queryBytes));
    else
      rows = encodeWeights(first, heads);
    const int64_t widest = schedule.vectors * isa.lanes;
    const int64_t least =
        isScores ? isa.lanes : std::min<int64_t>(isa.lanes, 8);
    Value done = b.integer(0);
    for (int64_t width = widest; width >= least; width /= 2) {
      Value whole = isScores ? roundUp(columns, width)
                             : b.mul(b.div(columns, width), width);
      b.loop(done, whole, width,
             [&](Value column) { emitTile(first, rows, column, width); });
      if (isScores)
        return;
      done = whole;
    }
  }

  Value roundUp(Value a, int64_t multiple) {
    return b.mul(b.div(b.add(a, multiple - 1), multiple), multiple);
  }

  /// The scales of the page's slots that the query sees, and zeros: the scales
  /// of other slots hold anything.
  void readSlotScales() {
    slotScales = b.scratch(kPageTokens * 4);
    const VectorType floats = b.vector(isa.lanes, b.f32),
                     integers = b.vector(isa.lanes, b.i32);
    Value seen = b.splat(integers, b.truncated(b.i32, n));
    for (int64_t slot = 0; slot < kPageTokens; slot += isa.lanes) {
      SmallVector<int32_t> numbers;
      for (int64_t i = 0; i < isa.lanes; ++i)
        numbers.push_back(static_cast<int32_t>(slot + i));
      Value slots = arith::ConstantOp::create(
          b, DenseElementsAttr::get(integers, ArrayRef<int32_t>(numbers)));
      Value scale = b.load(floats, b.at(scales, slot * 4));
      b.store(arith::SelectOp::create(b, b.isLess(slots, seen), scale,
                                      b.zeros(floats)),
              b.at(slotScales, slot * 4));
    }
  }

  /// The weights of these heads times the scales of slots, as codes and a
  /// scale, and the addresses of the codes. Where codes are signed, they are
  /// less by kMostInteger, and a last row has that in all slots: its dot is
  /// what the dots of the others lack.
  Values encodeWeights(Value first, int64_t heads) {
    factors.clear();
    Values rows;
    for (int64_t head = 0; head < heads; ++head) {
      rows.push_back(b.at(codes, head * kPageTokens));
      encodeRow(b.at(argument, b.add(first, head), kPageTokens * 4),
                rows.back());
    }
    if (offsetRow)
      rows.push_back(offsetRow);
    return rows;
  }

  /// No product is below +0, so that their bits compare as they do.
  void encodeRow(Value weights, Value to) {
    const VectorType floats = b.vector(isa.lanes, b.f32),
                     integers = b.vector(isa.lanes, b.i32);
    Values products;
    Value bits;
    for (int64_t slot = 0; slot < kPageTokens; slot += isa.lanes) {
      products.push_back(b.mulF(b.load(floats, b.at(weights, slot * 4)),
                                b.load(floats, b.at(slotScales, slot * 4))));
      Value each = b.bitcast(integers, products.back());
      bits = bits ? larger(bits, each) : each;
    }
    Value most = larger(
        vector::ReductionOp::create(b, vector::CombiningKind::MAXSI, bits),
        b.constant(b.i32, std::bit_cast<int32_t>(kLeastScale)));
    Value largest = arith::BitcastOp::create(b, b.f32, most);
    Value factor =
        b.splat(floats, arith::DivFOp::create(b, number(kMostCode), largest));
    factors.push_back(arith::DivFOp::create(b, largest, number(kMostCode)));
    for (auto [i, product] : llvm::enumerate(products)) {
      // The sum has the integer in its lowest bits.
      Value rounded = b.bitcast(
          integers, b.addF(b.mulF(product, factor), b.zeros(floats, kMagic)));
      if (offsetRow)
        rounded = b.sub(rounded, kMostInteger);
      b.store(b.truncated(b.vector(isa.lanes, b.i8), rounded),
              b.at(to, int64_t(i) * isa.lanes));
    }
  }

  Value larger(Value a, Value c) { return arith::MaxSIOp::create(b, a, c); }
  Value number(float value) {
    return arith::ConstantOp::create(b, b.getF32FloatAttr(value));
  }

  /// Outputs of the heads of `rows`, from `first` on, [column .. column +
  /// width).
  void emitTile(Value first, ArrayRef<Value> rows, Value column,
                int64_t width) {
    IsaInfo tileIsa = isa;
    tileIsa.lanes = std::min(isa.lanes, width);
    const int64_t lanes = tileIsa.lanes, vectors = width / lanes;
    const int64_t heads = std::ssize(rows) - (offsetRow ? 1 : 0);
    Values sums;
    for (Value row : rows)
      sums.append(size_t(vectors), startOf(row, lanes));
    Value chunks = b.at(page, column, kCodeChunk);
    const ReadAhead ahead = readAheadOf(
        b.add(b.mul(first, lineLength), b.mul(column, heads)), width * heads);
    const auto inSteps = [&](int64_t length) {
      return [&, length] {
        return b.loop(0, count, length, sums, [&](Value i, ValueRange carried) {
          readAhead(ahead, i, length);
          return addStep(tileIsa, rows, chunks, i, length, vectors, carried);
        });
      };
    };
    if (isScores)
      sums = b.choose(b.isEqual(b.bitAnd(count, kLongStep - 1), 0),
                      inSteps(kLongStep), inSteps(kStep));
    else
      sums = inSteps(kLongStep)();
    for (int64_t i = 0; i < heads * vectors; ++i) {
      const int64_t head = i / vectors;
      Value sum = sums[size_t(i)];
      if (offsetRow)
        sum = b.add(sum, sums[size_t(heads * vectors + i % vectors)]);
      Value at = b.add(column, i % vectors * lanes);
      Value result = scaled(sum, rows[size_t(head)], head, at, lanes);
      Value line = b.mul(b.add(first, head), lineLength);
      b.store(result, b.at(out, b.add(line, at), 4));
    }
  }

  /// What a tile prefetches of the page that is read next: from `pointer` on,
  /// `bytes` for each value along its dots.
  struct ReadAhead {
    Value pointer, bytes;
  };

  /// The share of a tile of `outputs` outputs, with `done` before it. A core
  /// waits for few lines at once, so prefetches should be even.
  ReadAhead readAheadOf(Value done, int64_t outputs) {
    if (schedule.prefetch == 0)
      return {};
    Value pageBytes = b.mul(b.add(headDim, 4), kPageTokens),
          all = b.mul(groups, lineLength);
    Value share = b.div(b.mul(pageBytes, outputs), b.mul(all, count));
    return {b.at(b.argument(outIndex + 4), b.div(b.mul(pageBytes, done), all)),
            b.add(share, 1)};
  }

  /// Prefetches the share of `length` values from `i` on. A prompt has few
  /// lines in a step, because many tiles share a page; they need no loop, in
  /// which LLVM keeps sums in memory unless it is seldom run.
  void readAhead(const ReadAhead &ahead, Value i, int64_t length) {
    if (!ahead.pointer)
      return;
    const int64_t few = length / kCodeChunk * ProductBuilder::kCacheLine;
    Value from = b.at(ahead.pointer, i, ahead.bytes),
          bytes = b.mul(ahead.bytes, length),
          isFew = b.intrinsic(
              b.getI1Type(), "llvm.expect.i1",
              {b.isLess(bytes, few + 1), b.constant(b.getI1Type(), 1)});
    const auto prefetch = [&](Int at) { b.prefetch(b.at(from, at)); };
    b.branch(
        isFew,
        [&] {
          for (int64_t at = 0; at < few; at += ProductBuilder::kCacheLine)
            prefetch(at);
        },
        [&] { b.loop(0, bytes, ProductBuilder::kCacheLine, prefetch); });
  }

  /// The start of the dots with a row. Keys with an offset add the offset times
  /// the sum of the row to each dot, and the start subtracts this.
  Value startOf(Value row, int64_t lanes) {
    const VectorType integers = b.vector(lanes, b.i32);
    if (!isScores || isa.dot.kind != DotKind::Vpdpbusd)
      return b.constant(integers, 0);
    Value sum = b.load(b.i32, b.at(row, b.add(headDim, kSumBehind)));
    return b.splat(integers, b.mul(sum, -kOffset));
  }

  /// Multiplies `length` values from `i` on.
  Values addStep(const IsaInfo &tileIsa, ArrayRef<Value> rows, Value chunks,
                 Value i, int64_t length, int64_t vectors, ValueRange carried) {
    // vpdpbusd takes unsigned bytes first.
    const bool codesFirst = !isScores && isa.dot.kind == DotKind::Vpdpbusd;
    const ByteRange range = {
        .factor = 1, .bias = 0, .least = -kMostInteger, .most = kMostInteger};
    SmallVector<Dot> dots;
    for (Value sum : carried)
      dots.emplace_back(b, tileIsa, range, sum);
    const int64_t lanes = tileIsa.lanes;
    const VectorType bytes = b.vector(4 * lanes, b.i8);
    Value from = b.at(chunks, b.mul(b.div(i, kCodeChunk), chunkBytes));
    for (int64_t at = 0; at < length; at += kCodeChunk) {
      Values matrix;
      for (int64_t v = 0; v < vectors; ++v) {
        Value w = b.load(bytes, b.at(from, v * lanes * kCodeChunk));
        if (isScores && isa.dot.kind == DotKind::Vpdpbusd)
          w = b.bitXor(w, int8_t(-kOffset));
        matrix.push_back(w);
      }
      from = b.at(from, chunkBytes);
      for (auto [r, row] : llvm::enumerate(rows)) {
        Value x = codesOf(b.at(row, b.add(i, at)), row, i, at, bytes);
        for (int64_t v = 0; v < vectors; ++v) {
          Dot &dot = dots[r * size_t(vectors) + size_t(v)];
          if (codesFirst)
            dot.step(x, matrix[size_t(v)], 0);
          else
            dot.step(matrix[size_t(v)], x, at / kCodeChunk % 4);
        }
      }
    }
    Values sums;
    for (Dot &dot : dots)
      sums.push_back(dot.finish());
    return sums;
  }

  /// The codes of a row that a step multiplies: on x86 4 of them in all words,
  /// on Arm 16 from a multiple of 16 values of the step on.
  Value codesOf(Value address, Value row, Value i, int64_t at,
                VectorType bytes) {
    if (b.isArm())
      return b.loadQuad(b.i8, b.at(row, b.add(i, at / 16 * 16)));
    Value word = b.load(b.i32, address);
    return b.bitcast(
        bytes, b.splat(b.vector(bytes.getNumElements() / 4, b.i32), word));
  }

  /// The float of a dot with row `head`, by its scales.
  Value scaled(Value dot, Value row, int64_t head, Value column,
               int64_t lanes) {
    const VectorType floats = b.vector(lanes, b.f32);
    Value value = b.toFloat(floats, dot);
    if (!isScores)
      return b.mulF(value, b.splat(floats, factors[size_t(head)]));
    Value ofQuery = b.mulF(b.load(b.f32, b.at(row, headDim)), b.argument(2));
    value = b.mulF(value, b.load(floats, b.at(scales, column, 4)));
    return b.mulF(value, b.splat(floats, ofQuery));
  }

  /// The largest magnitude of a code, and what makes codes of keys unsigned.
  static constexpr int64_t kMostInteger = 127, kOffset = 128;
  /// The largest code of a weight.
  static constexpr float kMostCode = 2 * kMostInteger;
  static constexpr int64_t kSumBehind = KvQuery::sumOffset(0);

  const KernelInfo &kernel;
  const PageDotsSchedule &schedule;
  const bool isScores = kernel.op == KernelOp::AttentionScores;
  const IsaInfo &isa = isaInfo(kernel.isa);
  ProductBuilder b;
  /// Kernels of scores have a parameter more, the scale behind the page.
  const unsigned outIndex = isScores ? 3 : 2;
  /// Queries or weights, the page and the results.
  const Value argument = b.argument(0), page = b.argument(1),
              out = b.argument(outIndex), groups = b.argument(outIndex + 1),
              headDim = b.argument(outIndex + 2), n = b.argument(outIndex + 3),
              scales = b.at(page, b.mul(headDim, kPageTokens)),
              queryBytes = b.add(headDim, KvQuery::bytes(0));
  /// out[g][c] = the sum over i < count of row g times the chunks of column c,
  /// for c < columns. A chunk of all columns has `chunkBytes`, and out is
  /// [groups][lineLength].
  const Value count = isScores ? headDim : roundUp(n, kLongStep),
              columns = isScores ? n : headDim,
              lineLength = isScores ? b.integer(kPageTokens) : headDim,
              chunkBytes = b.mul(lineLength, kCodeChunk);
  /// Of values: scales of slots, codes of the weights of a tile, and what a dot
  /// with each row is multiplied with.
  Value slotScales, codes, offsetRow;
  Values factors;
};
} // namespace

void qwen::emitOrder(const KernelInfo &kernel, const PageDotsSchedule &schedule,
                     ModuleOp module) {
  PageDots(kernel, schedule, module).emit();
}
