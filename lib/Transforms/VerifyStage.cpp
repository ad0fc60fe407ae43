//===- VerifyStage.cpp - What each stage promises -------------------------===//

#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Transforms/Passes.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace qwen;

namespace qwen {
#define GEN_PASS_DEF_VERIFYSTAGE
#include "qwen/Transforms/Passes.h.inc"
} // namespace qwen

std::string_view qwen::stageName(Stage stage) {
  switch (stage) {
  case Stage::Graph:
    return "graph";
  case Stage::Quantized:
    return "quantized";
  case Stage::Packed:
    return "packed";
  case Stage::Calls:
    return "calls";
  }
  __builtin_unreachable();
}

std::optional<Stage> qwen::parseStage(std::string_view name) {
  for (Stage stage :
       {Stage::Graph, Stage::Quantized, Stage::Packed, Stage::Calls})
    if (name == stageName(stage))
      return stage;
  return std::nullopt;
}

namespace {
/// Checks one op at a time against what `stage` promises.
class Contract {
public:
  Contract(ModuleOp module, Stage stage) : symbols(module), stage(stage) {}

  LogicalResult verify(Operation *op) {
    if (stage == Stage::Graph)
      return verifyGraph(op);
    if (stage == Stage::Calls)
      return verifyCalls(op);
    if (failed(verifyQuantized(op)))
      return failure();
    return stage == Stage::Packed ? verifyPacked(op) : success();
  }

private:
  std::string name() const { return std::string(stageName(stage)); }

  LogicalResult verifyGraph(Operation *op);
  LogicalResult verifyQuantized(Operation *op);
  LogicalResult verifyProduct(Operation *op, Value input, ArrayAttr weights);
  LogicalResult verifyPacked(Operation *op);
  LogicalResult verifyCalls(Operation *op);

  /// `op` must not be there: `pass` removes it.
  LogicalResult refuse(Operation *op, StringRef pass) {
    return op->emitOpError() << "is not a part of stage " << name() << "; run "
                             << pass << " first";
  }
  /// `op` needs `what`, which `pass` gives.
  LogicalResult lacks(Operation *op, StringRef what, StringRef pass) {
    return op->emitOpError() << "has no " << what << " in stage " << name()
                             << "; run " << pass << " first";
  }

  SymbolTable symbols;
  Stage stage;
};
} // namespace

LogicalResult Contract::verifyGraph(Operation *op) {
  if (isa<PackedOp, QuantizeOp, AppendOp>(op) || op->hasAttr("plan"))
    return op->emitOpError()
           << "belongs to a later stage than graph; start from an imported "
              "module";
  return success();
}

LogicalResult Contract::verifyProduct(Operation *op, Value input,
                                      ArrayAttr weights) {
  const bool quantizedRows = getElementTypeOrSelf(input.getType()).isInteger(8);
  for (auto symbol : weights.getAsRange<FlatSymbolRefAttr>()) {
    auto weight = symbols.lookup<WeightOp>(symbol.getValue());
    if (!weight || !weight.getFormat())
      continue; // Said at the weight.
    const WeightFormat format = weight.getFormat()->getValue();
    if (quantizedRows != isQuantized(format))
      return op->emitOpError()
             << "reads " << (quantizedRows ? "quantized" : "f32")
             << " rows when weight " << symbol << " is "
             << weightFormatName(format) << "; run qwen-quantize first";
  }
  return success();
}

LogicalResult Contract::verifyQuantized(Operation *op) {
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case<AddBiasOp, AddOp>(
          [&](auto o) { return refuse(o, "qwen-fuse-epilogues"); })
      .Case<RopeOp>([&](auto o) { return refuse(o, "qwen-fuse-attention"); })
      .Case<RmsNormOp>([&](RmsNormOp o) {
        return o.getHeadDim() ? refuse(o, "qwen-fuse-attention") : success();
      })
      .Case<AttentionOp>([&](AttentionOp o) {
        return o.getKeys()
                   ? lacks(o, "qwen.append of its own", "qwen-fuse-attention")
                   : success();
      })
      .Case<WeightOp>([&](WeightOp o) {
        return o.getFormat() ? success() : lacks(o, "format", "qwen-quantize");
      })
      .Case<LinearOp>([&](LinearOp o) {
        return verifyProduct(o, o.getInput(), o.getWeightsAttr());
      })
      .Case<LmHeadOp>([&](LmHeadOp o) {
        return verifyProduct(o, o.getInput(),
                             Builder(o).getArrayAttr(o.getWeightAttr()));
      })
      .Default(success());
}

