//===- ProductBuilder.cpp - The operations of matrix products -------------===//

#include "ProductBuilder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "qwen/CodeGen/FunctionTypes.h"
#include "qwen/CodeGen/Products/Products.h"
#include "qwen/Support/Error.h"

using namespace qwen;
using namespace mlir;

void qwen::emitProduct(const KernelInfo &kernel, const KernelSchedule &schedule,
                       ModuleOp module) {
  if (kernel.provider() != KernelProvider::MLIR)
    throw Error("kernel '" + std::string(kernel.name) + "' is not a product");
  checkSchedule(kernel, schedule);
  std::visit([&](const auto &order) { emitOrder(kernel, order, module); },
             schedule.loops);
}

ProductBuilder::ProductBuilder(const KernelInfo &kernel, ModuleOp module)
    : ImplicitLocOpBuilder(module.getLoc(), module.getBodyRegion()),
      arch(kernel.arch()), scalable(isaInfo(kernel.isa).isScalable) {
  setInsertionPointToEnd(module.getBody());
  function = func::FuncOp::create(*this, StringRef(kernel.name),
                                  kernelType(kernel.op, getContext()));
  setInsertionPointToStart(function.addEntryBlock());
}

void ProductBuilder::finish() { func::ReturnOp::create(*this); }

Value ProductBuilder::integer(int64_t value) {
  return arith::ConstantOp::create(*this, getI64IntegerAttr(value));
}

#define QWEN_FOLDED(Name, Op)                                                  \
  Value ProductBuilder::Name(Value a, Value b) {                               \
    return createOrFold<arith::Op>(a, b);                                      \
  }
QWEN_FOLDED(add, AddIOp)
QWEN_FOLDED(sub, SubIOp)
QWEN_FOLDED(mul, MulIOp)
QWEN_FOLDED(smaller, MinSIOp)
QWEN_FOLDED(shiftLeft, ShLIOp)
QWEN_FOLDED(shiftRight, ShRUIOp)
QWEN_FOLDED(bitAnd, AndIOp)
QWEN_FOLDED(bitOr, OrIOp)
QWEN_FOLDED(bitXor, XOrIOp)
QWEN_FOLDED(addF, AddFOp)
QWEN_FOLDED(subF, SubFOp)
QWEN_FOLDED(mulF, MulFOp)
#undef QWEN_FOLDED

Value ProductBuilder::fma(Value a, Value b, Value c) {
  return math::FmaOp::create(*this, a, b, c);
}
Value ProductBuilder::toFloat(Type type, Value integers) {
  return arith::SIToFPOp::create(*this, type, integers);
}
Value ProductBuilder::bitcast(VectorType type, Value vector) {
  return vector::BitCastOp::create(*this, type, vector);
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
  return LLVM::AllocaOp::create(*this, LLVM::LLVMPointerType::get(getContext()),
                                getI8Type(), integer(bytes), alignment);
}

void ProductBuilder::keepLoadsInOrder() {
  LLVM::FenceOp::create(*this, LLVM::AtomicOrdering::seq_cst, "singlethread");
}

void ProductBuilder::keepOrder(MutableArrayRef<Value> values) {
  SmallVector<Type> types;
  std::string results, operands;
  for (auto [i, value] : llvm::enumerate(values)) {
    types.push_back(value.getType());
    results += i == 0 ? "=v" : ",=v";
    operands += "," + std::to_string(i);
  }
  Value all = LLVM::InlineAsmOp::create(
                  *this, LLVM::LLVMStructType::getLiteral(getContext(), types),
                  ValueRange(values), /*asm_string=*/"",
                  /*constraints=*/results + operands, /*has_side_effects=*/true,
                  /*is_align_stack=*/false, LLVM::TailCallKind::None,
                  LLVM::AsmDialectAttr(), ArrayAttr())
                  .getRes();
  for (auto [i, value] : llvm::enumerate(values))
    value = LLVM::ExtractValueOp::create(*this, all, int64_t(i));
}

static unsigned wholeAlignment(Type type) {
  const auto vector = dyn_cast<VectorType>(type);
  return naturalAlignment(type) * (vector ? vector.getNumElements() : 1);
}

Value ProductBuilder::loadKept(Type type, Value pointer) {
  return LLVM::LoadOp::create(*this, type, pointer, wholeAlignment(type),
                              /*isVolatile=*/true);
}

void ProductBuilder::storeKept(Value value, Value pointer) {
  LLVM::StoreOp::create(*this, value, pointer, wholeAlignment(value.getType()),
                        /*isVolatile=*/true);
}

