//===- KernelTable.h - The kernel table as data -----------------*- C++ -*-===//
//
// Kernels.def expanded into rows, and selection over them.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_ABI_KERNELTABLE_H
#define QWEN_ABI_KERNELTABLE_H

#include "qwen/ABI/Blocks.h"
#include "qwen/ABI/Isas.h"

#include <optional>
#include <span>
#include <string_view>

namespace qwen {

/// What a kernel computes. Signatures are in KernelABI.h, results in
/// docs/numerics.md.
enum class KernelOp : uint8_t {
  LinearF32,
  LinearQ8,
  AttentionScores,
  AttentionValues,
  Embed,
  RopeTable,
  RmsNormF32,
  RmsNormQ8,
  QuantizeQ8,
  SwiGluF32,
  SwiGluQ8,
  Rope,
  NormRope,
  AppendK,
  AppendV,
  SoftmaxPage,
  MergePage,
  FinishAttention,
  CheckFinite,
};

/// Format of the operand that a kernel reads from the image or the cache.
enum class KernelFormat : uint8_t {
  None,
  F16,
#define QWEN_WEIGHT_FORMAT(Id, ...) Id,
#include "qwen/ABI/WeightFormats.def"
};

/// Who generates the kernel.
enum class KernelProvider : uint8_t { MLIR, Halide };

/// One row of the table.
struct KernelInfo {
  std::string_view name;
  KernelOp op;
  KernelFormat format;
  /// Rows of activations a call must be a multiple of.
  int64_t m;
  KernelIsa isa;
  KernelProvider provider;

  Arch arch() const { return isaInfo(isa).arch; }
  CpuFeatureSet features() const { return isaInfo(isa).features; }
};

/// All rows, in the order of Kernels.def.
std::span<const KernelInfo> kernelTable();

/// The kernel of that name, or null.
const KernelInfo *findKernel(std::string_view name);

/// The best kernel for `op` in `format` with m == `gemm ? >1 : 1` that
/// `features` can run, or null. Features name an architecture by containing its
/// least ones.
const KernelInfo *selectKernel(KernelOp op, KernelFormat format,
                               CpuFeatureSet features, bool gemm = false);

constexpr KernelFormat kernelFormat(WeightFormat format) {
  switch (format) {
#define QWEN_WEIGHT_FORMAT(Id, ...)                                            \
  case WeightFormat::Id:                                                       \
    return KernelFormat::Id;
#include "qwen/ABI/WeightFormats.def"
  }
  __builtin_unreachable();
}
/// The format of weights that a kernel reads; none where it reads no matrix of
/// the image.
std::optional<WeightFormat> weightFormat(KernelFormat format);
/// Whether a product in `format` takes quantized activations.
inline bool isQuantized(KernelFormat format) {
  const std::optional<WeightFormat> weights = weightFormat(format);
  return weights && isQuantized(*weights);
}
/// The kind of a product with a matrix in `format`.
inline KernelOp linearOp(KernelFormat format) {
  return isQuantized(format) ? KernelOp::LinearQ8 : KernelOp::LinearF32;
}
constexpr bool isLinear(KernelOp op) {
  return op == KernelOp::LinearF32 || op == KernelOp::LinearQ8;
}

constexpr KernelFormat kernelFormat(KvFormat format) {
  return format == KvFormat::F32 ? KernelFormat::F32 : KernelFormat::F16;
}

} // namespace qwen

#endif // QWEN_ABI_KERNELTABLE_H
