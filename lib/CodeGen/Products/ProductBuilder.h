//===- ProductBuilder.h - The operations of matrix products -----*- C++ -*-===//
//
// The operations that emitters of products use: addresses, loads, loops, and
// the chains of fma that f32 products and attention's products have in common.
// The code is scf, arith, math.fma and 1-D vectors. Addresses are !llvm.ptr and
// byte offsets.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_LIB_CODEGEN_PRODUCTS_PRODUCTBUILDER_H
#define QWEN_LIB_CODEGEN_PRODUCTS_PRODUCTBUILDER_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "qwen/CodeGen/Schedule/Schedule.h"

namespace qwen {

namespace arith = mlir::arith;
namespace LLVM = mlir::LLVM;
using mlir::ArrayRef;
using mlir::function_ref;
using mlir::ModuleOp;
using mlir::MutableArrayRef;
using mlir::SmallVector;
using mlir::StringRef;
using mlir::Type;
using mlir::Value;
using mlir::ValueRange;
using mlir::VectorType;
using Values = SmallVector<Value>;

/// An operand of an operation on integers: a value, or a constant of the type
/// that the other operand has.
struct Int {
  Int(Value value) : value(value) {}
  Int(int64_t number) : number(number) {}

  Value value;
  int64_t number = 0;
};

class ProductBuilder : public mlir::ImplicitLocOpBuilder {
public:
  /// Starts the body of the function of `kernel` at the end of `module`.
  ProductBuilder(const KernelInfo &kernel, ModuleOp module);

  /// Types of elements.
  const Type i8 = getI8Type(), i16 = getI16Type(), i32 = getI32Type(),
             f16 = getF16Type(), f32 = getF32Type();

  Value argument(unsigned index) { return function.getArgument(index); }
  void finish() { mlir::func::ReturnOp::create(*this); }

  /// A constant of i64, the type of sizes and of places in memory.
  Value integer(int64_t value) { return constant(getI64Type(), value); }
  /// Integers of any type, by the same operand in each lane. Shifts to the
  /// right fill with zeros, and div() takes no signs.
#define QWEN_INTEGERS(Name, Op)                                                \
  Value Name(Value a, Int b) {                                                 \
    return createOrFold<arith::Op>(a, in(a.getType(), b));                     \
  }
  QWEN_INTEGERS(add, AddIOp)
  QWEN_INTEGERS(sub, SubIOp)
  QWEN_INTEGERS(mul, MulIOp)
  QWEN_INTEGERS(div, DivUIOp)
  QWEN_INTEGERS(smaller, MinSIOp)
  QWEN_INTEGERS(larger, MaxSIOp)
  QWEN_INTEGERS(shiftLeft, ShLIOp)
  QWEN_INTEGERS(shiftRight, ShRUIOp)
  QWEN_INTEGERS(bitAnd, AndIOp)
  QWEN_INTEGERS(bitOr, OrIOp)
  QWEN_INTEGERS(bitXor, XOrIOp)
#undef QWEN_INTEGERS
  /// Comparisons, as i1.
  Value isEqual(Value a, Int b) {
    return arith::CmpIOp::create(*this, arith::CmpIPredicate::eq, a,
                                 in(a.getType(), b));
  }
  Value isLess(Value a, Int b) {
    return arith::CmpIOp::create(*this, arith::CmpIPredicate::slt, a,
                                 in(a.getType(), b));
  }
  /// The lower bits of an integer, in a narrower type.
  Value truncated(Type type, Value a) {
    return arith::TruncIOp::create(*this, type, a);
  }

  /// Floats, and integers as floats.
  Value addF(Value a, Value b) { return createOrFold<arith::AddFOp>(a, b); }
  Value subF(Value a, Value b) { return createOrFold<arith::SubFOp>(a, b); }
  Value mulF(Value a, Value b) { return createOrFold<arith::MulFOp>(a, b); }
  Value fma(Value a, Value b, Value c) {
    return mlir::math::FmaOp::create(*this, a, b, c);
  }
  Value toFloat(Type type, Value integers) {
    return arith::SIToFPOp::create(*this, type, integers);
  }
  Value bitcast(VectorType type, Value vector) {
    return mlir::vector::BitCastOp::create(*this, type, vector);
  }

