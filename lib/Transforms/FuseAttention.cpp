//===- FuseAttention.cpp - Append, norms and rotations of attention -------===//

#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Transforms/Passes.h"

using namespace mlir;
using namespace qwen;

namespace qwen {
#define GEN_PASS_DEF_FUSEATTENTION
#include "qwen/Transforms/Passes.h.inc"
} // namespace qwen

namespace {
struct FuseAttention final : qwen::impl::FuseAttentionBase<FuseAttention> {
  using FuseAttentionBase::FuseAttentionBase;
  void runOnOperation() override {}
};
} // namespace
