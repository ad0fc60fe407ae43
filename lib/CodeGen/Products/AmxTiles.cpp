//===- AmxTiles.cpp - Tile registers of AMX -------------------------------===//
//
// One instruction multiplies 16 tokens by 16 outputs, 64 deep, in a tile
// register of 16 lines of 64 bytes. The innermost loop takes blocks along K for
// 16 tokens: dots of the next block leave their registers through memory while
// AVX-512 scales the dots of the block before; f32 sums stay in registers. Then
// come the next 16 tokens, the next `depth` groups, the next panel, the next
// strip. Weights are unpacked once for a strip, `depth` groups at a time.
//
//               strip of tokens
//   panel  K |  +----+----+----+----+
//   of 16    v  | 16 | 16 | 16 | 16 |   arrange `depth` groups, then all
//               +----+----+----+----+   tokens of the strip, then go on along K
//
// docs/decisions/0009-amx.md has the reasons.
//
//===----------------------------------------------------------------------===//

#include "Product.h"

using namespace qwen;
using namespace mlir;

/// Lines of a tile register and bytes of one of them.
static constexpr int64_t kTileLines = 16, kLineBytes = 64;
static constexpr int64_t kTileBytes = kTileLines * kLineBytes;

/// Bytes of an arranged group: a line for 4 values of 16 outputs.
static constexpr int64_t kArrangedBytes = kGroup * kPanelOutputs;

/// Tiles 0 to 3 have dots. Where each group has its own dots, 4 and 5 have the
/// operands of even dots, 6 and 7 the operands of odd dots. Else 4 and 5 have
/// two groups, and 6 and 7 a group that is left.
static constexpr int64_t kDotTiles = 4, kPairs[] = {4, 6};

namespace {
class AmxTiles {
public:
  AmxTiles(const KernelInfo &kernel, const AmxTilesSchedule &schedule,
           ModuleOp module)
      : p(kernel, module, ByteForm::Exact), schedule(schedule) {}

  void emit() {
    p.bypassCaches(schedule.bypass);
    configure();
    Value stride = p.panelStride();
    b.loop(0, p.m, schedule.strip, [&](Value firstToken) {
      Value lastToken = b.smaller(p.m, b.add(firstToken, schedule.strip));
      auto sumOf = [&](Value token) {
        return b.at(stripSums, b.sub(token, firstToken), kLineBytes);
      };
      b.loop(p.panelBegin, p.panelEnd, 1, [&](Value panel) {
        Value weights = b.at(p.weights, panel, stride);
        b.loop(firstToken, lastToken, 1,
               [&](Value token) { b.store(b.zeros(floats), sumOf(token)); });
        b.loop(0, allGroups, schedule.depth, [&](Value first) {
          Value last = b.smaller(allGroups, b.add(first, schedule.depth));
          arrange(weights, first, last);
          b.loop(firstToken, lastToken, p.kernel.m, [&](Value token) {
            accumulate(token, sumOf(token), first, last);
          });
        });
        b.loop(firstToken, lastToken, 1, [&](Value token) {
          p.store(b.mul(panel, kPanelOutputs), token,
                  {b.load(floats, sumOf(token))}, kPanelOutputs);
        });
      });
    });
    amx("tilerelease", {});
    p.finish();
  }

private:
  /// The scales of a block, and the integers of its sub-blocks.
  struct Factors {
    Values scales, integers;
  };

  void amx(StringRef name, ValueRange operands) {
    LLVM::CallIntrinsicOp::create(
        b, b.getStringAttr(("llvm.x86." + name).str()), operands);
  }
  Value tile(int64_t number) { return b.constant(b.i8, number); }

