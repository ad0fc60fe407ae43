//===- Products.cpp - Generated matrix products ---------------------------===//

#include "qwen/CodeGen/Products/Products.h"
#include "ProductBuilder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "qwen/ABI/Error.h"
#include <array>

using namespace qwen;
using namespace mlir;

void qwen::emitProduct(const KernelInfo &kernel, const KernelSchedule &schedule,
                       ModuleOp module) {
  if (kernel.provider() != KernelProvider::MLIR)
    throw Error("kernel '" + std::string(kernel.name) + "' is not a product");
  checkSchedule(kernel, schedule);
  switch (loopNest(kernel, schedule)) {
  case LoopNest::Attention:
    return emitAttention(kernel, schedule, module);
  case LoopNest::Chains:
  case LoopNest::Dots:
    return emitLinear(kernel, schedule, module);
  case LoopNest::UnpackOnce:
    return emitBlocked(kernel, schedule, module);
  case LoopNest::Amx:
    return emitTiled(kernel, schedule, module);
  }
}

ProductBuilder::ProductBuilder(const KernelInfo &kernel, ModuleOp module,
                               ArrayRef<Type> arguments)
    : ImplicitLocOpBuilder(module.getLoc(), module.getBodyRegion()),
      arch(kernel.arch()), scalable(isaInfo(kernel.isa).isScalable) {
  setInsertionPointToEnd(module.getBody());
  function = func::FuncOp::create(*this, StringRef(kernel.name),
                                  getFunctionType(arguments, {}));
  setInsertionPointToStart(function.addEntryBlock());
}

Type ProductBuilder::pointerType(MLIRContext *context) {
  return LLVM::LLVMPointerType::get(context);
}

void ProductBuilder::finish() { func::ReturnOp::create(*this); }

Value ProductBuilder::integer(int64_t value) {
  return arith::ConstantOp::create(*this, getI64IntegerAttr(value));
}
Value ProductBuilder::add(Value a, Value b) {
  return createOrFold<arith::AddIOp>(a, b);
}
Value ProductBuilder::mul(Value a, Value b) {
  return createOrFold<arith::MulIOp>(a, b);
}
Value ProductBuilder::shiftRight(Value a, int64_t bits) {
  return createOrFold<arith::ShRUIOp>(a, integer(bits));
}
Value ProductBuilder::smaller(Value a, Value b) {
  return createOrFold<arith::MinSIOp>(a, b);
}

Value ProductBuilder::at(Value pointer, Value bytes) {
  return LLVM::GEPOp::create(*this, pointer.getType(), getI8Type(), pointer,
                             ValueRange(bytes));
}

/// Bytes that every address of an element of this type is a multiple of.
static unsigned naturalAlignment(Type type) {
  return getElementTypeOrSelf(type).getIntOrFloatBitWidth() / 8;
}

Value ProductBuilder::load(Type type, Value pointer) {
  if (auto vectorType = dyn_cast<VectorType>(type); active && vectorType) {
    Value zero = arith::ConstantOp::create(*this, getZeroAttr(type));
    return LLVM::MaskedLoadOp::create(*this, type, pointer,
                                      predicate(vectorType.getDimSize(0)), zero,
                                      naturalAlignment(type));
  }
  return LLVM::LoadOp::create(*this, type, pointer, naturalAlignment(type));
}
void ProductBuilder::store(Value value, Value pointer) {
  const unsigned alignment = naturalAlignment(value.getType());
  if (auto type = dyn_cast<VectorType>(value.getType()); active && type)
    LLVM::MaskedStoreOp::create(*this, value, pointer,
                                predicate(type.getDimSize(0)), alignment);
  else
    LLVM::StoreOp::create(*this, value, pointer, alignment);
}

Value ProductBuilder::scratch(int64_t bytes, int64_t alignment) {
  return LLVM::AllocaOp::create(*this, pointerType(getContext()), getI8Type(),
                                integer(bytes), alignment);
}

void ProductBuilder::keepLoadsInOrder() {
  LLVM::FenceOp::create(*this, LLVM::AtomicOrdering::seq_cst, "singlethread");
}

Value ProductBuilder::opaque(Value value) {
  return LLVM::InlineAsmOp::create(
             *this, value.getType(), value, /*asm_string=*/"",
             /*constraints=*/"=x,0", /*has_side_effects=*/false,
             /*is_align_stack=*/false, LLVM::TailCallKind::None,
             LLVM::AsmDialectAttr(), ArrayAttr())
      .getRes();
}

Value ProductBuilder::predicate(int64_t lanes) {
  const std::string name =
      "llvm.get.active.lane.mask.nxv" + std::to_string(lanes) + "i1.i64";
  return intrinsic(vector(lanes, getI1Type()), name,
                   {integer(0), mul(active, lanes / 4)});
}

