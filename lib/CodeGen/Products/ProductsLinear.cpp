//===- ProductsLinear.cpp - Products with a packed matrix -----------------===//
//
// One loop nest for every format and instruction set:
//
//   for each panel of 16 outputs, or of each of several streams of them
//     for each tile of rows and outputs
//       accumulators along K: f32 chains, or blocks of integer dots
//       + bias, + residual, store
//
// Where the length of vectors is known only at run time, a panel is a loop over
// vectors of its outputs, whose last may have lanes without an output.
//
// Panels are outermost so that each weight is read from memory once a call.
// The order of every accumulation is docs/numerics.md's; layouts are
// Blocks.h's.
//
//===----------------------------------------------------------------------===//

#include "ProductsLinear.h"
#include "ProductsDot.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ArmNeon/ArmNeonDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include <algorithm>
#include <bit>

using namespace qwen;
using namespace mlir;

namespace {
/// Emits one row of the table.
class LinearEmitter {
public:
  LinearEmitter(const KernelInfo &row, const KernelSchedule &schedule,
                ModuleOp module)
      : row(row), schedule(schedule), format(*weightFormat(row.format)),
        lanes(vectorLanes(row.isa)), vectors(schedule.vectors),
        groupBytes(panelGroupBytes(format)),
        b(row, module, linearSignature(row, module.getContext())),
        arguments(b, row.format) {}

  void emit() {
    if (holdsOrder())
      blockSums = b.scratch(std::max<int64_t>(schedule.streams, 1) *
                                schedule.tokens * vectors * 4 * lanes,
                            4 * lanes);
    Value bytes = arguments.panelStride(b, format);
    Value first = arguments.panelBegin, last = arguments.panelEnd;
    // What is left of few panels has fewer streams.
    for (int64_t streams = schedule.streams; streams > 1; streams /= 2) {
      Value stream = divide(arith::SubIOp::create(b, last, first), streams);
      Value end = b.add(first, stream);
      b.loop(first, end, 1, [&](Value panel) {
        Values numbers = {panel};
        while (int64_t(numbers.size()) < streams)
          numbers.push_back(b.add(numbers.back(), stream));
        emitPanels(numbers, bytes);
      });
      first = b.add(first, b.mul(stream, streams));
    }
    b.loop(first, last, 1, [&](Value panel) { emitPanels(panel, bytes); });
    b.finish();
  }

private:
  /// A panel and where its weights are.
  struct Panel {
    Value number, weights;
  };

  /// Where the quantized activations of one row are.
  struct Row {
    Value q, d, sums;
  };

  /// Calls `body` for the first of the outputs of each tile in a panel, with
  /// `vectors` set to what the tile takes.
  void forEachColumns(llvm::function_ref<void(Value)> body) {
    if (isScalable(row.isa))
      return b.forEachVector(b.integer(kPanelRows), vectors,
                             [&](Value column, int64_t count) {
                               vectors = count;
                               body(column);
                             });
    if (vectors * lanes == kPanelRows)
      return body(b.integer(0));
    b.loop(b.integer(0), b.integer(kPanelRows), vectors * lanes, body);
  }

  /// The panels of these numbers, of `bytes` each, together.
  void emitPanels(ArrayRef<Value> numbers, Value bytes) {
    SmallVector<Panel> panels;
    for (Value number : numbers)
      panels.push_back({number, b.at(arguments.weights, b.mul(number, bytes))});
    forEachColumns([&](Value column) { emitColumns(panels, column); });
  }

  /// The tiles of the panels' outputs from `column` on.
  void emitColumns(ArrayRef<Panel> panels, Value column) {
    b.loop(b.integer(0), arguments.m, schedule.tokens, [&](Value firstRow) {
      Values rows;
      for (int64_t r = 0; r < schedule.tokens; ++r)
        rows.push_back(b.add(firstRow, b.integer(r)));
      SmallVector<Values> tiles = isQuantized()
                                      ? quantizedTiles(panels, column, rows)
                                      : floatTiles(panels, column, rows);
      for (auto [panel, tile] : llvm::zip_equal(panels, tiles))
        finishTile(b.add(b.mul(panel.number, kPanelRows), column), rows, tile);
    });
  }

