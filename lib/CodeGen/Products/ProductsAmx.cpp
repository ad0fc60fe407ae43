//===- ProductsAmx.cpp - Products with a packed matrix on AMX -------------===//
//
// A tile of AMX has 16 rows of 64 bytes, and one instruction multiplies 16
// tokens by 16 outputs, 64 deep. Each group of weights has its own scale, so
// that a product along K is a row of such instructions with what follows each
// in AVX-512: the dots leave their tile through memory, are converted and
// multiplied with the scale.
//
//   for every strip of tokens
//     for each panel of 16 outputs
//       for every depth of groups along K
//         stage: weights as int8 in the order of tiles, scales as f32
//         for every 16 tokens: accumulate
//       + bias, + residual, store
//
// So what is staged stays in the first cache, the accumulators of 16 tokens in
// registers, and nibbles are taken apart once for a chunk. Why so:
// docs/decisions/0009-amx.md.
//
//===----------------------------------------------------------------------===//

#include "LinearArguments.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace qwen;
using namespace mlir;

/// Rows of a tile and bytes of one of them.
static constexpr int64_t kTileLines = 16, kLineBytes = 64;
static constexpr int64_t kTileBytes = kTileLines * kLineBytes;

/// Bytes of a staged group: one row of 64 bytes for 4 values of 16 outputs.
static constexpr int64_t kStagedBytes = kGroup * kPanelOutputs;

namespace {
/// Emits one kernel.
class TileEmitter {
public:
  TileEmitter(const KernelInfo &kernel, const KernelSchedule &schedule,
              ModuleOp module);

  void emit();

private:
  /// What 16 tokens are multiplied with: staged groups and blocks from these
  /// on.
  struct Stage {
    Value activations, firstGroup, firstBlock;
  };

  Value constant(VectorType type, int8_t value);
  void amx(StringRef name, ValueRange operands);
  Value tile(int64_t number);
  void configure();
  void stage(Value panel, Value first, Value last);
  void arrangeValues(Value panel, Value group, Value to);
  void accumulate(Value token, Value sums, Value first, Value last);
  void stageFactors(Value token, Value first, Value last);
  Values advance(const Stage &stage, Value next, Value done, Values sums);
  void multiply(const Stage &stage, Value block, int64_t turn);
  void addDots(const Stage &stage, int64_t dot, int64_t pair, Value group,
               Value from);
  void addRows(const Stage &stage, Value block, ArrayRef<Value> scales,
               int64_t first, int64_t last, Values &sums);

  /// Blocks of activations in the first `count` groups, the last one included.
  Value blocksOf(Value count) {
    return b.shiftRight(b.add(count, b.integer(kBlockGroups - 1)), 2);
  }

  /// Rows of scales of the first `count` groups.
  Value scaleRows(Value count) {
    return scaleGroups == 1 ? count : blocksOf(count);
  }

  /// Where the dots of a block are, of which two are under way.
  Value dotsOf(Value block) {
    Value parity = arith::AndIOp::create(b, block, b.integer(1));
    return b.at(dots, b.mul(parity, blockDots * kTileBytes));
  }

  const KernelInfo &kernel;
  const KernelSchedule &schedule;
  const WeightFormat format;
  /// Blocks that are staged at a time, and bytes of a token's scales in them.
  const int64_t stagedBlocks, factorBytes;
  /// Groups that share a scale, and rows of dots that a block has.
  const int64_t scaleGroups, blockDots;
  ProductBuilder b;
  const VectorType bytes, integers, floats;
  const LinearArguments arguments;
  Value groups, blocks;
  /// On the stack: staged weights and scales, scales of activations, dots,
  /// accumulators.
  Value staged, stagedScales, factors, dots, accumulators;
};
} // namespace

TileEmitter::TileEmitter(const KernelInfo &kernel,
                         const KernelSchedule &schedule, ModuleOp module)
    : kernel(kernel), schedule(schedule), format(*weightFormat(kernel.format)),
      stagedBlocks(schedule.depth / kBlockGroups),
      factorBytes(stagedBlocks * int64_t(sizeof(float))),
      scaleGroups(weightBlock(format) / kGroup),
      blockDots(kBlockGroups / scaleGroups),
      b(kernel, module, linearSignature(kernel, module.getContext())),
      bytes(b.vector(kLineBytes, b.getI8Type())),
      integers(b.vector(kPanelOutputs, b.getI32Type())),
      floats(b.vector(kPanelOutputs, b.getF32Type())),
      arguments(b, kernel.format) {}

