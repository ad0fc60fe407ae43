//===- ProductsBlocked.cpp - Products of many tokens ----------------------===//
//
// GEMM rows that unpack weights once for many tokens:
//
//   for each panel of 16 outputs
//     for each strip of tokens
//       for each block of 128 along K
//         unpack the block's weights and scales, in the order of their use
//         for each tile of outputs and tokens
//           the block's dots and scales, added to the tile's f32 sums
//       + bias, + residual, store
//
// What is unpacked, the activations of pairs of tokens and the sums lie in a
// scratch on the stack that fits in a core's first cache. What bounds the inner
// loop is then the dots and what turns them into floats:
// docs/notebook/arm-static-model.md.
//
// The order of every accumulation is docs/numerics.md's; layouts are
// Blocks.h's.
//
//===----------------------------------------------------------------------===//

#include "LinearArguments.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ArmNeon/ArmNeonDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace qwen;
using namespace mlir;

static constexpr int64_t kLanes = 4;

namespace {
/// Emits one kernel.
class BlockedEmitter {
public:
  BlockedEmitter(const KernelInfo &kernel, const KernelSchedule &schedule,
                 ModuleOp module)
      : format(*weightFormat(kernel.format)), schedule(schedule),
        fixed(fixedSchedule(kernel, schedule)),
        pairs(isaInfo(kernel.isa).dot.tokens == 2), bundleTokens(pairs ? 2 : 1),
        bundleRegisters(pairs ? 2 : 1),
        b(kernel, module, linearSignature(kernel, module.getContext())),
        arguments(b, kernel.format) {}

  void emit();

private:
  bool eightBits() const { return format == WeightFormat::Q8_0; }
  bool isWide() const { return weightBlock(format) == kActivationBlock; }
  /// Steps of one group: an instruction multiplies 8 values of pairs, else 4.
  int64_t steps() const { return pairs ? 4 : 8; }

  void layOutScratch();
  void emitPanels(int64_t count, Value column);
  void emitChunk(Value panel, Value last, Value first, Value column);
  void arrangeActivations(Value first, Value units, Value block, Value groups);
  void unpack(Value panelWeights, Value column, Value block, Value groups);
  void unpackScales(Value from, Value to);
  void unpackGroup(Value from, Value to);
  void multiply(Value panelSums, Value first, Value units, Value block,
                Value groups, bool whole);
  /// Whether the innermost loop has no pass but one: a whole block.
  bool isUnrolled(bool whole) const {
    return whole && current->unroll == kBlockGroups;
  }
  Values overGroups(Value groups, bool whole, Values carried,
                    llvm::function_ref<Values(Value, Values)> body);
  void finish(Value panelSums, Value output, Value first, Value units);

  Value activation(Value at, int64_t step);
  Value splatScale(Value unit, Value unitAddress, Value first, Value block);
  Value dot(Value sum, Value a, Value w, int64_t step);

  VectorType floats() { return b.vector(kLanes, b.getF32Type()); }
  VectorType words() { return b.vector(kLanes, b.getI32Type()); }
  VectorType bytes() { return b.vector(16, b.getI8Type()); }
  Value constant(VectorType type, Attribute value) {
    return arith::ConstantOp::create(
        b, DenseElementsAttr::get(type, ArrayRef<Attribute>(value)));
  }
  Value constantByte(int8_t value) {
    return constant(bytes(), b.getI8IntegerAttr(value));
  }

  /// Whole registers of the scratch, whatever outputs are active.
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

  const WeightFormat format;
  const KernelSchedule &schedule;
  /// What code for vectors of 128 bits has.
  const KernelSchedule fixed;
  const bool pairs;
  /// A unit is the tokens whose sums are in the same registers: as many for
  /// each vector of outputs as it has registers.
  const int64_t bundleTokens, bundleRegisters;
  ProductBuilder b;
  const LinearArguments arguments;

  /// Vectors of outputs in a panel, and what the code for them has.
  int64_t vectors = 0;
  const KernelSchedule *current = nullptr;
  /// Parts of the scratch. Weights and scales: those of the block, by group.
  /// Activations: those of the block, by unit. Sums: of the chunk, by unit.
  /// Starts: of integer sums.
  Value weights, scales, activations, sums, starts;
  int64_t activationBytes = 0;
};
} // namespace

