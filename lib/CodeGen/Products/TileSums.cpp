//===- TileSums.cpp - Dots of a tile to its sums along K ------------------===//

#include "TileSums.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include <bit>

using namespace qwen;
using namespace mlir;

TileSums::TileSums(TileLoops &loops, int64_t unroll, int64_t prefetch)
    : p(loops.p), loops(loops), unroll(unroll), prefetchDistance(prefetch) {
  const int64_t bias = p.unpack->range.bias;
  if (subDots > 1 && bias != 0)
    subStarts = b.scratch(loops.tokens * kActivationBlock);
  const DotKind kind = p.isa.dot.kind;
  if (p.kernel.m > 1 || scalesOf(p.format).hasSubBlocks() || bias != 0 ||
      p.unpack->parts == 1 ||
      (kind != DotKind::Sdot && kind != DotKind::SdotLane))
    return;
  // Dots without a correction start from here (magicStart).
  const int64_t bytes = kStartGroups * kPanelOutputs * 4;
  magicStarts = b.scratch(bytes);
  Value magic = arith::ConstantOp::create(b, b.getF32FloatAttr(kMagic));
  b.loop(b.integer(0), b.integer(bytes / 4), 1,
         [&](Value i) { b.store(magic, b.at(magicStarts, b.mul(i, 4))); });
}

//===----------------------------------------------------------------------===//
// Dots of a group
//===----------------------------------------------------------------------===//

/// LLVM's models of CPUs take a prefetch for a load whose latency is to be
/// hidden, and move all of a loop's to its front, where they delay its loads.
void TileSums::prefetch(Value line) {
  if (prefetchDistance <= 1)
    return;
  if (loops.streams > 0)
    b.keepLoadsInOrder();
  b.prefetch(b.at(line, prefetchDistance));
}

/// The kernel's M tokens share the lines evenly, by tile and block: a core
/// waits for few lines at once.
void TileSums::prefetchShare(const Tile &tile, Value block) {
  if (prefetchDistance != 1)
    return;
  const int64_t bytes =
      kBlockGroups * panelGroupBytes(p.format) +
      panelHeaderBytes(p.format) * kActivationBlock / weightBlock(p.format);
  const int64_t tiles = p.kernel.m / loops.tokens;
  const auto lines = int64_t(llvm::divideCeil(
      int64_t(tile.panels.size()) * bytes, ProductBuilder::kCacheLine * tiles));
  // A call with more tokens has fetched all lines before its last tiles.
  Value number =
      b.smaller(arith::DivUIOp::create(b, tile.first, b.integer(loops.tokens)),
                b.integer(tiles - 1));
  Value done = b.add(b.mul(number, p.activationBlocks()), block);
  Value next = b.at(tile.panels.front().weights, loops.nextPanel);
  for (int64_t i = 0; i < lines; ++i)
    b.prefetch(b.at(b.at(next, b.mul(done, lines * ProductBuilder::kCacheLine)),
                    i * ProductBuilder::kCacheLine));
}

Value TileSums::loadVector(Value chunks, int64_t chunk, int64_t v) {
  return b.load(
      b.vector(vectorBytes, b.getI8Type()),
      b.at(b.at(chunks, chunk * kChunkBytes), b.scaled(v * vectorBytes)));
}

Value TileSums::activations(Value q, int64_t step) {
  if (p.isa.arch == Arch::AArch64)
    return b.loadQuad(b.getI8Type(), b.at(q, step / 4 * 16));
  Value word = LLVM::LoadOp::create(b, b.getI32Type(), b.at(q, 4 * step), 1);
  return b.bitcast(b.vector(4 * loops.lanes, b.getI8Type()),
                   b.splat(integers(), word));
}

void TileSums::prefetchChunk(Value chunks, int64_t chunk) {
  prefetch(b.at(chunks, chunk * kChunkBytes));
  if (chunk < p.unpack->upperChunks)
    prefetch(b.at(chunks, (p.unpack->chunks() + chunk) * kChunkBytes));
}

