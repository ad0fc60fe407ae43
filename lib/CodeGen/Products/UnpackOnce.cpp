//===- UnpackOnce.cpp - Many tokens for each unpacked block ---------------===//
//
// Arm's order for prompts. The innermost loop takes the tiles of a strip of
// tokens for one block of 128 along K; then come the next tiles of outputs, the
// next panel, the next block. A block's weights and scales are unpacked once
// for the strip, in the order of their use. They, the activations of pairs of
// tokens and the f32 sums of the strip lie on the stack, in the first cache;
// the dots of a tile stay in registers for a block. Dots and their conversion
// to floats then bound the innermost loop: docs/notebook/arm-static-model.md.
//
//                strip of tokens
//   panel    K | +------+------+------+
//   panel      v | tile | tile | tile |   unpack a block of a panel, all tiles;
//     ...        +------+------+------+   the next panel; the next block
//
//===----------------------------------------------------------------------===//

#include "UnpackOnce.h"
#include "llvm/Support/SaveAndRestore.h"
#include <bit>

using namespace qwen;
using namespace mlir;

/// The scratch has room for the longest vectors of SVE, 256 bytes, of which a
/// panel needs one.
void UnpackOnce::layOutScratch() {
  const int64_t longest = b.isScalable() ? 4 : 1;
  const int64_t line = kPanelOutputs * 4 * longest;
  // A line for each half of a vector in pairs.
  const int64_t lines = bundleRegisters * line;
  const int64_t sumsOfBlock = byteMinimums          ? 2
                              : scaling.takesSums() ? kBlockGroups / sumGroups
                                                    : 0;
  activationBytes = pairs ? 2 * kActivationBlock + 16 * (1 + sumsOfBlock) : 0;
  const int64_t registers = std::max(schedule.tokens * schedule.vectors,
                                     fixed.tokens * fixed.vectors);
  startBytes = kBlockGroups * 16 * registers + 256;
  minimumStartBytes = byteMinimums ? 16 * registers + 256 : 0;
  const int64_t bundles = schedule.strip / bundleTokens;
  const std::pair<Value *, int64_t> parts[] = {
      {&unpacked, kBlockGroups * 8 * line},
      {&scales, kBlockGroups * scaling.count() * lines},
      {&integers, kBlockGroups * groupIntegers * lines},
      {&minimums, byteMinimums ? lines : 0},
      {&stripSums, schedule.panels * bundles * lines},
      {&starts, startBytes},
      {&minimumStarts, minimumStartBytes},
      {&activations, bundles * activationBytes}};
  int64_t total = 0;
  for (auto [part, bytes] : parts)
    total += bytes;
  Value at = b.scratch(total);
  for (auto [part, bytes] : parts) {
    *part = at;
    at = b.at(at, bytes);
  }
  // A loop, so that LLVM takes the starts from memory: loads have slots to
  // spare where the copies of a register have not.
  auto fill = [&](Value to, int64_t size, int32_t value) {
    b.loop(0, size / 4, 1,
           [&](Value i) { b.store(b.constant(b.i32, value), b.at(to, i, 4)); });
  };
  fill(starts, startBytes, std::bit_cast<int32_t>(kMagic));
  if (byteMinimums)
    fill(minimumStarts, minimumStartBytes,
         std::bit_cast<int32_t>(kMagic) >> kSumBits);
}

/// The code for vectors of 128 bits. The scratch has room for longer ones, so
/// the parts behind the sums lie far away. LLVM would keep a pointer to each
/// of them, and tiles that multiply sums of activations have no registers for
/// these. One opaque pointer replaces them.
void UnpackOnce::emitFixed() {
  const llvm::SaveAndRestore keptStarts(starts), keptMinimums(minimumStarts),
      keptActivations(activations);
  if (scaling.takesSums()) {
    starts = b.opaque(starts);
    minimumStarts = b.at(starts, startBytes);
    activations = b.at(minimumStarts, minimumStartBytes);
  }
  emitPanels(4, b.integer(0));
}