/// Of the longest vectors of SVE, 256 bytes, a panel needs one.
void BlockedEmitter::layOutScratch() {
  const int64_t longest = b.isScalable() ? 4 : 1;
  const int64_t line = kPanelOutputs * 4 * longest;
  // The units' activations and their scales.
  activationBytes = pairs ? 2 * kActivationBlock + 16 : 0;
  const int64_t units = schedule.strip / bundleTokens;
  const int64_t weightBytes = kBlockGroups * 8 * line;
  const int64_t scaleBytes = kBlockGroups * bundleRegisters * line;
  const int64_t sumBytes = schedule.panels * units * bundleRegisters * line;
  const int64_t registers = std::max(schedule.tokens * schedule.vectors,
                                     fixed.tokens * fixed.vectors);
  const int64_t startBytes = kBlockGroups * 16 * registers + 256;
  const int64_t size = weightBytes + scaleBytes + sumBytes + startBytes +
                       units * activationBytes;
  weights = b.scratch(size);
  scales = b.at(weights, weightBytes);
  sums = b.at(scales, scaleBytes);
  starts = b.at(sums, sumBytes);
  activations = b.at(starts, startBytes);
  // A loop, so that LLVM takes the starts from memory: loads have slots to
  // spare where the copies of a register have not.
  Value magic = arith::ConstantOp::create(b, b.getF32FloatAttr(kMagic));
  b.loop(b.integer(0), b.integer(startBytes / 4), 1,
         [&](Value i) { b.store(magic, b.at(starts, b.mul(i, 4))); });
}

void BlockedEmitter::emit() {
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
              [&](Value column, int64_t count) { emitPanels(count, column); });
        });
  } else {
    emitPanels(4, b.integer(0));
  }
  b.finish();
}

/// The `count` vectors of outputs from `column` on of all panels.
void BlockedEmitter::emitPanels(int64_t count, Value column) {
  vectors = count;
  current = b.isScalable() ? &schedule : &fixed;
  Value end = arguments.panelEnd;
  b.loop(arguments.panelBegin, end, schedule.panels, [&](Value panel) {
    Value last = b.smaller(end, b.add(panel, b.integer(schedule.panels)));
    b.loop(b.integer(0), arguments.m, schedule.strip,
           [&](Value first) { emitChunk(panel, last, first, column); });
  });
}

/// The outputs of panels [panel, last) for the strip of tokens from `first`.
void BlockedEmitter::emitChunk(Value panel, Value last, Value first,
                               Value column) {
  Value panels = arith::SubIOp::create(b, last, panel);
  Value tokens = b.smaller(b.integer(schedule.strip),
                           arith::SubIOp::create(b, arguments.m, first));
  Value units = b.shiftRight(tokens, bundleTokens - 1);
  Value panelSums = b.mul(units, vectors * bundleRegisters);
  Value none = b.zeros(floats());
  b.loop(b.integer(0), b.mul(panels, panelSums), 1,
         [&](Value i) { storeWhole(none, atRegister(sums, i, 1)); });
  auto sumsOf = [&](Value index) {
    return atRegister(sums, b.mul(index, panelSums), 1);
  };
  Value stride = arguments.panelStride(b, format);
  auto addBlock = [&](Value block, Value groups, bool whole) {
    if (pairs)
      arrangeActivations(first, units, block, groups);
    b.loop(b.integer(0), panels, 1, [&](Value index) {
      Value from = b.at(arguments.weights, b.mul(b.add(panel, index), stride));
      unpack(from, column, block, groups);
      multiply(sumsOf(index), first, units, block, groups, whole);
    });
  };
  Value groups = b.shiftRight(arguments.k, 5);
  Value blocks = b.shiftRight(groups, 2);
  b.loop(b.integer(0), blocks, 1,
         [&](Value block) { addBlock(block, b.integer(kBlockGroups), true); });
  // What is left of the last block, if anything.
  Value done = b.mul(blocks, kBlockGroups);
  Value rest = arith::SubIOp::create(b, groups, done);
  b.loop(done, groups, kBlockGroups,
         [&](Value) { addBlock(blocks, rest, false); });
  b.loop(b.integer(0), panels, 1, [&](Value index) {
    Value output = b.add(b.mul(b.add(panel, index), kPanelOutputs), column);
    finish(sumsOf(index), output, first, units);
  });
}

