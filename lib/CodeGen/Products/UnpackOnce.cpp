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

#include "Product.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace qwen;
using namespace mlir;

namespace {
class UnpackOnce {
public:
  UnpackOnce(const KernelInfo &kernel, const UnpackOnceSchedule &schedule,
             ModuleOp module)
      : p(kernel, module, ByteForm::Scaled), schedule(schedule),
        fixed(fixedSchedule(kernel, schedule)) {}

  void emit() {
    layOutScratch();
    auto emitLonger = [&] {
      b.forEachVector(b.integer(kPanelOutputs), 2,
                      [&](Value first, int64_t count) {
                        emitPanels(schedule, count, first);
                      });
    };
    if (b.isScalable())
      b.byLength([&] { emitFixed(); }, emitLonger);
    else
      emitPanels(fixed, 4, b.integer(0));
    b.finish();
  }

private:
  static constexpr int64_t kLanes = 4;
  /// Bits of the lower part of a sum of activations.
  static constexpr int64_t kSumBits = 8;

  /// A tile has, bundle by bundle, registers of sums for the outputs from
  /// register `first` of a panel on. Each bundle has activations (q), their
  /// scales (d) and a place of their sums of the block.
  struct Tile {
    Value first;
    Values q, d, sums;
  };

  VectorType floats() { return b.vector(kLanes, b.f32); }
  VectorType words() { return b.vector(kLanes, b.i32); }
  VectorType bytes() { return b.vector(16, b.i8); }

  /// The address of the tile's outputs in the registers of a panel.
  Value inTile(Value panel, const Tile &tile) {
    return b.atRegisters(panel, tile.first, 1);
  }

  /// The scratch has room for the longest vectors of SVE, 256 bytes; a panel
  /// needs one.
  void layOutScratch() {
    const int64_t line = kPanelOutputs * 4 * (b.isScalable() ? 4 : 1);
    // A line for each half of a vector in pairs.
    const int64_t lines = bundleTokens * line;
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
    // Loads have slots to spare where the copies of a register have not.
    b.fill(starts, startBytes, kMagicBits);
    b.fill(minimumStarts, minimumStartBytes, kMagicBits >> kSumBits);
  }

  /// The code for vectors of 128 bits. The scratch has room for longer ones, so
  /// the parts behind the sums lie far away. LLVM would keep a pointer to each
  /// of them, and tiles that multiply sums of activations have no registers for
  /// these. One opaque pointer replaces them.
  void emitFixed() {
    const llvm::SaveAndRestore keptStarts(starts), keptMinimums(minimumStarts),
        keptActivations(activations);
    if (scaling.takesSums()) {
      starts = b.opaque(starts);
      minimumStarts = b.at(starts, startBytes);
      activations = b.at(minimumStarts, minimumStartBytes);
    }
    emitPanels(fixed, 4, b.integer(0));
  }

  /// The `count` vectors of outputs from `first` on of all panels.
  void emitPanels(const UnpackOnceSchedule &of, int64_t count, Value first) {
    output = first;
    vectors = count;
    panelRegisters = count * bundleTokens;
    tileBundles = of.tokens / bundleTokens;
    tileRegisters = std::min(of.vectors, vectors) * bundleTokens;
    b.loop(p.panelBegin, p.panelEnd, schedule.panels, [&](Value panel) {
      Value last = b.smaller(p.panelEnd, b.add(panel, schedule.panels));
      b.loop(0, p.m, schedule.strip, [&](Value first) {
        firstToken = first;
        stripBundles =
            b.div(b.smaller(b.integer(schedule.strip), b.sub(p.m, first)),
                  bundleTokens);
        emitStrip(panel, last, of.unroll);
      });
    });
  }

