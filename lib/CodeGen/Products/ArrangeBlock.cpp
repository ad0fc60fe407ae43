//===- ArrangeBlock.cpp - Blocks in the order of their use ----------------===//
//
// UnpackOnce reads the weights, scales and activations of a block of 128 along
// K from its scratch, where these functions put them in the order of their use.
//
//===----------------------------------------------------------------------===//

#include "UnpackOnce.h"

using namespace qwen;
using namespace mlir;

/// 8 values of one token of a pair, then 8 of the other, as smmla takes them;
/// behind them the scale of the one twice, then of the other, and likewise
/// the sums that are taken. As doubles, which load in one slot for two.
void UnpackOnce::arrangeActivations() {
  Value blocks = p.activationBlocks();
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
      storeTwice(scaleOf(token, blocks), factors, t);
      if (byteMinimums) {
        const Values parts = sumParts(sumsFrom[t]);
        for (int64_t part : {0, 1})
          storeTwice(parts[part], b.at(factors, 16 + 16 * part), t);
      }
    }
    if (scaling.takesSums() && !byteMinimums) {
      Value count = sumGroups == kBlockGroups
                        ? b.integer(1)
                        : b.div(b.add(blockGroups, sumGroups - 1), sumGroups);
      b.loop(0, count, 1, [&](Value i) {
        Value line = b.at(b.at(factors, 16), i, 16);
        for (int64_t t : {0, 1})
          storeTwice(activationSum(sumsFrom[t], i), line, t);
      });
    }
    b.loop(0, blockGroups, 1, [&](Value g) {
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

/// The sums of a token's activations of a block as two words, whose byte i is
/// of group i: sum i is its byte of the first word plus 256 times that of the
/// second.
Values UnpackOnce::sumParts(Value from) {
  const Type type = b.i32;
  Values parts(2, b.constant(type, 0));
  const GroupSpan span = {b.integer(0), blockGroups,
                          isWhole ? kBlockGroups : 1};
  p.overGroups(span, parts, [&](Value g) {
    Value sum = b.load(type, b.at(from, g, 4));
    Value rest = b.add(sum, 1 << (kSumBits - 1));
    rest = arith::ShRSIOp::create(b, rest, b.constant(type, kSumBits));
    Value place = b.truncated(type, b.mul(g, 8));
    for (auto [part, value] : llvm::zip_equal(parts, Values{sum, rest}))
      part = b.bitOr(part, b.shiftLeft(b.bitAnd(value, 255), place));
  });
  return parts;
}

/// Activations of `token` in a block.
Value UnpackOnce::activationsOf(Value token) {
  Value first = b.mul(block, kActivationBlock);
  return b.at(p.q, b.add(b.mul(token, p.k), first));
}

/// The scale of these. A token has `blocks`.
Value UnpackOnce::scaleOf(Value token, Value blocks) {
  Value index = b.add(b.mul(token, blocks), block);
  return b.load(b.f32, b.at(p.d, index, 4));
}

/// The address of the first of their sums.
Value UnpackOnce::sumsOf(Value token) {
  Value group = b.add(b.mul(token, p.groups()), b.mul(block, kBlockGroups));
  return b.at(p.sums, group, 4);
}

/// Sum `i` of the activations of a block, whose groups' sums are at `from`:
/// f32, or i32 if it is multiplied with an integer.
Value UnpackOnce::activationSum(Value from, Value i) {
  auto load = [&](Value i) { return b.load(b.i32, b.at(from, i, 4)); };
  Value first = b.mul(i, sumGroups);
  Value sum = load(first);
  if (p.divided)
    return sum;
  if (sumGroups > 1)
    sum =
        b.loop(b.add(first, 1), b.smaller(blockGroups, b.add(first, sumGroups)),
               1, sum, [&](Value g, ValueRange before) {
                 return Values{b.add(before[0], load(g))};
               })[0];
  return b.toFloat(b.f32, sum);
}

void UnpackOnce::unpackBlock(Value panel) {
  Value begin = b.mul(block, kBlockGroups);
  const GroupSpan all = {b.integer(0), blockGroups, 1};
  Values none;
  p.overBlocks(all, none, [&](const GroupSpan &span) {
    Value number = p.blockOf(b.add(begin, span.first));
    Value header = p.headerOf(panel, number);
    unpackScales(header, atRegister(scales, p.blockOf(span.first),
                                    scaling.count() * panelRegisters));
    Value before = b.sub(begin, b.mul(number, p.blockGroups));
    p.overGroups(span, none, [&](Value g) {
      Value inBlock = b.add(before, g);
      if (p.divided)
        unpackSubIntegers(
            header, inBlock,
            atRegister(integers, g, groupIntegers * panelRegisters));
      unpackGroup(b.at(p.chunksOf(header, inBlock), output, 4),
                  atRegister(unpacked, g, 8 * vectors));
    });
    if (byteMinimums)
      unpackMinimums(header, before);
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
void UnpackOnce::unpackScales(Value header, Value to) {
  Value from = b.at(header, output, 2);
  for (int64_t v = 0; v < vectors; ++v) {
    const Values values = p.scaleVectors(from, b.integer(0), kLanes, v);
    for (auto [i, value] : llvm::enumerate(values))
      storeForSums(value, v, to, int64_t(i) * panelRegisters);
  }
}

/// The integers of group `j` of a block: those of each sub-block's scale,
/// then those of the minimum.
void UnpackOnce::unpackSubIntegers(Value header, Value j, Value to) {
  for (int64_t i = 0; i < groupIntegers; ++i) {
    const Values values = p.integersOf(header, i / p.subDots, j, i % p.subDots,
                                       output, vectors, kLanes);
    for (auto [v, value] : llvm::enumerate(values))
      storeForSums(value, int64_t(v), to, i * panelRegisters);
  }
}

/// The sub-minimums of group `j` of a block and the 3 behind it, as bytes of
/// words.
void UnpackOnce::unpackMinimums(Value header, Value j) {
  Values words;
  for (int64_t i = 0; i < kBlockGroups; ++i) {
    const Values values =
        p.integersOf(header, 1, b.add(j, i), 0, output, vectors, kLanes);
    if (i == 0)
      words = values;
    else
      for (auto [word, value] : llvm::zip_equal(words, values))
        word = b.bitOr(word, b.shiftLeft(value, 8 * i));
  }
  for (auto [v, value] : llvm::enumerate(words))
    storeForSums(value, int64_t(v), minimums, 0);
}

/// The 8 * vectors registers of a group: by step, vector, and half of a
/// vector in pairs.
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
