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
// For p.v, the weights of a tile become codes first. smmla multiplies 8 values
// of two heads and of two columns: a tile puts the codes of its heads in pairs,
// and zips chunks of 4 where it loads them. AVX2 multiplies weights as words of
// 16 bits, and widens chunks where it loads them: its instruction for bytes has
// sums for 7 bits of weights only.
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
    if (!isScores || inPairs)
      codes = b.scratch((schedule.tokens + 1) * rowBytes);
    if (!isScores) {
      if (!isUnsigned) {
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
  /// Values of a head in a dot of smmla.
  static constexpr int64_t kPairStep = 8;

  /// All columns of `heads` heads from `first` on: tiles of whole vectors,
  /// fewer and fewer of them, then of half a vector where that has 8 lanes.
  void emitHeads(Value first, int64_t heads) {
    const Values rows =
        isScores ? queryCodes(first, heads) : encodeWeights(first, heads);
    const int64_t widest = schedule.vectors * isa.lanes;
    const int64_t least =
        isScores ? isa.lanes : std::min<int64_t>(isa.lanes, 8);
    Value done = b.integer(0);
    for (int64_t width = widest; width >= least; width /= 2) {
      Value whole = isScores ? roundUp(columns, width)
                             : b.mul(b.div(columns, width), width);
      b.loop(done, whole, width, [&](Value column) {
        emitTile({first, heads, rows}, column, width);
      });
      if (isScores)
        return;
      done = whole;
    }
  }

  Value queryOf(Value head) { return b.at(argument, head, queryBytes); }

  /// The addresses of the codes of these queries: as they are, or of copies in
  /// pairs.
  Values queryCodes(Value first, int64_t heads) {
    Values rows, pairs;
    for (int64_t head = 0; head < heads; ++head)
      rows.push_back(queryOf(b.add(first, head)));
    if (!inPairs)
      return rows;
    const Type eight = b.getI64Type();
    for (int64_t head = 0; head < heads; head += 2)
      pairs.push_back(b.at(codes, head * rowBytes));
    b.loop(0, headDim, kPairStep, [&](Value i) {
      for (int64_t head = 0; head < alignTo(heads, 2); ++head) {
        Value value = head < heads ? b.load(eight, b.at(rows[size_t(head)], i))
                                   : b.integer(0);
        b.store(value, b.at(pairs[size_t(head / 2)],
                            b.add(b.mul(i, 2), head % 2 * kPairStep)));
      }
    });
    return pairs;
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
      Value to =
          b.at(codes, inPairs ? head / 2 * 2 * rowBytes + head % 2 * kPairStep
                              : head * rowBytes);
      if (!inPairs || head % 2 == 0)
        rows.push_back(to);
      encodeRow(b.at(argument, b.add(first, head), kPageTokens * 4), to);
    }
    if (inPairs && heads % 2 != 0)
      for (int64_t slot = 0; slot < kPageTokens; slot += kPairStep)
        b.store(b.integer(0), b.at(rows.back(), 2 * slot + kPairStep));
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
      const int64_t slot = int64_t(i) * isa.lanes;
      b.store(b.truncated(b.vector(isa.lanes, inWords ? b.i16 : b.i8), rounded),
              b.at(to, inPairs ? slot + slot / kPairStep * kPairStep
                               : slot * bytesOfCode));
    }
  }

  Value larger(Value a, Value c) { return arith::MaxSIOp::create(b, a, c); }
  Value number(float value) {
    return arith::ConstantOp::create(b, b.getF32FloatAttr(value));
  }

  /// Heads of a tile: their number, and the addresses of their codes.
  struct Heads {
    Value first;
    int64_t count;
    ArrayRef<Value> rows;
  };

  /// Outputs of some heads, [column .. column + width).
  void emitTile(const Heads &of, Value column, int64_t width) {
    const auto &[first, heads, rows] = of;
    IsaInfo tileIsa = isa;
    tileIsa.lanes = std::min(isa.lanes, width);
    const int64_t lanes = tileIsa.lanes, vectors = width / lanes;
    Values sums;
    for (Value row : rows)
      sums.append(size_t(vectors * sumsOfVector), startOf(row, lanes));
    Value chunks = b.at(page, column, kCodeChunk);
    const ReadAhead ahead = readAheadOf(
        b.add(b.mul(first, lineLength), b.mul(column, heads)), width * heads);
    const auto inSteps = [&](int64_t length) {
      return [&, length] {
        return b.loop(0, count, length, sums, [&](Value i, ValueRange carried) {
          readAhead(ahead, i, length);
          const Step step = {i, length, vectors, chunks, rows};
          return inPairs   ? addPairs(step, carried)
                 : inWords ? addWords(step, carried)
                           : addStep(tileIsa, step, carried);
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
      Value at = b.add(column, i % vectors * lanes),
            number = b.add(first, head);
      Value result =
          scaled(dotOf(sums, heads, vectors, i), number, head, at, lanes);
      b.store(result, b.at(out, b.add(b.mul(number, lineLength), at), 4));
    }
  }

  /// Dot `i` of [heads][vectors].
  Value dotOf(ArrayRef<Value> sums, int64_t heads, int64_t vectors, int64_t i) {
    const int64_t head = i / vectors, v = i % vectors;
    if (inWords) {
      // Two values of a chunk in each lane.
      Value low = sums[size_t(2 * i)], high = sums[size_t(2 * i + 1)];
      return b.add(b.shuffle(low, high, {0, 2, 4, 6, 8, 10, 12, 14}),
                   b.shuffle(low, high, {1, 3, 5, 7, 9, 11, 13, 15}));
    }
    if (!inPairs)
      return offsetRow
                 ? b.add(sums[size_t(i)], sums[size_t(heads * vectors + v)])
                 : sums[size_t(i)];
    // Two columns of two heads in each sum.
    const auto pair = size_t(head / 2 * vectors + v) * 2;
    return b.permuted("trn", 64, sums[pair], sums[pair + 1], head % 2 != 0);
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

  /// `length` values from `i` on, of some rows and vectors of columns.
  struct Step {
    Value i;
    int64_t length, vectors;
    Value chunks;
    ArrayRef<Value> rows;
  };

  Values addPairs(const Step &step, ValueRange carried) {
    const auto &[i, length, vectors, chunks, rows] = step;
    const VectorType bytes = b.vector(16, b.i8);
    const StringRef dot = isScores ? "llvm.aarch64.neon.smmla.v4i32.v16i8"
                                   : "llvm.aarch64.neon.usmmla.v4i32.v16i8";
    Values sums = carried;
    Value from = b.at(chunks, b.mul(b.div(i, kCodeChunk), chunkBytes));
    for (int64_t at = 0; at < length; at += kPairStep) {
      Values pairs;
      for (Value row : rows)
        pairs.push_back(b.load(bytes, b.at(row, b.mul(b.add(i, at), 2))));
      Value next = b.at(from, chunkBytes);
      for (int64_t v = 0; v < vectors; ++v) {
        Value even = b.load(bytes, b.at(from, v * 16)),
              odd = b.load(bytes, b.at(next, v * 16));
        for (const bool second : {false, true}) {
          Value w = b.permuted("zip", 32, even, odd, second);
          for (auto [r, pair] : llvm::enumerate(pairs)) {
            Value &sum = sums[(r * size_t(vectors) + size_t(v)) * 2 + second];
            sum = b.intrinsic(sum.getType(), dot, {sum, pair, w});
          }
        }
      }
      from = b.at(next, chunkBytes);
    }
    return sums;
  }

  /// 8 columns are two vectors of words, whose products are added in pairs.
  Values addWords(const Step &step, ValueRange carried) {
    const auto &[i, length, vectors, chunks, rows] = step;
    const VectorType words = b.vector(16, b.i16);
    Values sums = carried;
    Value from = b.at(chunks, b.mul(b.div(i, kCodeChunk), chunkBytes));
    for (int64_t at = 0; at < length; at += kCodeChunk) {
      Values matrix;
      for (int64_t half = 0; half < 2 * vectors; ++half)
        matrix.push_back(arith::ExtSIOp::create(
            b, words, b.load(b.vector(16, b.i8), b.at(from, half * 16))));
      from = b.at(from, chunkBytes);
      size_t sum = 0;
      for (Value row : rows) {
        Value chunk = b.load(b.getI64Type(), b.at(row, b.add(i, at), 2));
        Value x = b.bitcast(words, b.splat(b.vector(4, b.getI64Type()), chunk));
        for (Value w : matrix) {
          Value products = b.intrinsic(sums[sum].getType(),
                                       "llvm.x86.avx2.pmadd.wd", {x, w});
          // LLVM would add the products of several chunks first, which take
          // registers.
          sums[sum] = b.opaque(b.add(sums[sum], products));
          ++sum;
        }
      }
    }
    return sums;
  }

  Values addStep(const IsaInfo &tileIsa, const Step &step, ValueRange carried) {
    const auto &[i, length, vectors, chunks, rows] = step;
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

  /// The float of a dot with head `head` of a tile, which is head `number` of
  /// all, by its scales.
  Value scaled(Value dot, Value number, int64_t head, Value column,
               int64_t lanes) {
    const VectorType floats = b.vector(lanes, b.f32);
    Value value = b.toFloat(floats, dot);
    if (!isScores)
      return b.mulF(value, b.splat(floats, factors[size_t(head)]));
    Value ofQuery =
        b.mulF(b.load(b.f32, b.at(queryOf(number), headDim)), b.argument(2));
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
  /// Whether heads are multiplied in pairs, or weights as words. Then a vector
  /// has two sums.
  const bool inPairs = isa.dot.kind == DotKind::Smmla,
             inWords = !isScores && isa.dot.kind == DotKind::Maddubs;
  const int64_t sumsOfVector = inPairs || inWords ? 2 : 1;
  /// The bytes of a code of a tile, and of all codes of a head.
  const int64_t bytesOfCode = inWords ? 2 : 1,
                rowBytes = isScores ? kStackValues : kPageTokens * bytesOfCode;
  /// Whether an instruction takes weights from 0 to 254: as unsigned bytes
  /// (usmmla) or in words.
  const bool isUnsigned =
      inPairs || inWords || isa.dot.kind == DotKind::Vpdpbusd;
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
  /// The codes of a tile: of weights, or of queries in pairs or words. Of
  /// values: scales of slots, and what a dot with each row is multiplied with.
  Value slotScales, codes, offsetRow;
  Values factors;
};
} // namespace

void qwen::emitOrder(const KernelInfo &kernel, const PageDotsSchedule &schedule,
                     ModuleOp module) {
  PageDots(kernel, schedule, module).emit();
}