Value ProductBuilder::splat(VectorType type, Value scalar) {
  return vector::BroadcastOp::create(*this, type, scalar);
}
Value ProductBuilder::zeros(VectorType type, float value) {
  return arith::ConstantOp::create(
      *this, DenseElementsAttr::get(type, llvm::APFloat(value)));
}
Value ProductBuilder::loadFloats(int64_t lanes, Type stored, Value pointer) {
  if (stored.isBF16()) {
    // As integers: any conversion of the instruction set's rounds or quiets in
    // its own way, a shift does not.
    const VectorType words = vector(lanes, getI32Type());
    Value halves = load(vector(lanes, getI16Type()), pointer);
    Value bits = arith::ShLIOp::create(
        *this, arith::ExtUIOp::create(*this, words, halves),
        arith::ConstantOp::create(
            *this, DenseElementsAttr::get(words, getI32IntegerAttr(16))));
    return vector::BitCastOp::create(*this, vector(lanes, getF32Type()), bits);
  }
  Value value = load(vector(lanes, stored), pointer);
  if (stored.isF32())
    return value;
  return arith::ExtFOp::create(*this, vector(lanes, getF32Type()), value);
}
Value ProductBuilder::intrinsic(Type result, StringRef name,
                                ValueRange arguments) {
  return LLVM::CallIntrinsicOp::create(*this, result, getStringAttr(name),
                                       arguments)
      .getResult(0);
}

Values ProductBuilder::loop(Value lower, Value upper, int64_t step,
                            ValueRange carried, LoopBody body) {
  // The nested builder is this one, moved into the body.
  auto op = scf::ForOp::create(
      *this, lower, upper, integer(step), carried,
      [&](OpBuilder &, Location, Value index, ValueRange values) {
        scf::YieldOp::create(*this, body(index, values));
      });
  return Values(op.getResults());
}

void ProductBuilder::loop(Value lower, Value upper, int64_t step,
                          llvm::function_ref<void(Value)> body) {
  loop(lower, upper, step, {}, [&](Value index, ValueRange) {
    body(index);
    return Values();
  });
}

void ProductBuilder::branch(Value condition, llvm::function_ref<void()> then,
                            llvm::function_ref<void()> otherwise) {
  auto filled = [](llvm::function_ref<void()> body) {
    return [body](OpBuilder &builder, Location location) {
      body();
      scf::YieldOp::create(builder, location);
    };
  };
  scf::IfOp::create(*this, condition, filled(then), filled(otherwise));
}

void ProductBuilder::withFixedVectors(llvm::function_ref<void()> body) {
  scalable = false;
  body();
  scalable = true;
}

Values ProductBuilder::unlessNull(Value pointer, ValueRange values,
                                  llvm::function_ref<Values()> other) {
  Value null = LLVM::ZeroOp::create(*this, pointer.getType());
  Value condition =
      LLVM::ICmpOp::create(*this, LLVM::ICmpPredicate::ne, pointer, null);
  auto op = scf::IfOp::create(
      *this, condition,
      [&](OpBuilder &, Location) { scf::YieldOp::create(*this, other()); },
      [&](OpBuilder &, Location) { scf::YieldOp::create(*this, values); });
  return Values(op.getResults());
}

void ProductBuilder::forEachVector(
    Value count, ArrayRef<int64_t> vectors,
    llvm::function_ref<void(Value, int64_t)> body) {
  auto tiles = [&](Value from, Value to, int64_t each, bool whole) {
    scf::ForOp::create(
        *this, from, to, scaled(4 * each), ValueRange(),
        [&](OpBuilder &, Location, Value first, ValueRange) {
          active = whole ? Value() : arith::SubIOp::create(*this, count, first);
          body(first, each);
          scf::YieldOp::create(*this);
        });
  };
  Value done = integer(0);
  for (int64_t each : vectors) {
    if (each == 1)
      break;
    Value step = scaled(4 * each);
    Value left = arith::SubIOp::create(*this, count, done);
    Value whole = mul(arith::DivUIOp::create(*this, left, step), step);
    Value end = add(done, whole);
    tiles(done, end, each, true);
    done = end;
  }
  tiles(done, count, 1, false);
}