Values TileSums::startsOf(const Group &group) {
  const auto count = int64_t(group.panels) * loops.tokens * loops.vectors;
  Values starts;
  for (int64_t i = 0; i < count; ++i)
    for (int64_t sub = 0; sub < subDots; ++sub)
      starts.push_back(group.start(i, sub));
  return starts;
}

void TileSums::use(const Group &group, int64_t sub, MutableArrayRef<Dot> dots,
                   bool lackStarts) {
  for (auto [i, dot] : llvm::enumerate(dots)) {
    Value value = dot.finish();
    Value start = lackStarts ? group.start(int64_t(i), sub) : nullptr;
    group.use(int64_t(i), sub, start ? b.add(value, start) : value);
  }
}

//===----------------------------------------------------------------------===//
// Dots to floats
//===----------------------------------------------------------------------===//

bool TileSums::startsFromMagic() const {
  return (p.isa.arch == Arch::AArch64 && p.unpack->range.bias != 0) ||
         hasMagicStarts();
}

/// No two vectors of a token start from the same value: LLVM would copy one
/// register, which takes a slot of the vectors' pipes, and a splat of a general
/// register takes none.
float TileSums::magic(int64_t i) const {
  return magicStarts || pairs ? kMagic : kMagic + float(i % loops.vectors);
}

/// The start value of accumulator `i` in group `g` where dots need no
/// correction. A load takes no slot of the vectors' pipes, and its address
/// depends on the group, or LLVM would keep the value and copy it.
Value TileSums::magicStart(Value g, int64_t i) {
  Value group = b.bitAnd(g, kStartGroups - 1);
  return b.load(integers(),
                b.at(b.at(magicStarts, b.mul(group, kPanelOutputs * 4)),
                     i * loops.lanes * 4));
}

/// Scalars of tokens in the lanes of accumulator `i`.
Value TileSums::forToken(VectorType type, OfToken scalar, int64_t i) {
  if (!pairs)
    return b.splat(type, scalar(tokenOf(i)));
  const size_t first = tokenOf(i) & ~size_t{1};
  return b.permuted("trn", 64, b.splat(type, scalar(first)),
                    b.splat(type, scalar(first + 1)), false);
}

/// A vector of outputs in the lanes of accumulator `i`.
Value TileSums::forOutputs(Value values, int64_t i) {
  return pairs ? b.permuted("zip", 64, values, values, tokenOf(i) % 2 != 0)
               : values;
}

/// The correction of the dots of accumulator `i`, and the magic number; null if
/// they need none. Bytes have a bias: sum(q * (w - bias)) = sum(q * w) - bias *
/// sum(q).
Value TileSums::correction(OfToken activationSum, int64_t i) {
  if (p.unpack->range.bias == 0)
    return nullptr;
  const int64_t from = startsFromMagic() ? std::bit_cast<int32_t>(magic(i)) : 0;
  auto lacking = [&](Value sum) {
    const Type type = sum.getType();
    return b.add(b.mul(sum, -p.unpack->range.bias), b.constant(type, from));
  };
  if (pairs)
    return lacking(forToken(integers(), activationSum, i));
  return b.splat(integers(), lacking(activationSum(tokenOf(i))));
}

Value TileSums::scaled(Value dot, function_ref<Value(int64_t)> minimumSum,
                       Value header, const Tile &tile, int64_t i, Value t) {
  const Values scales =
      p.scaling.scales(b, p.unpack->range.factor, [&](int64_t number) {
        Value from = b.at(header, number * kMinimumOffset);
        Value values =
            b.loadFloats(loops.lanes, b.getF16Type(),
                         b.at(b.at(from, b.mul(tile.output, 2)),
                              b.scaled(i % loops.vectors * loops.lanes * 2)));
        return forOutputs(values, i);
      });
  Value isum;
  if (startsFromMagic())
    isum = b.subF(b.bitcast(floats(), dot), b.zeros(floats(), magic(i)));
  else
    isum = b.toFloat(floats(), dot);
  Value sum;
  if (p.scaling.takesSums())
    sum = minimumSum(i);
  if (sum && sum.getType() != floats())
    sum = b.toFloat(floats(), sum);
  return p.scaling.add(b, isum, sum, scales, t);
}

