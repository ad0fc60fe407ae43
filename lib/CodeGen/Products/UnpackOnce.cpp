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
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/SaveAndRestore.h"
#include <bit>

using namespace qwen;
using namespace mlir;

/// The scratch has room for the longest vectors of SVE, 256 bytes, of which a
/// panel needs one.
void UnpackOnce::layOutScratch() {
  const int64_t longest = b.isScalable() ? 4 : 1;
  const int64_t line = kPanelOutputs * 4 * longest;
  // The bundles' activations and their scales.
  const int64_t sumsOfBlock = byteMinimums          ? 2
                              : scaling.takesSums() ? kBlockGroups / sumGroups
                                                    : 0;
  activationBytes = pairs ? 2 * kActivationBlock + 16 * (1 + sumsOfBlock) : 0;
  const int64_t bundles = schedule.strip / bundleTokens;
  const int64_t weightBytes = kBlockGroups * 8 * line;
  const int64_t scaleBytes =
      kBlockGroups * scaling.count() * bundleRegisters * line;
  const int64_t integerBytes =
      kBlockGroups * groupIntegers * bundleRegisters * line;
  const int64_t minimumBytes = byteMinimums ? bundleRegisters * line : 0;
  const int64_t sumBytes = schedule.panels * bundles * bundleRegisters * line;
  const int64_t registers = std::max(schedule.tokens * schedule.vectors,
                                     fixed.tokens * fixed.vectors);
  startBytes = kBlockGroups * 16 * registers + 256;
  minimumStartBytes = byteMinimums ? 16 * registers + 256 : 0;
  unpacked = b.scratch(weightBytes + scaleBytes + integerBytes + minimumBytes +
                       sumBytes + startBytes + minimumStartBytes +
                       bundles * activationBytes);
  scales = b.at(unpacked, weightBytes);
  integers = b.at(scales, scaleBytes);
  minimums = b.at(integers, integerBytes);
  stripSums = b.at(minimums, minimumBytes);
  starts = b.at(stripSums, sumBytes);
  placeBehindStarts();
  // A loop, so that LLVM takes the starts from memory: loads have slots to
  // spare where the copies of a register have not.
  auto fill = [&](Value to, int64_t size, int32_t value) {
    b.loop(b.integer(0), b.integer(size / 4), 1, [&](Value i) {
      b.store(b.constant(b.getI32Type(), value), b.at(to, b.mul(i, 4)));
    });
  };
  fill(starts, startBytes, std::bit_cast<int32_t>(kMagic));
  if (byteMinimums)
    fill(minimumStarts, minimumStartBytes,
         std::bit_cast<int32_t>(kMagic) >> kSumBits);
}

void UnpackOnce::placeBehindStarts() {
  minimumStarts = b.at(starts, startBytes);
  activations = b.at(minimumStarts, minimumStartBytes);
}

/// The code for vectors of 128 bits. The scratch has room for longer ones, so
/// the parts behind the sums lie far away. LLVM would keep a pointer to each of
/// them, and tiles that multiply sums of activations have no registers for
/// these. One opaque pointer replaces them.
void UnpackOnce::emitFixed() {
  const llvm::SaveAndRestore keptStarts(starts), keptMinimums(minimumStarts),
      keptActivations(activations);
  if (scaling.takesSums()) {
    starts = b.opaque(starts);
    placeBehindStarts();
  }
  emitPanels(4, b.integer(0));
}

void UnpackOnce::emit() {
  layOutScratch();
  if (b.isScalable()) {
    b.byLength([&] { emitFixed(); },
               [&] {
                 b.forEachVector(b.integer(kPanelOutputs), 2,
                                 [&](Value output, int64_t count) {
                                   emitPanels(count, output);
                                 });
               });
  } else {
    emitPanels(4, b.integer(0));
  }
  b.finish();
}

/// The `count` vectors of outputs from `output` on of all panels.
void UnpackOnce::emitPanels(int64_t count, Value output) {
  current = b.isScalable() ? &schedule : &fixed;
  vectors = count;
  panelRegisters = count * bundleRegisters;
  tileBundles = current->tokens / bundleTokens;
  tileRegisters = std::min(current->vectors, vectors) * bundleRegisters;
  b.loop(p.panelBegin, p.panelEnd, schedule.panels, [&](Value panel) {
    Value last =
        b.smaller(p.panelEnd, b.add(panel, b.integer(schedule.panels)));
    b.loop(b.integer(0), p.m, schedule.strip, [&](Value first) {
      Value tokens = b.smaller(b.integer(schedule.strip), b.sub(p.m, first));
      Value bundles = b.shiftRight(tokens, bundleTokens - 1);
      emitStrip(panel, last, {first, bundles}, output);
    });
  });
}

