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
    auto forward = dyn_cast<ForwardOp>(op);
    return stage == Stage::Packed && forward ? verifyPacked(forward)
                                             : success();
  }

private:
  LogicalResult verifyGraph(Operation *op);
  LogicalResult verifyQuantized(Operation *op);
  LogicalResult verifyProduct(ForwardOp op);
  LogicalResult verifyPacked(ForwardOp op);
  LogicalResult verifyCalls(Operation *op);

  /// `op` must not be there: `pass` removes it.
  LogicalResult refuse(Operation *op, StringRef pass) {
    return op->emitOpError()
           << "is not a part of stage " << stringifyStage(stage) << "; run "
           << pass << " first";
  }
  /// `op` needs `what`, which `pass` gives.
  LogicalResult lacks(Operation *op, StringRef what, StringRef pass) {
    return op->emitOpError()
           << "has no " << what << " in stage " << stringifyStage(stage)
           << "; run " << pass << " first";
  }

  SymbolTable symbols;
  Stage stage;
};
} // namespace

LogicalResult Contract::verifyGraph(Operation *op) {
  auto forward = dyn_cast<ForwardOp>(op);
  const bool isFused =
      llvm::TypeSwitch<Operation *, bool>(op)
          .Case<AppendOp, AttentionOp>([](auto o) { return bool(o.getCos()); })
          .Default(false);
  if (isFused || isa<PackedOp, QuantizeOp>(op) ||
      (forward && forward.getPlanAttr()))
    return op->emitOpError()
           << "belongs to a later stage than graph; start from an imported "
              "module";
  return success();
}

/// Checks that `op` reads activations of the type that its matrices require.
LogicalResult Contract::verifyProduct(ForwardOp op) {
  for (const WeightUse &use : op.getWeightUses()) {
    if (use.role != WeightRole::Matrix)
      continue;
    const bool quantized = isInBlocks(op.getProductInput()->get().getType());
    for (auto symbol : use.segments.getAsRange<FlatSymbolRefAttr>()) {
      const auto format =
          symbols.lookup<WeightOp>(symbol.getValue()).getFormat();
      if (format && quantized != isQuantized(format->getValue()))
        return op->emitOpError()
               << "reads " << (quantized ? "quantized" : "f32")
               << " activations when weight " << symbol << " is "
               << weightFormatName(format->getValue())
               << "; run qwen-quantize first";
    }
  }
  return success();
}

LogicalResult Contract::verifyQuantized(Operation *op) {
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case<AddBiasOp, AddOp>(
          [&](auto o) { return refuse(o, "qwen-fuse-epilogues"); })
      .Case<RopeOp>([&](auto o) { return refuse(o, "qwen-fuse-attention"); })
      .Case<WeightOp>([&](WeightOp o) {
        return o.getFormat() ? success() : lacks(o, "format", "qwen-quantize");
      })
      .Case<ForwardOp>([&](ForwardOp o) {
        return lacksFormat(o) ? lacks(o, "format", "qwen-quantize")
                              : verifyProduct(o);
      })
      .Default(success());
}

LogicalResult Contract::verifyPacked(ForwardOp op) {
  if (!op.getKernelsAttr())
    return lacks(op, "kernels", "qwen-select-kernels");
  if (!op.getPackedAttr() && !op.getWeightUses().empty())
    return lacks(op, "packed weights", "qwen-pack");
  return op.getPlanAttr() ? success() : lacks(op, "plan", "qwen-plan");
}

LogicalResult Contract::verifyCalls(Operation *op) {
  if (isa_and_nonnull<QwenDialect>(op->getDialect()) &&
      !isa<ImageOp, WeightOp, PackedOp, StructOp>(op))
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
    module->setAttr(kStageAttr,
                    StringAttr::get(&getContext(), stringifyStage(stage)));
  }

private:
  /// Attributes of the module and its programs that the stage must have.
  LogicalResult verifyModule() {
    ModuleOp module = getOperation();
    const SmallVector<func::FuncOp> programs = programsOf(module);
    if (programs.empty())
      return module.emitError()
             << "the module has no program, which is a function with a body";
    auto needs = [](Operation *op, const Twine &what, StringRef attribute,
                    StringRef pass) {
      if (op->hasAttr(attribute))
        return success();
      return LogicalResult(op->emitError() << what << " has no " << attribute
                                           << "; run " << pass << " first");
    };
    if (stage == Stage::Graph)
      return success();
    if (stage == Stage::Quantized)
      return success();
    if (failed(needs(module, "the module", kWeightBytesAttr, "qwen-pack")))
      return failure();
    return success(llvm::all_of(programs, [&](func::FuncOp program) {
      return succeeded(needs(program, "program @" + program.getSymName(),
                             kArenaBytesAttr, "qwen-plan"));
    }));
  }
};
} // namespace
