//===- KernelTable.h - The kernel table as data -----------------*- C++ -*-===//
//
// Kernels.def as an array, and selection over it.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_ABI_KERNELTABLE_H
#define QWEN_ABI_KERNELTABLE_H

#include "qwen/ABI/Isas.h"
#include "qwen/ABI/KernelOps.h"

#include <span>
#include <string_view>

namespace qwen {

/// A kernel: one row of the table.
struct KernelInfo {
  std::string_view name;
  KernelOp op;
  KernelFormat format;
  /// The tokens of a call must be a multiple of this number; AMX takes any.
  int64_t m;
  KernelIsa isa;

  constexpr KernelProvider provider() const { return infoOf(op).provider; }
  Arch arch() const { return isaInfo(isa).arch; }
  CpuFeatureSet features() const { return isaInfo(isa).features; }
};

/// All kernels, in the order of Kernels.def.
std::span<const KernelInfo> kernelTable();

/// The kernel of that name, or null.
const KernelInfo *findKernel(std::string_view name);

/// The best kernel for `op` in `format` with m == `gemm ? >1 : 1` that
/// `features` can run, or null. Features name an architecture by containing its
/// least ones.
const KernelInfo *selectKernel(KernelOp op, KernelFormat format,
                               CpuFeatureSet features, bool gemm = false);

} // namespace qwen

#endif // QWEN_ABI_KERNELTABLE_H