Value TileEmitter::constant(VectorType type, int8_t value) {
  return arith::ConstantOp::create(
      b, DenseElementsAttr::get(type, b.getI8IntegerAttr(value)));
}

void TileEmitter::amx(StringRef name, ValueRange operands) {
  LLVM::CallIntrinsicOp::create(b, b.getStringAttr(("llvm.x86." + name).str()),
                                operands);
}

/// The number of a tile register, as an operand.
Value TileEmitter::tile(int64_t number) {
  return arith::ConstantOp::create(b, b.getI8IntegerAttr(int8_t(number)));
}

/// Tiles 0 to 3 have dots. Where each group has its own dots, 4 and 5 have the
/// operands of even groups, 6 and 7 those of odd ones; else 4 and 5 have two
/// groups, and 6 and 7 one that is left.
static constexpr int64_t kPairs[] = {4, 6};

void TileEmitter::emit() {
  groups = b.shiftRight(arguments.k, 5);
  blocks = blocksOf(groups);
  staged = b.scratch(schedule.depth * kStagedBytes);
  stagedScales = b.scratch(schedule.depth * kLineBytes);
  factors = b.scratch(kTileLines * factorBytes);
  dots = b.scratch(2 * blockDots * kTileBytes);
  accumulators = b.scratch(schedule.strip * kLineBytes);
  configure();
  Value panelBytes = arguments.panelStride(b, format);
  b.loop(b.integer(0), arguments.m, schedule.strip, [&](Value firstToken) {
    Value lastToken =
        b.smaller(arguments.m, b.add(firstToken, b.integer(schedule.strip)));
    auto sumOf = [&](Value token) {
      Value index = arith::SubIOp::create(b, token, firstToken);
      return b.at(accumulators, b.mul(index, kLineBytes));
    };
    b.loop(arguments.panelBegin, arguments.panelEnd, 1, [&](Value panel) {
      Value panelWeights = b.at(arguments.weights, b.mul(panel, panelBytes));
      b.loop(firstToken, lastToken, 1,
             [&](Value token) { b.store(b.zeros(floats), sumOf(token)); });
      b.loop(b.integer(0), groups, schedule.depth, [&](Value first) {
        Value last = b.smaller(groups, b.add(first, b.integer(schedule.depth)));
        stage(panelWeights, first, last);
        b.loop(firstToken, lastToken, kernel.m, [&](Value token) {
          accumulate(token, sumOf(token), first, last);
        });
      });
      b.loop(firstToken, lastToken, 1, [&](Value token) {
        arguments.store(b, b.mul(panel, kPanelOutputs), token,
                        {b.load(floats, sumOf(token))}, kPanelOutputs);
      });
    });
  });
  amx("tilerelease", {});
  b.finish();
}

/// The palette, then for each tile bytes of a row, then rows.
void TileEmitter::configure() {
  SmallVector<int8_t> values(64, 0);
  auto shape = [&](int64_t number, int64_t rows, int64_t rowBytes) {
    values[16 + 2 * number] = int8_t(rowBytes);
    values[48 + number] = int8_t(rows);
  };
  values[0] = 1;
  for (int64_t i = 0; i < blockDots; ++i)
    shape(i, kTileLines, kLineBytes);
  for (int64_t pair : kPairs) {
    const int64_t deep = scaleGroups > 1 && pair == kPairs[0] ? 2 : 1;
    shape(pair, kTileLines, deep * kGroup);
    shape(pair + 1, deep * kGroup / 4, kLineBytes);
  }
  Value config = b.scratch(64);
  b.store(arith::ConstantOp::create(
              b, DenseElementsAttr::get(bytes, ArrayRef<int8_t>(values))),
          config);
  amx("ldtilecfg", config);
}

