//===- UnpackOnce.cpp - The order of products of many tokens --------------===//
//
// GEMM kernels that unpack weights once for many tokens:
//
//   for each panel of 16 outputs
//     for each strip of tokens
//       for each block of 128 along K
//         unpack the block's weights and scales, in the order of their use
//         for each tile of outputs and tokens
//           the block's dots and scales, added to the tile's f32 sums
//       + bias, + residual, store
//
// Unpacked weights, the activations of pairs of tokens and the sums lie in a
// scratch on the stack that fits in a core's first cache. Dots and their
// conversion to floats then bound the inner loop:
// docs/notebook/arm-static-model.md.
//
// The order of every accumulation is docs/numerics.md's; layouts are
// Blocks.h's.
//
//===----------------------------------------------------------------------===//

#include "Dot.h"
#include "Linear.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace qwen;
using namespace mlir;

static constexpr int64_t kLanes = 4;

namespace {
class UnpackOnce : public Linear {
public:
  UnpackOnce(const KernelInfo &kernel, const KernelSchedule &schedule,
             ModuleOp module)
      : Linear(kernel, schedule, module, ByteForm::Scaled),
        fixed(fixedSchedule(kernel, schedule)) {}

  void emit();

private:
  /// Tokens [first, first + bundles * bundleTokens), of a strip.
  struct Strip {
    Value first, bundles;
  };
  /// Groups of 32 of block `block`, which is `whole` or the last one.
  struct Block {
    Value number, groups;
    bool whole;
  };
  /// Registers of sums: bundle by bundle, those of outputs from register
  /// `first` of a panel on. Activations of each bundle, their scales, and where
  /// their sums of the block are.
  struct Tile {
    Value first;
    Values q, d, sums;
  };

  void layOutScratch();
  void emitPanels(int64_t count, Value output);
  void emitStrip(Value panel, Value last, const Strip &strip, Value output);
  void arrangeActivations(const Strip &strip, const Block &block);
  Value activationSums(Value token, const Block &block);
  Value activationSum(Value from, Value g, const Block &block);
  void unpackBlock(Value panel, Value output, const Block &block);
  void unpackScales(Value header, Value output, Value to);
  void unpackGroup(Value from, Value to);
  void multiply(Value panelSums, const Strip &strip, const Block &block);
  Tile tileOf(const Strip &strip, const Block &block, Value v, Value bundle);
  Values blockSums(const Tile &tile, const Block &block);
  Values addGroup(const Tile &tile, Value g, const Values &before);
  Values scaled(const Tile &tile, const Block &block, Value g,
                ArrayRef<Value> dots, ValueRange t);
  void finish(Value panelSums, Value output, const Strip &strip);

  VectorType floats() { return b.vector(kLanes, b.getF32Type()); }
  VectorType words() { return b.vector(kLanes, b.getI32Type()); }
  VectorType bytes() { return b.vector(16, b.getI8Type()); }

  /// Loads a whole register of the scratch, with inactive outputs.
  Value loadWhole(VectorType type, Value pointer) {
    return LLVM::LoadOp::create(b, type, pointer, 16);
  }
  void storeWhole(Value value, Value pointer) {
    LLVM::StoreOp::create(b, value, pointer, 16);
  }
  /// `index` registers behind `pointer`.
  Value atRegister(Value pointer, int64_t index) {
    return b.at(pointer, b.scaled(16 * index));
  }
  Value atRegister(Value pointer, Value index, int64_t each) {
    return b.at(pointer, b.mul(index, b.scaled(16 * each)));
  }

  /// Whether groups have scales of their own.
  const bool narrow = weightBlock(format) == kGroup;
  const Scaling &scaling = scalingOf(format);
  /// What code for vectors of 128 bits has.
  const KernelSchedule fixed;
  /// Tokens whose sums share a register, and registers of a bundle for a vector
  /// of outputs.
  const int64_t bundleTokens = isa.dot.tokens, bundleRegisters = bundleTokens;
  const bool pairs = bundleTokens == 2;
  /// Steps of a group: an instruction multiplies 8 values of pairs, else 4.
  const int64_t steps = kGroup / 4 / bundleTokens;

  /// Vectors of outputs in a panel, registers of a bundle's sums for them, and
  /// what the code for them has.
  int64_t vectors = 0, panelRegisters = 0;
  const KernelSchedule *current = nullptr;
  /// Of a tile.
  int64_t tileBundles = 0, tileRegisters = 0;
  /// Parts of the scratch. Weights and scales: those of the block, by group.
  /// Activations: those of the block, by bundle. Sums: of the strip, by bundle.
  /// Starts: of dots.
  Value unpacked, scales, activations, stripSums, starts;
  int64_t activationBytes = 0;
};
} // namespace

