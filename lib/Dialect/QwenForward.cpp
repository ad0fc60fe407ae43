//===- QwenForward.cpp - The facts of ForwardOp, op by op -----------------===//
//
// First the facts that each op gives to passes, then the checks that all ops
// share.
//
//===----------------------------------------------------------------------===//

#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Numerics/Rotation.h"

#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace qwen;

/// The only weight of a part.
static ArrayAttr only(FlatSymbolRefAttr symbol) {
  return ArrayAttr::get(symbol.getContext(), symbol);
}

/// A norm's vector of `width` values, if there is one.
static SmallVector<WeightUse> vectorUse(FlatSymbolRefAttr symbol,
                                        int64_t width) {
  if (!symbol)
    return {};
  return {{only(symbol), WeightRole::Vector, {width}}};
}

/// The kernels of a product with `input`.
static SmallVector<KernelUse> productUses(Value input) {
  const KernelOp kind = isQuantizedActivations(input.getType())
                            ? KernelOp::LinearQ8
                            : KernelOp::LinearF32;
  return {{kind}, {kind, /*gemm=*/true}};
}

static SmallVector<int64_t> widthsOf(ValueRange values) {
  return SmallVector<int64_t>(llvm::map_range(values, widthOf));
}

/// Multiplications of a product for one token.
static int64_t productMacs(Value input, ValueRange results) {
  return widthOf(input) * llvm::sum_of(widthsOf(results));
}

//===----------------------------------------------------------------------===//
// Activations of each token
//===----------------------------------------------------------------------===//

SmallVector<KernelUse> EmbeddingOp::getKernelUses() {
  return {{KernelOp::Embed}};
}

SmallVector<WeightUse> EmbeddingOp::getWeightUses() {
  return {{only(getWeightAttr()),
           WeightRole::Gathered,
           {ShapedType::kDynamic},
           widthOf(getResult())}};
}

SmallVector<KernelUse> RopeTableOp::getKernelUses() {
  return {{KernelOp::RopeTable}};
}

SmallVector<WeightUse> RopeTableOp::getWeightUses() {
  return vectorUse(getFrequenciesAttr(), widthOf(getCos()));
}

SmallVector<KernelUse> RmsNormOp::getKernelUses() {
  SmallVector<KernelUse> uses = {{isQuantizedActivations(getResult().getType())
                                      ? KernelOp::RmsNormQ8
                                      : KernelOp::RmsNormF32}};
  if (getLmHead())
    uses.push_back({KernelOp::RmsNormF32});
  return uses;
}

SmallVector<WeightUse> RmsNormOp::getWeightUses() {
  return vectorUse(getWeightAttr(), static_cast<int64_t>(getHeadDim().value_or(
                                        widthOf(getInput()))));
}

void RmsNormOp::addWork(OpWork &work, KvFormat) {
  work.wantedTokens = isOverWantedTokens(*this);
}

bool qwen::isOverWantedTokens(Operation *op) {
  if (auto norm = dyn_cast<RmsNormOp>(op))
    return norm.getInput().getDefiningOp<WantedTokensOp>() != nullptr;
  if (auto turn = dyn_cast<TurnOp>(op))
    if (Operation *writer = turn.getInput().getDefiningOp())
      return isOverWantedTokens(writer);
  return false;
}

LmHeadOp RmsNormOp::getLmHead() {
  for (Operation *user : getResult().getUsers()) {
    if (isa<TurnOp>(user) && user->hasOneUse())
      user = *user->user_begin();
    if (auto head = dyn_cast<LmHeadOp>(user))
      return head;
  }
  return nullptr;
}

SmallVector<KernelUse> TurnOp::getKernelUses() {
  if (isQuantizedActivations(getResult().getType()))
    return {{KernelOp::Turn}, {KernelOp::QuantizeQ8}};
  return {{KernelOp::Turn}};
}

SmallVector<WeightUse> TurnOp::getWeightUses() {
  const int64_t width = widthOf(getInput());
  return vectorUse(getRotationAttr(), width + numerics::oddPart(width));
}

void TurnOp::addWork(OpWork &work, KvFormat) {
  work.wantedTokens = isOverWantedTokens(*this);
}

SmallVector<KernelUse> QuantizeOp::getKernelUses() {
  return {{KernelOp::QuantizeQ8}};
}