void UnpackOnce::emit() {
  layOutScratch();
  if (b.isScalable())
    b.byLength([&] { emitFixed(); },
               [&] {
                 b.forEachVector(b.integer(kPanelOutputs), 2,
                                 [&](Value output, int64_t count) {
                                   emitPanels(count, output);
                                 });
               });
  else
    emitPanels(4, b.integer(0));
  b.finish();
}

/// The `count` vectors of outputs from `first` on of all panels.
void UnpackOnce::emitPanels(int64_t count, Value first) {
  output = first;
  current = b.isScalable() ? &schedule : &fixed;
  vectors = count;
  panelRegisters = count * bundleRegisters;
  tileBundles = current->tokens / bundleTokens;
  tileRegisters = std::min(current->vectors, vectors) * bundleRegisters;
  b.loop(p.panelBegin, p.panelEnd, schedule.panels, [&](Value panel) {
    Value last = b.smaller(p.panelEnd, b.add(panel, schedule.panels));
    b.loop(0, p.m, schedule.strip, [&](Value first) {
      firstToken = first;
      stripBundles =
          b.div(b.smaller(b.integer(schedule.strip), b.sub(p.m, first)),
                bundleTokens);
      emitStrip(panel, last);
    });
  });
}

/// The outputs of panels [panel, last) for a strip of tokens.
void UnpackOnce::emitStrip(Value panel, Value last) {
  Value panels = b.sub(last, panel);
  Value panelSums = b.mul(stripBundles, panelRegisters);
  Value none = b.zeros(floats());
  b.loop(0, b.mul(panels, panelSums), 1,
         [&](Value i) { storeWhole(none, atRegister(stripSums, i, 1)); });
  auto sumsOf = [&](Value index) {
    return atRegister(stripSums, b.mul(index, panelSums), 1);
  };
  Value stride = p.panelStride();
  auto addBlock = [&](Value number, Value groups) {
    block = number;
    blockGroups = groups;
    if (pairs)
      arrangeActivations();
    b.loop(0, panels, 1, [&](Value index) {
      unpackBlock(b.at(p.weights, b.add(panel, index), stride));
      multiply(sumsOf(index));
    });
  };
  Value allGroups = p.groups(), blocks = b.div(allGroups, kBlockGroups);
  isWhole = true;
  b.loop(0, blocks, 1,
         [&](Value number) { addBlock(number, b.integer(kBlockGroups)); });
  // The last block, if it is partial.
  isWhole = false;
  Value done = b.mul(blocks, kBlockGroups), rest = b.sub(allGroups, done);
  b.loop(done, allGroups, kBlockGroups, [&](Value) { addBlock(blocks, rest); });
  b.loop(0, panels, 1, [&](Value index) {
    finish(sumsOf(index),
           b.add(b.mul(b.add(panel, index), kPanelOutputs), output));
  });
}

/// Stores the tokens' outputs from the sums of a strip.
void UnpackOnce::finish(Value panelSums, Value first) {
  b.loop(0, stripBundles, 1, [&](Value bundle) {
    Value line = atRegister(panelSums, bundle, panelRegisters);
    Values tokens, tile;
    for (int64_t t = 0; t < bundleTokens; ++t) {
      tokens.push_back(
          b.add(firstToken, b.add(b.mul(bundle, bundleTokens), t)));
      for (int64_t v = 0; v < vectors; ++v) {
        auto sum = [&](int64_t half) {
          return loadWhole(floats(),
                           atRegister(line, v * bundleRegisters + half));
        };
        tile.push_back(pairs ? b.permuted("uzp", 64, sum(0), sum(1), t != 0)
                             : sum(0));
      }
    }
    p.store(first, tokens, tile, kLanes);
  });
}

