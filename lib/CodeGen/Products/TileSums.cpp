//===- TileSums.cpp - Dots of a tile to its sums along K ------------------===//

#include "TileSums.h"
#include <bit>

using namespace qwen;
using namespace mlir;

TileSums::TileSums(TileLoops &loops, int64_t unroll, int64_t prefetch)
    : p(loops.p), loops(loops), unroll(unroll), prefetchDistance(prefetch) {
  const int64_t bias = p.unpack->range.bias;
  if (p.subDots > 1 && bias != 0)
    subStarts = b.scratch(loops.tileTokens * kActivationBlock);
  subIntegers = [this](const WeightBlock &in, size_t panel, int64_t number,
                       Value g, int64_t sub) {
    return p.scaling.integers(in.headers[panel], number, b.sub(g, in.first),
                              sub, tile.output, this->loops.vectors,
                              this->loops.lanes);
  };
  const DotKind kind = p.isa.dot.kind;
  if (p.kernel.m > 1 || p.divided || bias != 0 || p.unpack->parts == 1 ||
      (kind != DotKind::Sdot && kind != DotKind::SdotLane))
    return;
  // Dots without a correction start from here (magicStart).
  const int64_t bytes = kStartGroups * kPanelOutputs * 4;
  magicStarts = b.scratch(bytes);
  b.fill(magicStarts, bytes, kMagicBits);
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
void TileSums::prefetchShare(Value block) {
  if (prefetchDistance != 1)
    return;
  const int64_t line = ProductBuilder::kCacheLine,
                tiles = p.kernel.m / loops.tileTokens;
  const int64_t bytes =
      kBlockGroups * panelGroupBytes(p.format) +
      panelHeaderBytes(p.format) * kActivationBlock / weightBlock(p.format);
  const auto lines = int64_t(
      llvm::divideCeil(int64_t(tile.panels.size()) * bytes, line * tiles));
  // A call with more tokens has fetched all lines before its last tiles.
  Value number = b.smaller(b.div(tile.first, loops.tileTokens), tiles - 1);
  Value done = b.add(b.mul(number, p.activationBlocks()), block);
  Value next = b.at(tile.panels.front().weights, loops.nextPanel);
  for (int64_t i = 0; i < lines; ++i)
    b.prefetch(b.at(b.at(next, done, lines * line), i * line));
}

Value TileSums::chunksOf(const Group &group, size_t panel) {
  Value header = group.in.headers[panel];
  if (p.blockGroups == 1)
    prefetch(header);
  return b.at(b.at(header, panelHeaderBytes(p.format)), group.place,
              group.unit);
}

Value TileSums::loadVector(Value chunks, int64_t chunk, int64_t v) {
  return b.load(
      b.vector(vectorBytes, b.i8),
      b.at(b.at(chunks, chunk * kChunkBytes), b.scaled(v * vectorBytes)));
}

Value TileSums::activations(Value q, int64_t step) {
  if (p.isa.arch == Arch::AArch64)
    return b.loadQuad(b.i8, b.at(q, step / 4 * 16));
  Value word = LLVM::LoadOp::create(b, b.i32, b.at(q, 4 * step), 1);
  return b.bitcast(b.vector(4 * loops.lanes, b.i8), b.splat(integers(), word));
}

void TileSums::prefetchChunk(Value chunks, int64_t chunk) {
  prefetch(b.at(chunks, chunk * kChunkBytes));
  if (chunk < p.unpack->upperChunks)
    prefetch(b.at(chunks, (p.unpack->chunks() + chunk) * kChunkBytes));
}

Values TileSums::startsOf(const Group &group) {
  Values starts;
  for (size_t i = 0; i < tile.size; ++i)
    for (int64_t sub = 0; sub < p.subDots; ++sub)
      starts.push_back(group.start(int64_t(i), sub));
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
  Value copies =
      b.at(magicStarts, b.bitAnd(g, kStartGroups - 1), kPanelOutputs * 4);
  return b.load(integers(), b.at(copies, i * loops.lanes * 4));
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
    return b.add(b.mul(sum, -p.unpack->range.bias), from);
  };
  if (pairs)
    return lacking(forToken(integers(), activationSum, i));
  return b.splat(integers(), lacking(activationSum(tokenOf(i))));
}