/// The outputs of panels [panel, last) for a strip of tokens.
void UnpackOnce::emitStrip(Value panel, Value last, const Strip &strip,
                           Value output) {
  Value panels = b.sub(last, panel);
  Value panelSums = b.mul(strip.bundles, panelRegisters);
  Value none = b.zeros(floats());
  b.loop(b.integer(0), b.mul(panels, panelSums), 1,
         [&](Value i) { storeWhole(none, atRegister(stripSums, i, 1)); });
  auto sumsOf = [&](Value index) {
    return atRegister(stripSums, b.mul(index, panelSums), 1);
  };
  Value stride = p.panelStride();
  auto addBlock = [&](const Block &block) {
    if (pairs)
      arrangeActivations(strip, block);
    b.loop(b.integer(0), panels, 1, [&](Value index) {
      unpackBlock(b.at(p.weights, b.mul(b.add(panel, index), stride)), output,
                  block);
      multiply(sumsOf(index), strip, block);
    });
  };
  Value allGroups = p.groups();
  Value blocks = b.shiftRight(allGroups, 2);
  b.loop(b.integer(0), blocks, 1, [&](Value block) {
    addBlock({block, b.integer(kBlockGroups), true});
  });
  // The last block, if it is partial.
  Value done = b.mul(blocks, kBlockGroups);
  Value rest = b.sub(allGroups, done);
  b.loop(done, allGroups, kBlockGroups,
         [&](Value) { addBlock({blocks, rest, false}); });
  b.loop(b.integer(0), panels, 1, [&](Value index) {
    finish(sumsOf(index),
           b.add(b.mul(b.add(panel, index), kPanelOutputs), output), strip);
  });
}