  /// The outputs of panels [panel, last) for a strip of tokens.
  void emitStrip(Value panel, Value last, int64_t unroll) {
    Value panels = b.sub(last, panel);
    Value panelSums = b.mul(stripBundles, panelRegisters);
    b.loop(0, b.mul(panels, panelSums), 1, [&](Value i) {
      b.storeRegister(b.zeros(floats()), b.atRegisters(stripSums, i, 1));
    });
    auto sumsOf = [&](Value index) {
      return b.atRegisters(stripSums, b.mul(index, panelSums), 1);
    };
    Value stride = p.panelStride();
    auto addBlock = [&](Value number, const GroupSpan &span) {
      block = number;
      groups = span;
      if (pairs)
        arrangeActivations();
      b.loop(0, panels, 1, [&](Value index) {
        unpackBlock(b.at(p.weights, b.add(panel, index), stride));
        multiply(sumsOf(index));
      });
    };
    Value allGroups = p.groups(), blocks = b.div(allGroups, kBlockGroups);
    b.loop(0, blocks, 1, [&](Value number) {
      addBlock(number, {b.integer(0), b.integer(kBlockGroups), unroll});
    });
    // The last block, if it is partial.
    Value done = b.mul(blocks, kBlockGroups), rest = b.sub(allGroups, done);
    b.loop(done, allGroups, kBlockGroups,
           [&](Value) { addBlock(blocks, {b.integer(0), rest, 1}); });
    b.loop(0, panels, 1, [&](Value index) {
      finish(sumsOf(index),
             b.add(b.mul(b.add(panel, index), kPanelOutputs), output));
    });
  }

  /// Stores the tokens' outputs from the sums of a strip.
  void finish(Value panelSums, Value first) {
    b.loop(0, stripBundles, 1, [&](Value bundle) {
      Value line = b.atRegisters(panelSums, bundle, panelRegisters);
      Values tokens, tile;
      for (int64_t t = 0; t < bundleTokens; ++t) {
        tokens.push_back(
            b.add(firstToken, b.add(b.mul(bundle, bundleTokens), t)));
        for (int64_t v = 0; v < vectors; ++v) {
          Value sum = b.loadRegister(floats(), line, v * bundleTokens);
          if (pairs)
            sum = b.permuted("uzp", 64, sum,
                             b.loadRegister(floats(), line, 2 * v + 1), t != 0);
          tile.push_back(sum);
        }
      }
      p.store(first, tokens, tile, kLanes);
    });
  }

  /// sums = fma(t, d_a, sums) for the tiles of a strip and panel.
  void multiply(Value panelSums) {
    b.loop(0, vectors, tileRegisters / bundleTokens, [&](Value v) {
      b.loop(0, stripBundles, tileBundles, [&](Value bundle) {
        const Tile tile = tileOf(v, bundle);
        const Values t = blockSums(tile);
        for (int64_t i = 0; i < tileBundles; ++i) {
          Value line = inTile(
              b.atRegisters(panelSums, b.add(bundle, i), panelRegisters), tile);
          for (int64_t r = 0; r < tileRegisters; ++r)
            b.storeRegister(b.fma(t[i * tileRegisters + r], tile.d[i],
                                  b.loadRegister(floats(), line, r)),
                            line, r);
        }
      });
    });
  }

  //===--------------------------------------------------------------------===//
  // A block of 128 in the order of its use
  //===--------------------------------------------------------------------===//

  /// The address of the activations of `token` in the block, of their scale,
  /// and of the first of their sums.
  Value activationsOf(Value token) {
    return inBlock(p.q, token, p.k, kActivationBlock, 1);
  }
  Value scaleOf(Value token) {
    return inBlock(p.d, token, p.activationBlocks(), 1, 4);
  }
  Value sumsOf(Value token) {
    return inBlock(p.sums, token, p.groups(), kBlockGroups, 4);
  }
  Value inBlock(Value array, Value token, Value each, int64_t blockValues,
                int64_t bytes) {
    Value first = b.mul(token, each);
    return b.at(array, b.add(first, b.mul(block, blockValues)), bytes);
  }

  /// Sum `i` of the activations of a block, whose groups' sums are at `from`:
  /// f32, or i32 if it is multiplied with an integer.
  Value activationSum(Value from, Value i) {
    auto load = [&](Value g) { return b.load(b.i32, b.at(from, g, 4)); };
    Value first = b.mul(i, sumGroups), sum = load(first);
    if (p.divided)
      return sum;
    auto add = [&](Value g, ValueRange before) -> Values {
      return {b.add(before[0], load(g))};
    };
    if (sumGroups > 1) {
      Value next = b.add(first, 1), end = b.add(first, sumGroups);
      sum = b.loop(next, b.smaller(groups.last, end), 1, sum, add)[0];
    }
    return b.toFloat(b.f32, sum);
  }