Value TileSums::scaled(const WeightBlock &in, int64_t i, Value dot,
                       function_ref<Value(int64_t)> minimumSum, Value t) {
  const Values scales =
      p.scaling.scales(p.unpack->range.factor, [&](int64_t number) {
        return forOutputs(p.numberOf(in.headers[panelOf(i)], number,
                                     tile.output, loops.lanes,
                                     i % loops.vectors),
                          i);
      });
  Value isum = startsFromMagic() ? minusMagic(b, dot, magic(i))
                                 : b.toFloat(floats(), dot);
  Value sum;
  if (p.scaling.takesSums())
    sum = minimumSum(i);
  if (sum && sum.getType() != floats())
    sum = b.toFloat(floats(), sum);
  return p.scaling.add(isum, sum, scales, t);
}

//===----------------------------------------------------------------------===//
// Blocks and groups
//===----------------------------------------------------------------------===//

/// Block `number` of the weights, which begins with group `first`. Fetches
/// `fetched` bytes of its headers.
WeightBlock TileSums::blockOf(Value number, Value first, int64_t fetched) {
  WeightBlock block = {{}, first};
  for (const Panel &panel : tile.panels) {
    Value header = p.headerOf(panel.weights, number);
    for (int64_t i = 0; i < fetched; i += ProductBuilder::kCacheLine)
      prefetch(b.at(header, i));
    block.headers.push_back(header);
  }
  return block;
}

/// The sum of the activations of each token as f32, in the lanes of accumulator
/// `i`. Arm multiplies by an element of a register; cores without dot products
/// convert a vector in fewer slots.
Value TileSums::floatSum(OfToken activationSum, int64_t i) {
  if (!b.isArm() || p.isa.dot.kind == DotKind::Smull)
    return b.toFloat(floats(), forToken(integers(), activationSum, i));
  auto asFloat = [&](size_t t) -> Value {
    return b.toFloat(b.f32, activationSum(t));
  };
  return forToken(floats(), asFloat, i);
}

namespace {
/// A sum of type `type` for each accumulator of a tile: in the first of the
/// values that loops carry, or in TileSums::heldSums.
struct Sums {
  Sums(TileSums &of, VectorType type, Value start)
      : of(of), type(type), carried(of.heldSums ? 0 : of.tile.size, start) {
    for (size_t i = 0; of.heldSums && i < of.tile.size; ++i)
      set(int64_t(i), start);
  }
  Value placeOf(int64_t i) const {
    return of.b.at(of.heldSums, i * of.vectorBytes);
  }
  Value get(int64_t i) const {
    return of.heldSums ? of.b.loadKept(type, placeOf(i)) : carried[i];
  }
  void set(int64_t i, Value value) {
    if (of.heldSums)
      of.b.storeKept(value, placeOf(i));
    else
      carried[i] = value;
  }
  Values all() const {
    Values sums;
    for (size_t i = 0; i < of.tile.size; ++i)
      sums.push_back(get(int64_t(i)));
    return sums;
  }

  TileSums &of;
  const VectorType type;
  Values carried;
};
} // namespace

/// t = the fma chain of isum * d_w over the groups of `span`, which have their
/// own scales. t starts from -0, with which the first fma is the rounded
/// product that docs/numerics.md asks for.
Values TileSums::narrowSums(const GroupSpan &span) {
  Sums t(*this, floats(), b.zeros(floats(), -0.0f));
  p.overGroups(span, t.carried, [&](Value g) {
    const WeightBlock in = blockOf(g, g, 0);
    Values q, sums(tile.tokens.size());
    auto sumOf = [&](size_t token) {
      if (!sums[token])
        sums[token] = activationSum(tile.tokens[token], g);
      return sums[token];
    };
    for (auto [i, token] : llvm::enumerate(tile.tokens)) {
      q.push_back(b.at(token.q, g, kGroup));
      if (!heldSums)
        sumOf(i);
    }
    auto minimumSum = [&](int64_t i) { return floatSum(sumOf, i); };
    addGroup({in, g, b.integer(0), 0, q,
              [&](int64_t i, int64_t) {
                return hasMagicStarts() ? magicStart(g, i)
                                        : correction(sumOf, i);
              },
              [&](int64_t i, int64_t, Value dot) {
                t.set(i, scaled(in, i, dot, minimumSum, t.get(i)));
              }});
  });
  return t.all();
}

