//===- SelectKernels.cpp - Rows of the kernel table for each op -----------===//

#include "qwen/ABI/KernelTable.h"
#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Transforms/Passes.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace qwen;

namespace qwen {
#define GEN_PASS_DEF_SELECTKERNELS
#include "qwen/Transforms/Passes.h.inc"
} // namespace qwen

static bool isQuantized(Value rows) {
  return getElementTypeOrSelf(rows.getType()).isInteger(8);
}

/// Whether `rows` are what the output's product reads.
static bool feedsLmHead(Value rows) {
  return llvm::any_of(rows.getUsers(), [](Operation *user) {
    if (auto quantize = dyn_cast<QuantizeOp>(user))
      return feedsLmHead(quantize.getResult());
    return isa<LmHeadOp>(user);
  });
}

namespace {
/// Sets the kernel attributes of ops.
class Selector {
public:
  Selector(ModuleOp module, CpuFeatureSet features, KvFormat kv)
      : symbols(module), features(features), kv(kernelFormat(kv)) {}

  LogicalResult select(Operation *op) {
    return llvm::TypeSwitch<Operation *, LogicalResult>(op)
        .Case([&](EmbeddingOp o) { return select(o); })
        .Case([&](RopeTableOp o) { return select(o); })
        .Case([&](RmsNormOp o) { return select(o); })
        .Case([&](LinearOp o) { return select(o); })
        .Case([&](SwiGluOp o) { return select(o); })
        .Case([&](QuantizeOp o) { return select(o); })
        .Case([&](AppendOp o) { return select(o); })
        .Case([&](AttentionOp o) { return select(o); })
        .Case([&](LmHeadOp o) { return select(o); })
        .Default(success());
  }

private:
  /// Sets `attribute` of `op` to the best row, or says that there is none.
  LogicalResult assign(Operation *op, StringAttr attribute, KernelOp kernelOp,
                       KernelFormat format = KernelFormat::None,
                       bool gemm = false) {
    const KernelInfo *row = selectKernel(kernelOp, format, features, gemm);
    if (!row)
      return op->emitOpError()
             << "finds no row of the kernel table for " << attribute
             << " that runs on a target with "
             << (features.empty() ? "no known features" : toString(features));
    op->setAttr(attribute,
                StringAttr::get(op->getContext(),
                                StringRef(row->name.data(), row->name.size())));
    return success();
  }

  FailureOr<KernelFormat> formatOf(Operation *op, FlatSymbolRefAttr symbol) {
    auto weight = symbols.lookup<WeightOp>(symbol.getValue());
    if (!weight) {
      op->emitOpError() << "has its weights packed before its kernel is "
                           "chosen; run qwen-select-kernels before qwen-pack";
      return failure();
    }
    if (!weight.getFormat()) {
      op->emitOpError() << "reads " << symbol
                        << ", which has no format; run qwen-quantize first";
      return failure();
    }
    return kernelFormat(weight.getFormat()->getValue());
  }

  template <typename ProductOp>
  LogicalResult selectProduct(ProductOp op, FlatSymbolRefAttr weight) {
    const FailureOr<KernelFormat> format = formatOf(op, weight);
    if (failed(format))
      return failure();
    const KernelOp kind = linearOp(*format);
    return success(succeeded(assign(op, op.getGemvAttrName(), kind, *format)) &&
                   succeeded(assign(op, op.getGemmAttrName(), kind, *format,
                                    /*gemm=*/true)));
  }

  LogicalResult select(EmbeddingOp op) {
    const FailureOr<KernelFormat> format = formatOf(op, op.getWeightAttr());
    if (failed(format))
      return failure();
    return assign(op, op.getKernelAttrName(), KernelOp::Embed, *format);
  }

  LogicalResult select(RopeTableOp op) {
    return assign(op, op.getKernelAttrName(), KernelOp::RopeTable);
  }

  LogicalResult select(RmsNormOp op) {
    if (feedsLmHead(op.getResult()) &&
        failed(assign(op, op.getHiddenKernelAttrName(), KernelOp::RmsNormF32)))
      return failure();
    return assign(op, op.getKernelAttrName(),
                  isQuantized(op.getResult()) ? KernelOp::RmsNormQ8
                                              : KernelOp::RmsNormF32);
  }

