//===- SelectKernels.cpp - The kernels of each op -------------------------===//

#include "qwen/ABI/KernelTable.h"
#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Transforms/Passes.h"

using namespace mlir;
using namespace qwen;

namespace qwen {
#define GEN_PASS_DEF_SELECTKERNELS
#include "qwen/Transforms/Passes.h.inc"
} // namespace qwen

/// The format of the matrix or of the cache that `op` reads; f32 of an op that
/// reads neither.
static FailureOr<KernelFormat> formatOf(ForwardOp op,
                                        const SymbolTable &symbols) {
  if (lacksFormat(op))
    return op->emitOpError() << "has no format of keys and values; run "
                                "qwen-quantize first";
  if (const auto use = op.getCacheUse(); use && use->format)
    return kernelFormat(*use->format);
  for (const WeightUse &use : op.getWeightUses()) {
    if (use.role == WeightRole::Vector)
      continue;
    auto symbol = cast<FlatSymbolRefAttr>(use.segments[0]);
    const auto format = symbols.lookup<WeightOp>(symbol.getValue()).getFormat();
    if (format)
      return kernelFormat(format->getValue());
    op->emitOpError() << "reads " << symbol
                      << ", which has no format; run qwen-quantize first";
    return failure();
  }
  return KernelFormat::F32;
}

/// Gives `op` the best kernel of each kind that it uses.
static LogicalResult select(ForwardOp op, const SymbolTable &symbols,
                            CpuFeatureSet features) {
  const FailureOr<KernelFormat> format = formatOf(op, symbols);
  if (failed(format))
    return failure();
  SmallVector<Attribute> kernels;
  for (const KernelUse &use : op.getKernelUses()) {
    const KernelInfo *kernel = selectKernel(
        use.kind,
        infoOf(use.kind).reads == formats::Nothing ? KernelFormat::None
                                                   : *format,
        features, use.gemm);
    if (!kernel)
      return op->emitOpError()
             << "finds no kernel that runs on a target with "
             << (features.empty() ? "no known features" : toString(features));
    kernels.push_back(KernelAttr::get(op->getContext(), kernel));
  }
  op.setKernelsAttr(ArrayAttr::get(op->getContext(), kernels));
  return success();
}

namespace {
struct SelectKernels final : qwen::impl::SelectKernelsBase<SelectKernels> {
  using SelectKernelsBase::SelectKernelsBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto target = module->getAttrOfType<FeaturesAttr>(kTargetFeaturesAttr);
    if (!target) {
      module.emitError() << "the module has no " << kTargetFeaturesAttr
                         << ", the CPU features of the target";
      return signalPassFailure();
    }
    const SymbolTable symbols(module);
    const WalkResult result = module.walk([&](ForwardOp op) {
      return WalkResult(select(op, symbols, target.getValue()));
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }
};
} // namespace
