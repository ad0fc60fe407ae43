//===- FuseEpilogues.cpp - Biases and residuals of products ---------------===//

#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Transforms/Passes.h"

using namespace mlir;
using namespace qwen;

namespace qwen {
#define GEN_PASS_DEF_FUSEEPILOGUES
#include "qwen/Transforms/Passes.h.inc"
} // namespace qwen

namespace {
struct FuseEpilogues final : qwen::impl::FuseEpiloguesBase<FuseEpilogues> {
  using FuseEpiloguesBase::FuseEpiloguesBase;
  void runOnOperation() override {}
};
} // namespace
