//===- ProductsLinear.cpp - Products with a packed matrix -----------------===//
//
// One loop nest for every format and instruction set:
//
//   for each panel of 16 outputs
//     for each tile of M rows
//       M x 16 accumulators along K: f32 chains, or blocks of integer dots
//       + bias, + residual, store
//
// Where the length of vectors is known only at run time, a panel is a loop over
// vectors of its outputs, whose last may have lanes without an output.
//
// Panels are outermost so that each weight is read from memory once a call.
// The order of every accumulation is docs/numerics.md's; layouts are
// Blocks.h's.
//
//===----------------------------------------------------------------------===//

#include "ProductBuilder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ArmNeon/ArmNeonDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include <bit>

using namespace qwen;
using namespace mlir;

//===----------------------------------------------------------------------===//
// Integer dots
//===----------------------------------------------------------------------===//

namespace {
/// The dots of one group of 32 for as many outputs as a vector has lanes. A
/// step multiplies 4 weights of each output with 4 activations; 8 steps make
/// the group. Weights are 0..15, activations -127..127.
class GroupDot {
public:
  GroupDot(ProductBuilder &b, KernelIsa isa)
      : b(b), isa(isa), lanes(vectorLanes(isa)),
        sumType(b.vector(lanes, b.getI32Type())) {}

  /// `correction` (i32) is added to every output's dot.
  void start(Value correction) {
    Value splat = b.splat(sumType, correction);
    // These instructions add to an accumulator, so the correction is free.
    if (isa == KernelIsa::AVX512VNNI || isa == KernelIsa::NEONDotProd ||
        isa == KernelIsa::SVE)
      state = {splat};
    else
      offset = splat;
  }

  /// w: i8 vector, 4 values for each output. x: the same activations for every
  /// output, or (SVE) 16 of them in each 128 bits, of which word `word` counts.
  void step(Value w, Value x, int64_t word) {
    switch (isa) {
    case KernelIsa::AVX512VNNI:
      state[0] = b.intrinsic(sumType, "llvm.x86.avx512.vpdpbusd.512",
                             {state[0], w, x});
      return;
    case KernelIsa::NEONDotProd:
      state[0] = arm_neon::SdotOp::create(b, sumType, state[0], w, x);
      return;
    case KernelIsa::SVE: {
      Value index =
          arith::ConstantOp::create(b, b.getI32IntegerAttr(int32_t(word)));
      state[0] = b.intrinsic(sumType, "llvm.aarch64.sve.sdot.lane.nxv4i32",
                             {state[0], w, x, index});
      return;
    }
    case KernelIsa::NEON:
      // A product is at most 15 * 127 in magnitude: eight fit in 16 bits.
      accumulate({product(w, x, 0), product(w, x, 8)});
      return;
    default:
      // A pair is at most 2 * 15 * 127 in magnitude, so the instruction never
      // saturates, and eight pairs fit in 16 bits.
      accumulate({b.intrinsic(b.vector(16, b.getI16Type()),
                              "llvm.x86.avx2.pmadd.ub.sw", {w, x})});
      return;
    }
  }

  /// i32 for each output.
  Value finish() {
    if (isa == KernelIsa::AVX2) {
      const VectorType type = b.vector(16, b.getI16Type());
      Value ones = arith::ConstantOp::create(
          b, DenseElementsAttr::get(type, b.getI16IntegerAttr(1)));
      return sum(
          b.intrinsic(sumType, "llvm.x86.avx2.pmadd.wd", {state[0], ones}));
    }
    if (isa == KernelIsa::NEON) {
      // Sixteen products fit in 16 bits too: first pairs there, then to 32.
      Value pairs =
          b.intrinsic(b.vector(8, b.getI16Type()),
                      "llvm.aarch64.neon.addp.v8i16", {state[0], state[1]});
      return sum(b.intrinsic(sumType, "llvm.aarch64.neon.saddlp.v4i32.v8i16",
                             {pairs}));
    }
    return state[0];
  }

private:
  /// 16-bit products of 8 of 16 bytes.
  Value product(Value w, Value x, int64_t from) {
    auto half = [&](Value bytes) -> Value {
      return vector::ExtractStridedSliceOp::create(
          b, bytes, ArrayRef<int64_t>{from}, ArrayRef<int64_t>{8},
          ArrayRef<int64_t>{1});
    };
    return arm_neon::SMullOp::create(b, b.vector(8, b.getI16Type()), half(w),
                                     half(x));
  }
  void accumulate(Values products) {
    if (!state.empty())
      for (auto [product, old] : llvm::zip_equal(products, state))
        product = sum(old, product);
    state = std::move(products);
  }
  Value sum(Value a, Value c) { return arith::AddIOp::create(b, a, c); }
  Value sum(Value a) { return sum(a, offset); }

