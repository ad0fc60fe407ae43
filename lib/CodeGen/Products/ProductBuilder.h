//===- ProductBuilder.h - The operations of matrix products -----*- C++ -*-===//
//
// What the emitters of products share: addresses, loads, loops, and the chains
// of fma that f32 products and attention's products have in common. The code
// is scf, arith, math.fma and 1-D vectors; memory is reached through !llvm.ptr
// and byte offsets.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_LIB_CODEGEN_PRODUCTS_PRODUCTBUILDER_H
#define QWEN_LIB_CODEGEN_PRODUCTS_PRODUCTBUILDER_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "qwen/CodeGen/Schedule/Schedule.h"

namespace qwen {

using mlir::Type;
using mlir::Value;
using mlir::ValueRange;
using Values = llvm::SmallVector<Value>;

class ProductBuilder : public mlir::ImplicitLocOpBuilder {
public:
  /// Starts the body of the function of `kernel` at the end of `module`.
  ProductBuilder(const KernelInfo &kernel, mlir::ModuleOp module);

  Value argument(unsigned index) { return function.getArgument(index); }
  void finish();

  /// Integers (i64).
  Value integer(int64_t value);
  Value add(Value a, Value b);
  Value mul(Value a, Value b);
  Value mul(Value a, int64_t b) { return mul(a, constant(a.getType(), b)); }
  Value sub(Value a, Value b);
  Value smaller(Value a, Value b);

  /// Integers of any type, by the same bits in each lane. Shifts to the right
  /// fill with zeros.
  Value shiftLeft(Value a, Value bits);
  Value shiftLeft(Value a, int64_t bits) {
    return shiftLeft(a, constant(a.getType(), bits));
  }
  Value shiftRight(Value a, Value bits);
  Value shiftRight(Value a, int64_t bits) {
    return shiftRight(a, constant(a.getType(), bits));
  }
  Value bitAnd(Value a, Value b);
  Value bitAnd(Value a, int64_t b) {
    return bitAnd(a, constant(a.getType(), b));
  }
  Value bitOr(Value a, Value b);
  Value bitXor(Value a, Value b);

  /// Floats, and integers as floats.
  Value addF(Value a, Value b);
  Value subF(Value a, Value b);
  Value mulF(Value a, Value b);
  Value fma(Value a, Value b, Value c);
  Value toFloat(Type type, Value integers);
  Value bitcast(mlir::VectorType type, Value vector);

  /// Memory. Addresses are in bytes. Scalable vectors read and write only what
  /// belongs to active outputs (forEachVector); other lanes are 0.
  Value at(Value pointer, Value bytes);
  Value at(Value pointer, int64_t bytes) { return at(pointer, integer(bytes)); }
  Value load(Type type, Value pointer);
  void store(Value value, Value pointer);
  /// Memory of the function: `bytes`, aligned to `alignment`.
  Value scratch(int64_t bytes, int64_t alignment = 64);
  /// Keeps LLVM from moving a load past this point, which would take a register
  /// earlier and spill another. It emits no instruction.
  void keepLoadsInOrder();
  /// Makes LLVM compute `values`, vectors of AVX-512, before all dots and loads
  /// that follow, so that these need no registers yet. It emits no instruction.
  void keepOrder(llvm::MutableArrayRef<Value> values);
  /// Loads and stores of values that must stay in memory: LLVM would keep them
  /// in registers.
  Value loadKept(Type type, Value pointer);
  void storeKept(Value value, Value pointer);
  /// Hides the origin of `value` from LLVM, so that LLVM does not rewrite its
  /// uses. A vector of x86, or a pointer.
  Value opaque(Value value);

  bool isArm() const { return arch == Arch::AArch64; }
  /// Whether vectors are scalable. withFixedVectors() emits code for vectors
  /// that are not.
  bool isScalable() const { return scalable; }
  /// Emits both code for vectors of 128 bits, with NEON's loads, which have
  /// longer offsets and come in pairs, and code for longer scalable vectors.
  void byLength(llvm::function_ref<void()> fixed,
                llvm::function_ref<void()> longer);
  void withFixedVectors(llvm::function_ref<void()> body);