  LogicalResult select(LinearOp op) {
    return selectProduct(op, cast<FlatSymbolRefAttr>(op.getWeights()[0]));
  }

  LogicalResult select(SwiGluOp op) {
    return assign(op, op.getKernelAttrName(),
                  isQuantized(op.getResult()) ? KernelOp::SwiGluQ8
                                              : KernelOp::SwiGluF32);
  }

  LogicalResult select(QuantizeOp op) {
    return assign(op, op.getKernelAttrName(), KernelOp::QuantizeQ8);
  }

  LogicalResult select(AppendOp op) {
    return success(
        succeeded(assign(op, op.getRopeKernelAttrName(),
                         op.getNorm() ? KernelOp::NormRope : KernelOp::Rope)) &&
        succeeded(
            assign(op, op.getAppendKKernelAttrName(), KernelOp::AppendK, kv)) &&
        succeeded(
            assign(op, op.getAppendVKernelAttrName(), KernelOp::AppendV, kv)));
  }

  LogicalResult select(AttentionOp op) {
    return success(
        succeeded(assign(op, op.getRopeKernelAttrName(),
                         op.getNorm() ? KernelOp::NormRope : KernelOp::Rope)) &&
        succeeded(assign(op, op.getScoresKernelAttrName(),
                         KernelOp::AttentionScores, kv)) &&
        succeeded(assign(op, op.getValuesKernelAttrName(),
                         KernelOp::AttentionValues, kv)) &&
        succeeded(
            assign(op, op.getSoftmaxKernelAttrName(), KernelOp::SoftmaxPage)) &&
        succeeded(
            assign(op, op.getMergeKernelAttrName(), KernelOp::MergePage)) &&
        succeeded(assign(op, op.getFinishKernelAttrName(),
                         KernelOp::FinishAttention)));
  }

  LogicalResult select(LmHeadOp op) {
    if (failed(selectProduct(op, op.getWeightAttr())))
      return failure();
    return assign(op, op.getCheckKernelAttrName(), KernelOp::CheckFinite);
  }

  SymbolTable symbols;
  CpuFeatureSet features;
  KernelFormat kv;
};

struct SelectKernels final : qwen::impl::SelectKernelsBase<SelectKernels> {
  using SelectKernelsBase::SelectKernelsBase;

  void runOnOperation() override {
    const FailureOr<CpuFeatureSet> target = targetFeatures();
    auto kv = getOperation()->getAttrOfType<KvFormatAttr>(kKvFormatAttr);
    if (failed(target))
      return signalPassFailure();
    if (!kv) {
      getOperation().emitError()
          << "the module has no " << kKvFormatAttr
          << ", the format of the KV cache; run qwen-quantize first";
      return signalPassFailure();
    }
    Selector selector(getOperation(), *target, kv.getValue());
    const WalkResult result = getOperation().walk(
        [&](Operation *op) { return WalkResult(selector.select(op)); });
    if (result.wasInterrupted())
      signalPassFailure();
  }

private:
  /// The option's features or the module's.
  FailureOr<CpuFeatureSet> targetFeatures() {
    SmallVector<std::string> names(features.begin(), features.end());
    if (names.empty()) {
      auto module =
          getOperation()->getAttrOfType<ArrayAttr>(kTargetFeaturesAttr);
      if (!module) {
        getOperation().emitError()
            << "the module has no " << kTargetFeaturesAttr
            << ", the CPU features of the target";
        return failure();
      }
      for (StringAttr name : module.getAsRange<StringAttr>())
        names.push_back(name.str());
    }
    CpuFeatureSet set;
    for (const std::string &name : names) {
      const std::optional<CpuFeature> feature = parseFeature(name);
      if (!feature) {
        getOperation().emitError() << "unknown CPU feature '" << name << "'";
        return failure();
      }
      set.insert(*feature);
    }
    return set;
  }
};
} // namespace