SmallVector<KernelUse> SwiGluOp::getKernelUses() {
  if (getHadamard())
    return {{KernelOp::SwiGluF32}, {KernelOp::HadamardQ8}};
  return {{isQuantizedActivations(getResult().getType())
               ? KernelOp::SwiGluQ8
               : KernelOp::SwiGluF32}};
}

SmallVector<KernelUse> HadamardOp::getKernelUses() {
  return {{KernelOp::Hadamard}};
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

SmallVector<KernelUse> LinearOp::getKernelUses() {
  return productUses(getInput());
}

SmallVector<WeightUse> LinearOp::getWeightUses() {
  const SmallVector<int64_t> outputs = widthsOf(getResults());
  SmallVector<WeightUse> uses = {
      {getWeightsAttr(), WeightRole::Matrix, outputs, widthOf(getInput())}};
  if (getBias())
    uses.push_back({getBiasAttr(), WeightRole::Vector, outputs});
  return uses;
}

ResultPlace LinearOp::getResultPlace() { return ResultPlace::OneBuffer; }

OpOperand *LinearOp::getInPlaceOperand() {
  return getResidual() ? &*getResidualMutable().begin() : nullptr;
}

void LinearOp::addWork(OpWork &work, KvFormat) {
  work.macs = productMacs(getInput(), getResults());
}

SmallVector<KernelUse> LmHeadOp::getKernelUses() {
  SmallVector<KernelUse> uses = productUses(getInput());
  uses.push_back({KernelOp::CheckFinite});
  return uses;
}

SmallVector<WeightUse> LmHeadOp::getWeightUses() {
  return {{only(getWeightAttr()),
           WeightRole::Matrix,
           {widthOf(getResult())},
           widthOf(getInput())}};
}

ResultPlace LmHeadOp::getResultPlace() { return ResultPlace::CallResult; }

void LmHeadOp::addWork(OpWork &work, KvFormat) {
  work.macs = productMacs(getInput(), getResult());
  work.wantedTokens = true;
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

/// The kernels that norm and rotate the heads of `op`, or a part of each.
template <typename HeadsOp>
static SmallVector<KernelUse> rotationUses(HeadsOp op) {
  if (!op.getNorm())
    return {{KernelOp::Rope}};
  if (!op.getCos() || 2 * widthOf(op.getCos()) == op.getHeadDim())
    return {{KernelOp::NormRope}};
  return {{KernelOp::RmsNormF32}, {KernelOp::Rope}};
}

/// The effects of an op on its cache.
static void
addCacheEffects(ForwardOp op,
                SmallVectorImpl<MemoryEffects::EffectInstance> &effects) {
  const std::optional<CacheUse> use = op.getCacheUse();
  if (use->reads)
    effects.emplace_back(MemoryEffects::Read::get(), CacheResource::get());
  if (use->writes)
    effects.emplace_back(MemoryEffects::Write::get(), CacheResource::get());
}

/// Keys and values of a layer.
static CacheUse kvCacheUse(uint64_t layer, int64_t values, bool reads,
                           bool writes) {
  return {CacheKind::Paged, "kv",  static_cast<int64_t>(layer),
          values,           reads, writes};
}

SmallVector<KernelUse> AppendOp::getKernelUses() {
  SmallVector<KernelUse> uses = rotationUses(*this);
  uses.append({{KernelOp::AppendK}, {KernelOp::AppendV}});
  return uses;
}

SmallVector<WeightUse> AppendOp::getWeightUses() {
  return vectorUse(getNormAttr(), getHeadDim());
}

std::optional<CacheUse> AppendOp::getCacheUse() {
  return kvCacheUse(getLayer(), widthOf(getKeys()) + widthOf(getValues()),
                    /*reads=*/false, /*writes=*/true);
}

void AppendOp::getEffects(
    SmallVectorImpl<MemoryEffects::EffectInstance> &effects) {
  addCacheEffects(*this, effects);
}

void AppendOp::addWork(OpWork &work, KvFormat kv) {
  work.tokenBytes += getCacheUse()->size * kvElementBytes(kv);
}

SmallVector<KernelUse> AttentionOp::getKernelUses() {
  SmallVector<KernelUse> uses = rotationUses(*this);
  uses.append({{KernelOp::AttentionScores},
               {KernelOp::AttentionValues},
               {KernelOp::SoftmaxPage},
               {KernelOp::MergePage},
               {KernelOp::FinishAttention}});
  return uses;
}

SmallVector<WeightUse> AttentionOp::getWeightUses() {
  return vectorUse(getNormAttr(), getHeadDim());
}

std::optional<CacheUse> AttentionOp::getCacheUse() {
  return kvCacheUse(getLayer(),
                    2 * static_cast<int64_t>(getKvHeads()) * getHeadDim(),
                    /*reads=*/true, /*writes=*/false);
}

void AttentionOp::getEffects(
    SmallVectorImpl<MemoryEffects::EffectInstance> &effects) {
  addCacheEffects(*this, effects);
}

void AttentionOp::addWork(OpWork &work, KvFormat kv) {
  work.positionBytes = getCacheUse()->size * kvElementBytes(kv);
  work.positionMacs = 2 * static_cast<int64_t>(getHeads()) * getHeadDim();
}

SmallVector<KernelUse> GateOp::getKernelUses() {
  if (isQuantizedActivations(getResult().getType()))
    return {{KernelOp::SigmoidGate}, {KernelOp::QuantizeQ8}};
  return {{KernelOp::SigmoidGate}};
}

//===----------------------------------------------------------------------===//
// Linear attention
//===----------------------------------------------------------------------===//

SmallVector<KernelUse> ShortConvolutionOp::getKernelUses() {
  return {{KernelOp::ShortConvolution}};
}

SmallVector<WeightUse> ShortConvolutionOp::getWeightUses() {
  return vectorUse(getWeightAttr(), kConvolutionTaps * widthOf(getInput()));
}

std::optional<CacheUse> ShortConvolutionOp::getCacheUse() {
  return CacheUse{CacheKind::Fixed,
                  "convolution",
                  static_cast<int64_t>(getLayer()),
                  4 * (kConvolutionTaps - 1) * widthOf(getInput()),
                  true,
                  true};
}

void ShortConvolutionOp::getEffects(
    SmallVectorImpl<MemoryEffects::EffectInstance> &effects) {
  addCacheEffects(*this, effects);
}

void ShortConvolutionOp::addWork(OpWork &work, KvFormat) {
  work.macs = 4 * widthOf(getInput());
}

SmallVector<KernelUse> DeltaGatesOp::getKernelUses() {
  return {{KernelOp::DeltaGates}};
}

SmallVector<WeightUse> DeltaGatesOp::getWeightUses() {
  SmallVector<WeightUse> uses = vectorUse(getRateAttr(), widthOf(getA()));
  llvm::append_range(uses, vectorUse(getBiasAttr(), widthOf(getA())));
  return uses;
}

SmallVector<KernelUse> DeltaRuleOp::getKernelUses() {
  return {{KernelOp::DeltaRule}};
}

std::optional<CacheUse> DeltaRuleOp::getCacheUse() {
  return CacheUse{CacheKind::Fixed,
                  "delta",
                  static_cast<int64_t>(getLayer()),
                  4 * getKeyDim() * widthOf(getResult()),
                  true,
                  true};
}

void DeltaRuleOp::getEffects(
    SmallVectorImpl<MemoryEffects::EffectInstance> &effects) {
  addCacheEffects(*this, effects);
}

void DeltaRuleOp::addWork(OpWork &work, KvFormat) {
  work.macs = 4 * widthOf(getResult()) * getKeyDim();
}

/// The driver counts without a kernel.
SmallVector<KernelUse> CountOp::getKernelUses() { return {}; }

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
  const bool quantized = isQuantizedActivations(result.getType());
  if (quantized != (buffer.getScales() >= 0) ||
      quantized != (buffer.getSums() >= 0))
    return op->emitOpError()
           << "has a buffer with scales = " << buffer.getScales()
           << " and sums = " << buffer.getSums() << " for "
           << (quantized ? "quantized" : "f32") << " activations";
  return success();
}

LogicalResult qwen::detail::verifyForwardOp(ForwardOp op) {
  if (failed(verifyKernels(op)))
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
  if (!weight.getFormat() || !op.getKernelsAttr())
    return success();
  const WeightFormat format = weight.getFormat()->getValue();
  for (auto kernel : op.getKernelsAttr().getAsRange<KernelAttr>()) {
    const KernelFormat reads = kernel.getInfo()->format;
    if (reads != KernelFormat::None && reads != kernelFormat(format))
      return op->emitOpError()
             << "has kernel '" << kernel.getInfo()->name << "' when weight @"
             << weight.getSymName() << " is " << weightFormatName(format);
  }
  return success();
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
