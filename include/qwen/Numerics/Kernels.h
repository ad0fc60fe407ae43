//===- Kernels.h - The kernels in plain C++ ---------------------*- C++ -*-===//
//
// A reference function for each kind of kernel (ABI/KernelOps.def) and format
// of its operand. They define the results of docs/numerics.md: a generated
// kernel is correct if its output equals theirs, bit for bit. Products take any
// number of tokens.
//
// If a function returns 1 (a value is not finite), its other outputs are
// unspecified.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_NUMERICS_KERNELS_H
#define QWEN_NUMERICS_KERNELS_H

#include "qwen/ABI/KernelOps.h"

namespace qwen::numerics {

/// The reference of a kind. `format` is one that the kind reads.
template <KernelOp Op>
KernelFn<Op> *reference(KernelFormat format = KernelFormat::None);

// QWEN_REFERENCE_<formats that a kind reads>(Without, With) is `Without` where
// it reads no format.
#define QWEN_REFERENCE_Nothing(Without, With) Without
#define QWEN_REFERENCE_Floats(Without, With) With
#define QWEN_REFERENCE_Integers(Without, With) With
#define QWEN_REFERENCE_Weights(Without, With) With
#define QWEN_REFERENCE_Cache(Without, With) With
#define QWEN_REFERENCE_CacheIntegers(Without, With) With

// The references of kinds that read no format have names.
#define QWEN_KERNEL_OP(Op, Function, Provider, Reads, ...)                     \
  QWEN_REFERENCE_##Reads(Op##Fn Function;, )
#include "qwen/ABI/KernelOps.def"

} // namespace qwen::numerics

#endif // QWEN_NUMERICS_KERNELS_H
