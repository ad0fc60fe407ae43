//===- ProductBuilder.cpp - The operations of matrix products -------------===//

#include "ProductBuilder.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
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

/// Bytes that every address of an element of this type is a multiple of.
static unsigned naturalAlignment(Type type) {
  return getElementTypeOrSelf(type).getIntOrFloatBitWidth() / 8;
}

Value ProductBuilder::load(Type type, Value pointer) {
  const unsigned alignment = naturalAlignment(type);
  if (auto vector = dyn_cast<VectorType>(type); active && vector) {
    Value zero = arith::ConstantOp::create(*this, getZeroAttr(type));
    return LLVM::MaskedLoadOp::create(
        *this, type, pointer, predicate(vector.getDimSize(0)), zero, alignment);
  }
  return LLVM::LoadOp::create(*this, type, pointer, alignment);
}
void ProductBuilder::store(Value value, Value pointer) {
  const unsigned alignment = naturalAlignment(value.getType());
  if (auto type = dyn_cast<VectorType>(value.getType()); active && type)
    LLVM::MaskedStoreOp::create(*this, value, pointer,
                                predicate(type.getDimSize(0)), alignment);
  else
    LLVM::StoreOp::create(*this, value, pointer, alignment);
}

/// An asm without an instruction, whose results are in the registers of its
/// operands.
static Value emptyAsm(ProductBuilder &b, Type type, ValueRange operands,
                      const std::string &constraints, bool hasSideEffects) {
  return LLVM::InlineAsmOp::create(
             b, type, operands, /*asm_string=*/"", constraints, hasSideEffects,
             /*is_align_stack=*/false, LLVM::TailCallKind::None,
             LLVM::AsmDialectAttr(), ArrayAttr())
      .getRes();
}

void ProductBuilder::keepOrder(MutableArrayRef<Value> values) {
  std::string results, operands;
  for (size_t i = 0; i < values.size(); ++i) {
    results += i == 0 ? "=v" : ",=v";
    operands += "," + std::to_string(i);
  }
  const Type type = LLVM::LLVMStructType::getLiteral(
      getContext(), llvm::to_vector(ValueRange(values).getTypes()));
  Value all = emptyAsm(*this, type, values, results + operands,
                       /*hasSideEffects=*/true);
  for (auto [i, value] : llvm::enumerate(values))
    value = LLVM::ExtractValueOp::create(*this, all, int64_t(i));
}

Value ProductBuilder::opaque(Value value) {
  const bool isVector = isa<VectorType>(value.getType());
  return emptyAsm(*this, value.getType(), value, isVector ? "=x,0" : "=r,0",
                  /*hasSideEffects=*/false);
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

/// The store is volatile, or LLVM would merge it with an ordinary store of
/// another branch and drop the hint.
void ProductBuilder::storePastCaches(Value value, Value pointer) {
  LLVM::StoreOp::create(*this, value, pointer, wholeAlignment(value.getType()),
                        /*isVolatile=*/true, /*isNonTemporal=*/true);
}

void ProductBuilder::fenceStores() {
  LLVM::CallIntrinsicOp::create(*this, getStringAttr("llvm.x86.sse.sfence"),
                                ValueRange());
}

Value ProductBuilder::constant(Type type, int64_t value) {
  TypedAttr attribute = getIntegerAttr(getElementTypeOrSelf(type), value);
  if (auto vectorType = dyn_cast<VectorType>(type))
    attribute = DenseElementsAttr::get(vectorType, Attribute(attribute));
  return arith::ConstantOp::create(*this, attribute);
}

Values ProductBuilder::loop(Int lower, Int upper, Int step, ValueRange carried,
                            LoopBody body) {
  const Type type = getI64Type();
  // The nested builder is this one, moved into the body.
  auto op = scf::ForOp::create(
      *this, in(type, lower), in(type, upper), in(type, step), carried,
      [&](OpBuilder &, Location, Value index, ValueRange values) {
        scf::YieldOp::create(*this, body(index, values));
      });
  return Values(op.getResults());
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

void ProductBuilder::forEachVector(
    Value count, ArrayRef<int64_t> vectors,
    llvm::function_ref<void(Value, int64_t)> body) {
  auto tiles = [&](Value from, Value to, int64_t each, bool whole) {
    loop(from, to, scaled(4 * each), [&](Value first) {
      active = whole ? Value() : sub(count, first);
      body(first, each);
    });
  };
  Value done = integer(0);
  for (int64_t each : vectors) {
    if (each == 1)
      break;
    Value step = scaled(4 * each);
    Value end = add(done, mul(div(sub(count, done), step), step));
    tiles(done, end, each, true);
    done = end;
  }
  tiles(done, count, 1, false);
}