/// sums = fma(t, d_a, sums) for the tiles of a strip and panel.
void UnpackOnce::multiply(Value panelSums, const Strip &strip,
                          const Block &block) {
  b.loop(b.integer(0), b.integer(vectors), tileRegisters / bundleRegisters,
         [&](Value v) {
           b.loop(b.integer(0), strip.bundles, tileBundles, [&](Value bundle) {
             const Tile tile = tileOf(strip, block, v, bundle);
             const Values t = blockSums(tile, block);
             for (int64_t i = 0; i < tileBundles; ++i) {
               Value line =
                   b.at(atRegister(panelSums, b.add(bundle, b.integer(i)),
                                   panelRegisters),
                        b.mul(tile.first, b.scaled(16)));
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

UnpackOnce::Tile UnpackOnce::tileOf(const Strip &strip, const Block &block,
                                    Value v, Value bundle) {
  Tile tile = {b.mul(v, bundleRegisters), {}, {}, {}};
  Value blocks = p.activationBlocks();
  for (int64_t i = 0; i < tileBundles; ++i) {
    Value index = b.add(bundle, b.integer(i));
    if (pairs) {
      tile.q.push_back(b.at(activations, b.mul(index, activationBytes)));
      tile.d.push_back(vector::BitCastOp::create(
          b, floats(),
          b.loadQuad(b.getI8Type(),
                     b.at(tile.q.back(), 2 * kActivationBlock))));
      tile.sums.push_back(b.at(tile.q.back(), 2 * kActivationBlock + 16));
      continue;
    }
    Value token = b.add(strip.first, index);
    tile.q.push_back(
        p.activationsOf(token, b.mul(block.number, kActivationBlock)));
    Value scale = b.mul(b.add(b.mul(token, blocks), block.number), 4);
    tile.d.push_back(
        b.splat(floats(), b.load(b.getF32Type(), b.at(p.d, scale))));
    tile.sums.push_back(activationSums(token, block));
  }
  return tile;
}

/// t of the block for each register of a tile.
Values UnpackOnce::blockSums(const Tile &tile, const Block &block) {
  const int64_t count = tileBundles * tileRegisters;
  auto start = [&](Value g) {
    Values result;
    Value from = b.at(starts, b.mul(g, 16 * count));
    for (int64_t i = 0; i < count; ++i)
      result.push_back(loadWhole(words(), b.at(from, 16 * i)));
    return result;
  };
  const GroupSpan span = {b.integer(0), block.groups,
                          block.whole ? current->unroll : 1};
  if (divided)
    return subBlockSums(tile, block, span);
  Values t(count, b.zeros(floats(), -0.0f));
  p.overBlocks(span, t, [&](const GroupSpan &groups) {
    Values dots = start(groups.first);
    p.overGroups(groups, dots,
                 [&](Value g) { dots = addGroup(tile, g, 0, dots); });
    Value number = p.blockOf(groups.first);
    const Values sums = bundleSums(tile, number, block);
    auto isumOf = [&](int64_t i) { return minusMagic(dots[i]); };
    t = scaled(tile, number, isumOf, sums, t);
  });
  return t;
}

/// The float of a sum that started from kMagic.
Value UnpackOnce::minusMagic(Value sum) {
  return b.subF(b.bitcast(floats(), sum), b.zeros(floats(), kMagic));
}

/// t where the dots of sub-blocks, and the sums of activations, are multiplied
/// with integers.
Values UnpackOnce::subBlockSums(const Tile &tile, const Block &block,
                                const GroupSpan &span) {
  const auto count = size_t(tileBundles * tileRegisters);
  const Values zeros(count, b.constant(words(), 0));
  const bool behind = scaling.takesSums() && !byteMinimums;
  // Behind the sums of dots those of activations.
  Values carried(behind ? 2 * count : count, zeros[0]);
  p.overGroups(span, carried, [&](Value g) {
    Value from = b.at(atRegister(integers, g, groupIntegers * panelRegisters),
                      b.mul(tile.first, b.scaled(16)));
    auto addTo = [&](size_t i, int64_t set, Value factor) {
      Value integer = loadWhole(
          words(), atRegister(from, set * panelRegisters +
                                        int64_t(i % count) % tileRegisters));
      carried[i] = b.add(carried[i], b.mul(factor, integer));
    };
    for (int64_t sub = 0; sub < subDots; ++sub)
      for (auto [i, dot] : llvm::enumerate(addGroup(tile, g, sub, zeros)))
        addTo(i, sub, dot);
    if (behind) {
      const Values sums = bundleSums(tile, g, block);
      for (size_t i = 0; i < count; ++i)
        addTo(count + i, subDots, sums[i / size_t(tileRegisters)]);
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
    Value low = b.loadQuad(b.getI8Type(), from);
    Value high = b.loadQuad(b.getI8Type(), b.at(from, 16));
    for (int64_t r = 0; r < tileRegisters; ++r) {
      Value at = b.at(atRegister(minimums, r), b.mul(tile.first, b.scaled(16)));
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
  Value from = b.at(atRegister(unpacked, g, 8 * vectors),
                    b.mul(tile.first, b.scaled(16)));
  // Registers of activations.
  const int64_t loads = kGroup * bundleTokens / 16;
  SmallVector<Values> x(tileBundles);
  SmallVector<Dot> dots;
  for (int64_t i = 0; i < tileBundles; ++i)
    for (int64_t load = 0; load < loads; ++load)
      x[i].push_back(b.loadQuad(
          b.getI8Type(),
          b.at(b.at(tile.q[i], b.mul(g, kGroup * bundleTokens)), 16 * load)));
  for (Value dot : before)
    dots.emplace_back(b, p.isa, p.unpack->range, dot);
  const int64_t first = sub * steps / subDots;
  for (int64_t step = first; step < first + steps / subDots; ++step)
    for (int64_t r = 0; r < tileRegisters; ++r) {
      // As words, whose loads have the longer offsets with SVE.
      Value w = vector::BitCastOp::create(
          b, bytes(),
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
Values UnpackOnce::bundleSums(const Tile &tile, Value i, const Block &block) {
  Values result;
  if (!scaling.takesSums())
    return result;
  const VectorType type = divided ? words() : floats();
  for (Value from : tile.sums)
    result.push_back(
        pairs
            ? Value(vector::BitCastOp::create(
                  b, type, b.loadQuad(b.getI8Type(), b.at(from, b.mul(i, 16)))))
            : b.splat(type, activationSum(from, i, block)));
  return result;
}

/// Adds a block of weights to t, `number` in the activation block. In register
/// i the scale multiplies isumOf(i), and the minimum multiplies a value of
/// `sums`, which has one for each register or for each bundle.
Values UnpackOnce::scaled(const Tile &tile, Value number,
                          function_ref<Value(int64_t)> isumOf,
                          ArrayRef<Value> sums, ValueRange t) {
  Values result;
  Value from =
      b.at(atRegister(scales, number, scaling.count() * panelRegisters),
           b.mul(tile.first, b.scaled(16)));
  const size_t each = sums.empty() ? 1 : t.size() / sums.size();
  for (size_t i = 0; i < t.size(); ++i) {
    Values w;
    for (int64_t n = 0; n < scaling.count(); ++n)
      w.push_back(loadWhole(
          floats(),
          atRegister(from, n * panelRegisters + int64_t(i) % tileRegisters)));
    Value isum = isumOf(int64_t(i));
    result.push_back(
        scaling.add(b, isum, sums.empty() ? Value() : sums[i / each], w, t[i]));
  }
  return result;
}

/// Stores the tokens' outputs from the sums of a strip.
void UnpackOnce::finish(Value panelSums, Value output, const Strip &strip) {
  b.loop(b.integer(0), strip.bundles, 1, [&](Value bundle) {
    Value line = atRegister(panelSums, bundle, panelRegisters);
    Values tokens, tile;
    for (int64_t t = 0; t < bundleTokens; ++t) {
      tokens.push_back(
          b.add(strip.first, b.add(b.mul(bundle, bundleTokens), b.integer(t))));
      for (int64_t v = 0; v < vectors; ++v) {
        auto sum = [&](int64_t half) {
          return loadWhole(floats(),
                           atRegister(line, v * bundleRegisters + half));
        };
        tile.push_back(pairs ? b.permuted("uzp", 64, sum(0), sum(1), t != 0)
                             : sum(0));
      }
    }
    p.store(output, tokens, tile, kLanes);
  });
}

void qwen::emitOrder(const KernelInfo &kernel,
                     const UnpackOnceSchedule &schedule, ModuleOp module) {
  UnpackOnce(kernel, schedule, module).emit();
}
