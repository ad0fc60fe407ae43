//===- Linear.cpp - Products with a packed matrix -------------------------===//
//
// The base of all orders, and the loops of the orders that hold the sums of a
// tile in registers:
//
//   for each panel of 16 outputs, or of each of several streams of them
//     for each tile of tokens and outputs
//       sums along K: Chains.cpp, GroupDots.cpp
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

#include "Linear.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include <bit>

using namespace qwen;
using namespace mlir;

Linear::Linear(const KernelInfo &kernel, ModuleOp module, ByteForm form)
    : kernel(kernel), isa(isaInfo(kernel.isa)),
      format(*weightFormat(kernel.format)),
      unpack(makeUnpack(format, form, isa.dot)), b(kernel, module) {
  unsigned next = 0;
  q = b.argument(next++);
  if (unpack) {
    d = b.argument(next++);
    sums = b.argument(next++);
  }
  for (Value *value :
       {&weights, &bias, &residual, &out, &m, &k, &ld, &panelBegin, &panelEnd})
    *value = b.argument(next++);
}

Value Linear::panelStride() {
  Value values = b.mul(groups(), panelGroupBytes(format));
  if (!unpack)
    return values;
  const int64_t block = weightBlock(format);
  Value blocks = b.shiftRight(b.add(k, b.integer(block - 1)),
                              std::countr_zero(uint64_t(block)));
  return b.add(values, b.mul(blocks, panelHeaderBytes(format)));
}

Value Linear::activationBlocks() {
  return b.shiftRight(b.add(k, b.integer(kActivationBlock - 1)), 7);
}

void Linear::overGroups(const GroupSpan &span, Values &carried,
                        function_ref<void(Value)> body) {
  auto pass = [&](Value g, ValueRange before) {
    carried = Values(before);
    for (int64_t i = 0; i < span.each; ++i)
      body(b.add(g, b.integer(i)));
    return carried;
  };
  const Values start = carried;
  carried = span.each == span.most
                ? pass(span.first, start)
                : b.loop(span.first, span.last, span.each, start, pass);
}

void Linear::overBlocks(const GroupSpan &span, Values &carried,
                        function_ref<void(const GroupSpan &)> body) {
  const int64_t size = weightBlock(format) / kGroup;
  if (size >= kBlockGroups)
    return body(span);
  const int64_t each = std::max(span.each, size);
  auto pass = [&](Value g, ValueRange before) {
    carried = Values(before);
    for (int64_t i = 0; i < each; i += size) {
      Value first = b.add(g, b.integer(i)),
            last = b.add(first, b.integer(size));
      if (span.each < size)
        last = b.smaller(last, span.last);
      body({first, last, std::min(span.each, size), size});
    }
    return carried;
  };
  const Values start = carried;
  carried = span.each == span.most
                ? pass(span.first, start)
                : b.loop(span.first, span.last, each, start, pass);
}

Value Linear::blockOf(Value g) {
  return b.shiftRight(g,
                      std::countr_zero(uint64_t(weightBlock(format) / kGroup)));
}

void Linear::prefetchStore(Value output, ArrayRef<Value> tokens) {
  Value added = b.choose(
      b.isNull(residual), [&] { return Values{out}; },
      [&] { return Values{residual}; })[0];
  for (Value matrix : {out, added})
    for (Value token : tokens)
      b.prefetch(outputAt(matrix, token, output));
}

