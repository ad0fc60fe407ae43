//===- Product.cpp - The function of a product with a packed matrix -------===//
//
// The order of every accumulation is docs/numerics.md's; layouts are
// Blocks.h's.
//
//===----------------------------------------------------------------------===//

#include "Product.h"
#include <bit>

using namespace qwen;
using namespace mlir;

Product::Product(const KernelInfo &kernel, ModuleOp module, ByteForm form)
    : kernel(kernel), isa(isaInfo(kernel.isa)),
      format(*weightFormat(kernel.format)), b(kernel, module) {
  if (isQuantized(kernel.format))
    unpack.emplace(format, form, isa.dot);
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

Value Product::panelStride() {
  Value values = b.mul(groups(), panelGroupBytes(format));
  if (!unpack)
    return values;
  const int64_t block = weightBlock(format);
  Value blocks = b.shiftRight(b.add(k, b.integer(block - 1)),
                              std::countr_zero(uint64_t(block)));
  return b.add(values, b.mul(blocks, panelHeaderBytes(format)));
}

void Product::overGroups(const GroupSpan &span, Values &carried,
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

void Product::overBlocks(const GroupSpan &span, Values &carried,
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

Value Product::blockOf(Value g) {
  return b.shiftRight(g,
                      std::countr_zero(uint64_t(weightBlock(format) / kGroup)));
}

void Product::prefetchStore(Value output, ArrayRef<Value> tokens) {
  Value added = b.choose(
      b.isNull(residual), [&] { return Values{out}; },
      [&] { return Values{residual}; })[0];
  for (Value matrix : {out, added})
    for (Value token : tokens)
      b.prefetch(outputAt(matrix, token, output));
}

void Product::store(Value output, ArrayRef<Value> tokens, Values tile,
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
        sum.push_back(b.addF(tile[t * vectors + v], other));
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

void TileLoops::overPanels(PanelsBody body) {
  // Several tokens share loads and unpacking, so that these matter less.
  if (p.b.isScalable() && p.unpack && p.kernel.m == 1)
    p.b.byLength([&] { overAll(body); }, [&] { overAll(body); });
  else
    overAll(body);
  p.b.finish();
}

void TileLoops::overAll(PanelsBody body) {
  Value stride = p.panelStride();
  nextPanel = p.b.mul(stride, abreast);
  Value first = p.panelBegin;
  // Fewer panels than streams: the rest has fewer streams.
  for (int64_t count = streams; count > 1; count /= 2)
    first = overTogether(first, count, /*neighbours=*/false, stride, body);
  if (abreast > 1)
    first = overTogether(first, abreast, /*neighbours=*/true, stride, body);
  p.b.loop(first, p.panelEnd, 1,
           [&](Value panel) { overVectors(panel, stride, body); });
}

/// The panels from `first` on, `count` together: neighbours, or one of each of
/// `count` streams. Returns the first of the panels that are left.
Value TileLoops::overTogether(Value first, int64_t count, bool neighbours,
                              Value stride, PanelsBody body) {
  ProductBuilder &b = p.b;
  Value each =
      b.shiftRight(b.sub(p.panelEnd, first), std::countr_zero(uint64_t(count)));
  auto rest = [&] { return b.add(first, b.mul(each, count)); };
  Value end = neighbours ? rest() : b.add(first, each);
  Value distance = neighbours ? b.integer(1) : each;
  b.loop(first, end, neighbours ? count : 1, [&](Value panel) {
    Values numbers = {panel};
    while (int64_t(numbers.size()) < count)
      numbers.push_back(b.add(numbers.back(), distance));
    overVectors(numbers, stride, body);
  });
  return neighbours ? end : rest();
}

/// The panels of these numbers together.
void TileLoops::overVectors(ArrayRef<Value> numbers, Value stride,
                            PanelsBody body) {
  ProductBuilder &b = p.b;
  SmallVector<Panel> panels;
  for (Value number : numbers)
    panels.push_back({number, b.at(p.weights, b.mul(number, stride))});
  if (b.isScalable())
    return b.forEachVector(b.integer(kPanelOutputs), tileVectors,
                           [&](Value output, int64_t count) {
                             vectors = count;
                             body(panels, output);
                           });
  if (vectors * lanes == kPanelOutputs)
    return body(panels, b.integer(0));
  b.loop(b.integer(0), b.integer(kPanelOutputs), vectors * lanes,
         [&](Value output) { body(panels, output); });
}

Values TileLoops::tokensFrom(Value first) {
  Values result;
  for (int64_t t = 0; t < tokens; ++t)
    result.push_back(p.b.add(first, p.b.integer(t)));
  return result;
}

void TileLoops::overTiles(bool prefetches, TileSumsOf sumsOf) {
  overPanels([&](ArrayRef<Panel> panels, Value output) {
    p.b.loop(p.b.integer(0), p.m, tokens, [&](Value first) {
      const Values tile = tokensFrom(first);
      if (prefetches)
        for (const Panel &panel : panels)
          p.prefetchStore(outputOf(panel, output), tile);
      const SmallVector<Values> sums = sumsOf(panels, output, tile);
      for (auto [panel, ofPanel] : llvm::zip_equal(panels, sums))
        p.store(outputOf(panel, output), tile, ofPanel, lanes);
    });
  });
}
