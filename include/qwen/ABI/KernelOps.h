//===- KernelOps.h - The kinds of kernels as data ---------------*- C++ -*-===//
//
// KernelOps.def expanded into enumerators, facts and types.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_ABI_KERNELOPS_H
#define QWEN_ABI_KERNELOPS_H

#include "qwen/ABI/Blocks.h"
#include "qwen/ABI/KernelABI.h"
#include "qwen/ABI/KvFormats.h"

#include <optional>
#include <span>
#include <type_traits>

namespace qwen {

/// What a kernel computes.
enum class KernelOp : uint8_t {
#define QWEN_KERNEL_OP(Op, ...) Op,
#include "qwen/ABI/KernelOps.def"
};

/// What makes kernels: the emitters of products in MLIR, Halide, or Clang from
/// C++.
enum class KernelProvider : uint8_t { MLIR, Halide, Cpp };

/// Format of the operand that a kernel reads from the image or the cache.
enum class KernelFormat : uint8_t {
  None,
#define QWEN_CACHE_FORMAT(Id, ...) Id,
#include "qwen/ABI/KvFormats.def"
#define QWEN_WEIGHT_FORMAT(Id, ...) Id,
#include "qwen/ABI/WeightFormats.def"
};
/// The first row of WeightFormats.def.
inline constexpr int kFirstWeightFormat = static_cast<int>(KernelFormat::F32);

constexpr KernelFormat kernelFormat(WeightFormat format) {
  return static_cast<KernelFormat>(static_cast<int>(format) +
                                   kFirstWeightFormat);
}
static_assert(WeightFormat{} == WeightFormat::F32);
constexpr KernelFormat kernelFormat(KvFormat format) {
  constexpr KernelFormat kFormats[] = {
#define QWEN_KV_FORMAT(Id, ...) KernelFormat::Id,
#include "qwen/ABI/KvFormats.def"
  };
  return kFormats[static_cast<size_t>(format)];
}

/// The format of the weights that a kernel reads; none if it reads no matrix of
/// the image.
std::optional<WeightFormat> weightFormat(KernelFormat format);

/// The format of keys and values that a kernel reads; none if no cache has it.
constexpr std::optional<KvFormat> kvFormat(KernelFormat format) {
  for (KvFormat kv : kKvFormats)
    if (kernelFormat(kv) == format)
      return kv;
  return std::nullopt;
}

/// A set of formats: a bit for each KernelFormat.
using FormatSet = uint32_t;
constexpr FormatSet setOf(KernelFormat format) {
  return FormatSet{1} << static_cast<unsigned>(format);
}
/// The formats of weights with blocks in [least, most]; floats have 0.
constexpr FormatSet setOfBlocks(int64_t least, int64_t most) {
  FormatSet set = 0;
  for (WeightFormat format : kWeightFormats)
    if (weightBlock(format) >= least && weightBlock(format) <= most)
      set |= setOf(kernelFormat(format));
  return set;
}
/// The formats of keys and values in floats, or in integers.
constexpr FormatSet setOfCaches(bool isFloat) {
  FormatSet set = 0;
  for (KvFormat format : kKvFormats)
    if (layoutOf(format).isFloat() == isFloat)
      set |= setOf(kernelFormat(format));
  return set;
}
/// The sets that KernelOps.def and Schedules.def name.
namespace formats {
enum : FormatSet {
  Nothing = setOf(KernelFormat::None),
#define QWEN_CACHE_FORMAT(Id, ...) Id = setOf(KernelFormat::Id),
#include "qwen/ABI/KvFormats.def"
#define QWEN_WEIGHT_FORMAT(Id, ...) Id = setOf(KernelFormat::Id),
#include "qwen/ABI/WeightFormats.def"
  Floats = setOfBlocks(0, 0),
  Narrow = setOfBlocks(1, kActivationBlock - 1),
  Wide = setOfBlocks(kActivationBlock, kActivationBlock),
  Divided = setOfBlocks(kActivationBlock + 1, 2 * kActivationBlock),
  Integers = Narrow | Wide | Divided,
  Weights = Floats | Integers,
  CacheFloats = setOfCaches(true),
  CacheIntegers = setOfCaches(false),
  Cache = CacheFloats | CacheIntegers,
};
} // namespace formats

/// Whether a product in `format` takes quantized activations.
constexpr bool isQuantized(KernelFormat format) {
  return (formats::Integers & setOf(format)) != 0;
}

/// What an integer parameter of a kernel is.
enum class SizeRole : uint8_t {
  Tokens,
  /// Values of a token, of a head or of half of one, slots of a page.
  Length,
  Stride,
  Panel,
  Queries,
  Slots,
  /// Experts of a token.
  Chosen,
  /// The number of one output, of one position or of one slot.
  Index,
};

namespace detail {
template <typename Result, typename... Parameters>
consteval size_t countIntegers(Result (*)(Parameters...)) {
  return (size_t{std::is_integral_v<Parameters>} + ...);
}

using enum SizeRole;
template <KernelOp Op> struct Signature;
#define QWEN_LIST(...) __VA_ARGS__
#define QWEN_KERNEL_OP(Op, Function, Provider, Reads, Sizes, ...)              \
  template <> struct Signature<KernelOp::Op> {                                 \
    using Fn = Op##Fn;                                                         \
    static constexpr SizeRole kSizes[] = {QWEN_LIST Sizes};                    \
    static_assert(std::size(kSizes) ==                                         \
                  countIntegers(static_cast<Fn *>(nullptr)));                  \
  };
#include "qwen/ABI/KernelOps.def"
#undef QWEN_LIST
} // namespace detail

/// A row of KernelOps.def.
struct KernelOpInfo {
  KernelProvider provider;
  /// Formats of the operand from the image or the cache.
  FormatSet reads;
  /// What the integer parameters are, in order.
  std::span<const SizeRole> sizes;
};
inline constexpr KernelOpInfo kKernelOpInfos[] = {
#define QWEN_KERNEL_OP(Op, Function, Provider, Reads, ...)                     \
  {KernelProvider::Provider, formats::Reads,                                   \
   detail::Signature<KernelOp::Op>::kSizes},
#include "qwen/ABI/KernelOps.def"
};
constexpr const KernelOpInfo &infoOf(KernelOp op) {
  return kKernelOpInfos[static_cast<size_t>(op)];
}

/// The C signature of a kind.
template <KernelOp Op> using KernelFn = typename detail::Signature<Op>::Fn;

/// Calls visitor.operator()<Op>() for the kind `op`.
template <typename Visitor>
constexpr decltype(auto) visitKernelOp(KernelOp op, Visitor &&visitor) {
  switch (op) {
#define QWEN_KERNEL_OP(Op, ...)                                                \
  case KernelOp::Op:                                                           \
    return visitor.template operator()<KernelOp::Op>();
#include "qwen/ABI/KernelOps.def"
  }
  __builtin_unreachable();
}

/// The kind of a product with a matrix in `format`.
constexpr KernelOp linearOp(KernelFormat format) {
  return isQuantized(format) ? KernelOp::LinearQ8 : KernelOp::LinearF32;
}
constexpr bool isLinear(KernelOp op) {
  return op == KernelOp::LinearF32 || op == KernelOp::LinearQ8;
}

} // namespace qwen

#endif // QWEN_ABI_KERNELOPS_H