  /// Whether accumulators are of pairs of tokens and outputs, as smmla's are:
  /// each 128 bits of accumulator v of token 2p have two outputs of the lower
  /// half of vector v, for tokens 2p and 2p + 1; those of accumulator v of
  /// token 2p + 1 have two of the upper half.
  bool inPairs() const {
    return row.isa == KernelIsa::NEONI8MM || row.isa == KernelIsa::SVEI8MM;
  }

  bool isQuantized() const { return qwen::isQuantized(row.format); }
  bool isEightBits() const { return format == WeightFormat::Q8_0; }
  /// Whether dots lack something that depends on the activations' sum.
  bool isCorrected() const { return !isEightBits() || isUnsignedDot(row.isa); }
  /// Whether a subtraction turns dots into floats. Without a correction, what
  /// they start from would take the slot that this saves.
  bool fromMagic() const {
    return row.arch() == Arch::AArch64 && isCorrected();
  }

  /// Whether code is to run in the order in which it is emitted, with the sums
  /// of a block on the stack, where a group reads and writes each once. A
  /// tile's sums and dots would be all of AVX2's registers, and LLVM, which
  /// moves loads ahead and adds to what is ready, would keep activations there
  /// as well.
  bool holdsOrder() const {
    return row.isa == KernelIsa::AVX2 && schedule.inTurn == 0 &&
           (schedule.tokens > 1 || schedule.streams > 1);
  }

  /// Of those sums. Volatile, or LLVM would have them in registers.
  Value loadSum(VectorType type, int64_t i) {
    return LLVM::LoadOp::create(b, type, b.at(blockSums, i * 4 * lanes),
                                4 * lanes, /*isVolatile=*/true);
  }
  Values loadSums(VectorType type, size_t count) {
    Values sums;
    for (size_t i = 0; i < count; ++i)
      sums.push_back(loadSum(type, int64_t(i)));
    return sums;
  }
  void storeSums(ArrayRef<Value> sums) {
    for (auto [i, sum] : llvm::enumerate(sums))
      storeSum(sum, int64_t(i));
  }
  void storeSum(Value sum, int64_t i) {
    LLVM::StoreOp::create(b, sum, b.at(blockSums, i * 4 * lanes), 4 * lanes,
                          /*isVolatile=*/true);
  }

  /// By a power of two.
  Value divide(Value value, int64_t divisor) {
    return b.shiftRight(value, std::countr_zero(uint64_t(divisor)));
  }

  SmallVector<Values> floatTiles(ArrayRef<Panel> panels, Value column,
                                 ArrayRef<Value> rows) {
    Values from;
    for (Value r : rows)
      from.push_back(b.at(arguments.q, b.mul(b.mul(r, arguments.k), 4)));
    const int64_t bytes = groupBytes / (kGroup * kPanelRows);
    const Type stored =
        format == WeightFormat::BF16 ? b.getBF16Type() : b.getF32Type();
    SmallVector<Values> tiles;
    for (const Panel &panel : panels)
      tiles.push_back(b.chains(from, b.at(panel.weights, b.mul(column, bytes)),
                               b.integer(kPanelRows * bytes), stored,
                               arguments.k, vectors * lanes, lanes));
    return tiles;
  }

  SmallVector<Values> quantizedTiles(ArrayRef<Panel> panels, Value column,
                                     ArrayRef<Value> rows);
  /// Groups [first, last) of a block, a multiple of `each`.
  struct Span {
    Value first, last;
    int64_t each;
  };
  Values overGroups(const Span &span, ArrayRef<Value> carried,
                    ProductBuilder::LoopBody body);
  Values panelSums(ArrayRef<Panel> panels, Value column, ArrayRef<Row> rows,
                   const Span &span);
  Values widePanelSums(ArrayRef<Panel> panels, Value column, ArrayRef<Row> rows,
                       Value block, const Span &span);
  void groupDots(ArrayRef<Value> groups, Value column, ArrayRef<Value> q,
                 ArrayRef<Value> start,
                 llvm::function_ref<void(int64_t, Value)> use);
  void pairDots(Value chunks, Value column, ArrayRef<Value> q,
                ArrayRef<Value> start,
                llvm::function_ref<void(int64_t, Value)> use);
  void prefetch(Value line);
  Value sixteen(Value q, int64_t first);
  Value activations(Value q, int64_t step);
  Value forToken(VectorType type, ArrayRef<Value> values, size_t r);
  Value correction(ArrayRef<Value> sums, size_t r, int64_t v);
  Value toFloats(Value dot, int64_t v);
  float magic(int64_t v) const;
  Value scaled(Value dot, Value scales, int64_t i, Value previous);
  void finishTile(Value output, ArrayRef<Value> rows, Values tile);