  /// Memory. Addresses are in bytes. Scalable vectors read and write only the
  /// lanes of active outputs (forEachVector); other lanes are 0.
  Value at(Value pointer, Int bytes) {
    return LLVM::GEPOp::create(*this, pointer.getType(), i8, pointer,
                               ValueRange(in(getI64Type(), bytes)));
  }
  /// Element `index` of an array at `pointer`, whose elements have `size`
  /// bytes.
  Value at(Value pointer, Value index, Int size) {
    return at(pointer, mul(index, size));
  }
  Value load(Type type, Value pointer);
  void store(Value value, Value pointer);
  /// Memory of the function: `bytes`, aligned to `alignment`.
  Value scratch(int64_t bytes, int64_t alignment = 64) {
    return LLVM::AllocaOp::create(*this,
                                  LLVM::LLVMPointerType::get(getContext()), i8,
                                  integer(bytes), alignment);
  }
  /// Writes `value` to each i32 of `bytes`, in a loop that LLVM keeps: so it
  /// takes the values from memory, where loads have slots to spare and the
  /// copies of a register have not.
  void fill(Value pointer, int64_t bytes, int32_t value) {
    loop(0, bytes / 4, 1,
         [&](Value i) { store(constant(i32, value), at(pointer, i, 4)); });
  }
  /// Register `index` of those at `pointer`, with inactive outputs.
  Value loadRegister(VectorType type, Value pointer, int64_t index = 0) {
    return LLVM::LoadOp::create(*this, type, atRegister(pointer, index), 16);
  }
  void storeRegister(Value value, Value pointer, int64_t index = 0) {
    LLVM::StoreOp::create(*this, value, atRegister(pointer, index), 16);
  }
  Value atRegister(Value pointer, int64_t index) {
    return index == 0 ? pointer : at(pointer, scaled(16 * index));
  }
  /// Element `index` of an array whose elements have `count` registers.
  Value atRegisters(Value pointer, Value index, int64_t count) {
    return at(pointer, index, scaled(16 * count));
  }
  /// Keeps LLVM from moving a load past this point, which would take a register
  /// earlier and spill another. It emits no instruction.
  void keepLoadsInOrder() {
    LLVM::FenceOp::create(*this, LLVM::AtomicOrdering::seq_cst, "singlethread");
  }
  /// Makes LLVM compute `values`, vectors of AVX-512, before all dots and loads
  /// that follow, so that these need no registers yet. It emits no instruction.
  void keepOrder(MutableArrayRef<Value> values);
  /// Loads and stores of values that must stay in memory, although LLVM would
  /// keep them in registers.
  Value loadKept(Type type, Value pointer);
  void storeKept(Value value, Value pointer);
  /// Stores a vector of a cache line's size, at a multiple of it, in memory and
  /// not in caches (vmovntps). fenceStores() makes such stores visible to other
  /// threads before the stores that follow.
  void storePastCaches(Value value, Value pointer);
  void fenceStores();
  /// The address in `pointer` as an integer.
  Value addressOf(Value pointer) {
    return LLVM::PtrToIntOp::create(*this, getI64Type(), pointer);
  }
  /// Hides the origin of `value` from LLVM, so that LLVM does not rewrite its
  /// uses. A vector of x86, or a pointer.
  Value opaque(Value value);

  bool isArm() const { return arch == Arch::AArch64; }
  /// Whether vectors are scalable.
  bool isScalable() const { return scalable; }
  /// Emits code for vectors of 128 bits, with NEON's loads, which have longer
  /// offsets and come in pairs, and code for longer scalable vectors. The
  /// kernel chooses when it runs.
  void byLength(function_ref<void()> fixed, function_ref<void()> longer) {
    auto withFixedVectors = [&] {
      scalable = false;
      fixed();
      scalable = true;
    };
    branch(isEqual(scaled(1), 1), withFixedVectors, longer);
  }

