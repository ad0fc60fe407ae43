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
      : row(row), lanes(vectorLanes(row.isa)),
        vectors(isScalable(row.isa) ? 1 : kPanelRows / lanes),
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
      if (!isScalable(row.isa))
        return emitColumns(panel, panelWeights, b.integer(0));
      b.forEachVector(b.integer(kPanelRows), [&](Value column) {
        emitColumns(panel, panelWeights, column);
      });
    });
    b.finish();
  }

private:
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
  Value activations(Value q, int64_t step);
  void finishTile(Value output, ArrayRef<Value> rows, Values tile);

  /// 16 f16 scales and 16 rows of 16 bytes.
  static constexpr int64_t scaleBytes = kPanelRows * 2;
  static constexpr int64_t chunkBytes = kPanelRows * 4;
  static constexpr int64_t groupBytes = kPanelRows * sizeof(BlockQ4_0);

  const KernelInfo &row;
  const int64_t lanes, vectors;
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
              return addGroup(b.at(panel, b.mul(g, groupBytes)), column, groupQ,
                              groupSums, previous);
            });
        Values result;
        for (size_t r = 0; r < rows.size(); ++r) {
          Value scale = b.splat(
              type, b.load(b.getF32Type(), b.at(d[r], b.mul(block, 4))));
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
    Value packed =
        b.load(bytes, b.at(groupChunks, chunk * chunkBytes + v * 4 * lanes));
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
    Value scales =
        b.loadFloats(lanes, b.getF16Type(), b.at(groupScales, v * lanes * 2));
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

/// Adds bias and residual, one addition each, and stores the outputs from
/// `output` on.
void LinearEmitter::finishTile(Value output, ArrayRef<Value> rows,
                               Values tile) {
  Value column = b.mul(output, 4);
  auto addressOf = [&](Value base, Value r, int64_t v) {
    Value offset = b.add(b.mul(b.mul(r, ld), 4), column);
    return b.at(b.at(base, offset), v * lanes * 4);
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
      return b.at(b.at(bias, column), v * lanes * 4);
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