  static constexpr int64_t chunkBytes = kPanelRows * 4;

  const KernelInfo &row;
  const KernelSchedule &schedule;
  const WeightFormat format;
  const int64_t lanes;
  /// Vectors of outputs in a tile.
  int64_t vectors;
  const int64_t groupBytes;
  ProductBuilder b;
  const LinearArguments arguments;
  /// The sums of a block so far where holdsOrder(), else null.
  Value blockSums;
};
} // namespace

/// acc = fma(t, d_a, acc) over the activation blocks, for each panel.
SmallVector<Values> LinearEmitter::quantizedTiles(ArrayRef<Panel> panels,
                                                  Value column,
                                                  ArrayRef<Value> rows) {
  const VectorType type = b.vector(lanes, b.getF32Type());
  Value groups = divide(arguments.k, kGroup);
  Value blocks = arguments.activationBlocks(b);
  SmallVector<Row> from;
  for (Value r : rows)
    from.push_back({b.at(arguments.q, b.mul(r, arguments.k)),
                    b.at(arguments.d, b.mul(b.mul(r, blocks), 4)),
                    b.at(arguments.sums, b.mul(b.mul(r, groups), 4))});
  auto addBlock = [&](Value block, ValueRange totals, const Span &span) {
    Values t = weightBlock(format) == kGroup
                   ? panelSums(panels, column, from, span)
                   : widePanelSums(panels, column, from, block, span);
    Values scales, result;
    for (const Row &at : from)
      scales.push_back(b.load(b.getF32Type(), b.at(at.d, b.mul(block, 4))));
    for (size_t p = 0; p < panels.size(); ++p)
      for (size_t r = 0; r < rows.size(); ++r) {
        Value scale = forToken(type, scales, r);
        for (int64_t v = 0; v < vectors; ++v) {
          const size_t i = result.size();
          result.push_back(math::FmaOp::create(b, t[i], scale, totals[i]));
        }
      }
    return result;
  };
  const size_t tileSize = rows.size() * vectors;
  Values sums(panels.size() * tileSize, b.zeros(type));
  Value done = b.integer(0);
  if (schedule.unroll > 1) {
    Value whole = divide(groups, kBlockGroups);
    sums = b.loop(done, whole, 1, sums, [&](Value block, ValueRange totals) {
      Value first = b.mul(block, kBlockGroups);
      Value last = b.add(first, b.integer(kBlockGroups));
      return addBlock(block, totals, {first, last, schedule.unroll});
    });
    done = whole;
  }
  sums = b.loop(done, blocks, 1, sums, [&](Value block, ValueRange totals) {
    Value first = b.mul(block, kBlockGroups);
    Value last = b.smaller(groups, b.add(first, b.integer(kBlockGroups)));
    return addBlock(block, totals, {first, last, 1});
  });
  SmallVector<Values> tiles;
  for (size_t p = 0; p < panels.size(); ++p)
    tiles.emplace_back(ArrayRef(sums).slice(p * tileSize, tileSize));
  return tiles;
}

/// body(last - 1, ...body(first, carried)), in passes of what `span` says.
Values LinearEmitter::overGroups(const Span &span, ArrayRef<Value> carried,
                                 ProductBuilder::LoopBody body) {
  auto pass = [&](Value g, ValueRange before) {
    Values values(before);
    for (int64_t i = 0; i < span.each; ++i)
      values = body(b.add(g, b.integer(i)), values);
    return values;
  };
  if (span.each == kBlockGroups)
    return pass(span.first, carried);
  return b.loop(span.first, span.last, span.each, carried, pass);
}