void Linear::store(Value output, ArrayRef<Value> tokens, Values tile,
                   int64_t lanes) {
  const auto vectors = int64_t(tile.size() / tokens.size());
  auto addressOf = [&](Value base, Value token, int64_t v) {
    return b.at(outputAt(base, token, output), b.scaled(v * lanes * 4));
  };
  auto addLoaded = [&](auto address) {
    Values sum;
    for (size_t t = 0; t < tokens.size(); ++t)
      for (int64_t v = 0; v < vectors; ++v) {
        Value other =
            b.loadFloats(lanes, b.getF32Type(), address(tokens[t], v));
        sum.push_back(arith::AddFOp::create(b, tile[t * vectors + v], other));
      }
    return sum;
  };
  tile = b.unlessNull(bias, tile, [&] {
    return addLoaded([&](Value, int64_t v) {
      return b.at(b.at(bias, b.mul(output, 4)), b.scaled(v * lanes * 4));
    });
  });
  tile = b.unlessNull(residual, tile, [&] {
    return addLoaded(
        [&](Value token, int64_t v) { return addressOf(residual, token, v); });
  });
  for (size_t t = 0; t < tokens.size(); ++t)
    for (int64_t v = 0; v < vectors; ++v)
      b.store(tile[t * vectors + v], addressOf(out, tokens[t], v));
}

void TileOrder::emit() {
  // Several tokens share loads and unpacking, so that these matter less.
  if (b.isScalable() && unpack && kernel.m == 1)
    b.byLength([&] { emitAll(); }, [&] { emitAll(); });
  else
    emitAll();
  b.finish();
}

void TileOrder::emitAll() {
  Value stride = panelStride();
  nextPanel = b.mul(stride, abreast);
  Value first = panelBegin;
  // Fewer panels than streams: the rest has fewer streams.
  for (int64_t streams = schedule.streams; streams > 1; streams /= 2)
    first = emitTogether(first, streams, /*neighbours=*/false, stride);
  if (abreast > 1)
    first = emitTogether(first, abreast, /*neighbours=*/true, stride);
  b.loop(first, panelEnd, 1, [&](Value panel) { emitPanels(panel, stride); });
}

/// The panels from `first` on, `count` together: neighbours, or one of each of
/// `count` streams. Returns the first of the panels that are left.
Value TileOrder::emitTogether(Value first, int64_t count, bool neighbours,
                              Value stride) {
  Value each = b.shiftRight(arith::SubIOp::create(b, panelEnd, first),
                            std::countr_zero(uint64_t(count)));
  auto rest = [&] { return b.add(first, b.mul(each, count)); };
  Value end = neighbours ? rest() : b.add(first, each);
  Value distance = neighbours ? b.integer(1) : each;
  b.loop(first, end, neighbours ? count : 1, [&](Value panel) {
    Values numbers = {panel};
    while (int64_t(numbers.size()) < count)
      numbers.push_back(b.add(numbers.back(), distance));
    emitPanels(numbers, stride);
  });
  return neighbours ? end : rest();
}

/// The panels of these numbers together.
void TileOrder::emitPanels(ArrayRef<Value> numbers, Value stride) {
  SmallVector<Panel> panels;
  for (Value number : numbers)
    panels.push_back({number, b.at(weights, b.mul(number, stride))});
  if (b.isScalable())
    return b.forEachVector(b.integer(kPanelOutputs), schedule.vectors,
                           [&](Value output, int64_t count) {
                             vectors = count;
                             emitTiles(panels, output);
                           });
  if (vectors * lanes == kPanelOutputs)
    return emitTiles(panels, b.integer(0));
  b.loop(b.integer(0), b.integer(kPanelOutputs), vectors * lanes,
         [&](Value output) { emitTiles(panels, output); });
}

void TileOrder::emitTiles(ArrayRef<Panel> panels, Value output) {
  b.loop(b.integer(0), m, schedule.tokens, [&](Value first) {
    Values tokens;
    for (int64_t t = 0; t < schedule.tokens; ++t)
      tokens.push_back(b.add(first, b.integer(t)));
    if (schedule.prefetch == 1)
      for (const Panel &panel : panels)
        prefetchStore(outputOf(panel, output), tokens);
    SmallVector<Values> tiles = tileSums(panels, output, tokens);
    for (auto [panel, tile] : llvm::zip_equal(panels, tiles))
      store(outputOf(panel, output), tokens, tile, lanes);
  });
}
