//===- Quantize.cpp - Formats of weights and activations ------------------===//

#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Transforms/Passes.h"

using namespace mlir;
using namespace qwen;

namespace qwen {
#define GEN_PASS_DEF_QUANTIZE
#include "qwen/Transforms/Passes.h.inc"
} // namespace qwen

namespace {
struct Quantize final : qwen::impl::QuantizeBase<Quantize> {
  using QuantizeBase::QuantizeBase;
  void runOnOperation() override {}
};
} // namespace