/// Of each panel, t = the fma chain of isum * d_w over the groups of `span`,
/// which have their own scales. t starts from -0, with which the first fma is
/// the rounded product that docs/numerics.md asks for.
Values LinearEmitter::panelSums(ArrayRef<Panel> panels, Value column,
                                ArrayRef<Row> rows, const Span &span) {
  const VectorType type = b.vector(lanes, b.getF32Type());
  const size_t tileSize = rows.size() * vectors;
  const Values none(panels.size() * tileSize, b.zeros(type, -0.0f));
  auto sumOf = [&](const Row &from, Value g) {
    return b.load(b.getI32Type(), b.at(from.sums, b.mul(g, 4)));
  };
  auto rowsAt = [&](Value g) {
    Values q;
    for (const Row &from : rows)
      q.push_back(b.at(from.q, b.mul(g, kGroup)));
    return q;
  };
  if (blockSums) {
    storeSums(none);
    overGroups(span, {}, [&](Value g, ValueRange) {
      Values groups, chunks;
      for (const Panel &panel : panels) {
        groups.push_back(
            b.at(panel.weights, b.mul(g, panelBlockBytes(format))));
        chunks.push_back(b.at(groups.back(), kPanelScaleBytes));
        prefetch(groups.back());
      }
      Values sums(rows.size()), lacking(rows.size());
      groupDots(chunks, column, rowsAt(g), Values(none.size()),
                [&](int64_t i, Value dot) {
                  const size_t r = i % tileSize / vectors;
                  if (isCorrected()) {
                    if (!lacking[r]) {
                      sums[r] = sumOf(rows[r], g);
                      lacking[r] = correction(sums, r, 0);
                    }
                    dot = arith::AddIOp::create(b, dot, lacking[r]);
                  }
                  Value scales = b.at(groups[i / tileSize], b.mul(column, 2));
                  storeSum(scaled(dot, scales, i % int64_t(tileSize),
                                  loadSum(type, i)),
                           i);
                });
      return Values();
    });
    return loadSums(type, none.size());
  }
  return overGroups(span, none, [&](Value g, ValueRange previous) {
    Values groups, q, sums, start;
    for (const Panel &panel : panels)
      groups.push_back(b.at(panel.weights, b.mul(g, panelBlockBytes(format))));
    for (const Row &from : rows) {
      q.push_back(b.at(from.q, b.mul(g, kGroup)));
      sums.push_back(sumOf(from, g));
    }
    for (size_t r = 0; r < rows.size(); ++r)
      for (int64_t v = 0; v < vectors; ++v)
        start.push_back(correction(sums, r, v));
    Values result(previous);
    for (auto [p, group] : llvm::enumerate(groups)) {
      prefetch(group);
      groupDots(b.at(group, kPanelScaleBytes), column, q, start,
                [&, first = p * tileSize](int64_t i, Value dot) {
                  result[first + i] = scaled(dot, b.at(group, b.mul(column, 2)),
                                             i, previous[first + i]);
                });
    }
    return result;
  });
}

/// The same where the groups of an activation block share one scale: their dots
/// are added as integers.
Values LinearEmitter::widePanelSums(ArrayRef<Panel> panels, Value column,
                                    ArrayRef<Row> rows, Value block,
                                    const Span &span) {
  const VectorType type = b.vector(lanes, b.getF32Type());
  const VectorType integers = b.vector(lanes, b.getI32Type());
  Values scales;
  for (const Panel &panel : panels) {
    scales.push_back(
        b.at(panel.weights, b.mul(block, panelBlockBytes(format))));
    prefetch(scales.back());
  }
  const size_t tileSize = rows.size() * vectors;
  const size_t count = panels.size() * tileSize;
  Values none(count, arith::ConstantOp::create(b, b.getZeroAttr(integers)));
  if (blockSums) {
    storeSums(none);
    none.clear();
  }
  const size_t carried = none.size();
  none.append(rows.size(),
              arith::ConstantOp::create(b, b.getI32IntegerAttr(0)));
  // Carried: the dots, then the sums of activations.
  Values sums = overGroups(span, none, [&](Value g, ValueRange before) {
    Value offset = b.mul(arith::SubIOp::create(b, g, span.first), groupBytes);
    Values q, result(before);
    for (auto [r, from] : llvm::enumerate(rows)) {
      q.push_back(b.at(from.q, b.mul(g, kGroup)));
      result[carried + r] = arith::AddIOp::create(
          b, before[carried + r],
          b.load(b.getI32Type(), b.at(from.sums, b.mul(g, 4))));
    }
    Values chunks;
    for (Value panel : scales)
      chunks.push_back(b.at(b.at(panel, kPanelScaleBytes), offset));
    if (blockSums) {
      groupDots(chunks, column, q, Values(count), [&](int64_t i, Value dot) {
        storeSum(arith::AddIOp::create(b, loadSum(integers, i), dot), i);
      });
      return result;
    }
    for (auto [p, panel] : llvm::enumerate(chunks))
      groupDots(panel, column, q, Values(before.slice(p * tileSize, tileSize)),
                [&, first = p * tileSize](int64_t i, Value dot) {
                  result[first + i] = dot;
                });
    return result;
  });
  if (blockSums) {
    Values dots = loadSums(integers, count);
    dots.append(sums);
    sums = dots;
  }
  Values result;
  for (size_t i = 0; i < count; ++i) {
    const auto inTile = int64_t(i % tileSize);
    Value dot = arith::AddIOp::create(
        b, sums[i],
        correction(ArrayRef<Value>(sums).drop_front(count), inTile / vectors,
                   inTile % vectors));
    result.push_back(scaled(dot, b.at(scales[i / tileSize], b.mul(column, 2)),
                            inTile, b.zeros(type, -0.0f)));
  }
  return result;
}

