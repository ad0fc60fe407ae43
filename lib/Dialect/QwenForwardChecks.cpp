//===- QwenForwardChecks.cpp - The checks that all ForwardOps share -------===//

#include "qwen/Dialect/QwenDialect.h"

#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace qwen;

//===----------------------------------------------------------------------===//
// Checks of kernels and plan
//===----------------------------------------------------------------------===//

const KernelInfo *qwen::kernelOf(ForwardOp op, KernelOp kind) {
  if (ArrayAttr kernels = op.getKernelsAttr())
    for (auto kernel : kernels.getAsRange<KernelAttr>())
      if (kernel.getInfo()->op == kind)
        return kernel.getInfo();
  return nullptr;
}

Value qwen::namedResult(func::FuncOp program, StringAttr name) {
  for (OpOperand &result : program.front().getTerminator()->getOpOperands())
    if (program.getResultAttrOfType<StringAttr>(result.getOperandNumber(),
                                                kNameAttr) == name)
      return result.get();
  return {};
}

static LogicalResult verifyKernels(ForwardOp op) {
  ArrayAttr kernels = op.getKernelsAttr();
  if (!kernels)
    return success();
  const SmallVector<KernelUse> uses = op.getKernelUses();
  if (kernels.size() != uses.size())
    return op->emitOpError() << "has " << kernels.size() << " kernels when "
                             << uses.size() << " is needed";
  for (auto [kernel, use] :
       llvm::zip_equal(kernels.getAsRange<KernelAttr>(), uses)) {
    const KernelInfo &info = *kernel.getInfo();
    if (info.op != use.kind || (info.m > 1) != use.gemm)
      return op->emitOpError() << "has kernel '" << info.name
                               << "', which computes something else";
  }
  return success();
}

/// A kernel of `op` that reads or writes another format than `format`, or null.
static const KernelInfo *kernelOfOther(ForwardOp op, KernelFormat format) {
  if (ArrayAttr kernels = op.getKernelsAttr())
    for (auto kernel : kernels.getAsRange<KernelAttr>()) {
      const KernelInfo *info = kernel.getInfo();
      if (info->format != KernelFormat::None && info->format != format)
        return info;
    }
  return nullptr;
}

/// Checks that the kernels of `op` know its keys and values.
static LogicalResult verifyCacheFormat(ForwardOp op) {
  const std::optional<CacheUse> use = op.getCacheUse();
  if (!use || !use->format)
    return success();
  const KernelInfo *other = kernelOfOther(op, kernelFormat(*use->format));
  if (!other)
    return success();
  return op->emitOpError() << "has kernel '" << other->name
                           << "' when keys and values are "
                           << kvFormatName(*use->format);
}

/// Checks the place of one result.
static LogicalResult verifyBuffer(ForwardOp op, BufferAttr buffer,
                                  Value result) {
  const int64_t offset = buffer.getOffset(), width = widthOf(result);
  if (op.getResultPlace() == ResultPlace::CallResult) {
    if (offset != -1)
      return op->emitOpError() << "offset of logits is " << offset
                               << " when -1 is needed: they are not in the "
                                  "arena";
  } else if (offset < 0) {
    return op->emitOpError()
           << "offset is " << offset << " when 0 or more is needed";
  }
  if (buffer.getStride() < width)
    return op->emitOpError() << "stride is " << buffer.getStride() << " when "
                             << width << " or more is needed";
  const bool quantized = isInBlocks(result.getType());
  if (quantized != (buffer.getScales() >= 0) ||
      quantized != (buffer.getSums() >= 0))
    return op->emitOpError()
           << "has a buffer with scales = " << buffer.getScales()
           << " and sums = " << buffer.getSums() << " for "
           << (quantized ? "quantized" : "f32") << " activations";
  return success();
}

//===----------------------------------------------------------------------===//
// Checks of counts
//===----------------------------------------------------------------------===//

/// Whether the first dimension of `type` counts tokens.
static bool countsTokens(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor && tensor.getRank() > 0 && tensor.isDynamicDim(0);
}

/// The types of `op` that count tokens.
static SmallVector<Type> countingTypes(Operation *op) {
  SmallVector<Type> types;
  llvm::copy_if(op->getOperandTypes(), std::back_inserter(types), countsTokens);
  llvm::copy_if(op->getResultTypes(), std::back_inserter(types), countsTokens);
  return types;
}

CountAttr qwen::runsOn(ForwardOp op) {
  const SmallVector<Type> types = countingTypes(op);
  return types.empty() ? CountAttr() : countOf(types.front());
}

LogicalResult qwen::detail::verifyCounts(Operation *op) {
  const SmallVector<Type> types = countingTypes(op);
  for (Type type : types)
    if (countOf(type) != countOf(types.front()))
      return op->emitOpError()
             << "has values that count " << nameOf(countOf(types.front()))
             << " and " << nameOf(countOf(type)) << " when one count is needed";
  return success();
}

/// Checks that `op` runs on tokens that it can find.
static LogicalResult verifyTokens(ForwardOp op) {
  for (OpOperand &operand : op->getOpOperands())
    if (isSelected(operand.get()) &&
        (operand.getOperandNumber() != 0 || !op.gathersTokens()))
      return op->emitOpError() << "gathers no wanted tokens; a norm does";
  auto program = dyn_cast<func::FuncOp>(op->getParentOp());
  if (!program || countingTypes(op).empty() ||
      runsOn(op) == tokensOfCall(program) || !op.readsCall())
    return success();
  return op->emitOpError() << "runs on " << nameOf(runsOn(op))
                           << " when only the tokens of the call, "
                           << nameOf(tokensOfCall(program))
                           << ", have ids, positions and sequences";
}