/// 8 values of one token of a pair, then 8 of the other, as smmla takes them;
/// behind them the scale of the one twice, then of the other. As doubles, which
/// load in one slot for two.
void BlockedEmitter::arrangeActivations(Value first, Value units, Value block,
                                        Value groups) {
  const Type eight = b.getF64Type(), word = b.getF32Type();
  Value blocks = arguments.activationBlocks(b);
  b.loop(b.integer(0), units, 1, [&](Value unit) {
    Value to = b.at(activations, b.mul(unit, activationBytes));
    Value token = b.add(first, b.mul(unit, 2));
    Value q[2], d[2];
    for (int64_t t : {0, 1}) {
      Value row = b.add(token, b.integer(t));
      q[t] = b.at(arguments.q, b.add(b.mul(row, arguments.k),
                                     b.mul(block, kActivationBlock)));
      Value scale = b.mul(b.add(b.mul(row, blocks), block), 4);
      d[t] = LLVM::LoadOp::create(b, word, b.at(arguments.d, scale), 4);
      for (int64_t i : {0, 1})
        LLVM::StoreOp::create(
            b, d[t], b.at(to, 2 * kActivationBlock + 8 * t + 4 * i), 4);
    }
    b.loop(b.integer(0), groups, 1, [&](Value g) {
      Value line = b.at(to, b.mul(g, 2 * kGroup));
      for (int64_t i = 0; i < kGroup; i += 8)
        for (int64_t t : {0, 1}) {
          Value value = LLVM::LoadOp::create(
              b, eight, b.at(b.at(q[t], b.mul(g, kGroup)), i), 1);
          LLVM::StoreOp::create(b, value, b.at(line, 2 * i + 8 * t), 8);
        }
    });
  });
}

void BlockedEmitter::unpack(Value panelWeights, Value column, Value block,
                            Value groups) {
  const int64_t perBlock = isWide() ? 1 : kBlockGroups;
  Value from =
      b.at(panelWeights, b.mul(block, perBlock * panelBlockBytes(format)));
  Value columnScales = b.mul(column, 2);
  if (isWide())
    unpackScales(b.at(from, columnScales), scales);
  const int64_t stride =
      isWide() ? panelGroupBytes(format) : panelBlockBytes(format);
  b.loop(b.integer(0), groups, 1, [&](Value g) {
    Value group = b.at(from, b.mul(g, stride));
    if (!isWide())
      unpackScales(b.at(group, columnScales),
                   atRegister(scales, g, bundleRegisters * vectors));
    unpackGroup(b.at(b.at(group, panelHeaderBytes(format)), b.mul(column, 4)),
                atRegister(weights, g, 8 * vectors));
  });
}

/// Scales of a panel's outputs as the sums' registers need them.
void BlockedEmitter::unpackScales(Value from, Value to) {
  // Nibbles are unpacked to 16 times their values.
  Value sixteenth = constant(floats(), b.getF32FloatAttr(0.0625f));
  for (int64_t v = 0; v < vectors; ++v) {
    Value w = b.loadFloats(kLanes, b.getF16Type(),
                           b.at(from, b.scaled(v * kLanes * 2)));
    if (!eightBits())
      w = arith::MulFOp::create(b, w, sixteenth);
    if (!pairs) {
      storeWhole(w, atRegister(to, v));
      continue;
    }
    for (int64_t half : {0, 1})
      storeWhole(b.permuted("zip", 64, w, w, half != 0),
                 atRegister(to, 2 * v + half));
  }
}