  /// 8 values of one token of a pair, then 8 of the other, as smmla takes them;
  /// behind them the scale of the one twice, then of the other, and likewise
  /// the sums that are taken. As doubles, which load in one slot for two.
  void arrangeActivations() {
    b.loop(0, stripBundles, 1, [&](Value bundle) {
      Value to = b.at(activations, bundle, activationBytes);
      Value first = b.add(firstToken, b.mul(bundle, 2));
      Value factors = b.at(to, 2 * kActivationBlock);
      auto storeTwice = [&](Value value, Value at, int64_t t) {
        for (int64_t i : {0, 1})
          b.store(value, b.at(at, 8 * t + 4 * i));
      };
      Value from[2], sumsFrom[2];
      for (int64_t t : {0, 1}) {
        Value token = b.add(first, t);
        from[t] = activationsOf(token);
        sumsFrom[t] = sumsOf(token);
        storeTwice(b.load(b.f32, scaleOf(token)), factors, t);
        if (byteMinimums)
          for (auto [i, part] : llvm::enumerate(sumParts(sumsFrom[t])))
            storeTwice(part, b.at(factors, 16 + 16 * int64_t(i)), t);
      }
      if (scaling.takesSums() && !byteMinimums) {
        Value count = sumGroups == kBlockGroups
                          ? b.integer(1)
                          : b.div(b.add(groups.last, sumGroups - 1), sumGroups);
        b.loop(0, count, 1, [&](Value i) {
          Value line = b.at(b.at(factors, 16), i, 16);
          for (int64_t t : {0, 1})
            storeTwice(activationSum(sumsFrom[t], i), line, t);
        });
      }
      b.loop(0, groups.last, 1, [&](Value g) {
        Value line = b.at(to, g, 2 * kGroup);
        for (int64_t i = 0; i < kGroup; i += 8)
          for (int64_t t : {0, 1}) {
            Value value = LLVM::LoadOp::create(
                b, b.getF64Type(), b.at(b.at(from[t], g, kGroup), i), 1);
            b.store(value, b.at(line, 2 * i + 8 * t));
          }
      });
    });
  }

  /// The sums of a token's activations of a block as two words. The sum of
  /// group i is byte i of the first word plus 256 times byte i of the second
  /// word.
  Values sumParts(Value from) {
    Values parts(2, b.constant(b.i32, 0));
    const int64_t each = groups.each > 1 ? kBlockGroups : 1;
    p.overGroups({groups.first, groups.last, each}, parts, [&](Value g) {
      Value sum = b.load(b.i32, b.at(from, g, 4));
      Value rest = b.add(sum, 1 << (kSumBits - 1));
      rest = arith::ShRSIOp::create(b, rest, b.constant(b.i32, kSumBits));
      Value place = b.truncated(b.i32, b.mul(g, 8));
      for (auto [part, value] : llvm::zip_equal(parts, Values{sum, rest}))
        part = b.bitOr(part, b.shiftLeft(b.bitAnd(value, 255), place));
    });
    return parts;
  }

  void unpackBlock(Value panel) {
    Value begin = b.mul(block, kBlockGroups);
    Values none;
    const GroupSpan all = {groups.first, groups.last, 1};
    p.overBlocks(all, none, [&](const GroupSpan &span) {
      Value number = p.blockOf(b.add(begin, span.first));
      Value header = p.headerOf(panel, number);
      Value to = b.atRegisters(scales, p.blockOf(span.first),
                               scaling.count() * panelRegisters);
      Value numbers = b.at(header, output, 2);
      for (int64_t v = 0; v < vectors; ++v)
        for (auto [i, scale] :
             llvm::enumerate(p.scaleVectors(numbers, kLanes, v)))
          storeForSums(scale, v, to, int64_t(i) * panelRegisters);
      Value before = b.sub(begin, b.mul(number, p.blockGroups));
      p.overGroups(span, none, [&](Value g) {
        Value inBlock = b.add(before, g);
        Value to = b.atRegisters(integers, g, groupIntegers * panelRegisters);
        for (int64_t i = 0; i < groupIntegers; ++i)
          storeForSums(scaling.integers(header, i / p.subDots, inBlock,
                                        i % p.subDots, output, vectors, kLanes),
                       0, to, i * panelRegisters);
        unpackGroup(b.at(p.chunksOf(header, inBlock), output, 4),
                    b.atRegisters(unpacked, g, 8 * vectors));
      });
      if (byteMinimums)
        unpackMinimums(header, before);
    });
  }