/// Of the longest vectors of SVE, 256 bytes, a panel needs one.
void UnpackOnce::layOutScratch() {
  const int64_t longest = b.isScalable() ? 4 : 1;
  const int64_t line = kPanelOutputs * 4 * longest;
  // The bundles' activations and their scales.
  const int64_t sumsOfBlock = !scaling.takesSums() ? 0
                              : narrow             ? kBlockGroups
                                                   : 1;
  activationBytes = pairs ? 2 * kActivationBlock + 16 * (1 + sumsOfBlock) : 0;
  const int64_t bundles = schedule.strip / bundleTokens;
  const int64_t weightBytes = kBlockGroups * 8 * line;
  const int64_t scaleBytes =
      kBlockGroups * scaling.count() * bundleRegisters * line;
  const int64_t sumBytes = schedule.panels * bundles * bundleRegisters * line;
  const int64_t registers = std::max(schedule.tokens * schedule.vectors,
                                     fixed.tokens * fixed.vectors);
  const int64_t startBytes = kBlockGroups * 16 * registers + 256;
  unpacked = b.scratch(weightBytes + scaleBytes + sumBytes + startBytes +
                       bundles * activationBytes);
  scales = b.at(unpacked, weightBytes);
  stripSums = b.at(scales, scaleBytes);
  starts = b.at(stripSums, sumBytes);
  activations = b.at(starts, startBytes);
  // A loop, so that LLVM takes the starts from memory: loads have slots to
  // spare where the copies of a register have not.
  Value magic = arith::ConstantOp::create(b, b.getF32FloatAttr(kMagic));
  b.loop(b.integer(0), b.integer(startBytes / 4), 1,
         [&](Value i) { b.store(magic, b.at(starts, b.mul(i, 4))); });
}