Value ProductBuilder::opaque(Value value) {
  const bool isVector = isa<VectorType>(value.getType());
  return LLVM::InlineAsmOp::create(
             *this, value.getType(), value, /*asm_string=*/"",
             /*constraints=*/isVector ? "=x,0" : "=r,0",
             /*has_side_effects=*/false,
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
Value ProductBuilder::constant(Type type, int64_t value) {
  TypedAttr attribute = getIntegerAttr(getElementTypeOrSelf(type), value);
  if (auto vectorType = dyn_cast<VectorType>(type))
    attribute = DenseElementsAttr::get(vectorType, Attribute(attribute));
  return arith::ConstantOp::create(*this, attribute);
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

Value ProductBuilder::lookUp(ArrayRef<int8_t> table, Value indices) {
  const auto type = cast<VectorType>(indices.getType());
  // Instructions of x86 look up within each 128 bits.
  SmallVector<int8_t> bytes;
  while (int64_t(bytes.size()) < type.getDimSize(0))
    bytes.append(table.begin(), table.end());
  Value tables = arith::ConstantOp::create(
      *this, DenseElementsAttr::get(
                 VectorType::get(type.getShape(), type.getElementType()),
                 ArrayRef<int8_t>(bytes)));
  if (arch == Arch::X86_64)
    return intrinsic(type,
                     bytes.size() == 64 ? "llvm.x86.avx512.pshuf.b.512"
                                        : "llvm.x86.avx2.pshuf.b",
                     {tables, indices});
  if (!scalable)
    return intrinsic(type, "llvm.aarch64.neon.tbl1.v16i8", {tables, indices});
  return intrinsic(type, "llvm.aarch64.sve.tbl.nxv16i8",
                   {inScalable(tables), indices});
}

Value ProductBuilder::inScalable(Value vector) {
  const auto type = cast<VectorType>(vector.getType());
  if (type.isScalable())
    return vector;
  Value rest = LLVM::PoisonOp::create(
      *this, VectorType::get(type.getShape(), type.getElementType(), {true}));
  return vector::ScalableInsertOp::create(*this, vector, rest, 0);
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

void ProductBuilder::byLength(llvm::function_ref<void()> fixed,
                              llvm::function_ref<void()> longer) {
  Value shortest = arith::CmpIOp::create(*this, arith::CmpIPredicate::eq,
                                         scaled(1), integer(1));
  branch(shortest, [&] { withFixedVectors(fixed); }, longer);
}

Values ProductBuilder::choose(Value condition,
                              llvm::function_ref<Values()> then,
                              llvm::function_ref<Values()> otherwise) {
  auto yields = [&](llvm::function_ref<Values()> values) {
    return [this, values](OpBuilder &, Location) {
      scf::YieldOp::create(*this, values());
    };
  };
  auto op =
      scf::IfOp::create(*this, condition, yields(then), yields(otherwise));
  return Values(op.getResults());
}

Value ProductBuilder::isNull(Value pointer) {
  Value null = LLVM::ZeroOp::create(*this, pointer.getType());
  return LLVM::ICmpOp::create(*this, LLVM::ICmpPredicate::eq, pointer, null);
}

Values ProductBuilder::unlessNull(Value pointer, ValueRange values,
                                  llvm::function_ref<Values()> other) {
  return choose(isNull(pointer), [&] { return Values(values); }, other);
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

Value ProductBuilder::shiftedInto(Value into, Value value, int64_t bits,
                                  bool left) {
  const Type type = into.getType();
  if (!scalable)
    return intrinsic(type,
                     left ? "llvm.aarch64.neon.vsli.v16i8"
                          : "llvm.aarch64.neon.vsri.v16i8",
                     {into, value, constant(getI32Type(), bits)});
  const int64_t low = (1 << bits) - 1, kept = left ? low : low << (8 - bits);
  Value by = constant(type, bits);
  Value shifted = left ? Value(arith::ShLIOp::create(*this, value, by))
                       : arith::ShRUIOp::create(*this, value, by);
  return arith::OrIOp::create(
      *this, arith::AndIOp::create(*this, into, constant(type, int8_t(kept))),
      shifted);
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
    // The three do the same with two elements, and only zip is asked for with
    // four.
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

Value ProductBuilder::loadQuad(Type element, Value pointer) {
  const unsigned bits = element.getIntOrFloatBitWidth();
  const VectorType type = vector(128 / bits, element);
  if (!scalable)
    return load(type, pointer);
  Value all = constant(vector(128 / bits, getI1Type()), 1);
  const std::string name = "llvm.aarch64.sve.ld1rq.nxv" +
                           std::to_string(128 / bits) +
                           (element.isF32() ? "f" : "i") + std::to_string(bits);
  return intrinsic(type, name, {all, pointer});
}

void ProductBuilder::prefetch(Value address, CacheLevel level) {
  LLVM::Prefetch::create(*this, address, /*rw=*/0,
                         /*hint=*/level == CacheLevel::L1 ? 3 : 2,
                         /*cache=*/1);
}