  /// Vectors. If they are scalable, `lanes` counts the lanes of each 128 bits
  /// of a register of f32.
  VectorType vector(int64_t lanes, Type element) {
    return VectorType::get({lanes}, element, {scalable});
  }
  Value splat(VectorType type, Value scalar) {
    return mlir::vector::BroadcastOp::create(*this, type, scalar);
  }
  /// The elements of these numbers of `a`, then of `c`.
  Value shuffle(Value a, Value c, ArrayRef<int64_t> numbers) {
    return mlir::vector::ShuffleOp::create(*this, a, c, numbers);
  }
  Value constant(Type type, int64_t value);
  Value zeros(VectorType type, float value = 0.0f) {
    return arith::ConstantOp::create(
        *this, mlir::DenseElementsAttr::get(type, llvm::APFloat(value)));
  }
  /// `lanes` values of type f32, or of f16 or bf16 widened, which is exact.
  Value loadFloats(int64_t lanes, Type stored, Value pointer) {
    const VectorType floats = vector(lanes, f32);
    if (stored.isBF16()) {
      // As integers: any conversion of the instruction set's rounds or quiets
      // in its own way, a shift does not.
      Value bits = arith::ExtUIOp::create(*this, vector(lanes, i32),
                                          load(vector(lanes, i16), pointer));
      return bitcast(floats, shiftLeft(bits, 16));
    }
    Value value = load(vector(lanes, stored), pointer);
    if (stored.isF32())
      return value;
    return arith::ExtFOp::create(*this, floats, value);
  }
  /// 128 bits of elements, in each 128 bits of a vector.
  Value loadQuad(Type element, Value pointer) {
    const unsigned bits = element.getIntOrFloatBitWidth();
    const VectorType type = vector(128 / bits, element);
    if (!scalable)
      return load(type, pointer);
    Value all = constant(vector(128 / bits, getI1Type()), 1);
    const std::string name =
        "llvm.aarch64.sve.ld1rq.nxv" + std::to_string(128 / bits) +
        (element.isF32() ? "f" : "i") + std::to_string(bits);
    return intrinsic(type, name, {all, pointer});
  }
  Value intrinsic(Type result, StringRef name, ValueRange arguments) {
    return LLVM::CallIntrinsicOp::create(*this, result, getStringAttr(name),
                                         arguments)
        .getResult(0);
  }
  /// table[i] for each byte i of `indices`, which are 0 to 15.
  Value lookUp(ArrayRef<int8_t> table, Value indices) {
    const auto type = cast<VectorType>(indices.getType());
    // Instructions of x86 look up within each 128 bits.
    SmallVector<int8_t> bytes;
    while (int64_t(bytes.size()) < type.getDimSize(0))
      bytes.append(table.begin(), table.end());
    Value tables = arith::ConstantOp::create(
        *this, mlir::DenseElementsAttr::get(
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
  /// A vector of 128 bits as the first bits of a scalable one, in the same
  /// register.
  Value inScalable(Value vector) {
    const auto type = cast<VectorType>(vector.getType());
    if (type.isScalable())
      return vector;
    Value rest = LLVM::PoisonOp::create(
        *this, VectorType::get(type.getShape(), type.getElementType(), {true}));
    return mlir::vector::ScalableInsertOp::create(*this, vector, rest, 0);
  }
  /// Arm's instructions sli and sri on bytes. With `left`, the result has the
  /// `bits` lowest bits of `into` and the other bits of `value << bits`. Else
  /// it has the `bits` highest bits of `into` and the other bits of `value >>
  /// bits`.
  Value shiftedInto(Value into, Value value, int64_t bits, bool left) {
    if (!scalable)
      return intrinsic(into.getType(),
                       left ? "llvm.aarch64.neon.vsli.v16i8"
                            : "llvm.aarch64.neon.vsri.v16i8",
                       {into, value, constant(i32, bits)});
    const int64_t low = (1 << bits) - 1, kept = left ? low : low << (8 - bits);
    Value shifted = left ? shiftLeft(value, bits) : shiftRight(value, bits);
    return bitOr(bitAnd(into, int8_t(kept)), shifted);
  }
  /// Arm's instruction zip, uzp or trn on two vectors with elements of `bits`:
  /// the first or the second half of the result, in the type of `a`.
  Value permuted(StringRef name, int64_t bits, Value a, Value c, bool second) {
    const int64_t count = 128 / bits;
    const VectorType type = vector(count, getIntegerType(unsigned(bits)));
    Value x = bitcast(type, a), y = bitcast(type, c);
    Value result;
    if (scalable) {
      const std::string full =
          ("llvm.aarch64.sve." + name + (second ? "2" : "1") + ".nxv" +
           llvm::Twine(count) + "i" + llvm::Twine(bits))
              .str();
      result = intrinsic(type, full, {x, y});
    } else {
      // The three do the same with two elements, and only zip is asked for with
      // four.
      const int64_t from = second ? count / 2 : 0;
      SmallVector<int64_t> order;
      for (int64_t i = from; i < from + count / 2; ++i)
        order.append({i, i + count});
      result = shuffle(x, y, order);
    }
    return bitcast(cast<VectorType>(a.getType()), result);
  }

  /// zip on words of each two vectors: 8 bytes of two outputs, from 4 in each.
  Values zipped(ArrayRef<Value> a, ArrayRef<Value> c, bool second) {
    Values result;
    for (auto [first, other] : llvm::zip_equal(a, c))
      result.push_back(permuted("zip", 32, first, other, second));
    return result;
  }

  /// for (i64 i = lower; i < upper; i += step). The body takes and returns the
  /// values that are carried from one iteration to the next.
  using LoopBody = function_ref<Values(Value, ValueRange)>;
  Values loop(Int lower, Int upper, Int step, ValueRange carried,
              LoopBody body);
  void loop(Int lower, Int upper, Int step, function_ref<void(Value)> body) {
    loop(lower, upper, step, {},
         [&](Value index, ValueRange) { return body(index), Values(); });
  }
  /// if (condition) then(); else otherwise();
  void branch(Value condition, function_ref<void()> then,
              function_ref<void()> otherwise) {
    auto without = [](function_ref<void()> body) {
      return [body] { return body(), Values(); };
    };
    choose(condition, without(then), without(otherwise));
  }
  Value isNull(Value pointer) {
    return LLVM::ICmpOp::create(*this, LLVM::ICmpPredicate::eq, pointer,
                                LLVM::ZeroOp::create(*this, pointer.getType()));
  }
  /// condition ? then() : otherwise().
  Values choose(Value condition, function_ref<Values()> then,
                function_ref<Values()> otherwise);
  /// For outputs [0, count) in scalable vectors: calls `body` with the first
  /// output of a tile and its number of vectors, which is each of `vectors` (in
  /// descending order) as long as they are full and at last 1, where outputs
  /// below count are active.
  void forEachVector(Value count, ArrayRef<int64_t> vectors,
                     function_ref<void(Value, int64_t)> body);
  /// A distance in vectors that is `distance` where they have 128 bits.
  Value scaled(int64_t distance) {
    if (!scalable || distance == 0)
      return integer(distance);
    return mul(LLVM::vscale::create(*this, getI64Type()), distance);
  }

  /// Bytes that one prefetch fetches.
  static constexpr int64_t kCacheLine = 64;
  /// Fetches the line at `address`. The second cache waits for more lines at
  /// once than the first.
  enum class CacheLevel : uint8_t { L1, L2 };
  void prefetch(Value address, CacheLevel level = CacheLevel::L2) {
    LLVM::Prefetch::create(*this, address, /*rw=*/0,
                           /*hint=*/level == CacheLevel::L1 ? 3 : 2,
                           /*cache=*/1);
  }

  /// Prefetches: step i of a chain fetches `lines` lines from pointer +
  /// i * stride on.
  struct ReadAhead {
    Value pointer, stride;
    int64_t lines;
  };

  /// A tile of x.size() rows and `columns` outputs, accumulated from +0 by
  /// acc = fma(w, x, acc) for `count` steps in order. Step i reads `columns`
  /// weights of type `stored` at weights + i * stride and one f32 of each row
  /// at x[r] + 4 * i. Returns the rows' vectors of `lanes` floats, row by row.
  Values chains(ArrayRef<Value> x, Value weights, Value stride, Type stored,
                Value count, int64_t columns, int64_t lanes,
                const ReadAhead &ahead = {});

private:
  Value in(Type type, Int a) {
    return a.value ? a.value : constant(type, a.number);
  }
  /// The predicate of a scalable vector with `lanes` lanes for each 128 bits of
  /// outputs in f32: it is true in the lanes of active outputs.
  Value predicate(int64_t lanes) {
    return intrinsic(vector(lanes, getI1Type()),
                     "llvm.get.active.lane.mask.nxv" + std::to_string(lanes) +
                         "i1.i64",
                     {integer(0), mul(active, lanes / 4)});
  }

  mlir::func::FuncOp function;
  const Arch arch;
  bool scalable;
  /// The number of outputs from the first one of the current vector on; null
  /// where all lanes of all vectors have an output.
  Value active;
};

/// Each order emits the code of one kernel.
#define QWEN_ORDER(Order)                                                      \
  void emitOrder(const KernelInfo &kernel, const Order##Schedule &schedule,    \
                 ModuleOp module);
#include "qwen/CodeGen/Schedule/Orders.def"

} // namespace qwen

#endif // QWEN_LIB_CODEGEN_PRODUCTS_PRODUCTBUILDER_H
