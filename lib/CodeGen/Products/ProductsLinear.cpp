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

#include "LinearHeldOrder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include <bit>
#include <optional>

using namespace qwen;
using namespace mlir;

namespace {
/// Emits one kernel.
class LinearEmitter {
public:
  LinearEmitter(const KernelInfo &kernel, const KernelSchedule &schedule,
                ModuleOp module)
      : tile(kernel, schedule, module), b(tile.b), arguments(b, kernel.format) {
  }

  void emit();

private:
  void forEachColumns(llvm::function_ref<void(Value)> body);
  void emitPanels(ArrayRef<Value> numbers, Value bytes);
  void emitColumns(ArrayRef<LinearPanel> panels, Value column);
  SmallVector<Values> floatTiles(ArrayRef<LinearPanel> panels, Value column,
                                 ArrayRef<Value> rows);
  SmallVector<Values> quantizedTiles(ArrayRef<LinearPanel> panels, Value column,
                                     ArrayRef<Value> rows);
  Values addBlock(ArrayRef<LinearPanel> panels, Value column,
                  ArrayRef<ActivationRow> rows, Value block, ValueRange totals,
                  const GroupSpan &span);
  Values panelSums(ArrayRef<LinearPanel> panels, Value column,
                   ArrayRef<ActivationRow> rows, const GroupSpan &span);
  Values heldPanelSums(ArrayRef<LinearPanel> panels, Value column,
                       ArrayRef<ActivationRow> rows, const GroupSpan &span);
  Values widePanelSums(ArrayRef<LinearPanel> panels, Value column,
                       ArrayRef<ActivationRow> rows, Value block,
                       const GroupSpan &span);
  Values wideDots(ArrayRef<Value> scales, Value column,
                  ArrayRef<ActivationRow> rows, const GroupSpan &span);
  void finishTile(Value output, ArrayRef<Value> rows, Values sums);

  /// By a power of two.
  Value divide(Value value, int64_t divisor) {
    return b.shiftRight(value, std::countr_zero(uint64_t(divisor)));
  }
  /// The sum of a row's activations of group `g`.
  Value sumOf(const ActivationRow &kernel, Value g) {
    return b.load(b.getI32Type(), b.at(kernel.sums, b.mul(g, 4)));
  }
  /// The activations of group `g` of a row.
  Value groupOf(const ActivationRow &kernel, Value g) {
    return b.at(kernel.q, b.mul(g, kGroup));
  }

  LinearTile tile;
  ProductBuilder &b;
  const LinearArguments arguments;
  /// Where holdsOrder().
  std::optional<HeldSums> held;
};
} // namespace

