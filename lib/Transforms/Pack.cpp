//===- Pack.cpp - The weight image ----------------------------------------===//

#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Transforms/Passes.h"

using namespace mlir;
using namespace qwen;

namespace qwen {
#define GEN_PASS_DEF_PACK
#include "qwen/Transforms/Passes.h.inc"
} // namespace qwen

namespace {
struct Pack final : qwen::impl::PackBase<Pack> {
  using PackBase::PackBase;
  void runOnOperation() override {}
};
} // namespace