  ProductBuilder &b;
  KernelIsa isa;
  int64_t lanes;
  VectorType sumType;
  Value offset;
  Values state;
};
} // namespace

//===----------------------------------------------------------------------===//
// Tiles
//===----------------------------------------------------------------------===//

namespace {
/// Emits one row of the table.
class LinearEmitter {
public:
  LinearEmitter(const KernelInfo &row, ModuleOp module)
      : row(row), lanes(vectorLanes(row.isa)), vectors(kPanelRows / lanes),
        b(row, module, signature(row, module.getContext())) {
    const unsigned first = isQuantized() ? 3 : 1;
    weights = b.argument(first);
    bias = b.argument(first + 1);
    residual = b.argument(first + 2);
    out = b.argument(first + 3);
    m = b.argument(first + 4);
    k = b.argument(first + 5);
    ld = b.argument(first + 6);
    panelBegin = b.argument(first + 7);
    panelEnd = b.argument(first + 8);
  }

  void emit() {
    Value bytes = panelStride();
    b.loop(panelBegin, panelEnd, 1, [&](Value panel) {
      Value panelWeights = b.at(weights, b.mul(panel, bytes));
      forEachColumns(
          [&](Value column) { emitColumns(panel, panelWeights, column); });
    });
    b.finish();
  }

private:
  /// Calls `body` for the first of the outputs of each tile in a panel, with
  /// `vectors` set to what the tile takes.
  void forEachColumns(llvm::function_ref<void(Value)> body) {
    if (isScalable(row.isa))
      // Single tokens need several chains to fill the pipes; the tiles of
      // others have enough.
      return b.forEachVector(b.integer(kPanelRows), row.m == 1 ? 4 : 1,
                             [&](Value column, int64_t count) {
                               vectors = count;
                               body(column);
                             });
    if (!inPairs())
      return body(b.integer(0));
    // All outputs of a panel for 8 tokens would not fit in registers.
    vectors = 2;
    b.loop(b.integer(0), b.integer(kPanelRows), vectors * lanes, body);
  }

  /// The tiles of a panel's outputs from `column` on.
  void emitColumns(Value panel, Value panelWeights, Value column) {
    b.loop(b.integer(0), m, row.m, [&](Value firstRow) {
      Values rows;
      for (int64_t r = 0; r < row.m; ++r)
        rows.push_back(b.add(firstRow, b.integer(r)));
      Values tile = isQuantized() ? quantizedTile(panelWeights, column, rows)
                                  : floatTile(panelWeights, column, rows);
      finishTile(b.add(b.mul(panel, kPanelRows), column), rows, tile);
    });
  }

  /// Whether accumulators are of pairs of tokens and outputs, as smmla's are:
  /// accumulator v of token 2p has outputs 4v and 4v + 1 of tokens 2p and
  /// 2p + 1, accumulator v of token 2p + 1 has outputs 4v + 2 and 4v + 3.
  bool inPairs() const { return row.isa == KernelIsa::NEONI8MM; }

  bool isQuantized() const { return row.format == KernelFormat::Q4_0; }

  /// LinearF32Fn or LinearQ8Fn.
  static SmallVector<Type> signature(const KernelInfo &row,
                                     MLIRContext *context) {
    const unsigned pointers = row.format == KernelFormat::Q4_0 ? 7 : 5;
    SmallVector<Type> types(pointers, ProductBuilder::pointerType(context));
    types.append(5, IntegerType::get(context, 64));
    return types;
  }

  Value panelStride() {
    if (!isQuantized())
      return b.mul(k, kPanelRows * 4);
    return b.mul(b.shiftRight(k, std::countr_zero(uint64_t{kGroup})),
                 groupBytes);
  }

  Values floatTile(Value panel, Value column, ArrayRef<Value> rows) {
    Values x;
    for (Value r : rows)
      x.push_back(b.at(b.argument(0), b.mul(b.mul(r, k), 4)));
    return b.chains(x, b.at(panel, b.mul(column, 4)), b.integer(kPanelRows * 4),
                    b.getF32Type(), k, vectors * lanes, lanes);
  }