//===----------------------------------------------------------------------===//
// Blocks and groups
//===----------------------------------------------------------------------===//

/// The sum of the activations of each token as f32, in the lanes of accumulator
/// `i`. Arm multiplies by an element of a register; cores without dot products
/// convert a vector in fewer slots.
Value TileSums::floatSum(OfToken activationSum, int64_t i) {
  if (!b.isArm() || p.isa.dot.kind == DotKind::Smull)
    return b.toFloat(floats(), forToken(integers(), activationSum, i));
  auto asFloat = [&](size_t t) -> Value {
    return b.toFloat(b.getF32Type(), activationSum(t));
  };
  return forToken(floats(), asFloat, i);
}

Values TileSums::startSums(Value zero, size_t count) {
  Values carried;
  if (!heldSums)
    carried.assign(count, zero);
  else
    for (size_t i = 0; i < count; ++i)
      setSum(carried, int64_t(i), zero);
  return carried;
}

Value TileSums::sum(const Values &carried, VectorType type, int64_t i) {
  return heldSums ? b.loadKept(type, b.at(heldSums, i * vectorBytes))
                  : carried[i];
}

void TileSums::setSum(Values &carried, int64_t i, Value value) {
  if (heldSums)
    b.storeKept(value, b.at(heldSums, i * vectorBytes));
  else
    carried[i] = value;
}

Values TileSums::allSums(const Values &carried, VectorType type, size_t count) {
  Values sums;
  for (size_t i = 0; i < count; ++i)
    sums.push_back(sum(carried, type, int64_t(i)));
  return sums;
}

/// t = the fma chain of isum * d_w over the groups of `span`, which have their
/// own scales. t starts from -0, with which the first fma is the rounded
/// product that docs/numerics.md asks for.
Values TileSums::narrowSums(const Tile &tile, const GroupSpan &span) {
  Values carried = startSums(b.zeros(floats(), -0.0f), tile.size);
  p.overGroups(span, carried, [&](Value g) {
    Values headers, q, sums(tile.tokens.size());
    for (const Panel &panel : tile.panels)
      headers.push_back(headerOf(panel, g));
    auto sumOf = [&](size_t t) {
      if (!sums[t])
        sums[t] = activationSum(tile.tokens[t], g);
      return sums[t];
    };
    auto minimumSum = [&](int64_t i) { return floatSum(sumOf, i); };
    for (auto [t, token] : llvm::enumerate(tile.tokens)) {
      q.push_back(b.at(token.q, b.mul(g, kGroup)));
      if (!heldSums)
        sumOf(t);
    }
    auto chunks = [&](size_t panel) {
      prefetch(headers[panel]);
      return b.at(headers[panel], panelHeaderBytes(p.format));
    };
    addGroup({g, tile.panels.size(), tile.output, chunks, q,
              [&](int64_t i, int64_t) {
                return hasMagicStarts() ? magicStart(g, i)
                                        : correction(sumOf, i);
              },
              [&](int64_t i, int64_t, Value dot) {
                setSum(carried, i,
                       scaled(dot, minimumSum, headers[panelOf(i)], tile, i,
                              sum(carried, floats(), i)));
              }});
  });
  return allSums(carried, floats(), tile.size);
}