void LinearEmitter::emit() {
  if (holdsOrder(tile))
    held.emplace(tile);
  Value bytes = arguments.panelStride(b, tile.format);
  Value first = arguments.panelBegin, last = arguments.panelEnd;
  // What is left of few panels has fewer streams.
  for (int64_t streams = tile.schedule.streams; streams > 1; streams /= 2) {
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

/// Calls `body` for the first of the outputs of each tile in a panel, with
/// `tile.vectors` set to what the tile takes.
void LinearEmitter::forEachColumns(llvm::function_ref<void(Value)> body) {
  if (tile.b.isScalable())
    return b.forEachVector(b.integer(kPanelOutputs), tile.vectors,
                           [&](Value column, int64_t count) {
                             tile.vectors = count;
                             body(column);
                           });
  if (tile.vectors * tile.lanes == kPanelOutputs)
    return body(b.integer(0));
  b.loop(b.integer(0), b.integer(kPanelOutputs), tile.vectors * tile.lanes,
         body);
}

/// The panels of these numbers, of `bytes` each, together.
void LinearEmitter::emitPanels(ArrayRef<Value> numbers, Value bytes) {
  SmallVector<LinearPanel> panels;
  for (Value number : numbers)
    panels.push_back({number, b.at(arguments.weights, b.mul(number, bytes))});
  forEachColumns([&](Value column) { emitColumns(panels, column); });
}

/// The tiles of the panels' outputs from `column` on.
void LinearEmitter::emitColumns(ArrayRef<LinearPanel> panels, Value column) {
  b.loop(b.integer(0), arguments.m, tile.schedule.tokens, [&](Value firstRow) {
    Values rows;
    for (int64_t r = 0; r < tile.schedule.tokens; ++r)
      rows.push_back(b.add(firstRow, b.integer(r)));
    SmallVector<Values> tiles = isQuantized(tile.format)
                                    ? quantizedTiles(panels, column, rows)
                                    : floatTiles(panels, column, rows);
    for (auto [panel, sums] : llvm::zip_equal(panels, tiles))
      finishTile(b.add(b.mul(panel.number, kPanelOutputs), column), rows, sums);
  });
}

SmallVector<Values> LinearEmitter::floatTiles(ArrayRef<LinearPanel> panels,
                                              Value column,
                                              ArrayRef<Value> rows) {
  Values from;
  for (Value r : rows)
    from.push_back(b.at(arguments.q, b.mul(b.mul(r, arguments.k), 4)));
  const int64_t bytes = tile.groupBytes / (kGroup * kPanelOutputs);
  const Type stored =
      tile.format == WeightFormat::BF16 ? b.getBF16Type() : b.getF32Type();
  SmallVector<Values> tiles;
  for (const LinearPanel &panel : panels)
    tiles.push_back(b.chains(from, b.at(panel.weights, b.mul(column, bytes)),
                             b.integer(kPanelOutputs * bytes), stored,
                             arguments.k, tile.vectors * tile.lanes,
                             tile.lanes));
  return tiles;
}

/// acc = fma(t, d_a, acc) over an activation block, for each panel.
Values LinearEmitter::addBlock(ArrayRef<LinearPanel> panels, Value column,
                               ArrayRef<ActivationRow> rows, Value block,
                               ValueRange totals, const GroupSpan &span) {
  const VectorType type = b.vector(tile.lanes, b.getF32Type());
  Values t = weightBlock(tile.format) != kGroup
                 ? widePanelSums(panels, column, rows, block, span)
             : held ? heldPanelSums(panels, column, rows, span)
                    : panelSums(panels, column, rows, span);
  Values scales, result;
  for (const ActivationRow &row : rows)
    scales.push_back(b.load(b.getF32Type(), b.at(row.d, b.mul(block, 4))));
  for (size_t p = 0; p < panels.size(); ++p)
    for (size_t r = 0; r < rows.size(); ++r) {
      Value scale = forToken(tile, type, scales, r);
      for (int64_t v = 0; v < tile.vectors; ++v) {
        const size_t i = result.size();
        result.push_back(math::FmaOp::create(b, t[i], scale, totals[i]));
      }
    }
  return result;
}

/// The sums over all activation blocks, for each panel.
SmallVector<Values> LinearEmitter::quantizedTiles(ArrayRef<LinearPanel> panels,
                                                  Value column,
                                                  ArrayRef<Value> rows) {
  const VectorType type = b.vector(tile.lanes, b.getF32Type());
  Value groups = divide(arguments.k, kGroup);
  Value blocks = arguments.activationBlocks(b);
  SmallVector<ActivationRow> from;
  for (Value r : rows)
    from.push_back({b.at(arguments.q, b.mul(r, arguments.k)),
                    b.at(arguments.d, b.mul(b.mul(r, blocks), 4)),
                    b.at(arguments.sums, b.mul(b.mul(r, groups), 4))});
  const size_t tileSize = rows.size() * tile.vectors;
  Values sums(panels.size() * tileSize, b.zeros(type));
  Value done = b.integer(0);
  if (tile.schedule.unroll > 1) {
    Value whole = divide(groups, kBlockGroups);
    sums = b.loop(done, whole, 1, sums, [&](Value block, ValueRange totals) {
      Value first = b.mul(block, kBlockGroups);
      Value last = b.add(first, b.integer(kBlockGroups));
      return addBlock(panels, column, from, block, totals,
                      {first, last, tile.schedule.unroll});
    });
    done = whole;
  }
  sums = b.loop(done, blocks, 1, sums, [&](Value block, ValueRange totals) {
    Value first = b.mul(block, kBlockGroups);
    Value last = b.smaller(groups, b.add(first, b.integer(kBlockGroups)));
    return addBlock(panels, column, from, block, totals, {first, last, 1});
  });
  SmallVector<Values> tiles;
  for (size_t p = 0; p < panels.size(); ++p)
    tiles.emplace_back(ArrayRef(sums).slice(p * tileSize, tileSize));
  return tiles;
}

/// Of each panel, t = the fma chain of isum * d_w over the groups of `span`,
/// which have their own scales. t starts from -0, with which the first fma is
/// the rounded product that docs/numerics.md asks for.
Values LinearEmitter::panelSums(ArrayRef<LinearPanel> panels, Value column,
                                ArrayRef<ActivationRow> rows,
                                const GroupSpan &span) {
  const VectorType type = b.vector(tile.lanes, b.getF32Type());
  const size_t tileSize = rows.size() * tile.vectors;
  const Values none(panels.size() * tileSize, b.zeros(type, -0.0f));
  return overGroups(tile, span, none, [&](Value g, ValueRange previous) {
    Values groups, q, sums, start;
    for (const LinearPanel &panel : panels)
      groups.push_back(
          b.at(panel.weights, b.mul(g, panelBlockBytes(tile.format))));
    for (const ActivationRow &row : rows) {
      q.push_back(groupOf(row, g));
      sums.push_back(sumOf(row, g));
    }
    for (size_t r = 0; r < rows.size(); ++r)
      for (int64_t v = 0; v < tile.vectors; ++v)
        start.push_back(correction(tile, sums, r, v));
    Values result(previous);
    for (auto [p, group] : llvm::enumerate(groups)) {
      prefetch(tile, group);
      groupDots(tile, b.at(group, panelHeaderBytes(tile.format)), column, q,
                start, [&, first = p * tileSize](int64_t i, Value dot) {
                  result[first + i] =
                      scaled(tile, dot, b.at(group, b.mul(column, 2)), i,
                             previous[first + i]);
                });
    }
    return result;
  });
}

/// panelSums in the order of the code, with t in memory.
Values LinearEmitter::heldPanelSums(ArrayRef<LinearPanel> panels, Value column,
                                    ArrayRef<ActivationRow> rows,
                                    const GroupSpan &span) {
  const VectorType type = b.vector(tile.lanes, b.getF32Type());
  const size_t tileSize = rows.size() * tile.vectors;
  const Values none(panels.size() * tileSize, b.zeros(type, -0.0f));
  held->store(none);
  overGroups(tile, span, {}, [&](Value g, ValueRange) {
    Values groups, chunks, q;
    for (const LinearPanel &panel : panels) {
      groups.push_back(
          b.at(panel.weights, b.mul(g, panelBlockBytes(tile.format))));
      chunks.push_back(b.at(groups.back(), panelHeaderBytes(tile.format)));
      prefetch(tile, groups.back());
    }
    for (const ActivationRow &row : rows)
      q.push_back(groupOf(row, g));
    // Computed where they are first added.
    Values sums(rows.size()), lacking(rows.size());
    heldDots(tile, chunks, column, q, [&](int64_t i, Value dot) {
      const auto inTile = int64_t(i % tileSize);
      const size_t r = inTile / tile.vectors;
      if (tile.isCorrected()) {
        if (!lacking[r]) {
          sums[r] = sumOf(rows[r], g);
          lacking[r] = correction(tile, sums, r, 0);
        }
        dot = arith::AddIOp::create(b, dot, lacking[r]);
      }
      Value scales = b.at(groups[i / tileSize], b.mul(column, 2));
      held->store(scaled(tile, dot, scales, inTile, held->load(type, i)), i);
    });
    return Values();
  });
  return held->load(type, none.size());
}

/// The dots of the groups of `span`, whose panels begin with scales at
/// `scales`, and then for each row the sum of its activations.
Values LinearEmitter::wideDots(ArrayRef<Value> scales, Value column,
                               ArrayRef<ActivationRow> rows,
                               const GroupSpan &span) {
  const VectorType integers = b.vector(tile.lanes, b.getI32Type());
  const size_t tileSize = rows.size() * tile.vectors;
  const size_t count = scales.size() * tileSize;
  Values none(count, arith::ConstantOp::create(b, b.getZeroAttr(integers)));
  if (held) {
    held->store(none);
    none.clear();
  }
  const size_t carried = none.size();
  none.append(rows.size(),
              arith::ConstantOp::create(b, b.getI32IntegerAttr(0)));
  Values sums = overGroups(tile, span, none, [&](Value g, ValueRange before) {
    Value offset =
        b.mul(arith::SubIOp::create(b, g, span.first), tile.groupBytes);
    Values q, result(before);
    for (auto [r, row] : llvm::enumerate(rows)) {
      q.push_back(groupOf(row, g));
      result[carried + r] =
          arith::AddIOp::create(b, before[carried + r], sumOf(row, g));
    }
    Values chunks;
    for (Value panel : scales)
      chunks.push_back(
          b.at(b.at(panel, panelHeaderBytes(tile.format)), offset));
    if (held) {
      heldDots(tile, chunks, column, q, [&](int64_t i, Value dot) {
        held->store(arith::AddIOp::create(b, held->load(integers, i), dot), i);
      });
      return result;
    }
    for (auto [p, panel] : llvm::enumerate(chunks))
      groupDots(tile, panel, column, q,
                Values(before.slice(p * tileSize, tileSize)),
                [&, first = p * tileSize](int64_t i, Value dot) {
                  result[first + i] = dot;
                });
    return result;
  });
  if (!held)
    return sums;
  Values dots = held->load(integers, count);
  dots.append(sums);
  return dots;
}

/// panelSums where the groups of an activation block share one scale: their
/// dots are added as integers.
Values LinearEmitter::widePanelSums(ArrayRef<LinearPanel> panels, Value column,
                                    ArrayRef<ActivationRow> rows, Value block,
                                    const GroupSpan &span) {
  const VectorType type = b.vector(tile.lanes, b.getF32Type());
  Values scales;
  for (const LinearPanel &panel : panels) {
    scales.push_back(
        b.at(panel.weights, b.mul(block, panelBlockBytes(tile.format))));
    prefetch(tile, scales.back());
  }
  const Values dots = wideDots(scales, column, rows, span);
  const size_t tileSize = rows.size() * tile.vectors;
  const size_t count = panels.size() * tileSize;
  const ArrayRef<Value> sums = ArrayRef(dots).drop_front(count);
  Values result;
  for (size_t i = 0; i < count; ++i) {
    const auto inTile = int64_t(i % tileSize);
    Value dot = arith::AddIOp::create(
        b, dots[i],
        correction(tile, sums, inTile / tile.vectors, inTile % tile.vectors));
    result.push_back(scaled(tile, dot,
                            b.at(scales[i / tileSize], b.mul(column, 2)),
                            inTile, b.zeros(type, -0.0f)));
  }
  return result;
}

/// Stores a tile at the outputs from `output` on, with bias and residual.
void LinearEmitter::finishTile(Value output, ArrayRef<Value> rows,
                               Values sums) {
  if (tile.inPairs())
    for (size_t r = 0; r < rows.size(); r += 2)
      for (int64_t v = 0; v < tile.vectors; ++v) {
        Value &first = sums[r * tile.vectors + v],
              &second = sums[(r + 1) * tile.vectors + v];
        Value low = first, high = second;
        first = b.permuted("uzp", 64, low, high, false);
        second = b.permuted("uzp", 64, low, high, true);
      }
  arguments.store(b, output, rows, std::move(sums), tile.lanes);
}

void qwen::emitLinear(const KernelInfo &kernel, const KernelSchedule &schedule,
                      ModuleOp module) {
  LinearEmitter(kernel, schedule, module).emit();
}