/// values[r] in all lanes of the accumulators of row `r`; in pairs, the values
/// of the two rows where smmla has them.
Value LinearEmitter::forToken(VectorType type, ArrayRef<Value> values,
                              size_t r) {
  if (!inPairs())
    return b.splat(type, values[r]);
  return b.permuted("trn", 64, b.splat(type, values[r & ~size_t{1}]),
                    b.splat(type, values[r | 1]), false);
}

/// previous = fma(dot, scale, previous) for accumulator i = row * vectors +
/// vector of a tile's outputs.
Value LinearEmitter::scaled(Value dot, Value scales, int64_t i,
                            Value previous) {
  Value w = b.loadFloats(lanes, b.getF16Type(),
                         b.at(scales, b.scaled(i % vectors * lanes * 2)));
  if (inPairs())
    w = b.permuted("zip", 64, w, w, i / vectors % 2 != 0);
  Value isum = toFloats(dot, i % vectors);
  return math::FmaOp::create(b, isum, w, previous);
}

/// What the dots of vector `v` start from. No two vectors of a token start from
/// the same value: LLVM would copy one register, which takes a slot of the
/// vectors' pipes, and a splat of a general register takes none.
float LinearEmitter::magic(int64_t v) const {
  return kMagic + (inPairs() ? 0.0f : float(v));
}

/// Dots that started from correction().
Value LinearEmitter::toFloats(Value dot, int64_t v) {
  const VectorType type = b.vector(lanes, b.getF32Type());
  if (!fromMagic())
    return arith::SIToFPOp::create(b, type, dot);
  return arith::SubFOp::create(b, vector::BitCastOp::create(b, type, dot),
                               b.zeros(type, magic(v)));
}

/// What the dots of stored weights with activations of this sum lack, for every
/// output; null where it is nothing. Nibbles are stored plus 8, and int8 goes
/// into an unsigned dot plus 128: sum(q * (w - c)) = sum(q * w) - c * sum(q).
/// Dots that are to become floats by a subtraction start from kMagic, too.
Value LinearEmitter::correction(ArrayRef<Value> sums, size_t r, int64_t v) {
  if (!isCorrected())
    return nullptr;
  const VectorType type = b.vector(lanes, b.getI32Type());
  const IntegerAttr minus = b.getI32IntegerAttr(isEightBits() ? -128 : -8);
  const IntegerAttr from =
      b.getI32IntegerAttr(fromMagic() ? std::bit_cast<int32_t>(magic(v)) : 0);
  if (inPairs()) {
    auto all = [&](IntegerAttr value) -> Value {
      return arith::ConstantOp::create(b, DenseElementsAttr::get(type, value));
    };
    return arith::AddIOp::create(
        b, arith::MulIOp::create(b, forToken(type, sums, r), all(minus)),
        all(from));
  }
  Value lacking = b.createOrFold<arith::MulIOp>(
      sums[r], arith::ConstantOp::create(b, minus));
  return b.splat(type, b.createOrFold<arith::AddIOp>(
                           lacking, arith::ConstantOp::create(b, from)));
}

