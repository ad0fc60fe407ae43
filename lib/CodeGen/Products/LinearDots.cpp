//===- LinearDots.cpp - Dots of a group, and their sums -------------------===//
//
// The dots of one group of 32 for each accumulator of a tile, and what turns
// them into floats.
//
//===----------------------------------------------------------------------===//

#include "LinearTile.h"
#include "ProductsDot.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ArmNeon/ArmNeonDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include <bit>

using namespace qwen;
using namespace mlir;

/// Whether a subtraction turns dots into floats. Without a correction, what
/// they start from would take the slot that this saves.
static bool fromMagic(const LinearTile &tile) {
  return tile.kernel.arch() == Arch::AArch64 && tile.isCorrected();
}

/// What the dots of vector `v` start from. No two vectors of a token start from
/// the same value: LLVM would copy one register, which takes a slot of the
/// vectors' pipes, and a splat of a general register takes none.
static float magic(const LinearTile &tile, int64_t v) {
  return kMagic + (tile.inPairs() ? 0.0f : float(v));
}

Value qwen::forToken(LinearTile &tile, VectorType type, ArrayRef<Value> values,
                     size_t r) {
  ProductBuilder &b = tile.b;
  if (!tile.inPairs())
    return b.splat(type, values[r]);
  return b.permuted("trn", 64, b.splat(type, values[r & ~size_t{1}]),
                    b.splat(type, values[r | 1]), false);
}

/// Nibbles are stored plus 8, and int8 goes into an unsigned dot plus 128:
/// sum(q * (w - c)) = sum(q * w) - c * sum(q). Dots that are to become floats
/// by a subtraction start from kMagic, too.
Value qwen::correction(LinearTile &tile, ArrayRef<Value> sums, size_t r,
                       int64_t v) {
  if (!tile.isCorrected())
    return nullptr;
  ProductBuilder &b = tile.b;
  const VectorType type = b.vector(tile.lanes, b.getI32Type());
  const IntegerAttr minus = b.getI32IntegerAttr(tile.isEightBits() ? -128 : -8);
  const IntegerAttr from = b.getI32IntegerAttr(
      fromMagic(tile) ? std::bit_cast<int32_t>(magic(tile, v)) : 0);
  if (tile.inPairs()) {
    auto all = [&](IntegerAttr value) -> Value {
      return arith::ConstantOp::create(b, DenseElementsAttr::get(type, value));
    };
    return arith::AddIOp::create(
        b, arith::MulIOp::create(b, forToken(tile, type, sums, r), all(minus)),
        all(from));
  }
  Value lacking = b.createOrFold<arith::MulIOp>(
      sums[r], arith::ConstantOp::create(b, minus));
  return b.splat(type, b.createOrFold<arith::AddIOp>(
                           lacking, arith::ConstantOp::create(b, from)));
}

/// Dots that started from correction().
static Value toFloats(LinearTile &tile, Value dot, int64_t v) {
  ProductBuilder &b = tile.b;
  const VectorType type = b.vector(tile.lanes, b.getF32Type());
  if (!fromMagic(tile))
    return arith::SIToFPOp::create(b, type, dot);
  return arith::SubFOp::create(b, vector::BitCastOp::create(b, type, dot),
                               b.zeros(type, magic(tile, v)));
}

Value qwen::scaled(LinearTile &tile, Value dot, Value scales, int64_t i,
                   Value previous) {
  ProductBuilder &b = tile.b;
  const int64_t v = i % tile.vectors;
  Value w = b.loadFloats(tile.lanes, b.getF16Type(),
                         b.at(scales, b.scaled(v * tile.lanes * 2)));
  if (tile.inPairs())
    w = b.permuted("zip", 64, w, w, i / tile.vectors % 2 != 0);
  Value isum = toFloats(tile, dot, v);
  return math::FmaOp::create(b, isum, w, previous);
}

/// Of each pair of tokens: activations 8 * step .. 8 * step + 7 of a group.
static SmallVector<Values> pairActivations(LinearTile &tile,
                                           ArrayRef<Value> q) {
  SmallVector<Values> x;
  for (size_t r = 0; r < q.size(); r += 2) {
    Values &pair = x.emplace_back();
    for (int64_t step = 0; step < kGroup / 8; ++step)
      pair.push_back(tile.b.permuted(
          "trn", 64, sixteenActivations(tile, q[r], step / 2 * 16),
          sixteenActivations(tile, q[r + 1], step / 2 * 16), step % 2 != 0));
  }
  return x;
}