/// t after a block of weights, whose dots are added as integers.
Values TileSums::addWide(const Tile &tile, Value number, const GroupSpan &span,
                         const Values &before) {
  Values headers;
  for (const Panel &panel : tile.panels) {
    headers.push_back(headerOf(panel, number));
    prefetch(headers.back());
  }
  // A tile has 8 dots, x86-64's cores start two a cycle, and each takes four to
  // five: in chains of a block of 128 they would wait. A core overlaps the
  // short chains of two groups.
  const bool isShort =
      p.isa.arch == Arch::X86_64 && weightBlock(p.format) == kActivationBlock;
  // The sums of activations are carried behind those of accumulators.
  Value zero = b.constant(integers(), 0);
  Values carried = startSums(zero, tile.size);
  if (hasMagicStarts())
    for (size_t i = 0; i < tile.size; ++i)
      carried[i] = magicStart(span.first, int64_t(i));
  const size_t behind = carried.size();
  carried.append(tile.tokens.size(), b.constant(b.getI32Type(), 0));
  p.overGroups(span, carried, [&](Value g) {
    Value offset = b.mul(b.sub(g, span.first), panelGroupBytes(p.format));
    Values q;
    for (auto [t, token] : llvm::enumerate(tile.tokens)) {
      q.push_back(b.at(token.q, b.mul(g, kGroup)));
      carried[behind + t] = b.add(carried[behind + t], activationSum(token, g));
    }
    auto chunks = [&](size_t panel) {
      return b.at(b.at(headers[panel], panelHeaderBytes(p.format)), offset);
    };
    addGroup({g, tile.panels.size(), tile.output, chunks, q,
              [&](int64_t i, int64_t) {
                return isShort ? zero : sum(carried, integers(), i);
              },
              [&](int64_t i, int64_t, Value dot) {
                if (isShort)
                  dot = b.add(sum(carried, integers(), i), dot);
                setSum(carried, i, dot);
              }});
  });
  auto sumOf = [&](size_t t) { return carried[behind + t]; };
  auto minimumSum = [&](int64_t i) { return floatSum(sumOf, i); };
  Values t;
  for (auto [i, sum] :
       llvm::enumerate(allSums(carried, integers(), tile.size))) {
    Value dot = sum;
    if (Value lacking = correction(sumOf, i))
      dot = b.add(dot, lacking);
    t.push_back(
        scaled(dot, minimumSum, headers[panelOf(i)], tile, i, before[i]));
  }
  return t;
}

/// Integer `number` of sub-block `sub` of group g, in a panel of the tile, for
/// each vector of the tile.
Values TileSums::subIntegersOf(const Tile &tile, const SubBlocks &in,
                               size_t panel, int64_t number, Value g,
                               int64_t sub) {
  if (sharedIntegers)
    return sharedIntegers(panel, number, g, sub);
  Value inBlock = b.sub(g, in.first);
  Value j = b.add(b.mul(inBlock, subDots), b.integer(sub));
  return subIntegers(b, p.format, in.headers[panel], number, j, tile.output,
                     loops.vectors, loops.lanes);
}

/// Start values for the dots of sub-blocks of 16 biased bytes: -bias times the
/// sum of each sub-block's activations, repeated in four lanes, for as many
/// activations from `q` on as a vector of `isa` has bytes.
Value TileSums::subStartsOf(const IsaInfo &isa, Value q) {
  const int64_t bias = p.unpack->range.bias;
  const VectorType bytes = b.vector(4 * isa.lanes, b.getI8Type());
  Dot dot(b, isa, {1, 0, bias, bias}, nullptr);
  dot.step(b.constant(bytes, bias), b.load(bytes, q), 0);
  // Sums of 4 values, of which 128 bits are a sub-block.
  Value sums = dot.finish();
  for (int64_t distance : {1, 2}) {
    SmallVector<int64_t> order;
    for (int64_t lane = 0; lane < isa.lanes; ++lane)
      order.push_back(lane ^ distance);
    sums = b.add(sums, vector::ShuffleOp::create(b, sums, sums, order));
  }
  return b.sub(b.constant(sums.getType(), 0), sums);
}

/// The start value of dot `sub` of accumulator `i` in a group.
Value TileSums::subStart(OfToken activationSum, int64_t i, int64_t sub) {
  if (!subStarts)
    return correction(activationSum, i);
  Value from = b.at(subStarts,
                    int64_t(tokenOf(i)) * kActivationBlock + sub * kGroup / 2);
  return b.splat(integers(), b.load(b.getI32Type(), from));
}