/// t after a block of weights, whose dots are added as integers.
Values TileSums::addWide(Value number, const GroupSpan &span,
                         const Values &before) {
  const WeightBlock in = blockOf(number, span.first, 1);
  // A tile has 8 dots, x86-64's cores start two a cycle, and each takes four to
  // five: in chains of a block of 128 they would wait. A core overlaps the
  // short chains of two groups.
  const bool isShort =
      p.isa.arch == Arch::X86_64 && weightBlock(p.format) == kActivationBlock;
  // The loop carries the sums of accumulators, then the sums of activations.
  Value zero = b.constant(integers(), 0);
  Sums dots(*this, integers(), zero);
  Values &carried = dots.carried;
  if (hasMagicStarts())
    for (size_t i = 0; i < tile.size; ++i)
      carried[i] = magicStart(span.first, int64_t(i));
  const size_t behind = carried.size();
  carried.append(tile.tokens.size(), b.constant(b.i32, 0));
  p.overGroups(span, carried, [&](Value g) {
    Value place = b.mul(b.sub(g, in.first), panelGroupBytes(p.format));
    Values q;
    for (auto [t, token] : llvm::enumerate(tile.tokens)) {
      q.push_back(b.at(token.q, g, kGroup));
      carried[behind + t] = b.add(carried[behind + t], activationSum(token, g));
    }
    addGroup({in, g, place, 1, q,
              [&](int64_t i, int64_t) { return isShort ? zero : dots.get(i); },
              [&](int64_t i, int64_t, Value dot) {
                dots.set(i, isShort ? b.add(dots.get(i), dot) : dot);
              }});
  });
  auto sumOf = [&](size_t t) { return carried[behind + t]; };
  auto minimumSum = [&](int64_t i) { return floatSum(sumOf, i); };
  Values t;
  for (auto [i, dot] : llvm::enumerate(dots.all())) {
    Value lacking = correction(sumOf, int64_t(i));
    t.push_back(scaled(in, int64_t(i), lacking ? b.add(dot, lacking) : dot,
                       minimumSum, before[i]));
  }
  return t;
}

/// Start values for the dots of sub-blocks of 16 biased bytes: -bias times the
/// sum of each sub-block's activations, repeated in four lanes, for the group
/// of activations at `q`: as many as a vector of AVX-VNNI has bytes.
Value TileSums::subStartsOf(Value q) {
  const IsaInfo &isa = isaInfo(KernelIsa::AVXVNNI);
  const int64_t bias = p.unpack->range.bias;
  const VectorType bytes = b.vector(4 * isa.lanes, b.i8);
  Dot dot(b, isa, {1, 0, bias, bias}, nullptr);
  dot.step(b.constant(bytes, bias), b.load(bytes, q), 0);
  // Sums of 4 values; 128 bits of them are a sub-block.
  Value sums = dot.finish();
  for (int64_t distance : {1, 2}) {
    SmallVector<int64_t> order;
    for (int64_t lane = 0; lane < isa.lanes; ++lane)
      order.push_back(lane ^ distance);
    sums = b.add(sums, b.shuffle(sums, sums, order));
  }
  return b.sub(b.constant(sums.getType(), 0), sums);
}

/// The sums of activations times the minimums' integers of their sub-blocks,
/// for each accumulator.
Values TileSums::subMinimums(const WeightBlock &in, const GroupSpan &span) {
  Values carried(tile.size, b.constant(integers(), 0));
  p.overGroups(span, carried, [&](Value g) {
    Values sums, minimums;
    for (const Tile::Activations &token : tile.tokens)
      sums.push_back(activationSum(token, g));
    for (size_t panel = 0; panel < in.headers.size(); ++panel)
      minimums.append(subIntegers(in, panel, 1, g, 0));
    for (int64_t i = 0; i < std::ssize(carried); ++i) {
      Value minimum = forOutputs(
          minimums[panelOf(i) * loops.vectors + i % loops.vectors], i);
      Value activations =
          forToken(integers(), [&](size_t t) { return sums[t]; }, i);
      carried[i] = b.add(carried[i], b.mul(minimum, activations));
    }
  });
  return carried;
}

WeightBlock TileSums::subBlocks(Value block) {
  Value number = b.div(block, p.blockGroups / kBlockGroups);
  return blockOf(number, b.mul(number, p.blockGroups),
                 panelHeaderBytes(p.format));
}