/// Fetches what lies as far behind `line` as the schedule says. LLVM's models
/// of CPUs take a prefetch for a load whose latency is to be hidden, and move
/// all of a loop's to its front, where they delay its loads.
void LinearEmitter::prefetch(Value line) {
  if (schedule.prefetch == 0)
    return;
  if (schedule.streams > 0)
    b.keepLoadsInOrder();
  b.prefetch(b.at(line, schedule.prefetch));
}

/// Activations first .. first + 15 of a group, in each 128 bits.
Value LinearEmitter::sixteen(Value q, int64_t first) {
  const VectorType bytes = b.vector(16, b.getI8Type());
  if (!isScalable(row.isa))
    return b.load(bytes, b.at(q, first));
  Value all = arith::ConstantOp::create(
      b, DenseElementsAttr::get(b.vector(16, b.getI1Type()), true));
  return b.intrinsic(bytes, "llvm.aarch64.sve.ld1rq.nxv16i8",
                     {all, b.at(q, first)});
}

/// Activations 4 * step .. 4 * step + 3 of a group, as GroupDot takes them.
Value LinearEmitter::activations(Value q, int64_t step) {
  const VectorType bytes = b.vector(4 * lanes, b.getI8Type());
  const VectorType words = b.vector(lanes, b.getI32Type());
  if (row.isa == KernelIsa::SVE)
    return sixteen(q, step / 4 * 16);
  Value word;
  if (row.arch() == Arch::X86_64) {
    word = LLVM::LoadOp::create(b, b.getI32Type(), b.at(q, 4 * step), 1);
  } else {
    // From a register: sdot takes one of its four words as an operand.
    Value four = vector::BitCastOp::create(b, words, sixteen(q, step / 4 * 16));
    word = vector::ExtractOp::create(b, four, step % 4);
  }
  return vector::BitCastOp::create(b, bytes, b.splat(words, word));
}

/// start[i] + the dot of the stored weights with the activations of one group,
/// for i = (panel * rows + row) * vectors + vector. Several panels are for
/// holdsOrder() alone.
void LinearEmitter::groupDots(ArrayRef<Value> groups, Value column,
                              ArrayRef<Value> q, ArrayRef<Value> start,
                              llvm::function_ref<void(int64_t, Value)> use) {
  if (inPairs())
    return pairDots(groups.front(), column, q, start, use);
  const VectorType bytes = b.vector(4 * lanes, b.getI8Type());
  auto constant = [&](int8_t value) -> Value {
    return arith::ConstantOp::create(
        b, DenseElementsAttr::get(bytes, b.getI8IntegerAttr(value)));
  };
  const bool eightBits = isEightBits();
  SmallVector<GroupDot> dots;
  for (Value value : start)
    dots.emplace_back(b, row.isa, eightBits).start(value);
  const int64_t chunks = groupBytes / chunkBytes;
  Values panels;
  for (Value group : groups)
    panels.push_back(b.at(group, b.mul(column, 4)));
  auto load = [&](Value panel, int64_t chunk, int64_t v) {
    Value line = b.at(panel, chunk * chunkBytes);
    if (v == 0)
      prefetch(line);
    return b.load(bytes, b.at(line, b.scaled(v * 4 * lanes)));
  };
  // The lower halves of bytes, or the upper ones.
  auto nibbles = [&](Value packed, int64_t half) -> Value {
    if (half == 0)
      return arith::AndIOp::create(b, packed, constant(15));
    return arith::ShRUIOp::create(b, packed, constant(4));
  };
  auto addStep = [&](Value w, int64_t step, int64_t v) {
    for (size_t r = 0; r < q.size(); ++r)
      dots[r * vectors + v].step(w, activations(q[r], step), step % 4);
  };
  auto addChunk = [&](int64_t chunk, int64_t v) {
    Value packed = load(panels.front(), chunk, v);
    if (eightBits) {
      // w + 128 is w with its sign bit flipped.
      if (isUnsignedDot(row.isa))
        packed = arith::XOrIOp::create(b, packed, constant(-128));
      addStep(packed, chunk, v);
      return;
    }
    for (int64_t half : {0, 1})
      addStep(nibbles(packed, half), chunk + half * chunks, v);
  };
  auto finishVector = [&](int64_t v) {
    for (size_t r = 0; r < q.size(); ++r)
      use(r * vectors + v, dots[r * vectors + v].finish());
  };
  if (holdsOrder()) {
    const int64_t halves = eightBits ? 1 : 2;
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      auto x = [&](size_t r, int64_t half) {
        return activations(q[r], chunk + half * chunks);
      };
      // Those of several tokens are loaded again for each panel.
      Values shared;
      if (q.size() == 1) {
        b.keepLoadsInOrder();
        for (int64_t half = 0; half < halves; ++half)
          shared.push_back(x(0, half));
      }
      for (size_t p = 0; p < panels.size(); ++p) {
        Values packed;
        for (int64_t v = 0; v < vectors; ++v)
          packed.push_back(load(panels[p], chunk, v));
        for (int64_t half = 0; half < halves; ++half) {
          Values w;
          for (Value both : packed)
            w.push_back(eightBits ? both : nibbles(both, half));
          for (size_t r = 0; r < q.size(); ++r) {
            b.keepLoadsInOrder();
            Value of = shared.empty() ? x(r, half) : shared[half];
            for (int64_t v = 0; v < vectors; ++v) {
              GroupDot &dot = dots[(p * q.size() + r) * vectors + v];
              dot.step(w[v], of, (chunk + half * chunks) % 4);
              dot.keepOrder();
            }
          }
        }
      }
    }
    b.keepLoadsInOrder();
    for (size_t i = 0; i < dots.size(); ++i)
      use(i, dots[i].finish());
    return;
  }
  if (schedule.inTurn != 0) {
    for (int64_t v = 0; v < vectors; ++v) {
      for (int64_t chunk = 0; chunk < chunks; ++chunk)
        addChunk(chunk, v);
      finishVector(v);
    }
    return;
  }
  for (int64_t chunk = 0; chunk < chunks; ++chunk)
    for (int64_t v = 0; v < vectors; ++v)
      addChunk(chunk, v);
  for (int64_t v = 0; v < vectors; ++v)
    finishVector(v);
}