  /// Vectors. With scalable ones, `lanes` are those of each 128 bits of a
  /// register of f32.
  mlir::VectorType vector(int64_t lanes, Type element) {
    return mlir::VectorType::get({lanes}, element, {scalable});
  }
  Value splat(mlir::VectorType type, Value scalar);
  Value constant(Type type, int64_t value);
  Value zeros(mlir::VectorType type, float value = 0.0f);
  /// `lanes` values of type f32, or of f16 or bf16 widened, which is exact.
  Value loadFloats(int64_t lanes, Type stored, Value pointer);
  /// 128 bits of elements, in each 128 bits of a vector.
  Value loadQuad(Type element, Value pointer);
  Value intrinsic(Type result, llvm::StringRef name, ValueRange arguments);
  /// table[i] for each byte i of `indices`, which are 0 to 15.
  Value lookUp(llvm::ArrayRef<int8_t> table, Value indices);
  /// A vector of 128 bits as the first bits of a scalable one, in the same
  /// register.
  Value inScalable(Value vector);
  /// Arm's instructions sli and sri on bytes: `into`, where its bits but the
  /// `bits` lowest are those of `value << bits`; or its bits but the `bits`
  /// highest, if `left` is false, those of `value >> bits`.
  Value shiftedInto(Value into, Value value, int64_t bits, bool left);
  /// Arm's instruction zip, uzp or trn on two vectors with elements of `bits`:
  /// the first or the second half of the result, in the type of `a`.
  Value permuted(llvm::StringRef name, int64_t bits, Value a, Value c,
                 bool second);

  /// for (i64 i = lower; i < upper; i += step). The body takes and returns the
  /// values that are carried from one iteration to the next.
  using LoopBody = llvm::function_ref<Values(Value, ValueRange)>;
  Values loop(Value lower, Value upper, int64_t step, ValueRange carried,
              LoopBody body);
  void loop(Value lower, Value upper, int64_t step,
            llvm::function_ref<void(Value)> body);
  /// if (condition) then(); else otherwise();
  void branch(Value condition, llvm::function_ref<void()> then,
              llvm::function_ref<void()> otherwise);
  Value isNull(Value pointer);
  /// condition ? then() : otherwise().
  Values choose(Value condition, llvm::function_ref<Values()> then,
                llvm::function_ref<Values()> otherwise);
  /// pointer ? other() : values.
  Values unlessNull(Value pointer, ValueRange values,
                    llvm::function_ref<Values()> other);
  /// For outputs [0, count) in scalable vectors: calls `body` with the first
  /// output of a tile and its number of vectors, which is each of `vectors` (in
  /// descending order) as long as they are full and at last 1, where outputs
  /// below count are active.
  void forEachVector(Value count, llvm::ArrayRef<int64_t> vectors,
                     llvm::function_ref<void(Value, int64_t)> body);
  /// A distance in vectors that is `distance` where they have 128 bits.
  Value scaled(int64_t distance);

  /// Bytes that one prefetch fetches.
  static constexpr int64_t kCacheLine = 64;
  /// Fetches the line at `address`. The second cache waits for more lines at
  /// once than the first.
  enum class CacheLevel : uint8_t { L1, L2 };
  void prefetch(Value address, CacheLevel level = CacheLevel::L2);

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
  Values chains(llvm::ArrayRef<Value> x, Value weights, Value stride,
                Type stored, Value count, int64_t columns, int64_t lanes,
                const ReadAhead &ahead = {});

  /// The predicate of a scalable vector with `lanes` lanes for each 128 bits of
  /// outputs in f32: those of active outputs.
  Value predicate(int64_t lanes);

private:
  /// fma(w, element i of each 128 bits of four, sum).
  Value fmaByElement(Value w, Value four, int64_t i, Value sum);

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
                 mlir::ModuleOp module);
#include "qwen/CodeGen/Schedule/Orders.def"

} // namespace qwen

#endif // QWEN_LIB_CODEGEN_PRODUCTS_PRODUCTBUILDER_H
