//===- SelectKernels.cpp - Rows of the kernel table for each op -----------===//

#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Transforms/Passes.h"

using namespace mlir;
using namespace qwen;

namespace qwen {
#define GEN_PASS_DEF_SELECTKERNELS
#include "qwen/Transforms/Passes.h.inc"
} // namespace qwen

namespace {
struct SelectKernels final : qwen::impl::SelectKernelsBase<SelectKernels> {
  using SelectKernelsBase::SelectKernelsBase;
  void runOnOperation() override {}
};
} // namespace