  /// The palette, then for each tile register bytes of a line, then lines.
  void configure() {
    SmallVector<int8_t> values(64, 0);
    auto shape = [&](int64_t number, int64_t lines, int64_t lineBytes) {
      values[16 + 2 * number] = int8_t(lineBytes);
      values[48 + number] = int8_t(lines);
    };
    values[0] = 1;
    for (int64_t i = 0; i < std::min(blockDots, kDotTiles); ++i)
      shape(i, kTileLines, kLineBytes);
    for (int64_t pair : kPairs) {
      const int64_t deep = !ownDots && pair == kPairs[0] ? 2 : 1;
      shape(pair, kTileLines, deep * kGroup / p.subDots);
      shape(pair + 1, deep * kGroup / 4 / p.subDots, kLineBytes);
    }
    Value config = b.scratch(64);
    b.store(arith::ConstantOp::create(
                b, DenseElementsAttr::get(bytes, ArrayRef<int8_t>(values))),
            config);
    amx("ldtilecfg", config);
  }

  //===--------------------------------------------------------------------===//
  // Arranged weights and activations, which tile registers load
  //===--------------------------------------------------------------------===//

  /// Blocks of activations in the first `count` groups, the last one included.
  Value blocksOf(Value count) {
    return b.div(b.add(count, kBlockGroups - 1), kBlockGroups);
  }
  /// Arranged scales of the first `count` groups.
  Value headersOf(Value count) {
    return p.divided ? blocksOf(count)
                     : p.blockOf(b.add(count, p.blockGroups - 1));
  }

  /// Arranges the groups [first, last) of a panel in lines of tile registers.
  void arrange(Value panel, Value first, Value last) {
    auto place = [&](Value base, Value index, int64_t size) {
      return b.at(base, b.sub(index, first), size);
    };
    b.loop(first, last, 1, [&](Value group) {
      arrangeValues(panel, group, place(arranged, group, kArrangedBytes));
      if (p.divided)
        arrangeIntegers(panel, group,
                        place(arrangedIntegers, group, integerBytes));
    });
    Value firstHeader = headersOf(first);
    b.loop(firstHeader, headersOf(last), 1, [&](Value number) {
      Value index = b.sub(number, firstHeader);
      Value header = p.headerOf(
          panel, p.divided ? p.blockOf(b.mul(number, kBlockGroups)) : number);
      const Values scales = p.scaleVectors(header, kPanelOutputs, 0);
      Value to = b.at(arrangedScales, index, scaleBytes);
      for (auto [i, scale] : llvm::enumerate(scales))
        b.store(scale, b.at(to, int64_t(i) * kLineBytes));
    });
    // Groups and scales that the last block lacks: fma(0, -0, t) is t, a zero's
    // sign included.
    Value end = b.mul(blocksOf(last), kBlockGroups);
    auto fill = [&](Value to, int64_t size, Value line) {
      for (int64_t i = 0; i < size; i += kLineBytes)
        b.store(line, b.at(to, i));
    };
    if (ownDots)
      b.loop(last, end, 1, [&](Value group) {
        fill(place(arranged, group, kArrangedBytes), kArrangedBytes,
             b.constant(bytes, 0));
        if (p.divided)
          fill(place(arrangedIntegers, group, integerBytes), integerBytes,
               b.constant(bytes, 0));
      });
    if (!p.divided)
      b.loop(headersOf(last), headersOf(end), 1, [&](Value number) {
        fill(b.at(arrangedScales, b.sub(number, firstHeader), scaleBytes),
             scaleBytes, b.zeros(floats, -0.0f));
      });
  }

  /// The integers of a group's sub-blocks: sub-scales, then sub-minimums.
  void arrangeIntegers(Value panel, Value group, Value to) {
    Value header = p.headerOf(panel, p.blockOf(group)),
          inBlock = b.bitAnd(group, p.blockGroups - 1);
    for (int64_t i = 0; i < p.subDots * scaling.count(); ++i)
      b.store(scaling.integers(header, i / p.subDots, inBlock, i % p.subDots,
                               b.integer(0), 1, kPanelOutputs)[0],
              b.at(to, i * kLineBytes));
  }

  /// 8 lines, each with 4 values of every output.
  void arrangeValues(Value panel, Value group, Value to) {
    Value block = p.blockOf(group);
    Value from =
        b.at(panel, b.add(b.mul(group, panelGroupBytes(p.format)),
                          b.mul(b.add(block, 1), panelHeaderBytes(p.format))));
    for (int64_t i = 0; i < p.unpack->chunks(); ++i) {
      const Values codes = p.unpack->codes(b, i, [&](int64_t chunk, bool) {
        return b.load(bytes, b.at(from, chunk * kChunkBytes));
      });
      for (int64_t part = 0; part < p.unpack->parts; ++part)
        b.store(p.unpack->bytes(b, codes, i, part),
                b.at(to, (i + part * p.unpack->chunks()) * kLineBytes));
    }
  }