  /// Stores vectors of outputs, from vector `v` on, as the sums' registers need
  /// them, in the registers of a panel that begin with register `first`.
  void storeForSums(ArrayRef<Value> values, int64_t v, Value to,
                    int64_t first) {
    first += v * bundleTokens;
    for (Value value : values)
      for (int64_t half = 0; half < bundleTokens; ++half)
        b.storeRegister(pairs ? b.permuted("zip", 64, value, value, half != 0)
                              : value,
                        to, first++);
  }

  /// The sub-minimums of group `j` of a block and the 3 behind it, as bytes of
  /// words.
  void unpackMinimums(Value header, Value j) {
    Values words(vectors, b.constant(this->words(), 0));
    for (int64_t i = 0; i < kBlockGroups; ++i)
      for (auto [word, value] :
           llvm::zip_equal(words, scaling.integers(header, 1, b.add(j, i), 0,
                                                   output, vectors, kLanes)))
        word = b.bitOr(word, b.shiftLeft(value, 8 * i));
    storeForSums(words, 0, minimums, 0);
  }

  /// The 8 * vectors registers of a group: by step, vector, and half of a
  /// vector in pairs.
  void unpackGroup(Value from, Value to) {
    const int64_t rounds = p.unpack->chunks() / bundleTokens;
    for (int64_t v = 0; v < vectors; ++v) {
      auto load = [&](int64_t i, bool) {
        return b.load(bytes(),
                      b.at(b.at(from, i * kChunkBytes), b.scaled(v * 16)));
      };
      for (int64_t i = 0; i < rounds; ++i) {
        const int64_t chunk = i * bundleTokens;
        const Values even = p.unpack->codes(b, chunk, load);
        const Values odd = pairs ? p.unpack->codes(b, chunk + 1, load) : even;
        for (int64_t half = 0; half < bundleTokens; ++half) {
          const Values codes = pairs ? b.zipped(even, odd, half != 0) : even;
          for (int64_t part = 0; part < p.unpack->parts; ++part)
            b.storeRegister(p.unpack->bytes(b, codes, chunk, part), to,
                            (i + part * rounds) * panelRegisters +
                                v * bundleTokens + half);
        }
      }
    }
  }

  //===--------------------------------------------------------------------===//
  // Dots and sums of a tile
  //===--------------------------------------------------------------------===//

  Tile tileOf(Value v, Value bundle) {
    Tile tile = {b.mul(v, bundleTokens), {}, {}, {}};
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
      tile.d.push_back(b.splat(floats(), b.load(b.f32, scaleOf(token))));
      tile.sums.push_back(sumsOf(token));
    }
    return tile;
  }

  /// 16 bytes that arrangeActivations() stored, in each 128 bits.
  Value loadPairs(VectorType type, Value pointer) {
    return b.bitcast(type, b.loadQuad(b.i8, pointer));
  }

  /// t of the block for each register of a tile.
  Values blockSums(const Tile &tile) {
    if (p.divided)
      return subBlockSums(tile);
    const int64_t count = tileBundles * tileRegisters;
    Values t(count, b.zeros(floats(), -0.0f));
    p.overBlocks(groups, t, [&](const GroupSpan &span) {
      Values dots;
      Value from = b.at(starts, span.first, 16 * count);
      for (int64_t i = 0; i < count; ++i)
        dots.push_back(b.loadRegister(words(), b.at(from, 16 * i)));
      p.overGroups(span, dots,
                   [&](Value g) { dots = addGroup(tile, g, 0, dots); });
      Value number = p.blockOf(span.first);
      t = scaled(tile, number, dots, bundleSums(tile, number), t);
    });
    return t;
  }