/// Makes the groups [first, last) of a panel what tiles are loaded from.
void TileEmitter::stage(Value panel, Value first, Value last) {
  auto place = [&](Value base, Value index, int64_t size) {
    return b.at(base, b.mul(arith::SubIOp::create(b, index, first), size));
  };
  b.loop(first, last, 1, [&](Value group) {
    arrangeValues(panel, group, place(staged, group, kStagedBytes));
  });
  Value firstScale = scaleRows(first);
  b.loop(firstScale, scaleRows(last), 1, [&](Value scale) {
    Value index = arith::SubIOp::create(b, scale, firstScale);
    b.store(b.loadFloats(kPanelOutputs, b.getF16Type(),
                         b.at(panel, b.mul(scale, panelBlockBytes(format)))),
            b.at(stagedScales, b.mul(index, kLineBytes)));
  });
  if (scaleGroups > 1)
    return;
  // Groups that the last block lacks: fma(0, -0, t) is t, a zero's sign
  // included.
  Value end = b.mul(blocksOf(last), kBlockGroups);
  b.loop(last, end, 1, [&](Value group) {
    for (int64_t i = 0; i < kStagedBytes; i += kLineBytes)
      b.store(constant(bytes, 0), b.at(place(staged, group, kStagedBytes), i));
    b.store(b.zeros(floats, -0.0f), place(stagedScales, group, kLineBytes));
  });
}

/// 8 rows, each with 4 values of every output.
void TileEmitter::arrangeValues(Value panel, Value group, Value to) {
  Value scaleRow = scaleGroups == 1 ? group : b.shiftRight(group, 2);
  Value offset =
      b.add(b.mul(group, panelGroupBytes(format)),
            b.mul(b.add(scaleRow, b.integer(1)), panelHeaderBytes(format)));
  Value from = b.at(panel, offset);
  const int64_t chunks = panelGroupBytes(format) / kLineBytes;
  for (int64_t i = 0; i < chunks; ++i) {
    Value packed = b.load(bytes, b.at(from, i * kLineBytes));
    if (format == WeightFormat::Q8_0) {
      b.store(packed, b.at(to, i * kLineBytes));
      continue;
    }
    // Nibbles are stored plus 8.
    Value low = arith::AndIOp::create(b, packed, constant(bytes, 15));
    Value high = arith::ShRUIOp::create(b, packed, constant(bytes, 4));
    b.store(arith::SubIOp::create(b, low, constant(bytes, 8)),
            b.at(to, i * kLineBytes));
    b.store(arith::SubIOp::create(b, high, constant(bytes, 8)),
            b.at(to, (i + chunks) * kLineBytes));
  }
}

/// acc = fma(t, d_a, acc) over the blocks of staged groups, for 16 tokens. The
/// dots of a block are under way while those of the one before are added.
void TileEmitter::accumulate(Value token, Value sums, Value first, Value last) {
  Value activations = b.at(arguments.q, b.mul(token, arguments.k));
  Value firstBlock = blocksOf(first);
  Value end = blocksOf(last);
  stageFactors(token, firstBlock, end);
  Values acc;
  for (int64_t r = 0; r < kTileLines; ++r)
    acc.push_back(b.load(floats, b.at(sums, r * kLineBytes)));
  const Stage stage = {activations, first, firstBlock};
  auto before = [&](Value block) -> Value {
    return arith::SubIOp::create(b, block, b.integer(1));
  };
  acc = advance(stage, firstBlock, Value(), acc);
  acc = b.loop(b.add(firstBlock, b.integer(1)), end, 1, acc,
               [&](Value block, ValueRange values) {
                 return advance(stage, block, before(block), Values(values));
               });
  acc = advance(stage, Value(), before(end), acc);
  for (int64_t r = 0; r < kTileLines; ++r)
    b.store(acc[r], b.at(sums, r * kLineBytes));
}

/// The scales of 16 tokens in the blocks [first, last), four of each token.
void TileEmitter::stageFactors(Value token, Value first, Value last) {
  const VectorType type = b.vector(stagedBlocks, b.getF32Type());
  Value mask = b.intrinsic(b.vector(stagedBlocks, b.getI1Type()),
                           "llvm.get.active.lane.mask.v" +
                               std::to_string(stagedBlocks) + "i1.i64",
                           {first, last});
  Value from = b.at(arguments.d,
                    b.mul(b.add(b.mul(token, blocks), first), sizeof(float)));
  b.loop(b.integer(0), b.integer(kTileLines), 1, [&](Value r) {
    Value at = b.at(from, b.mul(b.mul(r, blocks), sizeof(float)));
    Value scales = LLVM::MaskedLoadOp::create(b, type, at, mask, b.zeros(type),
                                              alignof(float));
    b.store(scales, b.at(factors, b.mul(r, factorBytes)));
  });
}