/// The sums of activations times the minimums' integers of their sub-blocks,
/// for each accumulator.
Values TileSums::subMinimums(const Tile &tile, const SubBlocks &in,
                             const GroupSpan &span) {
  Values carried(tile.size, b.constant(integers(), 0));
  p.overGroups(span, carried, [&](Value g) {
    Values sums, minimums;
    for (const Tile::Activations &token : tile.tokens)
      sums.push_back(activationSum(token, g));
    for (size_t panel = 0; panel < in.headers.size(); ++panel)
      minimums.append(subIntegersOf(tile, in, panel, 1, g, 0));
    for (auto [i, sum] : llvm::enumerate(carried)) {
      Value minimum = forOutputs(
          minimums[panelOf(int64_t(i)) * loops.vectors + i % loops.vectors],
          int64_t(i));
      Value activations =
          forToken(integers(), [&](size_t t) { return sums[t]; }, int64_t(i));
      sum = b.add(sum, b.mul(minimum, activations));
    }
  });
  return carried;
}

SubBlocks TileSums::subBlocks(const Tile &tile, Value block) {
  const int64_t groups = weightBlock(p.format) / kGroup;
  Value number =
      b.shiftRight(block, std::countr_zero(uint64_t(groups / kBlockGroups)));
  SubBlocks in = {{}, b.mul(number, groups)};
  for (const Panel &panel : tile.panels) {
    in.headers.push_back(headerOf(panel, number));
    for (int64_t line = 0; line < panelHeaderBytes(p.format);
         line += ProductBuilder::kCacheLine)
      prefetch(b.at(in.headers.back(), line));
  }
  return in;
}

/// t of each accumulator where sub-blocks of a block multiply its scales with
/// integers: products of these with dots are added as integers.
Values TileSums::subBlockSums(const Tile &tile, Value block,
                              const GroupSpan &span) {
  const SubBlocks in = subBlocks(tile, block);
  Values carried = startSums(b.constant(integers(), 0), tile.size);
  p.overGroups(span, carried, [&](Value g) {
    Value inBlock = b.sub(g, in.first);
    Values q;
    for (const Tile::Activations &token : tile.tokens)
      q.push_back(b.at(token.q, b.mul(g, kGroup)));
    if (subStarts)
      for (auto [t, from] : llvm::enumerate(q))
        b.store(subStartsOf(isaInfo(KernelIsa::AVXVNNI), from),
                b.at(subStarts, int64_t(t) * kActivationBlock));
    auto chunks = [&](size_t panel) {
      return b.at(b.at(in.headers[panel], panelHeaderBytes(p.format)),
                  b.mul(inBlock, panelGroupBytes(p.format)));
    };
    auto sumOf = [&](size_t t) { return activationSum(tile.tokens[t], g); };
    // The integers of a panel and sub-block, which all tokens share.
    SmallVector<Values> integersOf(tile.panels.size() * subDots);
    auto scaleOf = [&](int64_t i, int64_t sub) {
      Values &scales = integersOf[panelOf(i) * subDots + sub];
      if (scales.empty())
        scales = subIntegersOf(tile, in, panelOf(i), 0, g, sub);
      return forOutputs(scales[i % loops.vectors], i);
    };
    addGroup({g, tile.panels.size(), tile.output, chunks, q,
              [&](int64_t i, int64_t sub) {
                return scalesDots ? sum(carried, integers(), i)
                                  : subStart(sumOf, i, sub);
              },
              [&](int64_t i, int64_t sub, Value dot) {
                setSum(carried, i,
                       scalesDots ? dot
                                  : b.add(sum(carried, integers(), i),
                                          b.mul(dot, scaleOf(i, sub))));
              },
              scaleOf});
  });
  Values minimums, t;
  if (scalesOf(p.format).hasMinimum())
    minimums = subMinimums(tile, in, span);
  for (auto [i, dot] : llvm::enumerate(allSums(carried, integers(), tile.size)))
    t.push_back(scaled(
        dot, [&](int64_t i) { return minimums[i]; },
        in.headers[panelOf(int64_t(i))], tile, int64_t(i),
        b.zeros(floats(), -0.0f)));
  return t;
}