  /// t where the dots of sub-blocks, and the sums of activations, are
  /// multiplied with integers.
  Values subBlockSums(const Tile &tile) {
    const auto count = size_t(tileBundles * tileRegisters);
    const Values zeros(count, b.constant(words(), 0));
    const bool behind = scaling.takesSums() && !byteMinimums;
    // The sums of dots come first, the sums of activations behind them.
    Values carried(behind ? 2 * count : count, zeros[0]);
    p.overGroups(groups, carried, [&](Value g) {
      Value from = inTile(
          b.atRegisters(integers, g, groupIntegers * panelRegisters), tile);
      auto addTo = [&](size_t i, int64_t set, Value factor) {
        Value integer = b.loadRegister(words(), from,
                                       set * panelRegisters +
                                           int64_t(i % count) % tileRegisters);
        carried[i] = b.add(carried[i], b.mul(factor, integer));
      };
      for (int64_t sub = 0; sub < p.subDots; ++sub)
        for (auto [i, dot] : llvm::enumerate(addGroup(tile, g, sub, zeros)))
          addTo(i, sub, dot);
      if (behind) {
        const Values sums = bundleSums(tile, g);
        for (size_t i = 0; i < count; ++i)
          addTo(count + i, p.subDots, sums[i]);
      }
    });
    for (Value &value : carried)
      value = b.toFloat(floats(), value);
    if (byteMinimums)
      carried.append(minimumSums(tile));
    return scaled(tile, b.integer(0), ArrayRef(carried).take_front(count),
                  ArrayRef(carried).drop_front(count),
                  Values(count, b.zeros(floats(), -0.0f)));
  }

  /// The sums of activations of a block times the sub-minimums of their groups,
  /// as f32: kMagic's lowest bits are zeros.
  Values minimumSums(const Tile &tile) {
    Values result;
    for (Value from : tile.sums) {
      Value low = b.loadQuad(b.i8, from);
      Value high = b.loadQuad(b.i8, b.at(from, 16));
      for (int64_t r = 0; r < tileRegisters; ++r) {
        Value at = inTile(b.atRegister(minimums, r), tile);
        Value w = b.bitcast(bytes(), b.loadRegister(words(), at));
        Value start = b.loadRegister(
            words(), b.at(minimumStarts, 16 * int64_t(result.size())));
        Value upper = p.dotFrom(start).addBytes(w, high);
        Value sum = p.dotFrom(b.shiftLeft(upper, kSumBits)).addBytes(w, low);
        result.push_back(minusMagic(b, sum));
      }
    }
    return result;
  }

  /// Dots `sub` of a group, from what they were before.
  Values addGroup(const Tile &tile, Value g, int64_t sub,
                  const Values &before) {
    Value from = inTile(b.atRegisters(unpacked, g, 8 * vectors), tile);
    // Registers of activations. Each multiplies 8 values of pairs, else 4.
    const int64_t loads = kGroup * bundleTokens / 16,
                  steps = kGroup / 4 / bundleTokens;
    SmallVector<Values> x(tileBundles);
    SmallVector<Dot> dots;
    for (int64_t i = 0; i < tileBundles; ++i)
      for (int64_t load = 0; load < loads; ++load)
        x[i].push_back(b.loadQuad(
            b.i8, b.at(b.at(tile.q[i], g, kGroup * bundleTokens), 16 * load)));
    for (Value dot : before)
      dots.push_back(p.dotFrom(dot));
    const int64_t first = sub * steps / p.subDots;
    for (int64_t step = first; step < first + steps / p.subDots; ++step)
      for (int64_t r = 0; r < tileRegisters; ++r) {
        // As words, whose loads have the longer offsets with SVE.
        Value w = b.bitcast(
            bytes(), b.loadRegister(words(), from, step * panelRegisters + r));
        for (int64_t i = 0; i < tileBundles; ++i)
          dots[i * tileRegisters + r].step(w, x[i][step * loads / steps],
                                           step % 4);
      }
    Values sums;
    for (Dot &dot : dots)
      sums.push_back(dot.finish());
    return sums;
  }