  Values quantizedTile(Value panel, Value column, ArrayRef<Value> rows);
  Values addGroup(Value group, Value column, ArrayRef<Value> q,
                  ArrayRef<Value> sums, ValueRange previous);
  Values addGroupPairs(Value group, Value column, ArrayRef<Value> q,
                       ArrayRef<Value> sums, ValueRange previous);
  Value activations(Value q, int64_t step);
  Value shuffled(Value a, Value c, ArrayRef<int64_t> order) {
    return vector::ShuffleOp::create(b, a, c, order);
  }
  /// A value of each of two tokens, in the lanes that smmla gives to them.
  Value paired(VectorType type, Value first, Value second) {
    return shuffled(b.splat(type, first), b.splat(type, second), {0, 1, 4, 5});
  }
  void finishTile(Value output, ArrayRef<Value> rows, Values tile);

  /// 16 f16 scales and 16 rows of 16 bytes.
  static constexpr int64_t scaleBytes = kPanelRows * 2;
  static constexpr int64_t chunkBytes = kPanelRows * 4;
  static constexpr int64_t groupBytes = kPanelRows * sizeof(BlockQ4_0);

  const KernelInfo &row;
  const int64_t lanes;
  /// Vectors of outputs in a tile.
  int64_t vectors;
  ProductBuilder b;
  Value weights, bias, residual, out, m, k, ld, panelBegin, panelEnd;
};
} // namespace

/// acc = fma(t, d_a, acc) over the activation blocks, t = the fma chain of
/// isum * d_w over a block's groups. t starts from -0, with which the first fma
/// is the rounded product that docs/numerics.md asks for.
Values LinearEmitter::quantizedTile(Value panel, Value column,
                                    ArrayRef<Value> rows) {
  const VectorType type = b.vector(lanes, b.getF32Type());
  constexpr int64_t blockGroups = kActivationBlock / kGroup;
  Value groups = b.shiftRight(k, std::countr_zero(uint64_t{kGroup}));
  Value blocks = b.shiftRight(b.add(groups, b.integer(blockGroups - 1)),
                              std::countr_zero(uint64_t{blockGroups}));
  Values q, d, sums;
  for (Value r : rows) {
    q.push_back(b.at(b.argument(0), b.mul(r, k)));
    d.push_back(b.at(b.argument(1), b.mul(b.mul(r, blocks), 4)));
    sums.push_back(b.at(b.argument(2), b.mul(b.mul(r, groups), 4)));
  }
  const Values start(rows.size() * vectors, b.zeros(type));
  return b.loop(
      b.integer(0), blocks, 1, start, [&](Value block, ValueRange totals) {
        Value first = b.mul(block, blockGroups);
        Value last = b.smaller(groups, b.add(first, b.integer(blockGroups)));
        const Values none(rows.size() * vectors, b.zeros(type, -0.0f));
        Values t =
            b.loop(first, last, 1, none, [&](Value g, ValueRange previous) {
              Values groupQ, groupSums;
              for (size_t r = 0; r < rows.size(); ++r) {
                groupQ.push_back(b.at(q[r], b.mul(g, kGroup)));
                groupSums.push_back(
                    b.load(b.getI32Type(), b.at(sums[r], b.mul(g, 4))));
              }
              Value group = b.at(panel, b.mul(g, groupBytes));
              if (inPairs())
                return addGroupPairs(group, column, groupQ, groupSums,
                                     previous);
              return addGroup(group, column, groupQ, groupSums, previous);
            });
        Values scales, result;
        for (Value blocksOfRow : d)
          scales.push_back(
              b.load(b.getF32Type(), b.at(blocksOfRow, b.mul(block, 4))));
        for (size_t r = 0; r < rows.size(); ++r) {
          Value scale =
              inPairs() ? paired(type, scales[r & ~size_t{1}], scales[r | 1])
                        : b.splat(type, scales[r]);
          for (int64_t v = 0; v < vectors; ++v) {
            const int64_t i = r * vectors + v;
            result.push_back(math::FmaOp::create(b, t[i], scale, totals[i]));
          }
        }
        return result;
      });
}

/// Activations 4 * step .. 4 * step + 3 of a group, as GroupDot takes them.
Value LinearEmitter::activations(Value q, int64_t step) {
  const VectorType bytes = b.vector(4 * lanes, b.getI8Type());
  const VectorType words = b.vector(lanes, b.getI32Type());
  if (row.isa == KernelIsa::SVE) {
    Value all = arith::ConstantOp::create(
        b, DenseElementsAttr::get(b.vector(16, b.getI1Type()), true));
    return b.intrinsic(bytes, "llvm.aarch64.sve.ld1rq.nxv16i8",
                       {all, b.at(q, step / 4 * 16)});
  }
  Value word;
  if (row.arch() == Arch::X86_64) {
    word = LLVM::LoadOp::create(b, b.getI32Type(), b.at(q, 4 * step), 1);
  } else {
    // From a register: sdot takes one of its four words as an operand.
    Value four = b.load(bytes, b.at(q, step / 4 * 16));
    word = vector::ExtractOp::create(
        b, vector::BitCastOp::create(b, words, four), step % 4);
  }
  return vector::BitCastOp::create(b, bytes, b.splat(words, word));
}

