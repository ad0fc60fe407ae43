//===- KernelVerifier.cpp - Kernels against their reference ---------------===//

#include "qwen/Verify/KernelVerifier.h"

#include "Cases.h"

#include "qwen/Numerics/Kernels.h"

using namespace qwen;

int64_t KernelVerifier::verify(const KernelInfo &kernel, void *function) {
  verify::Cases cases(sizes, started);
  visitKernelOp(kernel.op, [&]<KernelOp Op>() {
    checkKernel(cases, verify::Compared<Op>{
                           kernel, reinterpret_cast<KernelFn<Op> *>(function),
                           numerics::reference<Op>(kernel.format)});
  });
  return cases.count();
}