/// groupDots in pairs: smmla multiplies 8 activations of two tokens with 8
/// weights of two outputs.
static void pairDots(LinearTile &tile, Value chunks, Value column,
                     ArrayRef<Value> q, ArrayRef<Value> start, UseDot use) {
  ProductBuilder &b = tile.b;
  const VectorType words = b.vector(4, b.getI32Type());
  const SmallVector<Values> x = pairActivations(tile, q);
  Value columnChunks = b.at(chunks, b.mul(column, 4));
  for (int64_t v = 0; v < tile.vectors; ++v) {
    auto index = [&](size_t pair, size_t half) {
      return int64_t(2 * pair + half) * tile.vectors + v;
    };
    Values dots[2];
    for (size_t half : {0, 1})
      for (size_t pair = 0; pair < x.size(); ++pair) {
        Value from = start[index(pair, half)];
        dots[half].push_back(
            from ? from
                 : Value(arith::ConstantOp::create(b, b.getZeroAttr(words))));
      }
    auto multiply = [&](size_t half, int64_t step, Value w) {
      for (auto [dot, pair] : llvm::zip_equal(dots[half], x))
        dot = b.isScalable()
                  ? b.intrinsic(words, "llvm.aarch64.sve.smmla.nxv4i32",
                                {dot, pair[step], w})
                  : Value(arm_neon::SmmlaOp::create(b, words, dot, pair[step],
                                                    w));
    };
    const int64_t steps = tile.groupBytes / kChunkBytes / 2;
    for (int64_t step = 0; step < steps; ++step) {
      Value even = loadChunk(tile, columnChunks, 2 * step, v);
      Value odd = loadChunk(tile, columnChunks, 2 * step + 1, v);
      for (size_t half : {0, 1}) {
        // 8 bytes of two outputs, from two chunks with 4 of each.
        Value packed = b.permuted("zip", 32, even, odd, half != 0);
        for (int64_t part = 0; part < tile.valuesPerByte(); ++part)
          multiply(half, step + part * steps, unpack(tile, packed, part));
      }
    }
    for (size_t half : {0, 1})
      for (size_t pair = 0; pair < x.size(); ++pair)
        use(index(pair, half), dots[half][pair]);
  }
}

void qwen::groupDots(LinearTile &tile, Value chunks, Value column,
                     ArrayRef<Value> q, ArrayRef<Value> start, UseDot use) {
  if (tile.inPairs())
    return pairDots(tile, chunks, column, q, start, use);
  SmallVector<std::unique_ptr<GroupDot>> dots;
  for (Value value : start)
    dots.push_back(makeDot(tile.b, tile.kernel.isa, tile.isEightBits(), value));
  Value columnChunks = tile.b.at(chunks, tile.b.mul(column, 4));
  const int64_t vectors = tile.vectors, count = tile.groupBytes / kChunkBytes;
  auto addChunk = [&](int64_t chunk, int64_t v) {
    Value packed = loadChunk(tile, columnChunks, chunk, v);
    for (int64_t part = 0; part < tile.valuesPerByte(); ++part) {
      Value w = unpack(tile, packed, part);
      const int64_t step = chunk + part * count;
      for (size_t r = 0; r < q.size(); ++r)
        dots[r * vectors + v]->step(w, activations(tile, q[r], step), step % 4);
    }
  };
  auto finishVector = [&](int64_t v) {
    for (size_t r = 0; r < q.size(); ++r)
      use(r * vectors + v, dots[r * vectors + v]->finish());
  };
  if (tile.schedule.inTurn != 0) {
    for (int64_t v = 0; v < vectors; ++v) {
      for (int64_t chunk = 0; chunk < count; ++chunk)
        addChunk(chunk, v);
      finishVector(v);
    }
    return;
  }
  for (int64_t chunk = 0; chunk < count; ++chunk)
    for (int64_t v = 0; v < vectors; ++v)
      addChunk(chunk, v);
  for (int64_t v = 0; v < vectors; ++v)
    finishVector(v);
}