bool qwen::isSelected(Value value) {
  auto view = value.getDefiningOp<ViewOp>();
  return view && view.getJoinedTokens() == 1;
}

LogicalResult qwen::detail::verifyViewOp(ViewOp op) {
  if (op->getNumOperands() != 1 || op->getNumResults() != 1 ||
      !isFloatActivations(op->getOperand(0).getType()) ||
      !isFloatActivations(op->getResult(0).getType()))
    return op->emitOpError() << "is no view of activations in f32";
  const Value input = op->getOperand(0), result = op->getResult(0);
  const int64_t joined = op.getJoinedTokens();
  if (joined < 1 || widthOf(result) / joined != widthOf(input) ||
      widthOf(result) % joined != 0 ||
      (joined > 1 && widthOf(input) % kPanelOutputs != 0))
    return op->emitOpError()
           << "joins " << joined << " tokens of " << input.getType() << " to "
           << result.getType() << " when the product of whole panels is needed";
  auto program = dyn_cast<func::FuncOp>(op->getParentOp());
  if (joined > 1 || !program)
    return success();
  if (countOf(input) != tokensOfCall(program) ||
      nameOf(countOf(result)) != kWantedName)
    return op->emitOpError() << "selects " << nameOf(countOf(result)) << " of "
                             << nameOf(countOf(input)) << " when wanted of "
                             << nameOf(tokensOfCall(program)) << " is needed";
  return success();
}

LogicalResult qwen::detail::verifyForwardOp(ForwardOp op) {
  if (failed(verifyCounts(op)) || failed(verifyTokens(op)) ||
      failed(verifyKernels(op)) || failed(verifyCacheFormat(op)))
    return failure();
  const PlanAttr plan = op.getPlanAttr();
  if (!plan)
    return success();
  if (plan.getId() < 0)
    return op->emitOpError()
           << "id is " << plan.getId() << " when 0 or more is needed";
  const size_t count = plan.getBuffers().size();
  if (count != op->getNumResults())
    return op->emitOpError()
           << "has " << count << " buffers when " << op->getNumResults()
           << " is needed, one for each result";
  for (auto [buffer, result] :
       llvm::zip_equal(plan.getBuffers(), op->getResults()))
    if (failed(verifyBuffer(op, buffer, result)))
      return failure();
  return success();
}

//===----------------------------------------------------------------------===//
// Checks of weights
//===----------------------------------------------------------------------===//

LogicalResult qwen::detail::verifyWeight(Operation *op,
                                         SymbolTableCollection &symbols,
                                         FlatSymbolRefAttr symbol,
                                         ArrayRef<int64_t> shape) {
  auto weight = symbols.lookupNearestSymbolFrom<WeightOp>(op, symbol);
  if (!weight)
    return op->emitOpError()
           << "names " << symbol << ", which is not a qwen.weight";
  auto found = cast<RankedTensorType>(weight.getType());
  auto needed = RankedTensorType::get(shape, found.getElementType());
  if (succeeded(verifyCompatibleShape(found, needed)))
    return success();
  return op->emitOpError() << "weight " << symbol << " is " << found << " when "
                           << needed << " is needed";
}

/// Checks that the kernels of `op` read matrices in the format of `weight`.
static LogicalResult verifyFormat(ForwardOp op, WeightOp weight) {
  if (!weight.getFormat())
    return success();
  const WeightFormat format = weight.getFormat()->getValue();
  const KernelInfo *other = kernelOfOther(op, kernelFormat(format));
  if (!other)
    return success();
  return op->emitOpError() << "has kernel '" << other->name << "' when weight @"
                           << weight.getSymName() << " is "
                           << weightFormatName(format);
}

LogicalResult qwen::detail::verifyWeightUses(ForwardOp op,
                                             SymbolTableCollection &symbols) {
  const SmallVector<WeightUse> uses = op.getWeightUses();
  for (const WeightUse &use : uses)
    for (auto [symbol, outputs] : llvm::zip_equal(
             use.segments.getAsRange<FlatSymbolRefAttr>(), use.outputs)) {
      SmallVector<int64_t> shape = {outputs};
      if (use.role != WeightRole::Vector)
        shape.push_back(use.k);
      if (failed(verifyWeight(op, symbols, symbol, shape)))
        return failure();
      if (use.role != WeightRole::Vector &&
          failed(verifyFormat(
              op, symbols.lookupNearestSymbolFrom<WeightOp>(op, symbol))))
        return failure();
    }

  ArrayAttr parts = op.getPackedAttr();
  if (!parts)
    return success();
  if (parts.size() != uses.size())
    return op->emitOpError() << "has " << parts.size() << " parts when "
                             << uses.size() << " is needed";
  for (auto [symbol, use] :
       llvm::zip_equal(parts.getAsRange<FlatSymbolRefAttr>(), uses)) {
    auto part = symbols.lookupNearestSymbolFrom<PackedOp>(op, symbol);
    if (!part)
      return op->emitOpError()
             << "names " << symbol << ", which is not a qwen.packed";
    if (part.getSegments() != use.segments)
      return op->emitOpError() << symbol << " has other segments than the op";
  }
  return success();
}