/// groupDots in pairs: smmla multiplies 8 activations of two tokens with 8
/// weights of two outputs.
void LinearEmitter::pairDots(Value group, Value column, ArrayRef<Value> q,
                             ArrayRef<Value> start,
                             llvm::function_ref<void(int64_t, Value)> use) {
  const VectorType bytes = b.vector(16, b.getI8Type());
  const VectorType words = b.vector(4, b.getI32Type());
  const bool eightBits = isEightBits();
  auto constant = [&](int8_t value) -> Value {
    return arith::ConstantOp::create(
        b, DenseElementsAttr::get(bytes, b.getI8IntegerAttr(value)));
  };
  // Of each pair of tokens: activations 8 * step .. 8 * step + 7.
  constexpr int64_t steps = kGroup / 8;
  SmallVector<Values> x;
  for (size_t r = 0; r < q.size(); r += 2) {
    Values &pair = x.emplace_back();
    for (int64_t step = 0; step < steps; ++step)
      pair.push_back(b.permuted("trn", 64, sixteen(q[r], step / 2 * 16),
                                sixteen(q[r + 1], step / 2 * 16),
                                step % 2 != 0));
  }
  Value columnChunks = b.at(group, b.mul(column, 4));
  for (int64_t v = 0; v < vectors; ++v) {
    auto index = [&](size_t pair, size_t half) {
      return int64_t(2 * pair + half) * vectors + v;
    };
    Values dots[2];
    for (size_t half : {0, 1})
      for (size_t pair = 0; pair < x.size(); ++pair) {
        Value from = start[index(pair, half)];
        dots[half].push_back(
            from ? from
                 : Value(arith::ConstantOp::create(b, b.getZeroAttr(words))));
      }
    auto multiply = [&](size_t half, int64_t step, Value w) {
      for (auto [dot, pair] : llvm::zip_equal(dots[half], x))
        dot =
            row.isa == KernelIsa::NEONI8MM
                ? Value(arm_neon::SmmlaOp::create(b, words, dot, pair[step], w))
                : b.intrinsic(words, "llvm.aarch64.sve.smmla.nxv4i32",
                              {dot, pair[step], w});
    };
    auto chunk = [&](int64_t i) {
      Value line = b.at(columnChunks, i * chunkBytes);
      return b.load(bytes, b.at(line, b.scaled(v * 16)));
    };
    for (int64_t first = 0; first < groupBytes / chunkBytes; first += 2) {
      Value even = chunk(first), odd = chunk(first + 1);
      for (size_t half : {0, 1}) {
        // 8 bytes of two outputs, from two chunks with 4 of each.
        Value packed = b.permuted("zip", 32, even, odd, half != 0);
        if (eightBits) {
          multiply(half, first / 2, packed);
          continue;
        }
        multiply(half, first / 2,
                 arith::AndIOp::create(b, packed, constant(15)));
        multiply(half, first / 2 + steps / 2,
                 arith::ShRUIOp::create(b, packed, constant(4)));
      }
    }
    for (size_t half : {0, 1})
      for (size_t pair = 0; pair < x.size(); ++pair)
        use(index(pair, half), dots[half][pair]);
  }
}

