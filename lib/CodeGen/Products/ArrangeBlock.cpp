//===- ArrangeBlock.cpp - What the order UnpackOnce reads of a block ------===//
//
// The weights, scales and activations of a block of 128 along K, in the scratch
// and in the order of their use.
//
//===----------------------------------------------------------------------===//

#include "UnpackOnce.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include <bit>

using namespace qwen;
using namespace mlir;

/// 8 values of one token of a pair, then 8 of the other, as smmla takes them;
/// behind them the scale of the one twice, then of the other, and likewise the
/// sums that are taken. As doubles, which load in one slot for two.
void UnpackOnce::arrangeActivations(const Strip &strip, const Block &block) {
  const Type eight = b.getF64Type(), word = b.getF32Type();
  Value blocks = p.activationBlocks();
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
      from[t] = p.activationsOf(token, b.mul(block.number, kActivationBlock));
      sumsFrom[t] = activationSums(token, block);
      Value scale = b.mul(b.add(b.mul(token, blocks), block.number), 4);
      storeTwice(LLVM::LoadOp::create(b, word, b.at(p.d, scale), 4), factors,
                 t);
      if (byteMinimums) {
        const Values parts = sumParts(sumsFrom[t], block);
        for (int64_t part : {0, 1})
          storeTwice(parts[part], b.at(factors, 16 + 16 * part), t);
      }
    }
    if (scaling.takesSums() && !byteMinimums)
      b.loop(b.integer(0), sumsOf(block), 1, [&](Value i) {
        Value line = b.at(b.at(factors, 16), b.mul(i, 16));
        for (int64_t t : {0, 1})
          storeTwice(activationSum(sumsFrom[t], i, block), line, t);
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

/// The sums of a token's activations of a block as two words, whose byte i is
/// of group i: sum i is its byte of the first word plus 256 times that of the
/// second.
Values UnpackOnce::sumParts(Value from, const Block &block) {
  const Type type = b.getI32Type();
  Values parts(2, b.constant(type, 0));
  const GroupSpan span = {b.integer(0), block.groups,
                          block.whole ? kBlockGroups : 1};
  p.overGroups(span, parts, [&](Value g) {
    Value sum = LLVM::LoadOp::create(b, type, b.at(from, b.mul(g, 4)), 4);
    Value rest = b.add(sum, b.constant(type, 1 << (kSumBits - 1)));
    rest = arith::ShRSIOp::create(b, rest, b.constant(type, kSumBits));
    Value place = arith::TruncIOp::create(b, type, b.mul(g, 8));
    for (auto [part, value] : llvm::zip_equal(parts, Values{sum, rest})) {
      Value byte = b.bitAnd(value, 255);
      part = b.bitOr(part, b.shiftLeft(byte, place));
    }
  });
  return parts;
}

/// Where the sums of a token's activations of a block begin.
Value UnpackOnce::activationSums(Value token, const Block &block) {
  Value group =
      b.add(b.mul(token, p.groups()), b.mul(block.number, kBlockGroups));
  return b.at(p.sums, b.mul(group, 4));
}

/// Sums of activations that a block has.
Value UnpackOnce::sumsOf(const Block &block) {
  if (sumGroups == kBlockGroups)
    return b.integer(1);
  return b.shiftRight(b.add(block.groups, b.integer(sumGroups - 1)),
                      std::countr_zero(uint64_t(sumGroups)));
}

/// Sum `i` of the activations of a block, whose groups' sums are at `from`:
/// f32, or i32 if it is multiplied with an integer.
Value UnpackOnce::activationSum(Value from, Value i, const Block &block) {
  auto load = [&](Value i) -> Value {
    return LLVM::LoadOp::create(b, b.getI32Type(), b.at(from, b.mul(i, 4)), 4);
  };
  Value first = b.mul(i, sumGroups);
  Value sum = load(first);
  if (divided)
    return sum;
  if (sumGroups > 1)
    sum = b.loop(b.add(first, b.integer(1)),
                 b.smaller(block.groups, b.add(first, b.integer(sumGroups))), 1,
                 sum, [&](Value g, ValueRange before) {
                   return Values{b.add(before[0], load(g))};
                 })[0];
  return b.toFloat(b.getF32Type(), sum);
}

void UnpackOnce::unpackBlock(Value panel, Value output, const Block &block) {
  Value begin = b.mul(block.number, kBlockGroups);
  Values none;
  p.overBlocks(
      {b.integer(0), block.groups, 1}, none, [&](const GroupSpan &span) {
        Value number = p.blockOf(b.add(begin, span.first));
        Value header = b.at(panel, b.mul(number, panelBlockBytes(p.format)));
        unpackScales(header, output,
                     atRegister(scales, p.blockOf(span.first),
                                scaling.count() * panelRegisters));
        Value before = arith::SubIOp::create(
            b, begin, b.mul(number, weightBlock(p.format) / kGroup));
        p.overGroups(span, none, [&](Value g) {
          Value inBlock = b.add(before, g);
          if (divided)
            unpackSubIntegers(
                header, output, inBlock,
                atRegister(integers, g, groupIntegers * panelRegisters));
          Value chunks = b.at(b.at(header, panelHeaderBytes(p.format)),
                              b.mul(inBlock, panelGroupBytes(p.format)));
          unpackGroup(b.at(chunks, b.mul(output, 4)),
                      atRegister(unpacked, g, 8 * vectors));
        });
        if (byteMinimums)
          unpackMinimums(header, output, before);
      });
}

/// Stores vector `v` of outputs as the sums' registers need it, in the
/// registers of a panel that begin with register `first`.
void UnpackOnce::storeForSums(Value values, int64_t v, Value to,
                              int64_t first) {
  for (int64_t half = 0; half < bundleRegisters; ++half)
    storeWhole(pairs ? b.permuted("zip", 64, values, values, half != 0)
                     : values,
               atRegister(to, first + v * bundleRegisters + half));
}

/// Scales of a panel's outputs.
void UnpackOnce::unpackScales(Value header, Value output, Value to) {
  Value from = b.at(header, b.mul(output, 2));
  for (int64_t v = 0; v < vectors; ++v) {
    const Values values =
        scaling.scales(b, p.unpack->range.factor, [&](int64_t number) {
          Value numbers = b.at(from, number * kMinimumOffset);
          return b.loadFloats(kLanes, b.getF16Type(),
                              b.at(numbers, b.scaled(v * kLanes * 2)));
        });
    for (auto [i, value] : llvm::enumerate(values))
      storeForSums(value, v, to, int64_t(i) * panelRegisters);
  }
}

/// The integers of group `j` of a block: those of each sub-block's scale, then
/// those of the minimum.
void UnpackOnce::unpackSubIntegers(Value header, Value output, Value j,
                                   Value to) {
  for (int64_t i = 0; i < groupIntegers; ++i) {
    Value subBlock = b.add(b.mul(j, subDots), b.integer(i % subDots));
    const Values values = subIntegers(b, p.format, header, i / subDots,
                                      subBlock, output, vectors, kLanes);
    for (auto [v, value] : llvm::enumerate(values))
      storeForSums(value, int64_t(v), to, i * panelRegisters);
  }
}

/// The sub-minimums of group `j` of a block and the 3 behind it, as bytes of
/// words.
void UnpackOnce::unpackMinimums(Value header, Value output, Value j) {
  Values words;
  for (int64_t i = 0; i < kBlockGroups; ++i) {
    const Values values =
        subIntegers(b, p.format, header, 1, b.add(j, b.integer(i)), output,
                    vectors, kLanes);
    for (auto [v, value] : llvm::enumerate(values)) {
      if (i == 0) {
        words.push_back(value);
        continue;
      }
      Value by = b.constant(value.getType(), 8 * i);
      words[v] = b.bitOr(words[v], b.shiftLeft(value, by));
    }
  }
  for (auto [v, value] : llvm::enumerate(words))
    storeForSums(value, int64_t(v), minimums, 0);
}

/// The 8 * vectors registers of a group: by step, vector, and half of a vector
/// in pairs.
void UnpackOnce::unpackGroup(Value from, Value to) {
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
      for (int64_t half = 0; half < bundleRegisters; ++half) {
        Values codes;
        for (auto [first, second] : llvm::zip_equal(even, odd))
          codes.push_back(
              pairs ? b.permuted("zip", 32, first, second, half != 0) : first);
        for (int64_t part = 0; part < p.unpack->parts; ++part)
          storeWhole(p.unpack->bytes(b, codes, chunk, part),
                     atRegister(to, (i + part * rounds) * panelRegisters +
                                        v * bundleRegisters + half));
      }
    }
  }
}