  /// Calls use(r, vector) for 16 tokens: the elements [first, last) of token +
  /// r in a vector of `type`, and zeros behind them. `array` has `stride`
  /// elements of 4 bytes for each token.
  void forElements(Value array, Value stride, VectorType type, Value token,
                   Value first, Value last,
                   function_ref<void(Value, Value)> use) {
    const std::string lanes = std::to_string(type.getDimSize(0));
    Value mask = b.intrinsic(type.clone(b.getI1Type()),
                             "llvm.get.active.lane.mask.v" + lanes + "i1.i64",
                             {first, last});
    Value zeros = arith::ConstantOp::create(b, b.getZeroAttr(Type(type)));
    Value from = b.at(array, b.add(b.mul(token, stride), first), 4);
    b.loop(0, kTileLines, 1, [&](Value r) {
      Value at = b.at(from, b.mul(r, stride), 4);
      use(r, LLVM::MaskedLoadOp::create(b, type, at, mask, zeros, 4));
    });
  }

  /// The sums of 16 tokens' activations in the groups [first, last) as f32, one
  /// for each dot, or as i32 if they are multiplied with integers; zeros for
  /// groups that the last block lacks.
  void arrangeSums(Value token, Value first, Value last) {
    const VectorType type = b.vector(schedule.depth, b.i32);
    auto arrange = [&](Value r, Value values) {
      // Adds pairs of neighbours until one sum is left for a scale.
      int64_t count = schedule.depth;
      for (; count > arrangedBlocks * blockDots; count /= 2) {
        auto every = [&](int64_t lane) {
          SmallVector<int64_t> lanes;
          for (; lane < count; lane += 2)
            lanes.push_back(lane);
          return b.shuffle(values, values, lanes);
        };
        values = b.add(every(0), every(1));
      }
      if (!p.divided)
        values = b.toFloat(b.vector(count, b.f32), values);
      b.store(values, b.at(arrangedSums, r, sumBytes));
    };
    forElements(p.sums, allGroups, type, token, first, last, arrange);
  }

  //===--------------------------------------------------------------------===//
  // Dots and sums of 16 tokens
  //===--------------------------------------------------------------------===//

  /// acc = fma(t, d_a, acc) over the blocks of arranged groups, for 16 tokens.
  /// The dots of a block are under way while the dots of the block before are
  /// added.
  void accumulate(Value token, Value sums, Value first, Value last) {
    activations = b.at(p.q, token, p.k);
    firstGroup = first;
    firstBlock = blocksOf(first);
    Value end = blocksOf(last);
    forElements(p.d, blocks, b.vector(arrangedBlocks, b.f32), token, firstBlock,
                end, [&](Value r, Value scales) {
                  b.store(scales, b.at(factors, r, factorBytes));
                });
    if (scaling.takesSums())
      arrangeSums(token, first, last);
    Values acc;
    for (int64_t r = 0; r < kTileLines; ++r)
      acc.push_back(b.load(floats, b.at(sums, r * kLineBytes)));
    acc = advance(firstBlock, Value(), acc);
    acc = b.loop(b.add(firstBlock, 1), end, 1, acc,
                 [&](Value block, ValueRange values) {
                   return advance(block, b.sub(block, 1), Values(values));
                 });
    acc = advance(Value(), b.sub(end, 1), acc);
    for (int64_t r = 0; r < kTileLines; ++r)
      b.store(acc[r], b.at(sums, r * kLineBytes));
  }

  /// The address of the dots of a block. Two blocks are in progress at a time.
  Value dotsOf(Value block) {
    return b.at(dots, b.bitAnd(block, 1), blockDots * kTileBytes);
  }