  /// Sum `i` of the activations of a block (activationSum) for each register of
  /// a tile; empty without minimums.
  Values bundleSums(const Tile &tile, Value i) {
    Values result;
    const VectorType type = p.divided ? words() : floats();
    if (scaling.takesSums())
      for (Value from : tile.sums)
        result.append(tileRegisters,
                      pairs ? loadPairs(type, b.at(from, i, 16))
                            : b.splat(type, activationSum(from, i)));
    return result;
  }

  /// Adds a block of weights to t, `number` in the activation block. In
  /// register i the scale multiplies isums[i], and the minimum sums[i].
  Values scaled(const Tile &tile, Value number, ArrayRef<Value> isums,
                ArrayRef<Value> sums, ArrayRef<Value> t) {
    Values result;
    Value from = inTile(
        b.atRegisters(scales, number, scaling.count() * panelRegisters), tile);
    for (size_t i = 0; i < t.size(); ++i) {
      Values w;
      for (int64_t n = 0; n < scaling.count(); ++n)
        w.push_back(b.loadRegister(
            floats(), from, n * panelRegisters + int64_t(i) % tileRegisters));
      Value sum = sums.empty() ? Value() : sums[i];
      Value isum = p.divided ? isums[i] : minusMagic(b, isums[i]);
      result.push_back(scaling.add(isum, sum, w, t[i]));
    }
    return result;
  }

  Product p;
  ProductBuilder &b = p.b;
  const UnpackOnceSchedule &schedule;
  const Scaling &scaling = p.scaling;
  const bool pairs = p.isa.dot.tokens == 2;
  /// Whether sub-minimums are multiplied as bytes, 4 groups at once, with the
  /// two bytes of each sum of activations, which is 256 times the one plus the
  /// other. So the pipe that multiplies integers of 32 bits has time for sums
  /// of dots.
  const bool byteMinimums = p.divided && pairs && scaling.takesSums();
  /// Vectors of integers that a group has: the sub-scales of each sub-block,
  /// then the sub-minimums.
  const int64_t groupIntegers =
      p.divided ? p.subDots * (byteMinimums ? 1 : scaling.count()) : 0;
  /// Groups whose activations have a sum together, and the sums of a block.
  const int64_t sumGroups = p.divided ? 1 : p.blockGroups,
                blockSumCount = byteMinimums          ? 2
                                : scaling.takesSums() ? kBlockGroups / sumGroups
                                                      : 0;
  /// The schedule of the code for vectors of 128 bits.
  const UnpackOnceSchedule fixed;
  /// The tokens of a bundle, whose sums share registers: as many registers for
  /// a vector of outputs as there are tokens.
  const int64_t bundleTokens = p.isa.dot.tokens;

  /// A panel has `vectors` vectors of outputs, and a bundle has
  /// `panelRegisters` registers of sums for them. A tile has `tileBundles`
  /// bundles, with `tileRegisters` registers of outputs each.
  int64_t vectors = 0, panelRegisters = 0, tileBundles = 0, tileRegisters = 0;
  /// `output` is the first of a tile's outputs in a panel. The strip has tokens
  /// [firstToken, firstToken + stripBundles * bundleTokens). `block` is a block
  /// of 128 values along K, and `groups` are its groups of 32.
  Value output, firstToken, stripBundles, block;
  GroupSpan groups;
  /// Parts of the scratch. A block has its weights, scales and integers of
  /// sub-blocks by group, in `unpacked`, `scales` and `integers`. `minimums`
  /// has the sub-minimums of all its groups as bytes. `activations` has the
  /// block's activations, and `stripSums` the sums of the strip, by bundle.
  /// Dots start from `starts`, dots with sub-minimums from `minimumStarts`.
  Value unpacked, scales, integers, minimums, activations, stripSums, starts,
      minimumStarts;
  const int64_t activationBytes =
                    pairs ? 2 * kActivationBlock + 16 * (1 + blockSumCount) : 0,
                registers = std::max(schedule.tokens * schedule.vectors,
                                     fixed.tokens *fixed.vectors),
                startBytes = kBlockGroups * 16 * registers + 256,
                minimumStartBytes = byteMinimums ? 16 * registers + 256 : 0;
};
} // namespace

void qwen::emitOrder(const KernelInfo &kernel,
                     const UnpackOnceSchedule &schedule, ModuleOp module) {
  UnpackOnce(kernel, schedule, module).emit();
}