/// sums = fma(t, d_a, sums) for the tiles of a strip and panel.
void UnpackOnce::multiply(Value panelSums) {
  b.loop(0, vectors, tileRegisters / bundleRegisters, [&](Value v) {
    b.loop(0, stripBundles, tileBundles, [&](Value bundle) {
      const Tile tile = tileOf(v, bundle);
      const Values t = blockSums(tile);
      for (int64_t i = 0; i < tileBundles; ++i) {
        Value line = inTile(
            atRegister(panelSums, b.add(bundle, i), panelRegisters), tile);
        for (int64_t r = 0; r < tileRegisters; ++r) {
          Value at = atRegister(line, r);
          storeWhole(b.fma(t[i * tileRegisters + r], tile.d[i],
                           loadWhole(floats(), at)),
                     at);
        }
      }
    });
  });
}

UnpackOnce::Tile UnpackOnce::tileOf(Value v, Value bundle) {
  Tile tile = {b.mul(v, bundleRegisters), {}, {}, {}};
  Value blocks = p.activationBlocks();
  for (int64_t i = 0; i < tileBundles; ++i) {
    Value index = b.add(bundle, i);
    if (pairs) {
      Value q = b.at(activations, index, activationBytes);
      tile.q.push_back(q);
      tile.d.push_back(loadPairs(floats(), b.at(q, 2 * kActivationBlock)));
      tile.sums.push_back(b.at(q, 2 * kActivationBlock + 16));
      continue;
    }
    Value token = b.add(firstToken, index);
    tile.q.push_back(activationsOf(token));
    tile.d.push_back(b.splat(floats(), scaleOf(token, blocks)));
    tile.sums.push_back(sumsOf(token));
  }
  return tile;
}

/// t of the block for each register of a tile.
Values UnpackOnce::blockSums(const Tile &tile) {
  const int64_t count = tileBundles * tileRegisters;
  const GroupSpan span = {b.integer(0), blockGroups,
                          isWhole ? current->unroll : 1};
  if (p.divided)
    return subBlockSums(tile, span);
  Values t(count, b.zeros(floats(), -0.0f));
  p.overBlocks(span, t, [&](const GroupSpan &groups) {
    Values dots;
    Value from = b.at(starts, groups.first, 16 * count);
    for (int64_t i = 0; i < count; ++i)
      dots.push_back(loadWhole(words(), b.at(from, 16 * i)));
    p.overGroups(groups, dots,
                 [&](Value g) { dots = addGroup(tile, g, 0, dots); });
    Value number = p.blockOf(groups.first);
    const Values sums = bundleSums(tile, number);
    auto isumOf = [&](int64_t i) { return minusMagic(dots[i]); };
    t = scaled(tile, number, isumOf, sums, t);
  });
  return t;
}

/// t where the dots of sub-blocks, and the sums of activations, are
/// multiplied with integers.
Values UnpackOnce::subBlockSums(const Tile &tile, const GroupSpan &span) {
  const auto count = size_t(tileBundles * tileRegisters);
  const Values zeros(count, b.constant(words(), 0));
  const bool behind = scaling.takesSums() && !byteMinimums;
  // Behind the sums of dots those of activations.
  Values carried(behind ? 2 * count : count, zeros[0]);
  p.overGroups(span, carried, [&](Value g) {
    Value from =
        inTile(atRegister(integers, g, groupIntegers * panelRegisters), tile);
    auto addTo = [&](size_t i, int64_t set, Value factor) {
      Value integer = loadWhole(
          words(), atRegister(from, set * panelRegisters +
                                        int64_t(i % count) % tileRegisters));
      carried[i] = b.add(carried[i], b.mul(factor, integer));
    };
    for (int64_t sub = 0; sub < p.subDots; ++sub)
      for (auto [i, dot] : llvm::enumerate(addGroup(tile, g, sub, zeros)))
        addTo(i, sub, dot);
    if (behind) {
      const Values sums = bundleSums(tile, g);
      for (size_t i = 0; i < count; ++i)
        addTo(count + i, p.subDots, sums[i / size_t(tileRegisters)]);
    }
  });
  for (Value &value : carried)
    value = b.toFloat(floats(), value);
  if (byteMinimums)
    carried.append(minimumSums(tile));
  return scaled(
      tile, b.integer(0), [&](int64_t i) { return carried[i]; },
      ArrayRef(carried).drop_front(count),
      Values(count, b.zeros(floats(), -0.0f)));
}