  /// Starts the dots of block `next` and adds the dots of block `done` to
  /// `sums`, in turns; either block may be null. LLVM moves no load across an
  /// instruction on tiles, so that turns keep what it holds in registers small,
  /// too.
  Values advance(Value next, Value done, Values sums) {
    const int64_t turns = blockDots * dotTurns;
    const int64_t lines = kTileLines / turns;
    Factors of;
    if (done) {
      Value index = b.sub(done, firstBlock);
      auto load = [&](Value base, int64_t size, VectorType type) {
        Values lines;
        for (int64_t i = 0; i < size; i += kLineBytes)
          lines.push_back(
              b.load(type, b.at(base, b.add(b.mul(index, size), i))));
        return lines;
      };
      of = {load(arrangedScales,
                 p.divided ? scaleBytes : blockDots * scaleBytes, floats),
            load(arrangedIntegers, kBlockGroups * integerBytes, integers)};
    }
    for (int64_t turn = 0; turn < turns; ++turn) {
      if (next)
        multiply(next, turn);
      if (done)
        addLines(done, of, turn * lines, (turn + 1) * lines, sums);
      if (next && (turn + 1) % dotTurns == 0) {
        const int64_t dot = turn / dotTurns;
        amx("tilestored64",
            {tile(dot % kDotTiles), b.at(dotsOf(next), dot * kTileBytes),
             b.integer(kLineBytes)});
      }
    }
    return sums;
  }

  /// A turn of the dots of a block: one dot, or two groups that share a scale.
  void multiply(Value block, int64_t turn) {
    if (ownDots) {
      // Weights are zero in groups that the last block lacks.
      Value group = b.add(b.mul(block, kBlockGroups), turn / p.subDots);
      Value lastGroup = b.sub(allGroups, 1);
      amx("tilezero", tile(turn % kDotTiles));
      return addDots(turn % kDotTiles, kPairs[turn % 2], group,
                     b.smaller(group, lastGroup), turn % p.subDots);
    }
    const int64_t dot = turn / dotTurns;
    if (turn % dotTurns == 0)
      amx("tilezero", tile(dot));
    Value group = b.add(b.mul(block, kBlockGroups), 2 * turn);
    auto add = [&](int64_t pair) { addDots(dot, pair, group, group); };
    b.branch(
        b.isLess(b.add(group, 1), allGroups), [&] { add(kPairs[0]); },
        [&] {
          b.branch(b.isLess(group, allGroups), [&] { add(kPairs[1]); }, [] {});
        });
  }

  /// Adds the products of 16 tokens in group `from`, or in sub-block `sub` of
  /// it, with the arranged weights of `group`, by tiles `pair` and `pair` + 1,
  /// to tile `dot`.
  void addDots(int64_t dot, int64_t pair, Value group, Value from,
               int64_t sub = 0) {
    Value index = b.sub(group, firstGroup);
    auto partOf = [&](Value base, Value number, int64_t size) {
      return b.at(base, b.add(b.mul(number, size), sub * size / p.subDots));
    };
    amx("tileloadd64", {tile(pair), partOf(activations, from, kGroup), p.k});
    amx("tileloadd64", {tile(pair + 1), partOf(arranged, index, kArrangedBytes),
                        b.integer(kLineBytes)});
    amx("tdpbssd", {tile(dot), tile(pair), tile(pair + 1)});
  }

  /// The sum of the activations of token `r` of 16 that belong to dot `dot` of
  /// a block; null without minimums. `block` counts from the first that is
  /// arranged.
  Value sumOf(Value block, int64_t r, int64_t dot) {
    if (!scaling.takesSums())
      return nullptr;
    Value line = b.at(arrangedSums, r * sumBytes);
    Value at = b.at(line, b.add(b.mul(block, blockDots), dot), sizeof(float));
    const VectorType type = p.divided ? integers : floats;
    return b.splat(type, b.load(type.getElementType(), at));
  }

