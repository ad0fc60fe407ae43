//===- FuseProjections.cpp - Products that share their input --------------===//

#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Transforms/Passes.h"

using namespace mlir;
using namespace qwen;

namespace qwen {
#define GEN_PASS_DEF_FUSEPROJECTIONS
#include "qwen/Transforms/Passes.h.inc"
} // namespace qwen

namespace {
struct FuseProjections final
    : qwen::impl::FuseProjectionsBase<FuseProjections> {
  using FuseProjectionsBase::FuseProjectionsBase;
  void runOnOperation() override {}
};
} // namespace