/// The sums of activations of a block times the sub-minimums of their groups,
/// as f32: kMagic's lowest bits are zeros.
Values UnpackOnce::minimumSums(const Tile &tile) {
  Values result;
  for (Value from : tile.sums) {
    Value low = b.loadQuad(b.i8, from);
    Value high = b.loadQuad(b.i8, b.at(from, 16));
    for (int64_t r = 0; r < tileRegisters; ++r) {
      Value at = inTile(atRegister(minimums, r), tile);
      Value w = b.bitcast(bytes(), loadWhole(words(), at));
      Value start =
          loadWhole(words(), b.at(minimumStarts, 16 * int64_t(result.size())));
      Value sum = addByteDots(b, p.isa, start, w, high);
      sum = b.shiftLeft(sum, kSumBits);
      result.push_back(minusMagic(addByteDots(b, p.isa, sum, w, low)));
    }
  }
  return result;
}

/// Dots `sub` of a group, from what they were before.
Values UnpackOnce::addGroup(const Tile &tile, Value g, int64_t sub,
                            const Values &before) {
  Value from = inTile(atRegister(unpacked, g, 8 * vectors), tile);
  // Registers of activations.
  const int64_t loads = kGroup * bundleTokens / 16;
  SmallVector<Values> x(tileBundles);
  SmallVector<Dot> dots;
  for (int64_t i = 0; i < tileBundles; ++i)
    for (int64_t load = 0; load < loads; ++load)
      x[i].push_back(b.loadQuad(
          b.i8, b.at(b.at(tile.q[i], g, kGroup * bundleTokens), 16 * load)));
  for (Value dot : before)
    dots.emplace_back(b, p.isa, p.unpack->range, dot);
  const int64_t first = sub * steps / p.subDots;
  for (int64_t step = first; step < first + steps / p.subDots; ++step)
    for (int64_t r = 0; r < tileRegisters; ++r) {
      // As words, whose loads have the longer offsets with SVE.
      Value w = b.bitcast(
          bytes(),
          loadWhole(words(), atRegister(from, step * panelRegisters + r)));
      for (int64_t i = 0; i < tileBundles; ++i)
        dots[i * tileRegisters + r].step(w, x[i][step * loads / steps],
                                         step % 4);
    }
  Values sums;
  for (Dot &dot : dots)
    sums.push_back(dot.finish());
  return sums;
}

/// Sum `i` of the activations of a block (activationSum) in the lanes of each
/// bundle's registers; empty without minimums.
Values UnpackOnce::bundleSums(const Tile &tile, Value i) {
  Values result;
  const VectorType type = p.divided ? words() : floats();
  if (scaling.takesSums())
    for (Value from : tile.sums)
      result.push_back(pairs ? loadPairs(type, b.at(from, i, 16))
                             : b.splat(type, activationSum(from, i)));
  return result;
}

/// Adds a block of weights to t, `number` in the activation block. In
/// register i the scale multiplies isumOf(i), and the minimum multiplies a
/// value of `sums`, which has one for each register or for each bundle.
Values UnpackOnce::scaled(const Tile &tile, Value number,
                          function_ref<Value(int64_t i)> isumOf,
                          ArrayRef<Value> sums, ValueRange t) {
  Values result;
  Value from = inTile(
      atRegister(scales, number, scaling.count() * panelRegisters), tile);
  const size_t each = sums.empty() ? 1 : t.size() / sums.size();
  for (size_t i = 0; i < t.size(); ++i) {
    Values w;
    for (int64_t n = 0; n < scaling.count(); ++n)
      w.push_back(loadWhole(
          floats(),
          atRegister(from, n * panelRegisters + int64_t(i) % tileRegisters)));
    Value isum = isumOf(int64_t(i)),
          sum = sums.empty() ? Value() : sums[i / each];
    result.push_back(scaling.add(b, isum, sum, w, t[i]));
  }
  return result;
}

void qwen::emitOrder(const KernelInfo &kernel,
                     const UnpackOnceSchedule &schedule, ModuleOp module) {
  UnpackOnce(kernel, schedule, module).emit();
}
