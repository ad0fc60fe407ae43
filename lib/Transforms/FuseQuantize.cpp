//===- FuseQuantize.cpp - Quantization at the end of other ops ------------===//

#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Transforms/Passes.h"

using namespace mlir;
using namespace qwen;

namespace qwen {
#define GEN_PASS_DEF_FUSEQUANTIZE
#include "qwen/Transforms/Passes.h.inc"
} // namespace qwen

namespace {
struct FuseQuantize final : qwen::impl::FuseQuantizeBase<FuseQuantize> {
  using FuseQuantizeBase::FuseQuantizeBase;
  void runOnOperation() override {}
};
} // namespace
