//===- GroupDots.cpp - The order of tiles of integer dots -----------------===//
//
// Each tile unpacks the weights that it multiplies (Linear.cpp has the loops
// around):
//
//   for each block of 128 activations
//     for each group of 32 along K
//       for each chunk: unpack, dots of all tokens with it
//       scales, where each group has its own; integers of sub-blocks
//     scales, where the block shares them; the activations' scales
//
//===----------------------------------------------------------------------===//

#include "GroupDots.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include <bit>

using namespace qwen;
using namespace mlir;

GroupDots::GroupDots(const KernelInfo &kernel, const TileSchedule &schedule,
                     ModuleOp module, bool inTurn)
    : TileOrder(kernel, schedule, module, ByteForm::Biased), inTurn(inTurn) {
  if (subDots > 1 && unpack->range.bias != 0)
    subStarts = b.scratch(schedule.tokens * kActivationBlock);
  if (kernel.m == 1 && !scalesOf(format).hasSubBlocks() &&
      unpack->range.bias == 0 && unpack->parts > 1 &&
      (isa.dot.kind == DotKind::Sdot || isa.dot.kind == DotKind::SdotLane))
    storeMagic();
}

/// Fills what dots without a correction start from (magicStart).
void GroupDots::storeMagic() {
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
void GroupDots::prefetch(Value line) {
  if (schedule.prefetch <= 1)
    return;
  if (schedule.streams > 0)
    b.keepLoadsInOrder();
  b.prefetch(b.at(line, schedule.prefetch));
}

/// The kernel's M tokens share the lines evenly, by tile and block: a core
/// waits for few lines at once.
void GroupDots::prefetchShare(const Tile &tile, Value block) {
  if (schedule.prefetch != 1)
    return;
  const int64_t bytes =
      kBlockGroups * panelGroupBytes(format) +
      panelHeaderBytes(format) * kActivationBlock / weightBlock(format);
  const int64_t tiles = kernel.m / schedule.tokens;
  const auto lines = int64_t(llvm::divideCeil(
      int64_t(tile.panels.size()) * bytes, ProductBuilder::kCacheLine * tiles));
  // A call with more tokens has fetched all lines before its last tiles.
  Value number = b.smaller(
      arith::DivUIOp::create(b, tile.first, b.integer(schedule.tokens)),
      b.integer(tiles - 1));
  Value done = b.add(b.mul(number, activationBlocks()), block);
  Value next = b.at(tile.panels.front().weights, nextPanel);
  for (int64_t i = 0; i < lines; ++i)
    b.prefetch(b.at(b.at(next, b.mul(done, lines * ProductBuilder::kCacheLine)),
                    i * ProductBuilder::kCacheLine));
}

Value GroupDots::loadVector(Value chunks, int64_t chunk, int64_t v) {
  return b.load(
      b.vector(vectorBytes, b.getI8Type()),
      b.at(b.at(chunks, chunk * kChunkBytes), b.scaled(v * vectorBytes)));
}

Value GroupDots::activations(Value q, int64_t step) {
  if (isa.arch == Arch::AArch64)
    return b.loadQuad(b.getI8Type(), b.at(q, step / 4 * 16));
  Value word = LLVM::LoadOp::create(b, b.getI32Type(), b.at(q, 4 * step), 1);
  return vector::BitCastOp::create(b, b.vector(4 * lanes, b.getI8Type()),
                                   b.splat(integers(), word));
}

void GroupDots::prefetchChunk(Value chunks, int64_t chunk) {
  prefetch(b.at(chunks, chunk * kChunkBytes));
  if (chunk < unpack->upperChunks)
    prefetch(b.at(chunks, (unpack->chunks() + chunk) * kChunkBytes));
}

Values GroupDots::startsOf(const Group &group) {
  const auto count = int64_t(group.panels) * schedule.tokens * vectors;
  Values starts;
  for (int64_t i = 0; i < count; ++i)
    for (int64_t sub = 0; sub < subDots; ++sub)
      starts.push_back(group.start(i, sub));
  return starts;
}

void GroupDots::addGroup(const Group &group) {
  const Values starts = startsOf(group);
  const size_t each = abreast > 1 ? group.panels : 1;
  for (size_t p = 0; p < group.panels; p += each)
    for (int64_t sub = 0; sub < subDots; ++sub)
      addPanels(group, p, each, sub, starts);
}

/// Dots `sub` of `count` panels from `first` on, which share the activations.
void GroupDots::addPanels(const Group &group, size_t first, size_t count,
                          int64_t sub, ArrayRef<Value> starts) {
  const int64_t tokens = schedule.tokens, chunks = unpack->chunks();
  const auto size = int64_t(tokens * vectors);
  SmallVector<Value> from, again;
  SmallVector<std::unique_ptr<Dot>> dots;
  for (size_t p = 0; p < count; ++p) {
    from.push_back(b.at(group.chunks(first + p), b.mul(group.output, 4)));
    again.push_back(unpack->loadsTwice(b) ? b.opaque(from[p]) : from[p]);
    for (int64_t i = 0; i < size; ++i)
      dots.push_back(dotFrom(starts[((first + p) * size + i) * subDots + sub]));
  }
  auto addChunk = [&](int64_t chunk, int64_t v) {
    SmallVector<Values> codes;
    for (size_t p = 0; p < count; ++p) {
      if (v == 0 && sub == 0)
        prefetchChunk(from[p], chunk);
      codes.push_back(unpack->codes(b, chunk, [&](int64_t i, bool second) {
        return loadVector((second ? again : from)[p], i, v);
      }));
    }
    overParts(sub, [&](int64_t part) {
      Values w;
      for (const Values &packed : codes)
        w.push_back(unpack->bytes(b, packed, chunk, part));
      const int64_t step = chunk + part * chunks;
      for (int64_t t = 0; t < tokens; ++t) {
        Value x = activations(group.q[t], step);
        for (size_t p = 0; p < count; ++p)
          dots[p * size + t * vectors + v]->step(w[p], x, step % 4);
      }
    });
  };
  auto finishVector = [&](int64_t v) {
    for (int64_t i = v; i < std::ssize(dots); i += vectors)
      group.use(int64_t(first) * size + i, sub, dots[i]->finish());
  };
  // All vectors at once, or in turn.
  const int64_t each = inTurn ? 1 : vectors;
  for (int64_t begin = 0; begin < vectors; begin += each) {
    for (int64_t chunk = 0; chunk < chunks; ++chunk)
      for (int64_t v = begin; v < begin + each; ++v)
        addChunk(chunk, v);
    for (int64_t v = begin; v < begin + each; ++v)
      finishVector(v);
  }
}

//===----------------------------------------------------------------------===//
// Dots to floats
//===----------------------------------------------------------------------===//

bool GroupDots::startsFromMagic() const {
  return (isa.arch == Arch::AArch64 && unpack->range.bias != 0) ||
         hasMagicStarts();
}

/// No two vectors of a token start from the same value: LLVM would copy one
/// register, which takes a slot of the vectors' pipes, and a splat of a general
/// register takes none.
float GroupDots::magic(int64_t i) const {
  return magicStarts ? kMagic : kMagic + float(i % vectors);
}

/// The start value of accumulator `i` in group `g` where dots need no
/// correction. A load takes no slot of the vectors' pipes, and its address
/// depends on the group, or LLVM would keep the value and copy it.
Value GroupDots::magicStart(Value g, int64_t i) {
  Value group = arith::AndIOp::create(b, g, b.integer(kStartGroups - 1));
  return b.load(
      integers(),
      b.at(b.at(magicStarts, b.mul(group, kPanelOutputs * 4)), i * lanes * 4));
}

/// Bytes have a bias: sum(q * (w - bias)) = sum(q * w) - bias * sum(q).
Value GroupDots::lacking(Value activationSum, int64_t i) {
  const Type type = activationSum.getType();
  const int64_t from = startsFromMagic() ? std::bit_cast<int32_t>(magic(i)) : 0;
  return b.add(b.mul(activationSum, b.constant(type, -unpack->range.bias)),
               b.constant(type, from));
}

/// A tile has 8 dots, x86-64's cores start two a cycle, and each takes four to
/// five: in chains of a block of 128 they would wait. A core overlaps the short
/// chains of two groups.
bool GroupDots::shortChains() const {
  return isa.arch == Arch::X86_64 && weightBlock(format) == kActivationBlock;
}

Value GroupDots::correction(OfToken activationSum, int64_t i) {
  if (unpack->range.bias == 0)
    return nullptr;
  return b.splat(integers(), lacking(activationSum(tokenOf(i)), i));
}

/// t after the dots of accumulator `i` that started from correction().
/// minimumSum(i) is what its minimum is multiplied with, as i32 or f32.
Value GroupDots::scaled(Value dot, function_ref<Value(int64_t)> minimumSum,
                        Value header, const Tile &tile, int64_t i, Value t) {
  const Scaling &scaling = scalingOf(format);
  const Values scales =
      scaling.scales(b, unpack->range.factor, [&](int64_t number) {
        Value from = b.at(header, number * kMinimumOffset);
        Value values = b.loadFloats(lanes, b.getF16Type(),
                                    b.at(b.at(from, b.mul(tile.output, 2)),
                                         b.scaled(i % vectors * lanes * 2)));
        return forOutputs(values, i);
      });
  Value isum;
  if (startsFromMagic())
    isum = arith::SubFOp::create(b, vector::BitCastOp::create(b, floats(), dot),
                                 b.zeros(floats(), magic(i)));
  else
    isum = arith::SIToFPOp::create(b, floats(), dot);
  Value sum;
  if (scaling.takesSums())
    sum = minimumSum(i);
  if (sum && sum.getType() != floats())
    sum = arith::SIToFPOp::create(b, floats(), sum);
  return scaling.add(b, isum, sum, scales, t);
}

//===----------------------------------------------------------------------===//
// Blocks and groups
//===----------------------------------------------------------------------===//

Value GroupDots::headerOf(const Panel &panel, Value block) {
  return b.at(panel.weights, b.mul(block, panelBlockBytes(format)));
}

/// The sum of a token's activations of group `g`.
Value GroupDots::activationSum(const Activations &token, Value g) {
  return b.load(b.getI32Type(), b.at(token.sums, b.mul(g, 4)));
}

/// The sum of the activations of each token as f32, in the lanes of accumulator
/// `i`. Arm multiplies by an element of a register; cores without dot products
/// convert a vector in fewer slots.
Value GroupDots::floatSum(OfToken activationSum, int64_t i) {
  if (!b.isArm() || isa.dot.kind == DotKind::Smull)
    return arith::SIToFPOp::create(b, floats(),
                                   forToken(integers(), activationSum, i));
  auto asFloat = [&](size_t t) -> Value {
    return arith::SIToFPOp::create(b, b.getF32Type(), activationSum(t));
  };
  return forToken(floats(), asFloat, i);
}

Values GroupDots::startSums(Value zero, size_t count) {
  Values carried;
  if (!heldSums)
    carried.assign(count, zero);
  else
    for (size_t i = 0; i < count; ++i)
      setSum(carried, int64_t(i), zero);
  return carried;
}

Value GroupDots::sum(const Values &carried, VectorType type, int64_t i) {
  return heldSums ? b.loadKept(type, b.at(heldSums, i * vectorBytes))
                  : carried[i];
}

void GroupDots::setSum(Values &carried, int64_t i, Value value) {
  if (heldSums)
    b.storeKept(value, b.at(heldSums, i * vectorBytes));
  else
    carried[i] = value;
}

Values GroupDots::allSums(const Values &carried, VectorType type,
                          size_t count) {
  Values sums;
  for (size_t i = 0; i < count; ++i)
    sums.push_back(sum(carried, type, int64_t(i)));
  return sums;
}

/// t = the fma chain of isum * d_w over the groups of `span`, which have their
/// own scales. t starts from -0, with which the first fma is the rounded
/// product that docs/numerics.md asks for.
Values GroupDots::narrowSums(const Tile &tile, const GroupSpan &span) {
  Values carried = startSums(b.zeros(floats(), -0.0f), tile.size);
  overGroups(span, carried, [&](Value g) {
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
    auto chunks = [&](size_t p) {
      prefetch(headers[p]);
      return b.at(headers[p], panelHeaderBytes(format));
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

/// t where several groups of an activation block share scales.
Values GroupDots::wideSums(const Tile &tile, Value block,
                           const GroupSpan &span) {
  Values t(tile.size, b.zeros(floats(), -0.0f));
  overBlocks(span, t, [&](const GroupSpan &groups) {
    Value number =
        weightBlock(format) == kActivationBlock ? block : blockOf(groups.first);
    t = addWide(tile, number, groups, t);
  });
  return t;
}

/// t after a block of weights, whose dots are added as integers.
Values GroupDots::addWide(const Tile &tile, Value number, const GroupSpan &span,
                          const Values &before) {
  Values headers;
  for (const Panel &panel : tile.panels) {
    headers.push_back(headerOf(panel, number));
    prefetch(headers.back());
  }
  // The sums of activations are carried behind those of accumulators.
  Value zero = b.constant(integers(), 0);
  Values carried = startSums(zero, tile.size);
  if (hasMagicStarts())
    for (size_t i = 0; i < tile.size; ++i)
      carried[i] = magicStart(span.first, int64_t(i));
  const size_t behind = carried.size();
  carried.append(tile.tokens.size(), b.constant(b.getI32Type(), 0));
  overGroups(span, carried, [&](Value g) {
    Value offset =
        b.mul(arith::SubIOp::create(b, g, span.first), panelGroupBytes(format));
    Values q;
    for (auto [t, token] : llvm::enumerate(tile.tokens)) {
      q.push_back(b.at(token.q, b.mul(g, kGroup)));
      carried[behind + t] = b.add(carried[behind + t], activationSum(token, g));
    }
    auto chunks = [&](size_t p) {
      return b.at(b.at(headers[p], panelHeaderBytes(format)), offset);
    };
    addGroup({g, tile.panels.size(), tile.output, chunks, q,
              [&](int64_t i, int64_t) {
                return shortChains() ? zero : sum(carried, integers(), i);
              },
              [&](int64_t i, int64_t, Value dot) {
                if (shortChains())
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

Values GroupDots::subIntegersOf(const Tile &tile, const SubBlocks &in,
                                size_t panel, int64_t number, Value g,
                                int64_t sub) {
  Value inBlock = arith::SubIOp::create(b, g, in.first);
  Value j = b.add(b.mul(inBlock, subDots), b.integer(sub));
  return subIntegers(b, format, in.headers[panel], number, j, tile.output,
                     vectors, lanes);
}

Value GroupDots::subStartsOf(const IsaInfo &isa, Value q) {
  const int64_t bias = unpack->range.bias;
  const VectorType bytes = b.vector(4 * isa.lanes, b.getI8Type());
  std::unique_ptr<Dot> dot = makeDot(b, isa, {1, 0, bias, bias}, nullptr);
  dot->step(b.constant(bytes, bias), b.load(bytes, q), 0);
  // Sums of 4 values, of which 128 bits are a sub-block.
  Value sums = dot->finish();
  for (int64_t distance : {1, 2}) {
    SmallVector<int64_t> order;
    for (int64_t lane = 0; lane < isa.lanes; ++lane)
      order.push_back(lane ^ distance);
    sums = b.add(sums, vector::ShuffleOp::create(b, sums, sums, order));
  }
  return arith::SubIOp::create(b, b.constant(sums.getType(), 0), sums);
}

/// What dot `sub` of accumulator `i` in a group starts from.
Value GroupDots::subStart(OfToken activationSum, int64_t i, int64_t sub) {
  if (!subStarts)
    return correction(activationSum, i);
  Value from = b.at(subStarts,
                    int64_t(tokenOf(i)) * kActivationBlock + sub * kGroup / 2);
  return b.splat(integers(), b.load(b.getI32Type(), from));
}

/// The sums of activations times the minimums' integers of their sub-blocks,
/// for each accumulator.
Values GroupDots::subMinimums(const Tile &tile, const SubBlocks &in,
                              const GroupSpan &span) {
  Values carried(tile.size, b.constant(integers(), 0));
  overGroups(span, carried, [&](Value g) {
    Values sums, minimums;
    for (const Activations &token : tile.tokens)
      sums.push_back(activationSum(token, g));
    for (size_t p = 0; p < in.headers.size(); ++p)
      minimums.append(subIntegersOf(tile, in, p, 1, g, 0));
    for (auto [i, sum] : llvm::enumerate(carried)) {
      Value minimum = forOutputs(
          minimums[panelOf(int64_t(i)) * vectors + i % vectors], int64_t(i));
      Value activations =
          forToken(integers(), [&](size_t t) { return sums[t]; }, int64_t(i));
      sum = b.add(sum, b.mul(minimum, activations));
    }
  });
  return carried;
}

GroupDots::SubBlocks GroupDots::subBlocks(const Tile &tile, Value block) {
  const int64_t groups = weightBlock(format) / kGroup;
  Value number =
      b.shiftRight(block, std::countr_zero(uint64_t(groups / kBlockGroups)));
  SubBlocks in = {{}, b.mul(number, groups)};
  for (const Panel &panel : tile.panels) {
    in.headers.push_back(headerOf(panel, number));
    for (int64_t line = 0; line < panelHeaderBytes(format);
         line += ProductBuilder::kCacheLine)
      prefetch(b.at(in.headers.back(), line));
  }
  return in;
}

Values GroupDots::subBlockSums(const Tile &tile, Value block,
                               const GroupSpan &span) {
  const SubBlocks in = subBlocks(tile, block);
  Values carried = startSums(b.constant(integers(), 0), tile.size);
  overGroups(span, carried, [&](Value g) {
    Value inBlock = arith::SubIOp::create(b, g, in.first);
    Values q;
    for (const Activations &token : tile.tokens)
      q.push_back(b.at(token.q, b.mul(g, kGroup)));
    if (subStarts)
      for (auto [t, from] : llvm::enumerate(q))
        b.store(subStartsOf(isaInfo(KernelIsa::AVXVNNI), from),
                b.at(subStarts, int64_t(t) * kActivationBlock));
    auto chunks = [&](size_t p) {
      return b.at(b.at(in.headers[p], panelHeaderBytes(format)),
                  b.mul(inBlock, panelGroupBytes(format)));
    };
    auto sumOf = [&](size_t t) { return activationSum(tile.tokens[t], g); };
    // Of a panel and sub-block, which all tokens share.
    SmallVector<Values> integersOf(tile.panels.size() * subDots);
    auto scaleOf = [&](int64_t i, int64_t sub) {
      Values &scales = integersOf[panelOf(i) * subDots + sub];
      if (scales.empty())
        scales = subIntegersOf(tile, in, panelOf(i), 0, g, sub);
      return forOutputs(scales[i % vectors], i);
    };
    addGroup({g, tile.panels.size(), tile.output, chunks, q,
              [&](int64_t i, int64_t sub) {
                return scalesDots() ? sum(carried, integers(), i)
                                    : subStart(sumOf, i, sub);
              },
              [&](int64_t i, int64_t sub, Value dot) {
                setSum(carried, i,
                       scalesDots() ? dot
                                    : b.add(sum(carried, integers(), i),
                                            b.mul(dot, scaleOf(i, sub))));
              },
              scaleOf});
  });
  Values minimums, t;
  if (scalesOf(format).hasMinimum())
    minimums = subMinimums(tile, in, span);
  for (auto [i, dot] : llvm::enumerate(allSums(carried, integers(), tile.size)))
    t.push_back(scaled(
        dot, [&](int64_t i) { return minimums[i]; },
        in.headers[panelOf(int64_t(i))], tile, int64_t(i),
        b.zeros(floats(), -0.0f)));
  return t;
}

/// acc = fma(t, d_a, acc) over an activation block.
Values GroupDots::addBlock(const Tile &tile, Value block, ValueRange totals,
                           const GroupSpan &span) {
  prefetchShare(tile, block);
  const Values t =
      scalesOf(format).hasSubBlocks() ? subBlockSums(tile, block, span)
      : weightBlock(format) == kGroup ? narrowSums(tile, span)
                                      : wideSums(tile, block, span);
  Values scales, result;
  for (const Activations &token : tile.tokens)
    scales.push_back(b.load(b.getF32Type(), b.at(token.d, b.mul(block, 4))));
  for (size_t i = 0; i < tile.size; ++i) {
    Value scale =
        forToken(floats(), [&](size_t t) { return scales[t]; }, int64_t(i));
    result.push_back(math::FmaOp::create(b, t[i], scale, totals[i]));
  }
  return result;
}

GroupDots::Activations GroupDots::activationsAt(Value token) {
  return {b.at(q, b.mul(token, k)),
          b.at(d, b.mul(b.mul(token, activationBlocks()), 4)),
          b.at(sums, b.mul(b.mul(token, groups()), 4))};
}

GroupDots::Tile GroupDots::tileOf(ArrayRef<Panel> panels, Value output,
                                  ArrayRef<Value> tokens) {
  Tile tile = {panels,
               output,
               tokens.front(),
               {},
               panels.size() * tokens.size() * vectors};
  for (Value token : tokens)
    tile.tokens.push_back(activationsAt(token));
  return tile;
}

Values GroupDots::addBlocks(const Tile &tile, Values totals, Value first,
                            Value whole, Value last) {
  auto add = [&](Value begin, Value end, int64_t each) {
    totals = b.loop(begin, end, 1, totals, [&](Value block, ValueRange before) {
      Value group = b.mul(block, kBlockGroups);
      Value groupEnd = b.add(group, b.integer(kBlockGroups));
      if (each == 1)
        groupEnd = b.smaller(groups(), groupEnd);
      return addBlock(tile, block, before, {group, groupEnd, each});
    });
  };
  // The last panel of an odd number is rare, so it gets the shorter code.
  const bool isShared = int64_t(tile.panels.size()) >= abreast;
  if (schedule.unroll > 1 && isShared) {
    add(first, whole, schedule.unroll);
    first = whole;
  }
  add(first, last, 1);
  return totals;
}

SmallVector<Values> GroupDots::tileSums(ArrayRef<Panel> panels, Value output,
                                        ArrayRef<Value> tokens) {
  const Tile tile = tileOf(panels, output, tokens);
  return byPanel(tile,
                 addBlocks(tile, Values(tile.size, b.zeros(floats())),
                           b.integer(0), wholeBlocks(), activationBlocks()));
}

SmallVector<Values> GroupDots::byPanel(const Tile &tile, const Values &totals) {
  const size_t each = tile.size / tile.panels.size();
  SmallVector<Values> tiles;
  for (size_t p = 0; p < tile.panels.size(); ++p)
    tiles.emplace_back(ArrayRef(totals).slice(p * each, each));
  return tiles;
}

void qwen::emitOrder(const KernelInfo &kernel,
                     const GroupDotsSchedule &schedule, ModuleOp module) {
  GroupDots(kernel,
            {schedule.tokens, schedule.vectors, schedule.unroll,
             schedule.prefetch, schedule.streams},
            module, schedule.inTurn != 0)
      .emit();
}