/// acc = fma(t, d_a, acc) over an activation block.
Values TileSums::addBlock(const Tile &tile, Value block, ValueRange totals,
                          const GroupSpan &span) {
  prefetchShare(tile, block);
  const int64_t size = weightBlock(p.format);
  Values t;
  if (scalesOf(p.format).hasSubBlocks()) {
    const bool isWhole = wholeBlock && span.each == span.most;
    t = isWhole ? wholeBlock(tile, block, span)
                : subBlockSums(tile, block, span);
  } else if (size == kGroup) {
    t = narrowSums(tile, span);
  } else {
    t.assign(tile.size, b.zeros(floats(), -0.0f));
    p.overBlocks(span, t, [&](const GroupSpan &groups) {
      Value number = size == kActivationBlock ? block : p.blockOf(groups.first);
      t = addWide(tile, number, groups, t);
    });
  }
  Values scales, result;
  for (const Tile::Activations &token : tile.tokens)
    scales.push_back(b.load(b.getF32Type(), b.at(token.d, b.mul(block, 4))));
  for (size_t i = 0; i < tile.size; ++i) {
    Value scale =
        forToken(floats(), [&](size_t t) { return scales[t]; }, int64_t(i));
    result.push_back(b.fma(t[i], scale, totals[i]));
  }
  return result;
}

Tile TileSums::tileOf(ArrayRef<Panel> panels, Value output,
                      ArrayRef<Value> tokens) {
  Tile tile = {panels,
               output,
               tokens.front(),
               {},
               panels.size() * tokens.size() * loops.vectors};
  for (Value token : tokens)
    tile.tokens.push_back(
        {b.at(p.q, b.mul(token, p.k)),
         b.at(p.d, b.mul(b.mul(token, p.activationBlocks()), 4)),
         b.at(p.sums, b.mul(b.mul(token, p.groups()), 4))});
  return tile;
}

Values TileSums::addBlocks(const Tile &tile, Values totals, Value first,
                           Value whole, Value last) {
  auto add = [&](Value begin, Value end, int64_t each) {
    totals = b.loop(begin, end, 1, totals, [&](Value block, ValueRange before) {
      Value group = b.mul(block, kBlockGroups);
      Value groupEnd = b.add(group, b.integer(kBlockGroups));
      if (each == 1)
        groupEnd = b.smaller(p.groups(), groupEnd);
      return addBlock(tile, block, before, {group, groupEnd, each});
    });
  };
  // The last panel of an odd number is rare, so it gets the shorter code.
  const bool isShared = int64_t(tile.panels.size()) >= loops.abreast;
  if (unroll > 1 && isShared) {
    add(first, whole, unroll);
    first = whole;
  }
  add(first, last, 1);
  return totals;
}

void TileSums::emit() {
  loops.overTiles(prefetchDistance == 1, [&](ArrayRef<Panel> panels,
                                             Value output,
                                             ArrayRef<Value> tokens) {
    const Tile tile = tileOf(panels, output, tokens);
    Values totals =
        addBlocks(tile, Values(tile.size, b.zeros(floats())), b.integer(0),
                  wholeBlocks(), p.activationBlocks());
    // Lanes of pairs go to their tokens.
    for (size_t i = 0; pairs && i < tile.size; ++i)
      if (tokenOf(int64_t(i)) % 2 == 0) {
        Value &first = totals[i], &second = totals[i + size_t(loops.vectors)];
        Value low = first, high = second;
        first = b.permuted("uzp", 64, low, high, false);
        second = b.permuted("uzp", 64, low, high, true);
      }
    return byPanel(tile, totals);
  });
}

SmallVector<Values> TileSums::byPanel(const Tile &tile, const Values &totals) {
  const size_t each = tile.size / tile.panels.size();
  SmallVector<Values> tiles;
  for (size_t i = 0; i < totals.size(); i += each)
    tiles.emplace_back(ArrayRef(totals).slice(i, each));
  return tiles;
}