LogicalResult Contract::verifyPacked(Operation *op) {
  // What each op must have by now, by the names of the attributes.
  SmallVector<StringAttr> kernels;
  SmallVector<FlatSymbolRefAttr> parts;
  llvm::TypeSwitch<Operation *>(op)
      .Case<EmbeddingOp, RmsNormOp>([&](auto o) {
        kernels = {o.getKernelAttr()};
        parts = {o.getWeightAttr()};
      })
      .Case<RopeTableOp, SwiGluOp, QuantizeOp>(
          [&](auto o) { kernels = {o.getKernelAttr()}; })
      .Case<LinearOp>([&](LinearOp o) {
        kernels = {o.getGemvAttr(), o.getGemmAttr()};
        parts = {o.getPackedAttr()};
        if (o.getBias())
          parts.push_back(o.getPackedBiasAttr());
      })
      .Case<LmHeadOp>([&](LmHeadOp o) {
        kernels = {o.getGemvAttr(), o.getGemmAttr(), o.getCheckKernelAttr()};
        parts = {o.getPackedAttr()};
      })
      .Case<AppendOp>([&](AppendOp o) {
        kernels = {o.getRopeKernelAttr(), o.getAppendKKernelAttr(),
                   o.getAppendVKernelAttr()};
        if (o.getNorm())
          parts = {o.getNormAttr()};
      })
      .Case<AttentionOp>([&](AttentionOp o) {
        kernels = {o.getRopeKernelAttr(),   o.getScoresKernelAttr(),
                   o.getValuesKernelAttr(), o.getSoftmaxKernelAttr(),
                   o.getMergeKernelAttr(),  o.getFinishKernelAttr()};
        if (o.getNorm())
          parts = {o.getNormAttr()};
      });
  if (kernels.empty())
    return success();
  if (llvm::is_contained(kernels, StringAttr()))
    return lacks(op, "kernel", "qwen-select-kernels");
  for (FlatSymbolRefAttr part : parts)
    if (!part || !symbols.lookup<PackedOp>(part.getValue()))
      return lacks(op, "packed weights", "qwen-pack");
  if (auto table = dyn_cast<RopeTableOp>(op); table && !table.getFrequencies())
    return lacks(op, "frequencies in the weight image", "qwen-pack");
  if (!op->hasAttr("plan"))
    return lacks(op, "plan", "qwen-plan");
  return success();
}

LogicalResult Contract::verifyCalls(Operation *op) {
  if (isa_and_nonnull<QwenDialect>(op->getDialect()) &&
      !isa<WeightOp, PackedOp>(op))
    return refuse(op, "qwen-lower");
  return success();
}

namespace {
struct VerifyStage final : qwen::impl::VerifyStageBase<VerifyStage> {
  using VerifyStageBase::VerifyStageBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    Contract contract(module, stage);
    const WalkResult result = module.walk(
        [&](Operation *op) { return WalkResult(contract.verify(op)); });
    if (result.wasInterrupted() || failed(verifyModule()))
      return signalPassFailure();
    const std::string_view name = stageName(stage);
    module->setAttr(
        kStageAttr,
        StringAttr::get(&getContext(), StringRef(name.data(), name.size())));
  }

private:
  /// Attributes of the module that the stage must have.
  LogicalResult verifyModule() {
    ModuleOp module = getOperation();
    if (!module.lookupSymbol<func::FuncOp>(kForwardName))
      return module.emitError()
             << "the module has no function @" << kForwardName;
    auto needs = [&](StringRef attribute, StringRef pass) {
      if (module->hasAttr(attribute))
        return success();
      return LogicalResult(module.emitError()
                           << "the module has no " << attribute << "; run "
                           << pass << " first");
    };
    if (stage == Stage::Graph)
      return success();
    if (failed(needs(kKvFormatAttr, "qwen-quantize")))
      return failure();
    if (stage == Stage::Quantized)
      return success();
    return success(succeeded(needs(kWeightBytesAttr, "qwen-pack")) &&
                   succeeded(needs(kArenaBytesAttr, "qwen-plan")));
  }
};
} // namespace