void UnpackOnce::emit() {
  layOutScratch();
  if (b.isScalable()) {
    Value length = b.scaled(1);
    Value shortest = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, length,
                                           b.integer(1));
    // Vectors of 128 bits are NEON's, whose loads have longer offsets and come
    // in pairs.
    b.branch(
        shortest,
        [&] { b.withFixedVectors([&] { emitPanels(4, b.integer(0)); }); },
        [&] {
          b.forEachVector(
              b.integer(kPanelOutputs), 2,
              [&](Value output, int64_t count) { emitPanels(count, output); });
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
  b.loop(panelBegin, panelEnd, schedule.panels, [&](Value panel) {
    Value last = b.smaller(panelEnd, b.add(panel, b.integer(schedule.panels)));
    b.loop(b.integer(0), m, schedule.strip, [&](Value first) {
      Value tokens = b.smaller(b.integer(schedule.strip),
                               arith::SubIOp::create(b, m, first));
      Value bundles = b.shiftRight(tokens, bundleTokens - 1);
      emitStrip(panel, last, {first, bundles}, output);
    });
  });
}

/// The outputs of panels [panel, last) for a strip of tokens.
void UnpackOnce::emitStrip(Value panel, Value last, const Strip &strip,
                           Value output) {
  Value panels = arith::SubIOp::create(b, last, panel);
  Value panelSums = b.mul(strip.bundles, panelRegisters);
  Value none = b.zeros(floats());
  b.loop(b.integer(0), b.mul(panels, panelSums), 1,
         [&](Value i) { storeWhole(none, atRegister(stripSums, i, 1)); });
  auto sumsOf = [&](Value index) {
    return atRegister(stripSums, b.mul(index, panelSums), 1);
  };
  Value stride = panelStride();
  auto addBlock = [&](const Block &block) {
    if (pairs)
      arrangeActivations(strip, block);
    b.loop(b.integer(0), panels, 1, [&](Value index) {
      unpackBlock(b.at(weights, b.mul(b.add(panel, index), stride)), output,
                  block);
      multiply(sumsOf(index), strip, block);
    });
  };
  Value allGroups = groups();
  Value blocks = b.shiftRight(allGroups, 2);
  b.loop(b.integer(0), blocks, 1, [&](Value block) {
    addBlock({block, b.integer(kBlockGroups), true});
  });
  // The last block, if it is partial.
  Value done = b.mul(blocks, kBlockGroups);
  Value rest = arith::SubIOp::create(b, allGroups, done);
  b.loop(done, allGroups, kBlockGroups,
         [&](Value) { addBlock({blocks, rest, false}); });
  b.loop(b.integer(0), panels, 1, [&](Value index) {
    finish(sumsOf(index),
           b.add(b.mul(b.add(panel, index), kPanelOutputs), output), strip);
  });
}

/// 8 values of one token of a pair, then 8 of the other, as smmla takes them;
/// behind them the scale of the one twice, then of the other, and likewise the
/// sums that are taken. As doubles, which load in one slot for two.
void UnpackOnce::arrangeActivations(const Strip &strip, const Block &block) {
  const Type eight = b.getF64Type(), word = b.getF32Type();
  Value blocks = activationBlocks();
  b.loop(b.integer(0), strip.bundles, 1, [&](Value bundle) {
    Value to = b.at(activations, b.mul(bundle, activationBytes));
    Value first = b.add(strip.first, b.mul(bundle, 2));
    Value factors = b.at(to, 2 * kActivationBlock);
    auto storeTwice = [&](Value value, Value at, int64_t t) {
      for (int64_t i : {0, 1})
        LLVM::StoreOp::create(b, value, b.at(at, 8 * t + 4 * i), 4);
    };
    Value from[2], sumsFrom[2];
    for (int64_t t : {0, 1}) {
      Value token = b.add(first, b.integer(t));
      from[t] = activationsOf(token, b.mul(block.number, kActivationBlock));
      sumsFrom[t] = activationSums(token, block);
      Value scale = b.mul(b.add(b.mul(token, blocks), block.number), 4);
      storeTwice(LLVM::LoadOp::create(b, word, b.at(d, scale), 4), factors, t);
    }
    if (scaling.takesSums())
      b.loop(b.integer(0), narrow ? block.groups : b.integer(1), 1,
             [&](Value g) {
               Value line = b.at(b.at(factors, 16), b.mul(g, 16));
               for (int64_t t : {0, 1})
                 storeTwice(activationSum(sumsFrom[t], g, block), line, t);
             });
    b.loop(b.integer(0), block.groups, 1, [&](Value g) {
      Value line = b.at(to, b.mul(g, 2 * kGroup));
      for (int64_t i = 0; i < kGroup; i += 8)
        for (int64_t t : {0, 1}) {
          Value value = LLVM::LoadOp::create(
              b, eight, b.at(b.at(from[t], b.mul(g, kGroup)), i), 1);
          LLVM::StoreOp::create(b, value, b.at(line, 2 * i + 8 * t), 8);
        }
    });
  });
}

/// Where the sums of a token's activations of a block begin.
Value UnpackOnce::activationSums(Value token, const Block &block) {
  Value group =
      b.add(b.mul(token, groups()), b.mul(block.number, kBlockGroups));
  return b.at(sums, b.mul(group, 4));
}

/// The sum, as f32, of the activations that share the scales of group `g`, with
/// a block's sums at `from`.
Value UnpackOnce::activationSum(Value from, Value g, const Block &block) {
  auto load = [&](Value i) -> Value {
    return LLVM::LoadOp::create(b, b.getI32Type(), b.at(from, b.mul(i, 4)), 4);
  };
  Value sum = load(g);
  if (!narrow)
    sum = b.loop(b.integer(1), block.groups, 1, sum,
                 [&](Value i, ValueRange before) {
                   return Values{b.add(before[0], load(i))};
                 })[0];
  return arith::SIToFPOp::create(b, b.getF32Type(), sum);
}

void UnpackOnce::unpackBlock(Value panel, Value output, const Block &block) {
  const int64_t blockBytes = panelBlockBytes(format);
  Value from = b.at(
      panel, b.mul(block.number, (narrow ? kBlockGroups : 1) * blockBytes));
  if (!narrow)
    unpackScales(from, output, scales);
  const int64_t stride = narrow ? blockBytes : panelGroupBytes(format);
  b.loop(b.integer(0), block.groups, 1, [&](Value g) {
    Value group = b.at(from, b.mul(g, stride));
    if (narrow)
      unpackScales(group, output,
                   atRegister(scales, g, scaling.count() * panelRegisters));
    unpackGroup(b.at(b.at(group, panelHeaderBytes(format)), b.mul(output, 4)),
                atRegister(unpacked, g, 8 * vectors));
  });
}

/// Scales of a panel's outputs as the sums' registers need them.
void UnpackOnce::unpackScales(Value header, Value output, Value to) {
  Value from = b.at(header, b.mul(output, 2));
  for (int64_t v = 0; v < vectors; ++v) {
    const Values values =
        scaling.scales(b, unpack->range.factor, [&](int64_t number) {
          Value numbers = b.at(from, number * kPanelOutputs * 2);
          return b.loadFloats(kLanes, b.getF16Type(),
                              b.at(numbers, b.scaled(v * kLanes * 2)));
        });
    for (auto [i, value] : llvm::enumerate(values))
      for (int64_t half = 0; half < bundleRegisters; ++half)
        storeWhole(pairs ? b.permuted("zip", 64, value, value, half != 0)
                         : value,
                   atRegister(to, int64_t(i) * panelRegisters +
                                      v * bundleRegisters + half));
  }
}

/// The 8 * vectors registers of a group: by step, vector, and half of a vector
/// in pairs.
void UnpackOnce::unpackGroup(Value from, Value to) {
  auto chunk = [&](int64_t i, int64_t v) {
    return b.load(bytes(), b.at(b.at(from, i * kChunkBytes), b.scaled(v * 16)));
  };
  const int64_t rounds = unpack->chunks() / bundleTokens;
  for (int64_t v = 0; v < vectors; ++v)
    for (int64_t i = 0; i < rounds; ++i) {
      Value even = chunk(i * bundleTokens, v);
      Value odd = pairs ? chunk(2 * i + 1, v) : Value();
      for (int64_t half = 0; half < bundleRegisters; ++half) {
        Value codes =
            pairs ? b.permuted("zip", 32, even, odd, half != 0) : even;
        for (int64_t part = 0; part < unpack->parts; ++part)
          storeWhole(unpack->bytes(b, codes, part),
                     atRegister(to, (i + part * rounds) * panelRegisters +
                                        v * bundleRegisters + half));
      }
    }
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
                 storeWhole(math::FmaOp::create(b, t[i * tileRegisters + r],
                                                tile.d[i],
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
  Value blocks = activationBlocks();
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
        activationsOf(token, b.mul(block.number, kActivationBlock)));
    Value scale = b.mul(b.add(b.mul(token, blocks), block.number), 4);
    tile.d.push_back(b.splat(floats(), b.load(b.getF32Type(), b.at(d, scale))));
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
  const Values none(count, b.zeros(floats(), -0.0f));
  if (narrow) {
    Values t = none;
    overGroups(span, t, [&](Value g) {
      t = scaled(tile, block, g, addGroup(tile, g, start(g)), t);
    });
    return t;
  }
  Values dots = start(b.integer(0));
  overGroups(span, dots, [&](Value g) { dots = addGroup(tile, g, dots); });
  return scaled(tile, block, b.integer(0), dots, none);
}

/// The dots of a group, from what they were before.
Values UnpackOnce::addGroup(const Tile &tile, Value g, const Values &before) {
  Value from = b.at(atRegister(unpacked, g, 8 * vectors),
                    b.mul(tile.first, b.scaled(16)));
  // Registers of activations.
  const int64_t loads = kGroup * bundleTokens / 16;
  SmallVector<Values> x(tileBundles);
  SmallVector<std::unique_ptr<Dot>> dots;
  for (int64_t i = 0; i < tileBundles; ++i)
    for (int64_t load = 0; load < loads; ++load)
      x[i].push_back(b.loadQuad(
          b.getI8Type(),
          b.at(b.at(tile.q[i], b.mul(g, kGroup * bundleTokens)), 16 * load)));
  for (Value dot : before)
    dots.push_back(makeDot(b, isa, unpack->range, dot));
  for (int64_t step = 0; step < steps; ++step)
    for (int64_t r = 0; r < tileRegisters; ++r) {
      // As words, whose loads have the longer offsets with SVE.
      Value w = vector::BitCastOp::create(
          b, bytes(),
          loadWhole(words(), atRegister(from, step * panelRegisters + r)));
      for (int64_t i = 0; i < tileBundles; ++i)
        dots[i * tileRegisters + r]->step(w, x[i][step * loads / steps],
                                          step % 4);
    }
  Values sums;
  for (std::unique_ptr<Dot> &dot : dots)
    sums.push_back(dot->finish());
  return sums;
}

/// t after a block of weights, whose scales are those of group `g`.
Values UnpackOnce::scaled(const Tile &tile, const Block &block, Value g,
                          ArrayRef<Value> dots, ValueRange t) {
  Values result, bundleSums(tileBundles);
  if (scaling.takesSums())
    for (auto [sum, from] : llvm::zip_equal(bundleSums, tile.sums))
      sum = pairs ? Value(vector::BitCastOp::create(
                        b, floats(),
                        b.loadQuad(b.getI8Type(), b.at(from, b.mul(g, 16)))))
                  : b.splat(floats(), activationSum(from, g, block));
  Value from = b.at(atRegister(scales, g, scaling.count() * panelRegisters),
                    b.mul(tile.first, b.scaled(16)));
  for (auto [i, dot] : llvm::enumerate(dots)) {
    Values w;
    for (int64_t n = 0; n < scaling.count(); ++n)
      w.push_back(loadWhole(
          floats(),
          atRegister(from, n * panelRegisters + int64_t(i) % tileRegisters)));
    Value value =
        arith::SubFOp::create(b, vector::BitCastOp::create(b, floats(), dot),
                              b.zeros(floats(), kMagic));
    result.push_back(
        scaling.add(b, value, bundleSums[int64_t(i) / tileRegisters], w, t[i]));
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
    store(output, tokens, tile, kLanes);
  });
}

void qwen::emitUnpackOnce(const KernelInfo &kernel,
                          const KernelSchedule &schedule, ModuleOp module) {
  UnpackOnce(kernel, schedule, module).emit();
}
