//===- CallOf.h - Structs of the driver made of an op -----------*- C++ -*-===//
//
// What each op gives to the structs of DriverABI.def: numbers by their names.
// The structs name kinds of kernels, and the op has the kernels.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_LIB_DIALECT_CALLOF_H
#define QWEN_LIB_DIALECT_CALLOF_H

#include "qwen/Dialect/QwenDialect.h"

#include "mlir/IR/Builders.h"

#include <array>
#include <utility>

//===----------------------------------------------------------------------===//
// Structs as fields
//===----------------------------------------------------------------------===//

/// The numbers of the structs of instances.
namespace qwen::fixed {
#define QWEN_ARGUMENTS(...)
#define QWEN_DRIVER(Function, Reads, Fields)                                   \
  struct Function {                                                            \
    using Arguments = Reads##Arguments;                                        \
    static constexpr char kFunction[] = "qwenDriver" #Function;                \
    Fields                                                                     \
  };
#define QWEN_FIELD(Type, name) Type name;
#define QWEN_KERNEL(Op, name)
#define QWEN_PRODUCT(Op)
#define QWEN_SCRATCH(name) Length name;
#include "qwen/ABI/DriverABI.def"
} // namespace qwen::fixed

namespace qwen {

// visitFields(of, list): gives each field to `list`.
#define QWEN_ARGUMENTS(Name, Fields)                                           \
  template <typename List>                                                     \
  void visitFields(const Name##Arguments &of, List &list) {                    \
    Fields                                                                     \
  }
#define QWEN_DRIVER(Function, Reads, Fields)                                   \
  template <typename List>                                                     \
  void visitFields([[maybe_unused]] const fixed::Function &of, List &list) {   \
    Fields                                                                     \
  }
#define QWEN_FIELD(Type, name) list.add(#name, of.name);
#define QWEN_KERNEL(Op, name) list.addKernel(#name, KernelOp::Op);
#define QWEN_PRODUCT(Op) list.addProduct();
#define QWEN_SCRATCH(name) list.addScratch(#name, of.name);
#include "qwen/ABI/DriverABI.def"

/// Makes the call of one op. It calls the kernels of `op`, or of `next`.
class CallOf {
public:
  CallOf(ForwardOp op, const CallFacts &facts, ForwardOp next = nullptr)
      : stem(op->getName().stripDialect()), facts(facts), op(op), next(next),
        builder(op->getContext()) {}

  template <typename Fixed>
  DriverCall call(const typename Fixed::Arguments &arguments,
                  const Fixed &constants = {}) {
    visitFields(arguments, *this);
    StructFields differing = std::exchange(fields, {});
    visitFields(constants, *this);
    return {firstKernel.empty() ? stem : stem + "." + firstKernel,
            Fixed::kFunction, std::move(differing), std::move(fields)};
  }

  /// The call of `Quantized` if `value` is int8, else the call of `Floats`.
  template <typename Quantized, typename Floats>
  DriverCall callFor(mlir::Value value,
                     const typename Floats::Arguments &arguments,
                     const Quantized &constants = {}) {
    if (isInBlocks(value.getType()))
      return call<Quantized>(arguments, constants);
    return call<Floats>(arguments);
  }

  /// The call of `Quantized`, which quantizes a whole token at once: with
  /// `scratch` floats or, where tokens lie in tiles, room for a token.
  template <typename Quantized>
  DriverCall callQuantizing(mlir::Value result,
                            const typename Quantized::Arguments &arguments,
                            int64_t scratch = 0) {
    const TokenTiles tiles = tilesOf(result);
    if (tiles.isTiled())
      scratch = std::max(scratch, quantizedFloats(widthOf(result), 1));
    Quantized constants;
    constants.tiles = tiles;
    constants.scratch = Length(scratch);
    return call<Quantized>(arguments, constants);
  }

  /// The tokens of `activations` that lie in tiles, as the products need them
  /// that read the activations. None do where these need different layouts.
  TokenTiles tilesOf(mlir::Value activations) const;

  OpId id() { return OpId(op.getPlanAttr().getId()); }
  CountId count() {
    return CountId(
        *indexOf(op->getParentOfType<mlir::func::FuncOp>(), runsOn(op)));
  }
  /// The part that the op reads as its weight `i`; absent if there are fewer.
  WeightPlace part(size_t i) {
    const mlir::ArrayAttr parts = op.getPackedAttr();
    return parts && i < parts.size()
               ? facts.partAt(mlir::cast<mlir::FlatSymbolRefAttr>(parts[i]))
               : WeightPlace{ImageId(0), WeightOffset(-1)};
  }