/// t of each accumulator where sub-blocks of a block multiply its scales with
/// integers: products of these with dots are added as integers.
Values TileSums::subBlockSums(Value block, const GroupSpan &span) {
  const WeightBlock in = subBlocks(block);
  Sums products(*this, integers(), b.constant(integers(), 0));
  p.overGroups(span, products.carried, [&](Value g) {
    Value place = b.sub(g, in.first);
    Values q;
    for (const Tile::Activations &token : tile.tokens)
      q.push_back(b.at(token.q, g, kGroup));
    if (subStarts)
      for (auto [t, from] : llvm::enumerate(q))
        b.store(subStartsOf(from),
                b.at(subStarts, int64_t(t) * kActivationBlock));
    auto sumOf = [&](size_t t) { return activationSum(tile.tokens[t], g); };
    // The integers of a panel and sub-block, which all tokens share.
    SmallVector<Values> integersOf(tile.panels.size() * p.subDots);
    auto scaleOf = [&](int64_t i, int64_t sub) {
      Values &scales = integersOf[panelOf(i) * p.subDots + sub];
      if (scales.empty())
        scales = subIntegers(in, panelOf(i), 0, g, sub);
      return forOutputs(scales[i % loops.vectors], i);
    };
    addGroup({in, g, place, panelGroupBytes(p.format), q,
              [&](int64_t i, int64_t sub) {
                if (scalesDots)
                  return products.get(i);
                if (!subStarts)
                  return correction(sumOf, i);
                Value from =
                    b.at(subStarts, int64_t(tokenOf(i)) * kActivationBlock +
                                        sub * kGroup / 2);
                return b.splat(integers(), b.load(b.i32, from));
              },
              [&](int64_t i, int64_t sub, Value dot) {
                if (!scalesDots)
                  dot = b.add(products.get(i), b.mul(dot, scaleOf(i, sub)));
                products.set(i, dot);
              },
              scaleOf});
  });
  Values minimums, t;
  if (scalesOf(p.format).hasMinimum())
    minimums = subMinimums(in, span);
  for (auto [i, dot] : llvm::enumerate(products.all()))
    t.push_back(scaled(
        in, int64_t(i), dot, [&](int64_t i) { return minimums[i]; },
        b.zeros(floats(), -0.0f)));
  return t;
}

/// acc = fma(t, d_a, acc) over an activation block.
Values TileSums::addBlock(Value block, ValueRange totals,
                          const GroupSpan &span) {
  prefetchShare(block);
  const int64_t size = weightBlock(p.format);
  Values t;
  if (p.divided) {
    const bool isWhole = wholeBlock && span.each == span.most;
    t = isWhole ? wholeBlock(block, span) : subBlockSums(block, span);
  } else if (size == kGroup) {
    t = narrowSums(span);
  } else {
    t.assign(tile.size, b.zeros(floats(), -0.0f));
    p.overBlocks(span, t, [&](const GroupSpan &groups) {
      Value number = size == kActivationBlock ? block : p.blockOf(groups.first);
      t = addWide(number, groups, t);
    });
  }
  Values scales, result;
  for (const Tile::Activations &token : tile.tokens)
    scales.push_back(b.load(b.f32, b.at(token.d, block, 4)));
  for (size_t i = 0; i < tile.size; ++i) {
    Value scale =
        forToken(floats(), [&](size_t t) { return scales[t]; }, int64_t(i));
    result.push_back(b.fma(t[i], scale, totals[i]));
  }
  return result;
}

void TileSums::begin(ArrayRef<Panel> panels, Value output,
                     ArrayRef<Value> tokens) {
  const size_t size = panels.size() * tokens.size() * loops.vectors;
  tile = {panels, output, tokens.front(), {}, size};
  for (Value token : tokens)
    tile.tokens.push_back({b.at(p.q, token, p.k),
                           b.at(p.d, b.mul(token, p.activationBlocks()), 4),
                           b.at(p.sums, b.mul(token, p.groups()), 4)});
}

Values TileSums::addBlocks(Values totals, Value first, Value whole,
                           Value last) {
  auto add = [&](Value begin, Value end, int64_t each) {
    totals = b.loop(begin, end, 1, totals, [&](Value block, ValueRange before) {
      Value group = b.mul(block, kBlockGroups);
      Value groupEnd = b.add(group, kBlockGroups);
      if (each == 1)
        groupEnd = b.smaller(p.groups(), groupEnd);
      return addBlock(block, before, {group, groupEnd, each});
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
    begin(panels, output, tokens);
    Values totals =
        addBlocks(Values(tile.size, b.zeros(floats())), b.integer(0),
                  wholeBlocks(), p.activationBlocks());
    // Lanes of pairs go to their tokens.
    for (size_t i = 0; pairs && i < tile.size; ++i)
      if (tokenOf(int64_t(i)) % 2 == 0) {
        Value &first = totals[i], &second = totals[i + size_t(loops.vectors)];
        Value low = first, high = second;
        first = b.permuted("uzp", 64, low, high, false);
        second = b.permuted("uzp", 64, low, high, true);
      }
    return totals;
  });
}
