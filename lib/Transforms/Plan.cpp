//===- Plan.cpp - Order, barriers and buffers -----------------------------===//

#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Transforms/Passes.h"

using namespace mlir;
using namespace qwen;

namespace qwen {
#define GEN_PASS_DEF_PLAN
#include "qwen/Transforms/Passes.h.inc"
} // namespace qwen

namespace {
struct Plan final : qwen::impl::PlanBase<Plan> {
  using PlanBase::PlanBase;
  void runOnOperation() override {}
};
} // namespace
