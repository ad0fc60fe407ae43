//===- LinearUnpack.cpp - What the dots of a product read -----------------===//
//
// From the bytes of a weight format (Blocks.h) and of quantized activations to
// the operands of dots.
//
//===----------------------------------------------------------------------===//

#include "LinearTile.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace qwen;
using namespace mlir;

/// LLVM's models of CPUs take a prefetch for a load whose latency is to be
/// hidden, and move all of a loop's to its front, where they delay its loads.
void qwen::prefetch(LinearTile &tile, Value line) {
  if (tile.schedule.prefetch == 0)
    return;
  if (tile.schedule.streams > 0)
    tile.b.keepLoadsInOrder();
  tile.b.prefetch(tile.b.at(line, tile.schedule.prefetch));
}

Value qwen::loadChunk(LinearTile &tile, Value chunks, int64_t chunk,
                      int64_t v) {
  ProductBuilder &b = tile.b;
  Value line = b.at(chunks, chunk * kChunkBytes);
  // In pairs, the prefetch of a group's scales is the only one.
  if (v == 0 && !tile.inPairs())
    prefetch(tile, line);
  const int64_t bytes = 4 * tile.lanes;
  return b.load(b.vector(bytes, b.getI8Type()),
                b.at(line, b.scaled(v * bytes)));
}

Value qwen::unpack(LinearTile &tile, Value bytes, int64_t part) {
  ProductBuilder &b = tile.b;
  auto constant = [&](int8_t value) -> Value {
    return arith::ConstantOp::create(
        b, DenseElementsAttr::get(cast<VectorType>(bytes.getType()),
                                  b.getI8IntegerAttr(value)));
  };
  if (!tile.isEightBits()) {
    // The lower halves of bytes, or the upper ones.
    if (part == 0)
      return arith::AndIOp::create(b, bytes, constant(15));
    return arith::ShRUIOp::create(b, bytes, constant(4));
  }
  // w + 128 is w with its sign bit flipped.
  if (isaInfo(tile.kernel.isa).dot.isUnsigned)
    return arith::XOrIOp::create(b, bytes, constant(-128));
  return bytes;
}

Value qwen::sixteenActivations(LinearTile &tile, Value q, int64_t first) {
  ProductBuilder &b = tile.b;
  const VectorType bytes = b.vector(16, b.getI8Type());
  if (!b.isScalable())
    return b.load(bytes, b.at(q, first));
  Value all = arith::ConstantOp::create(
      b, DenseElementsAttr::get(b.vector(16, b.getI1Type()), true));
  return b.intrinsic(bytes, "llvm.aarch64.sve.ld1rq.nxv16i8",
                     {all, b.at(q, first)});
}

Value qwen::activations(LinearTile &tile, Value q, int64_t step) {
  ProductBuilder &b = tile.b;
  const VectorType bytes = b.vector(4 * tile.lanes, b.getI8Type());
  const VectorType words = b.vector(tile.lanes, b.getI32Type());
  if (isaInfo(tile.kernel.isa).dot.kind == DotKind::SdotLane)
    return sixteenActivations(tile, q, step / 4 * 16);
  Value word;
  if (tile.kernel.arch() == Arch::X86_64) {
    word = LLVM::LoadOp::create(b, b.getI32Type(), b.at(q, 4 * step), 1);
  } else {
    // From a register: sdot takes one of its four words as an operand.
    Value four = vector::BitCastOp::create(
        b, words, sixteenActivations(tile, q, step / 4 * 16));
    word = vector::ExtractOp::create(b, four, step % 4);
  }
  return vector::BitCastOp::create(b, bytes, b.splat(words, word));
}