/// The 8 * vectors registers of a group: by step, vector, and half of a vector
/// in pairs.
void BlockedEmitter::unpackGroup(Value from, Value to) {
  constexpr int64_t chunkBytes = kPanelOutputs * 4;
  const int64_t chunks = panelGroupBytes(format) / chunkBytes;
  auto place = [&](int64_t step, int64_t v, int64_t half) {
    return atRegister(to, (step * vectors + v) * bundleRegisters + half);
  };
  auto chunk = [&](int64_t i, int64_t v) {
    return b.load(bytes(), b.at(b.at(from, i * chunkBytes), b.scaled(v * 16)));
  };
  auto put = [&](Value packed, int64_t step, int64_t v, int64_t half) {
    if (eightBits())
      return storeWhole(packed, place(step, v, half));
    // Nibbles are stored plus 8; with the highest bit flipped they are their
    // values in two's complement, which become bytes in the upper half of one.
    Value w = arith::XOrIOp::create(b, packed, constantByte(int8_t(0x88)));
    storeWhole(arith::ShLIOp::create(b, w, constantByte(4)),
               place(step, v, half));
    storeWhole(arith::AndIOp::create(b, w, constantByte(int8_t(0xF0))),
               place(step + steps() / 2, v, half));
  };
  for (int64_t v = 0; v < vectors; ++v)
    for (int64_t i = 0; i < chunks; i += pairs ? 2 : 1) {
      if (!pairs) {
        put(chunk(i, v), i, v, 0);
        continue;
      }
      Value even = chunk(i, v), odd = chunk(i + 1, v);
      for (int64_t half : {0, 1})
        put(b.permuted("zip", 32, even, odd, half != 0), i / 2, v, half);
    }
}

/// 16 activations of a unit's group, in each 128 bits.
Value BlockedEmitter::activation(Value at, int64_t step) {
  Value from = b.at(at, 16 * step);
  if (!b.isScalable())
    return b.load(bytes(), from);
  Value all = arith::ConstantOp::create(
      b, DenseElementsAttr::get(b.vector(16, b.getI1Type()), true));
  return b.intrinsic(bytes(), "llvm.aarch64.sve.ld1rq.nxv16i8", {all, from});
}

Value BlockedEmitter::dot(Value sum, Value a, Value w, int64_t step) {
  if (b.isScalable())
    return b.intrinsic(words(), "llvm.aarch64.sve.smmla.nxv4i32", {sum, a, w});
  if (pairs)
    return arm_neon::SmmlaOp::create(b, words(), sum, a, w);
  Value four = vector::BitCastOp::create(b, words(), a);
  Value word = vector::ExtractOp::create(b, four, step % 4);
  return arm_neon::SdotOp::create(
      b, words(), sum, w,
      vector::BitCastOp::create(b, bytes(), b.splat(words(), word)));
}

/// body(g, ...body(0, carried)) for the groups of a block, which is `whole` or
/// the last one.
Values
BlockedEmitter::overGroups(Value groups, bool whole, Values carried,
                           llvm::function_ref<Values(Value, Values)> body) {
  auto several = [&](Value first, int64_t count, Values values) {
    for (int64_t i = 0; i < count; ++i)
      values = body(b.add(first, b.integer(i)), std::move(values));
    return values;
  };
  if (isUnrolled(whole))
    return several(b.integer(0), kBlockGroups, std::move(carried));
  const int64_t each = whole ? current->unroll : 1;
  return b.loop(b.integer(0), groups, each, carried,
                [&](Value g, ValueRange before) {
                  return several(g, each, Values(before));
                });
}