  /// t of a block for token `r` of 16: the fma chain of isum * d_w over its
  /// scales, from -0, with which the first fma is the rounded product.
  Value blockSum(Value block, Value from, const Factors &of, int64_t r) {
    auto dotOf = [&](int64_t i) {
      return b.load(integers, b.at(from, i * kTileBytes + r * kLineBytes));
    };
    Value t = b.zeros(floats, -0.0f);
    if (!p.divided) {
      for (int64_t i = 0; i < blockDots; ++i)
        t = scaling.add(
            b.toFloat(floats, dotOf(i)), sumOf(block, r, i),
            ArrayRef(of.scales).slice(i * scaling.count(), scaling.count()), t);
      return t;
    }
    Value isum = b.constant(integers, 0), sum;
    for (int64_t i = 0; i < blockDots; ++i) {
      const int64_t line =
          i / p.subDots * p.subDots * scaling.count() + i % p.subDots;
      isum = b.add(isum, b.mul(dotOf(i), of.integers[line]));
      if (Value added = sumOf(block, r, i)) {
        Value product = b.mul(added, of.integers[line + p.subDots]);
        sum = sum ? b.add(sum, product) : product;
      }
    }
    return scaling.add(b.toFloat(floats, isum),
                       sum ? b.toFloat(floats, sum) : sum, of.scales, t);
  }

  /// fma(t, d_a, sum) for tokens [first, last) of 16.
  void addLines(Value block, const Factors &of, int64_t first, int64_t last,
                Values &sums) {
    Value index = b.sub(block, firstBlock);
    Value factor = b.at(factors, index, sizeof(float));
    Value from = dotsOf(block);
    for (int64_t r = first; r < last; ++r) {
      Value t = blockSum(index, from, of, r);
      Value x = b.load(b.f32, b.at(factor, r * factorBytes));
      sums[r] = b.fma(t, b.splat(floats, x), sums[r]);
    }
  }

  Product p;
  ProductBuilder &b = p.b;
  const AmxTilesSchedule &schedule;
  const Scaling &scaling = p.scaling;
  /// Bytes of the arranged scales of a header.
  const int64_t scaleBytes = scaling.count() * kLineBytes;
  /// Blocks that are arranged at a time, and bytes of a token's scales in them.
  const int64_t arrangedBlocks = schedule.depth / kBlockGroups;
  const int64_t factorBytes = arrangedBlocks * int64_t(sizeof(float));
  /// Bytes of the arranged integers of a group.
  const int64_t integerBytes = p.divided ? p.subDots * scaleBytes : 0;
  /// Whether each group has its own dots, and dots of a block.
  const bool ownDots = p.divided || p.blockGroups == 1;
  const int64_t blockDots =
      ownDots ? kBlockGroups * p.subDots : kBlockGroups / p.blockGroups;
  /// Turns that a dot takes: two groups a turn, or its own groups.
  const int64_t dotTurns = ownDots ? 1 : p.blockGroups / 2;
  /// Bytes of a token's arranged sums.
  const int64_t sumBytes = arrangedBlocks * blockDots * int64_t(sizeof(float));
  const VectorType bytes = b.vector(kLineBytes, b.i8);
  const VectorType integers = b.vector(kPanelOutputs, b.i32);
  const VectorType floats = b.vector(kPanelOutputs, b.f32);
  const Value allGroups = p.groups(), blocks = blocksOf(allGroups);
  /// On the stack: arranged weights and scales, scales and sums of activations,
  /// dots, sums of the strip.
  const Value arranged = b.scratch(schedule.depth * kArrangedBytes);
  const Value arrangedScales = b.scratch(schedule.depth * scaleBytes);
  const Value arrangedIntegers =
      p.divided ? b.scratch(schedule.depth * integerBytes) : Value();
  const Value factors = b.scratch(kTileLines * factorBytes);
  const Value arrangedSums =
      scaling.takesSums() ? b.scratch(kTileLines * sumBytes) : Value();
  const Value dots = b.scratch(2 * blockDots * kTileBytes);
  const Value stripSums = b.scratch(schedule.strip * kLineBytes);
  /// The activations of 16 tokens, and the first arranged group and block that
  /// multiply them.
  Value activations, firstGroup, firstBlock;
};
} // namespace

void qwen::emitOrder(const KernelInfo &kernel, const AmxTilesSchedule &schedule,
                     ModuleOp module) {
  AmxTiles(kernel, schedule, module).emit();
}