/// Stores a tile at the outputs from `output` on, with bias and residual.
void LinearEmitter::finishTile(Value output, ArrayRef<Value> rows,
                               Values tile) {
  if (inPairs())
    for (size_t r = 0; r < rows.size(); r += 2)
      for (int64_t v = 0; v < vectors; ++v) {
        Value &first = tile[r * vectors + v],
              &second = tile[(r + 1) * vectors + v];
        Value low = first, high = second;
        first = b.permuted("uzp", 64, low, high, false);
        second = b.permuted("uzp", 64, low, high, true);
      }
  arguments.store(b, output, rows, std::move(tile), lanes);
}

SmallVector<Type> qwen::linearSignature(const KernelInfo &row,
                                        MLIRContext *context) {
  const unsigned pointers = isQuantized(row.format) ? 7 : 5;
  SmallVector<Type> types(pointers, ProductBuilder::pointerType(context));
  types.append(5, IntegerType::get(context, 64));
  return types;
}

LinearArguments::LinearArguments(ProductBuilder &b, KernelFormat format) {
  unsigned next = 0;
  q = b.argument(next++);
  if (isQuantized(format)) {
    d = b.argument(next++);
    sums = b.argument(next++);
  }
  for (Value *value :
       {&weights, &bias, &residual, &out, &m, &k, &ld, &panelBegin, &panelEnd})
    *value = b.argument(next++);
}

Value LinearArguments::panelStride(ProductBuilder &b,
                                   WeightFormat format) const {
  Value values = b.mul(b.shiftRight(k, 5), panelGroupBytes(format));
  if (!isQuantized(format))
    return values;
  const int64_t block = weightBlock(format);
  Value blocks = b.shiftRight(b.add(k, b.integer(block - 1)),
                              std::countr_zero(uint64_t(block)));
  return b.add(values, b.mul(blocks, kPanelScaleBytes));
}

Value LinearArguments::activationBlocks(ProductBuilder &b) const {
  return b.shiftRight(b.add(k, b.integer(kActivationBlock - 1)), 7);
}

void LinearArguments::store(ProductBuilder &b, Value output,
                            ArrayRef<Value> rows, Values tile,
                            int64_t lanes) const {
  const auto vectors = int64_t(tile.size() / rows.size());
  Value column = b.mul(output, 4);
  auto addressOf = [&](Value base, Value r, int64_t v) {
    Value offset = b.add(b.mul(b.mul(r, ld), 4), column);
    return b.at(b.at(base, offset), b.scaled(v * lanes * 4));
  };
  auto addLoaded = [&](auto address) {
    Values sum;
    for (size_t r = 0; r < rows.size(); ++r)
      for (int64_t v = 0; v < vectors; ++v) {
        Value other = b.loadFloats(lanes, b.getF32Type(), address(rows[r], v));
        sum.push_back(arith::AddFOp::create(b, tile[r * vectors + v], other));
      }
    return sum;
  };
  tile = b.unlessNull(bias, tile, [&] {
    return addLoaded([&](Value, int64_t v) {
      return b.at(b.at(bias, column), b.scaled(v * lanes * 4));
    });
  });
  tile = b.unlessNull(residual, tile, [&] {
    return addLoaded(
        [&](Value r, int64_t v) { return addressOf(residual, r, v); });
  });
  for (size_t r = 0; r < rows.size(); ++r)
    for (int64_t v = 0; v < vectors; ++v)
      b.store(tile[r * vectors + v], addressOf(out, rows[r], v));
}

void qwen::emitLinear(const KernelInfo &row, const KernelSchedule &schedule,
                      ModuleOp module) {
  LinearEmitter(row, schedule, module).emit();
}