/// previous = fma(isum, d_w, previous) for one group of each row and output.
Values LinearEmitter::addGroup(Value group, Value column, ArrayRef<Value> q,
                               ArrayRef<Value> sums, ValueRange previous) {
  const VectorType bytes = b.vector(4 * lanes, b.getI8Type());
  const VectorType floats = b.vector(lanes, b.getF32Type());
  auto constant = [&](int64_t value) -> Value {
    return arith::ConstantOp::create(
        b, DenseElementsAttr::get(bytes, b.getI8IntegerAttr(value)));
  };
  SmallVector<GroupDot> dots;
  for (size_t r = 0; r < q.size(); ++r) {
    // Nibbles are stored plus 8: sum(q * (w - 8)) = sum(q * w) - 8 * sum(q).
    Value minus8 = arith::ConstantOp::create(b, b.getI32IntegerAttr(-8));
    Value correction = arith::MulIOp::create(b, sums[r], minus8);
    for (int64_t v = 0; v < vectors; ++v)
      dots.emplace_back(b, row.isa).start(correction);
  }
  constexpr int64_t chunks = chunkBytes / kPanelRows;
  Value groupScales = b.at(group, b.mul(column, 2));
  Value groupChunks = b.at(b.at(group, scaleBytes), b.mul(column, 4));
  auto addChunk = [&](int64_t chunk, int64_t v) {
    Value line = b.at(groupChunks, chunk * chunkBytes);
    Value packed = b.load(bytes, b.at(line, b.scaled(v * 4 * lanes)));
    Value low = arith::AndIOp::create(b, packed, constant(15));
    Value high = arith::ShRUIOp::create(b, packed, constant(4));
    for (size_t r = 0; r < q.size(); ++r) {
      GroupDot &dot = dots[r * vectors + v];
      dot.step(low, activations(q[r], chunk), chunk % 4);
      dot.step(high, activations(q[r], chunk + chunks), (chunk + chunks) % 4);
    }
  };
  Values result(previous);
  auto finishVector = [&](int64_t v) {
    Value scales = b.loadFloats(lanes, b.getF16Type(),
                                b.at(groupScales, b.scaled(v * lanes * 2)));
    for (size_t r = 0; r < q.size(); ++r) {
      const int64_t i = r * vectors + v;
      Value dot = arith::SIToFPOp::create(b, floats, dots[i].finish());
      result[i] = math::FmaOp::create(b, dot, scales, previous[i]);
    }
  };
  // Where activations are register operands, one vector of outputs at a time
  // needs the fewest accumulators; else each activation is broadcast once.
  if (row.isa == KernelIsa::NEONDotProd) {
    for (int64_t v = 0; v < vectors; ++v) {
      for (int64_t chunk = 0; chunk < chunks; ++chunk)
        addChunk(chunk, v);
      finishVector(v);
    }
    return result;
  }
  for (int64_t chunk = 0; chunk < chunks; ++chunk)
    for (int64_t v = 0; v < vectors; ++v)
      addChunk(chunk, v);
  for (int64_t v = 0; v < vectors; ++v)
    finishVector(v);
  return result;
}