Value ProductBuilder::permuted(StringRef name, int64_t bits, Value a, Value c,
                               bool second) {
  const int64_t count = 128 / bits;
  const VectorType type = vector(count, getIntegerType(unsigned(bits)));
  Value x = vector::BitCastOp::create(*this, type, a);
  Value y = vector::BitCastOp::create(*this, type, c);
  Value result;
  if (scalable) {
    const std::string full =
        ("llvm.aarch64.sve." + name + (second ? "2" : "1") + ".nxv" +
         Twine(count) + "i" + Twine(bits))
            .str();
    result = intrinsic(type, full, {x, y});
  } else {
    // Of two elements the three do the same; of four only zip is asked for.
    const int64_t from = second ? count / 2 : 0;
    SmallVector<int64_t> order;
    for (int64_t i = from; i < from + count / 2; ++i)
      order.append({i, i + count});
    result = vector::ShuffleOp::create(*this, x, y, order);
  }
  return vector::BitCastOp::create(*this, cast<VectorType>(a.getType()),
                                   result);
}

Value ProductBuilder::scaled(int64_t distance) {
  if (!scalable || distance == 0)
    return integer(distance);
  return mul(LLVM::vscale::create(*this, getI64Type()), distance);
}

Value ProductBuilder::loadFour(Value pointer) {
  const VectorType type = vector(4, getF32Type());
  if (!scalable)
    return load(type, pointer);
  Value all = arith::ConstantOp::create(
      *this, DenseElementsAttr::get(vector(4, getI1Type()), true));
  return intrinsic(type, "llvm.aarch64.sve.ld1rq.nxv4f32", {all, pointer});
}

Value ProductBuilder::fmaByElement(Value w, Value four, int64_t i, Value sum) {
  if (!scalable)
    return math::FmaOp::create(*this, w,
                               splat(cast<VectorType>(w.getType()),
                                     vector::ExtractOp::create(*this, four, i)),
                               sum);
  Value element = arith::ConstantOp::create(
      *this, getI32IntegerAttr(static_cast<int32_t>(i)));
  return intrinsic(w.getType(), "llvm.aarch64.sve.fmla.lane.nxv4f32",
                   {sum, w, four, element});
}

void ProductBuilder::prefetch(Value address) {
  LLVM::Prefetch::create(*this, address, /*rw=*/0, /*hint=*/2, /*cache=*/1);
}

Values ProductBuilder::chains(ArrayRef<Value> x, Value weights, Value stride,
                              Type stored, Value count, int64_t columns,
                              int64_t lanes, const ReadAhead &ahead) {
  const VectorType type = vector(lanes, getF32Type());
  const int64_t vectors = columns / lanes;
  const int64_t vectorBytes = lanes * stored.getIntOrFloatBitWidth() / 8;
  auto loadLine = [&](Value step) {
    for (int64_t i = 0; i < ahead.lines; ++i)
      prefetch(at(at(ahead.pointer, mul(step, ahead.stride)), i * kCacheLine));
    Value line = at(weights, mul(step, stride));
    Values w;
    for (int64_t v = 0; v < vectors; ++v)
      w.push_back(loadFloats(lanes, stored, at(line, scaled(v * vectorBytes))));
    return w;
  };
  auto addStep = [&](Value step, ValueRange sums) {
    const Values w = loadLine(step);
    Values result;
    for (auto [r, row] : llvm::enumerate(x)) {
      Value factor = splat(type, load(getF32Type(), at(row, mul(step, 4))));
      for (int64_t v = 0; v < vectors; ++v)
        result.push_back(
            math::FmaOp::create(*this, w[v], factor, sums[r * vectors + v]));
    }
    return result;
  };
  // An fma of Arm multiplies by one of four factors in a register, where a
  // splat takes a slot of its own. Four steps of four rows at a time fit in the
  // eight registers that such a factor may be in with SVE.
  auto addFourSteps = [&](Value step, ValueRange before) {
    std::array<Values, 4> w;
    for (int64_t i = 0; i < 4; ++i)
      w[i] = loadLine(add(step, integer(i)));
    Values sums(before);
    for (size_t first = 0; first < x.size(); first += 4) {
      const ArrayRef<Value> rows = x.drop_front(first).take_front(4);
      Values factors;
      for (Value row : rows)
        factors.push_back(loadFour(at(row, mul(step, 4))));
      for (int64_t i = 0; i < 4; ++i)
        for (size_t r = 0; r < rows.size(); ++r)
          for (int64_t v = 0; v < vectors; ++v) {
            Value &sum = sums[(first + r) * vectors + v];
            sum = fmaByElement(w[i][v], factors[r], i, sum);
          }
    }
    return sums;
  };
  Values sums(x.size() * vectors, zeros(type));
  Value done = integer(0);
  if (arch == Arch::AArch64) {
    Value whole = mul(shiftRight(count, 2), 4);
    sums = loop(done, whole, 4, sums, addFourSteps);
    done = whole;
  }
  return loop(done, count, 1, sums, addStep);
}
