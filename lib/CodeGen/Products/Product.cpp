//===- Product.cpp - The function of a product with a packed matrix -------===//
//
// The order of every accumulation is docs/numerics.md's; layouts are
// Blocks.h's.
//
//===----------------------------------------------------------------------===//

#include "Product.h"

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
  return b.add(values, b.mul(b.div(b.add(k, block - 1), block),
                             panelHeaderBytes(format)));
}

/// Calls body(g) for every `step`-th group of a span, in passes of `each`.
void Product::overSteps(const GroupSpan &span, int64_t each, int64_t step,
                        Values &carried, function_ref<void(Value)> body) {
  auto pass = [&](Value g, ValueRange before) {
    carried = Values(before);
    for (int64_t i = 0; i < each; i += step)
      body(b.add(g, i));
    return carried;
  };
  const Values start = carried;
  carried = span.each == span.most
                ? pass(span.first, start)
                : b.loop(span.first, span.last, each, start, pass);
}

void Product::overBlocks(const GroupSpan &span, Values &carried,
                         function_ref<void(const GroupSpan &)> body) {
  const int64_t size = blockGroups;
  if (size >= kBlockGroups)
    return body(span);
  overSteps(span, std::max(span.each, size), size, carried, [&](Value first) {
    Value last = b.add(first, size);
    if (span.each < size)
      last = b.smaller(last, span.last);
    body({first, last, std::min(span.each, size), size});
  });
}

void Product::store(Value output, ArrayRef<Value> tokens, Values tile,
                    int64_t lanes) {
  const size_t vectors = tile.size() / tokens.size();
  auto placeOf = [&](size_t i, Value matrix) {
    Value first = matrix == bias
                      ? b.at(bias, output, 4)
                      : outputAt(matrix, tokens[i / vectors], output);
    return b.at(first, b.scaled(int64_t(i % vectors) * lanes * 4));
  };
  for (Value matrix : {bias, residual})
    tile = b.choose(
        b.isNull(matrix), [&] { return tile; },
        [&] {
          Values added;
          for (auto [i, sum] : llvm::enumerate(tile))
            added.push_back(
                b.addF(sum, b.loadFloats(lanes, b.f32, placeOf(i, matrix))));
          return added;
        });
  auto storeAll = [&](auto &&storeOne) {
    return [&, storeOne] {
      for (auto [i, sum] : llvm::enumerate(tile))
        storeOne(sum, placeOf(i, out));
    };
  };
  auto toCache = storeAll([&](Value sum, Value to) { b.store(sum, to); });
  if (!bypasses)
    return toCache();
  auto pastCaches =
      storeAll([&](Value sum, Value to) { b.storePastCaches(sum, to); });
  b.branch(bypasses, pastCaches, toCache);
}

void Product::bypassCaches(int64_t bytes) {
  if (bytes == 0)
    return;
  Value rowBytes = b.mul(ld, 4);
  // These stores need addresses that are multiples of the vector's size.
  Value rest = b.bitAnd(b.bitOr(b.addressOf(out), rowBytes),
                        ProductBuilder::kCacheLine - 1);
  bypasses = b.bitAnd(b.isLess(b.integer(bytes), b.mul(m, rowBytes)),
                      b.isEqual(rest, 0));
}

void Product::finish() {
  // Other threads read the outputs after an ordinary store of this one.
  if (bypasses)
    b.branch(bypasses, [&] { b.fenceStores(); }, [] {});
  b.finish();
}

void TileLoops::overPanels(PanelsBody body) {
  auto overAll = [&] {
    stride = p.panelStride();
    nextPanel = p.b.mul(stride, abreast);
    Value first = p.panelBegin;
    // Fewer panels than streams: the rest has fewer streams.
    for (int64_t count = streams; count > 1; count /= 2)
      first = overTogether(first, count, /*neighbours=*/false, body);
    if (abreast > 1)
      first = overTogether(first, abreast, /*neighbours=*/true, body);
    p.b.loop(first, p.panelEnd, 1,
             [&](Value panel) { overVectors(panel, body); });
  };
  // Several tokens share loads and unpacking, so that these matter less.
  if (p.b.isScalable() && p.unpack && p.kernel.m == 1)
    p.b.byLength(overAll, overAll);
  else
    overAll();
  p.finish();
}

/// The panels from `first` on, `count` together: neighbours, or one of each of
/// `count` streams. Returns the first of the panels that are left.
Value TileLoops::overTogether(Value first, int64_t count, bool neighbours,
                              PanelsBody body) {
  ProductBuilder &b = p.b;
  Value each = b.div(b.sub(p.panelEnd, first), count);
  auto rest = [&] { return b.add(first, b.mul(each, count)); };
  Value end = neighbours ? rest() : b.add(first, each);
  b.loop(first, end, neighbours ? count : 1, [&](Value panel) {
    Values numbers = {panel};
    while (int64_t(numbers.size()) < count)
      numbers.push_back(b.add(numbers.back(), neighbours ? Int(1) : Int(each)));
    overVectors(numbers, body);
  });
  return neighbours ? end : rest();
}

/// The panels of these numbers together.
void TileLoops::overVectors(ArrayRef<Value> numbers, PanelsBody body) {
  ProductBuilder &b = p.b;
  SmallVector<Panel> panels;
  for (Value number : numbers)
    panels.push_back({number, b.at(p.weights, number, stride)});
  if (b.isScalable())
    return b.forEachVector(b.integer(kPanelOutputs), tileVectors,
                           [&](Value output, int64_t count) {
                             vectors = count;
                             body(panels, output);
                           });
  if (vectors * lanes == kPanelOutputs)
    return body(panels, b.integer(0));
  b.loop(0, kPanelOutputs, vectors * lanes,
         [&](Value output) { body(panels, output); });
}

void TileLoops::prefetchStore(ArrayRef<Panel> panels, Value output,
                              ArrayRef<Value> tokens) {
  ProductBuilder &b = p.b;
  for (const Panel &panel : panels) {
    Value place = outputOf(panel, output);
    Value added = b.choose(
        b.isNull(p.residual), [&] { return Values{p.out}; },
        [&] { return Values{p.residual}; })[0];
    for (Value matrix : {p.out, added})
      for (Value token : tokens)
        b.prefetch(p.outputAt(matrix, token, place));
  }
}

void TileLoops::store(ArrayRef<Panel> panels, Value output,
                      ArrayRef<Value> tokens, ArrayRef<Value> sums) {
  const size_t each = sums.size() / panels.size();
  for (auto [i, panel] : llvm::enumerate(panels))
    p.store(outputOf(panel, output), tokens, Values(sums.slice(i * each, each)),
            lanes);
}

void TileLoops::overTiles(bool prefetches, TileSumsOf sumsOf) {
  overPanels([&](ArrayRef<Panel> panels, Value output) {
    p.b.loop(0, p.m, tileTokens, [&](Value first) {
      const Values tile = tokensFrom(first);
      if (prefetches)
        prefetchStore(panels, output, tile);
      store(panels, output, tile, sumsOf(panels, output, tile));
    });
  });
}