/// addGroup in pairs: smmla multiplies 8 activations of two tokens with 8
/// weights of two outputs.
Values LinearEmitter::addGroupPairs(Value group, Value column,
                                    ArrayRef<Value> q, ArrayRef<Value> sums,
                                    ValueRange previous) {
  const VectorType bytes = b.vector(16, b.getI8Type());
  const VectorType words = b.vector(4, b.getI32Type());
  const VectorType halves = b.vector(2, b.getI64Type());
  const VectorType floats = b.vector(4, b.getF32Type());
  auto constant = [&](VectorType type, Attribute value) -> Value {
    return arith::ConstantOp::create(b, DenseElementsAttr::get(type, value));
  };
  auto as = [&](VectorType type, Value value) -> Value {
    return vector::BitCastOp::create(b, type, value);
  };
  // Of each pair of tokens: activations 8 * step .. 8 * step + 7, and -8 times
  // their sums.
  constexpr int64_t steps = kGroup / 8;
  SmallVector<Values> x;
  Values corrections;
  for (size_t r = 0; r < q.size(); r += 2) {
    x.emplace_back();
    for (int64_t step = 0; step < steps; ++step) {
      auto sixteen = [&](Value from) {
        return as(halves, b.load(bytes, b.at(from, step / 2 * 16)));
      };
      x.back().push_back(as(bytes, shuffled(sixteen(q[r]), sixteen(q[r + 1]),
                                            {step % 2, 2 + step % 2})));
    }
    corrections.push_back(
        arith::MulIOp::create(b, paired(words, sums[r], sums[r + 1]),
                              constant(words, b.getI32IntegerAttr(-8))));
  }
  Value groupScales = b.at(group, b.mul(column, 2));
  Value groupChunks = b.at(b.at(group, scaleBytes), b.mul(column, 4));
  Values result(previous);
  for (int64_t v = 0; v < vectors; ++v) {
    Values dots[2] = {corrections, corrections};
    for (int64_t step = 0; step < steps / 2; ++step) {
      auto chunk = [&](int64_t index) {
        const int64_t offset = index * chunkBytes + v * 16;
        return as(words, b.load(bytes, b.at(groupChunks, offset)));
      };
      Value even = chunk(2 * step), odd = chunk(2 * step + 1);
      for (int64_t i = 0; i < 2; ++i) {
        // 8 bytes of two outputs, from two chunks with 4 of each.
        Value packed =
            as(bytes,
               shuffled(even, odd, {2 * i, 2 * i + 4, 2 * i + 1, 2 * i + 5}));
        Value low = arith::AndIOp::create(
            b, packed, constant(bytes, b.getI8IntegerAttr(15)));
        Value high = arith::ShRUIOp::create(
            b, packed, constant(bytes, b.getI8IntegerAttr(4)));
        for (auto [dot, pair] : llvm::zip_equal(dots[i], x)) {
          dot = arm_neon::SmmlaOp::create(b, words, dot, pair[step], low);
          dot = arm_neon::SmmlaOp::create(b, words, dot, pair[step + steps / 2],
                                          high);
        }
      }
    }
    Value scales = b.loadFloats(4, b.getF16Type(), b.at(groupScales, v * 8));
    for (int64_t i = 0; i < 2; ++i) {
      Value twice =
          shuffled(scales, scales, {2 * i, 2 * i + 1, 2 * i, 2 * i + 1});
      for (size_t r = 0; r < q.size(); r += 2) {
        Value dot = arith::SIToFPOp::create(b, floats, dots[i][r / 2]);
        const size_t at = (r + i) * vectors + v;
        result[at] = math::FmaOp::create(b, dot, twice, previous[at]);
      }
    }
  }
  return result;
}

/// Adds bias and residual, one addition each, and stores the outputs from
/// `output` on.
void LinearEmitter::finishTile(Value output, ArrayRef<Value> rows,
                               Values tile) {
  if (inPairs())
    for (size_t r = 0; r < rows.size(); r += 2)
      for (int64_t v = 0; v < vectors; ++v) {
        Value low = tile[r * vectors + v], high = tile[(r + 1) * vectors + v];
        tile[r * vectors + v] = shuffled(low, high, {0, 1, 4, 5});
        tile[(r + 1) * vectors + v] = shuffled(low, high, {2, 3, 6, 7});
      }
  Value column = b.mul(output, 4);
  auto addressOf = [&](Value base, Value r, int64_t v) {
    Value offset = b.add(b.mul(b.mul(r, ld), 4), column);
    return b.at(b.at(base, offset), b.scaled(v * lanes * 4));
  };
  auto addLoaded = [&](auto address) {
    Values sum;
    for (size_t r = 0; r < rows.size(); ++r)
      for (int64_t v = 0; v < vectors; ++v) {
        Value other = b.loadFloats(lanes, b.getF32Type(), address(rows[r], v));
        sum.push_back(arith::AddFOp::create(b, tile[r * vectors + v], other));
      }
    return sum;
  };
  tile = b.unlessNull(bias, tile, [&] {
    return addLoaded([&](Value, int64_t v) {
      return b.at(b.at(bias, column), b.scaled(v * lanes * 4));
    });
  });
  tile = b.unlessNull(residual, tile, [&] {
    return addLoaded(
        [&](Value r, int64_t v) { return addressOf(residual, r, v); });
  });
  for (size_t r = 0; r < rows.size(); ++r)
    for (int64_t v = 0; v < vectors; ++v)
      b.store(tile[r * vectors + v], addressOf(out, rows[r], v));
}

void qwen::emitLinear(const KernelInfo &row, ModuleOp module) {
  LinearEmitter(row, module).emit();
}