/// sums = fma(t, d_a, sums) for the tiles of a chunk, with t the block's chain
/// of isum * d_w.
void BlockedEmitter::multiply(Value panelSums, Value first, Value units,
                              Value block, Value groups, bool whole) {
  const int64_t tileUnits = current->tokens / bundleTokens;
  const int64_t tileVectors = std::min(current->vectors, vectors);
  const int64_t tileRegisters = tileVectors * bundleRegisters;
  const int64_t panelRegisters = vectors * bundleRegisters;
  const size_t count = tileUnits * tileRegisters;
  Value blocks = arguments.activationBlocks(b);
  Value magic = constant(floats(), b.getF32FloatAttr(kMagic));

  b.loop(b.integer(0), b.integer(vectors), tileVectors, [&](Value v) {
    Value register0 = b.mul(v, bundleRegisters);
    b.loop(b.integer(0), units, tileUnits, [&](Value unit) {
      Values q, d;
      for (int64_t u = 0; u < tileUnits; ++u) {
        Value at = b.add(unit, b.integer(u));
        if (pairs) {
          q.push_back(b.at(activations, b.mul(at, activationBytes)));
          d.push_back(vector::BitCastOp::create(
              b, floats(), activation(q.back(), 2 * kActivationBlock / 16)));
          continue;
        }
        Value token = b.add(first, at);
        q.push_back(b.at(arguments.q, b.add(b.mul(token, arguments.k),
                                            b.mul(block, kActivationBlock))));
        Value scale = b.mul(b.add(b.mul(token, blocks), block), 4);
        d.push_back(b.splat(floats(),
                            b.load(b.getF32Type(), b.at(arguments.d, scale))));
      }
      // The dots of a group, from what they were before, for each register.
      auto addGroup = [&](Value g, Values isum) {
        Value w = b.at(atRegister(weights, g, 8 * vectors),
                       b.mul(register0, b.scaled(16)));
        const int64_t loads = pairs ? steps() : 2;
        SmallVector<Values> a(tileUnits);
        for (int64_t u = 0; u < tileUnits; ++u)
          for (int64_t i = 0; i < loads; ++i)
            a[u].push_back(
                activation(b.at(q[u], b.mul(g, kGroup * bundleTokens)), i));
        for (int64_t step = 0; step < steps(); ++step)
          for (int64_t r = 0; r < tileRegisters; ++r) {
            // As words, whose loads have the longer offsets with SVE.
            Value packed = vector::BitCastOp::create(
                b, bytes(),
                loadWhole(words(), atRegister(w, step * panelRegisters + r)));
            for (int64_t u = 0; u < tileUnits; ++u) {
              Value &sum = isum[u * tileRegisters + r];
              sum = dot(sum, a[u][step * loads / steps()], packed, step);
            }
          }
        return isum;
      };
      auto startOf = [&](Value g) {
        Values result;
        Value from = b.at(starts, b.mul(g, int64_t(16 * count)));
        for (size_t i = 0; i < count; ++i)
          result.push_back(loadWhole(words(), b.at(from, int64_t(16 * i))));
        return result;
      };
      // t = fma(isum, d_w, t), or the product where there is no t yet.
      auto scaled = [&](Value g, ArrayRef<Value> isum, ArrayRef<Value> t) {
        Values result;
        Value from = b.at(atRegister(scales, g, panelRegisters),
                          b.mul(register0, b.scaled(16)));
        for (size_t i = 0; i < count; ++i) {
          Value w =
              loadWhole(floats(), atRegister(from, int64_t(i) % tileRegisters));
          Value value = arith::SubFOp::create(
              b, vector::BitCastOp::create(b, floats(), isum[i]), magic);
          result.push_back(t.empty()
                               ? Value(arith::MulFOp::create(b, value, w))
                               : Value(math::FmaOp::create(b, value, w, t[i])));
        }
        return result;
      };
      Values t;
      if (isWide()) {
        t = scaled(b.integer(0),
                   overGroups(groups, whole, startOf(b.integer(0)), addGroup),
                   {});
      } else {
        const Values none(count, b.zeros(floats(), -0.0f));
        t = overGroups(groups, whole, isUnrolled(whole) ? Values() : none,
                       [&](Value g, const Values &before) {
                         return scaled(g, addGroup(g, startOf(g)), before);
                       });
      }
      for (int64_t u = 0; u < tileUnits; ++u) {
        Value line = b.at(
            atRegister(panelSums, b.add(unit, b.integer(u)), panelRegisters),
            b.mul(register0, b.scaled(16)));
        for (int64_t r = 0; r < tileRegisters; ++r) {
          Value at = atRegister(line, r);
          storeWhole(math::FmaOp::create(b, t[u * tileRegisters + r], d[u],
                                         loadWhole(floats(), at)),
                     at);
        }
      }
    });
  });
}

/// Rows of outputs from the sums of a chunk.
void BlockedEmitter::finish(Value panelSums, Value output, Value first,
                            Value units) {
  b.loop(b.integer(0), units, 1, [&](Value unit) {
    Value line = atRegister(panelSums, unit, vectors * bundleRegisters);
    Values rows, tile;
    for (int64_t t = 0; t < bundleTokens; ++t) {
      rows.push_back(
          b.add(first, b.add(b.mul(unit, bundleTokens), b.integer(t))));
      for (int64_t v = 0; v < vectors; ++v) {
        auto sum = [&](int64_t half) {
          return loadWhole(floats(),
                           atRegister(line, v * bundleRegisters + half));
        };
        tile.push_back(pairs ? b.permuted("uzp", 64, sum(0), sum(1), t != 0)
                             : sum(0));
      }
    }
    arguments.store(b, output, rows, tile, kLanes);
  });
}

void qwen::emitBlocked(const KernelInfo &kernel, const KernelSchedule &schedule,
                       ModuleOp module) {
  BlockedEmitter(kernel, schedule, module).emit();
}