  // What visitFields gives.
  void add(llvm::StringRef name, mlir::Attribute value) {
    fields.emplace_back(builder.getStringAttr(name), value);
  }
  template <typename Kind> void add(llvm::StringRef name, Number<Kind> value) {
    add(name, builder.getI64IntegerAttr(value));
  }
  void add(llvm::StringRef name, float value) {
    add(name, builder.getF32FloatAttr(value));
  }
  void add(llvm::StringRef name, const WeightPlace &place) {
    add((name + ".image").str(), place.image);
    add(name, place.offset);
  }
  void add(llvm::StringRef name, const FloatPlace &place) {
    add(name, place.at);
    add((name + ".stride").str(), place.stride);
  }
  void add(llvm::StringRef name, const BlockPlace &place) {
    add(name, FloatPlace{place.at, place.stride});
    add((name + ".scales").str(), place.scales);
    add((name + ".sums").str(), place.sums);
  }
  /// The struct outside has the fields of the one inside, by their own names.
  void add(llvm::StringRef /*name*/, const LinearArguments &product) {
    visitFields(product, *this);
  }
  void add(llvm::StringRef name, const TokenTiles &tiles) {
    for (const auto &[field, value] : fieldsOf(tiles))
      add((name + "." + field).str(), builder.getI64IntegerAttr(value));
  }
  void addKernel(llvm::StringRef name, KernelOp kind) {
    const KernelInfo *kernel = kernelOf(op, kind);
    if (!kernel && next)
      kernel = kernelOf(next, kind);
    add(name, kernel ? attribute(kernel)
                     : mlir::TypeAttr::get(builder.getNoneType()));
  }
  void addProduct() {
    const ProductPlan plan = productOf(op);
    add("cached", plan.cached);
    add("least", plan.least);
    add("reused", plan.reused);
    add("together", plan.together);
    llvm::SmallVector<mlir::Attribute> tiles;
    for (const auto &[kernel, tokens] : plan.tiles) {
      llvm::SmallVector<mlir::Attribute> tile = {attribute(kernel)};
      for (const auto &[field, value] : fieldsOf(tokens))
        tile.push_back(builder.getI64IntegerAttr(value));
      tiles.push_back(builder.getArrayAttr(tile));
    }
    add("tiles", builder.getArrayAttr(tiles));
  }
  void addScratch(llvm::StringRef name, Length floats) {
    add(name, mlir::TypeAttr::get(
                  mlir::MemRefType::get({floats}, builder.getF32Type())));
  }

  /// The instance is called by this and its first kernel.
  std::string stem;

private:
  ProductPlan productOf(ForwardOp product) const;

  /// The fields of the struct, in their order.
  static std::array<std::pair<const char *, int64_t>, 4>
  fieldsOf(const TokenTiles &tiles) {
    return {{{"layout", tiles.layout},
             {"multiple", tiles.multiple},
             {"least", tiles.least},
             {"rest", tiles.rest}}};
  }

  mlir::Attribute attribute(const KernelInfo *kernel) {
    if (firstKernel.empty())
      firstKernel = kernel->name;
    return KernelAttr::get(builder.getContext(), kernel);
  }

  const CallFacts &facts;
  ForwardOp op, next;
  mlir::Builder builder;
  std::string firstKernel;
  StructFields fields;
};

inline FloatPlace floatPlaceOf(mlir::Value value) {
  const BufferAttr buffer = bufferOf(value);
  return {ArenaOffset(buffer.getOffset()), Stride(buffer.getStride())};
}

/// The place of `value`, which may be absent.
inline FloatPlace optionalPlaceOf(mlir::Value value) {
  return value ? floatPlaceOf(value) : FloatPlace{ArenaOffset(-1), Stride(0)};
}

inline BlockPlace blockPlaceOf(mlir::Value value) {
  const BufferAttr buffer = bufferOf(value);
  return {ArenaOffset(buffer.getOffset()), Stride(buffer.getStride()),
          ArenaOffset(buffer.getScales()), ArenaOffset(buffer.getSums())};
}

inline Length lengthOf(mlir::Value value) { return Length(widthOf(value)); }

} // namespace qwen

#endif // QWEN_LIB_DIALECT_CALLOF_H