/// Starts the dots of block `next` and adds those of block `done` to `sums`, in
/// turns; either may be null. LLVM moves no load across an instruction on
/// tiles, so that turns keep what it holds in registers small, too.
Values TileEmitter::advance(const Stage &stage, Value next, Value done,
                            Values sums) {
  const int64_t turns = scaleGroups == 1 ? kBlockGroups : kBlockGroups / 2;
  const int64_t rows = kTileLines / turns;
  Values scales;
  if (done) {
    Value index = arith::SubIOp::create(b, done, stage.firstBlock);
    for (int64_t i = 0; i < blockDots; ++i)
      scales.push_back(b.load(
          floats, b.at(stagedScales, b.add(b.mul(index, blockDots * kLineBytes),
                                           b.integer(i * kLineBytes)))));
  }
  for (int64_t turn = 0; turn < turns; ++turn) {
    if (next)
      multiply(stage, next, turn);
    if (done)
      addRows(stage, done, scales, turn * rows, (turn + 1) * rows, sums);
    if (next && (scaleGroups == 1 || turn + 1 == turns)) {
      const int64_t dot = scaleGroups == 1 ? turn : 0;
      amx("tilestored64", {tile(dot), b.at(dotsOf(next), dot * kTileBytes),
                           b.integer(kLineBytes)});
    }
  }
  return sums;
}

/// A turn of the dots of a block: one group, or two that share a scale.
void TileEmitter::multiply(const Stage &stage, Value block, int64_t turn) {
  if (scaleGroups == 1) {
    // Weights are zero in groups that the last block lacks.
    Value group = b.add(b.mul(block, kBlockGroups), b.integer(turn));
    Value lastGroup = arith::SubIOp::create(b, groups, b.integer(1));
    amx("tilezero", tile(turn));
    return addDots(stage, turn, kPairs[turn % 2], group,
                   b.smaller(group, lastGroup));
  }
  if (turn == 0)
    amx("tilezero", tile(0));
  Value group = b.add(b.mul(block, kBlockGroups), b.integer(2 * turn));
  auto isThere = [&](Value value) -> Value {
    return arith::CmpIOp::create(b, arith::CmpIPredicate::slt, value, groups);
  };
  b.branch(
      isThere(b.add(group, b.integer(1))),
      [&] { addDots(stage, 0, kPairs[0], group, group); },
      [&] {
        b.branch(
            isThere(group), [&] { addDots(stage, 0, kPairs[1], group, group); },
            [] {});
      });
}

/// Adds the products of 16 tokens in group `from` with the staged weights of
/// `group`, by tiles `pair` and `pair` + 1, to tile `dot`.
void TileEmitter::addDots(const Stage &stage, int64_t dot, int64_t pair,
                          Value group, Value from) {
  Value index = arith::SubIOp::create(b, group, stage.firstGroup);
  amx("tileloadd64",
      {tile(pair), b.at(stage.activations, b.mul(from, kGroup)), arguments.k});
  amx("tileloadd64", {tile(pair + 1), b.at(staged, b.mul(index, kStagedBytes)),
                      b.integer(kLineBytes)});
  amx("tdpbssd", {tile(dot), tile(pair), tile(pair + 1)});
}

/// t = the fma chain of isum * d_w over a block's scales, from -0, with which
/// the first fma is the rounded product; then fma(t, d_a, sum): for tokens
/// [first, last) of 16.
void TileEmitter::addRows(const Stage &stage, Value block,
                          ArrayRef<Value> scales, int64_t first, int64_t last,
                          Values &sums) {
  Value index = arith::SubIOp::create(b, block, stage.firstBlock);
  Value factor = b.at(factors, b.mul(index, sizeof(float)));
  Value from = dotsOf(block);
  for (int64_t r = first; r < last; ++r) {
    Value t = b.zeros(floats, -0.0f);
    for (int64_t i = 0; i < blockDots; ++i) {
      Value isum =
          b.load(integers, b.at(from, i * kTileBytes + r * kLineBytes));
      t = math::FmaOp::create(b, arith::SIToFPOp::create(b, floats, isum),
                              scales[i], t);
    }
    Value x = b.load(b.getF32Type(), b.at(factor, r * factorBytes));
    sums[r] = math::FmaOp::create(b, t, b.splat(floats, x), sums[r]);
  }
}

void qwen::emitTiled(const KernelInfo &kernel, const KernelSchedule &schedule,
                     ModuleOp module) {
  TileEmitter(kernel, schedule, module).emit();
}
