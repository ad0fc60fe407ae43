//===- QwenCalls.cpp - The calls of the driver, op by op ------------------===//

#include "CallOf.h"

#include <cmath>

using namespace mlir;
using namespace qwen;

//===----------------------------------------------------------------------===//
// Places and attributes
//===----------------------------------------------------------------------===//

Value qwen::rootOf(Value value) {
  while (auto view = value.getDefiningOp<ViewOp>())
    value = view->getOperand(0);
  return value;
}

BufferAttr qwen::bufferOf(Value value) {
  if (auto view = value.getDefiningOp<ViewOp>()) {
    const BufferAttr of = bufferOf(view->getOperand(0));
    return of ? BufferAttr::get(value.getContext(), of.getOffset(),
                                of.getStride() * view.getJoinedTokens(), -1, -1)
              : of;
  }
  if (auto argument = dyn_cast<BlockArgument>(value))
    return cast<func::FuncOp>(argument.getOwner()->getParentOp())
        .getArgAttrOfType<BufferAttr>(argument.getArgNumber(), kPlaceAttr);
  auto writer = dyn_cast<ForwardOp>(value.getDefiningOp());
  if (!writer || !writer.getPlanAttr())
    return {};
  return writer.getPlanAttr()
      .getBuffers()[cast<OpResult>(value).getResultNumber()];
}

static float toFloat(const APFloat &value) {
  return static_cast<float>(value.convertToDouble());
}
static float toFloat(const std::optional<APFloat> &value, float absent) {
  return value ? toFloat(*value) : absent;
}

/// The factor of queries with `size` values.
static float queryScale(int64_t size) {
  return static_cast<float>(1 / std::sqrt(static_cast<double>(size)));
}

//===----------------------------------------------------------------------===//
// Tokens in tiles
//===----------------------------------------------------------------------===//

/// The plan of a product by the schedules of its kernels.
static ProductPlan planOf(ForwardOp product, const CallFacts &facts) {
  const auto kernels = product.getKernelsAttr().getAsRange<KernelAttr>();
  ProductPlan plan = facts.productOf(*(*kernels.begin()).getInfo(),
                                     *(*std::next(kernels.begin())).getInfo());
  TokenTiles &first = plan.tiles[0].tokens;
  if (first.isTiled() && widthOf(product->getOperand(0)) > kMostTiledLength)
    first = {};
  return plan;
}

TokenTiles CallOf::tilesOf(Value activations) const {
  TokenTiles all;
  for (Operation *reader : activations.getUsers()) {
    // Experts copy the tokens that they choose.
    if (isa<ExpertsUpOp, ExpertsGateOp>(reader))
      continue;
    if (!isa<LinearOp, LmHeadOp>(reader))
      return {};
    const TokenTiles its =
        planOf(cast<ForwardOp>(reader), facts).tiles[0].tokens;
    if (!its.isTiled())
      return {};
    all = all.isTiled() ? all.both(its) : its;
  }
  return all;
}

ProductPlan CallOf::productOf(ForwardOp product) const {
  ProductPlan plan = planOf(product, facts);
  TokenTiles &first = plan.tiles[0].tokens;
  if (first.isTiled() && isa<LinearOp, LmHeadOp>(product.getOperation()))
    first = tilesOf(product->getOperand(0));
  return plan;
}

//===----------------------------------------------------------------------===//
// Activations of each token
//===----------------------------------------------------------------------===//

DriverCall EmbeddingOp::getDriverCall(const CallFacts &facts) {
  CallOf of(*this, facts);
  return of.call<fixed::Embedding>({.weight = of.part(0),
                                    .out = floatPlaceOf(getResult()),
                                    .k = lengthOf(getResult()),
                                    .op = of.id()});
}

DriverCall RopeTableOp::getDriverCall(const CallFacts &facts) {
  CallOf of(*this, facts);
  const RopeTableArguments arguments = {.frequencies = of.part(0),
                                        .cos = floatPlaceOf(getCos()),
                                        .sin = floatPlaceOf(getSin()),
                                        .half = lengthOf(getCos()),
                                        .scale = toFloat(getScale(), 1),
                                        .op = of.id()};
  const std::optional<SectionsAttr> sections = getSections();
  if (!sections)
    return of.call<fixed::RopeTable>(arguments);
  return of.call<fixed::RopeSections>(
      arguments, {.times = Length(sections->getTimes()),
                  .heights = Length(sections->getHeights()),
                  .widths = Length(sections->getWidths()),
                  .interleaved = Flag(sections->getInterleaved()),
                  .scratch = Length(2 * widthOf(getCos()))});
}

static RmsNormArguments argumentsOf(RmsNormOp op, CallOf &of) {
  return {.in = floatPlaceOf(op.getInput()),
          .weight = of.part(0),
          .out = blockPlaceOf(op.getResult()),
          .k = lengthOf(op.getInput()),
          .eps = toFloat(op.getEps()),
          .gathers = Flag(isSelected(op.getInput())),
          .count = of.count(),
          .op = of.id()};
}

DriverCall RmsNormOp::getDriverCall(const CallFacts &facts) {
  CallOf of(*this, facts);
  const RmsNormArguments arguments = argumentsOf(*this, of);
  if (const std::optional<uint64_t> headDim = getHeadDim()) {
    of.stem = "head_norm";
    return of.call<fixed::HeadNorm>(
        arguments, {.headDim = Length(static_cast<int64_t>(*headDim))});
  }
  if (isInBlocks(getResult().getType()))
    return of.callQuantizing<fixed::RmsNormQ8>(getResult(), arguments);
  return of.call<fixed::RmsNormF32>(arguments);
}

DriverCall RmsNormOp::getHiddenCall(const CallFacts &facts) {
  CallOf of(*this, facts, getLmHead());
  of.stem = "hidden_rows";
  RmsNormArguments arguments = argumentsOf(*this, of);
  arguments.count = CountId(kHiddenTokens);
  return of.call<fixed::HiddenRows>(arguments);
}

/// Of an op that makes each value of `result` from `in`.
static QuantizeArguments mapArguments(CallOf &of, Value in, Value result) {
  return {.in = floatPlaceOf(in),
          .out = blockPlaceOf(result),
          .k = lengthOf(result),
          .count = of.count(),
          .op = of.id()};
}

DriverCall QuantizeOp::getDriverCall(const CallFacts &facts) {
  CallOf of(*this, facts);
  return of.callQuantizing<fixed::Quantize>(
      getResult(), mapArguments(of, getInput(), getResult()));
}

DriverCall HadamardOp::getDriverCall(const CallFacts &facts) {
  CallOf of(*this, facts);
  return of.call<fixed::Hadamard>(mapArguments(of, getInput(), getResult()));
}

DriverCall MapOp::getDriverCall(const CallFacts &facts) {
  CallOf of(*this, facts);
  const QuantizeArguments arguments = mapArguments(of, getInput(), getResult());
  switch (getMap().getValue()) {
#define QWEN_ELEMENT_MAP(Map, Name)                                            \
  case ElementMap::Map:                                                        \
    return of.callFor<fixed::Map##Q8, fixed::Map##F32>(                        \
        getResult(), arguments, {.tiles = of.tilesOf(getResult())});
#include "qwen/ABI/ElementMaps.def"
  }
  llvm_unreachable("an element map without a row");
}

DriverCall TurnOp::getDriverCall(const CallFacts &facts) {
  CallOf of(*this, facts);
  const Length k = lengthOf(getInput());
  const TurnArguments arguments = {.in = floatPlaceOf(getInput()),
                                   .rotation = of.part(0),
                                   .out = blockPlaceOf(getResult()),
                                   .k = k,
                                   .back = Flag(getBack()),
                                   .count = of.count(),
                                   .op = of.id()};
  if (isQuantizedActivations(getResult().getType()))
    return of.callQuantizing<fixed::TurnQ8>(getResult(), arguments,
                                            alignTo(k, kActivationBlock) + k);
  return of.call<fixed::TurnF32>(arguments, {.scratch = k});
}

static GateArguments gateArguments(CallOf &of, Value in, Value gate,
                                   Value result) {
  return {.in = floatPlaceOf(in),
          .gate = floatPlaceOf(gate),
          .out = blockPlaceOf(result),
          .k = lengthOf(result),
          .count = of.count(),
          .op = of.id()};
}

DriverCall SwiGluOp::getDriverCall(const CallFacts &facts) {
  CallOf of(*this, facts);
  const GateArguments arguments =
      gateArguments(of, getUp(), getGate(), getResult());
  if (getHadamard())
    return of.call<fixed::SwiGluHadamardQ8>(arguments,
                                            {.tiles = of.tilesOf(getResult())});
  TokenTiles inProduct;
  if (LinearOp product = gatedProduct(*this))
    inProduct = of.tilesOf(product.getInput());
  return of.callFor<fixed::SwiGluQ8, fixed::SwiGluF32>(
      getResult(), arguments,
      {.tiles = of.tilesOf(getResult()), .inProduct = inProduct});
}

DriverCall GateOp::getDriverCall(const CallFacts &facts) {
  CallOf of(*this, facts);
  return of.callFor<fixed::GateQ8, fixed::GateF32>(
      getResult(), gateArguments(of, getInput(), getGate(), getResult()),
      {.tiles = of.tilesOf(getResult())});
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

/// The results lie side by side.
static LinearArguments productArguments(CallOf &of, Value input,
                                        ValueRange results, Value residual) {
  int64_t width = 0;
  for (Value result : results)
    width += widthOf(result);
  return {.in = blockPlaceOf(input),
          .weight = of.part(0),
          .bias = of.part(1),
          .out = floatPlaceOf(results.front()),
          .k = lengthOf(input),
          .panels = Panels(ceilDiv(width, kPanelOutputs)),
          .residual = residual ? floatPlaceOf(residual).at : ArenaOffset(-1),
          .count = of.count(),
          .op = of.id()};
}

SwiGluOp qwen::gateOf(LinearOp product) {
  if (product.getNumResults() != 2 || product.getResidual() ||
      !isInBlocks(product.getInput().getType()))
    return {};
  Value gate = product.getResult(0), up = product.getResult(1);
  if (!gate.hasOneUse() || !up.hasOneUse())
    return {};
  auto op = dyn_cast<SwiGluOp>(*gate.getUsers().begin());
  const bool isGate = op && op.getGate() == gate && op.getUp() == up &&
                      !op.getHadamard() && isInBlocks(op.getResult().getType());
  return isGate ? op : SwiGluOp();
}

LinearOp qwen::gatedProduct(SwiGluOp gate) {
  auto product = gate.getGate().getDefiningOp<LinearOp>();
  return product && gateOf(product) == gate ? product : LinearOp();
}

/// The call of a product and of the SwiGLU that reads it.
static DriverCall gatedCall(LinearOp product, SwiGluOp gate,
                            const CallFacts &facts) {
  CallOf of(product, facts, cast<ForwardOp>(gate.getOperation()));
  of.stem = "linear_swiglu";
  const KernelInfo &kernel =
      *kernelOf(cast<ForwardOp>(product.getOperation()), KernelOp::LinearQ8);
  const auto program = product->getParentOfType<func::FuncOp>();
  const int64_t most =
      *limitOf(program, runsOn(cast<ForwardOp>(product.getOperation())));
  return of.call<fixed::LinearSwiGluQ8>(
      {.product = productArguments(of, product.getInput(), product.getResults(),
                                   /*residual=*/nullptr),
       .gated = blockPlaceOf(gate.getResult()),
       .panelBytes = Bytes(panelBytes(*weightFormat(kernel.format),
                                      widthOf(product.getInput()))),
       .gateOp = OpId(gate.getPlanAttr().getId())},
      {.tiles = of.tilesOf(gate.getResult()),
       .scratch = Length(gateScratch(most))});
}

DriverCall LinearOp::getDriverCall(const CallFacts &facts) {
  CallOf of(*this, facts);
  if (SwiGluOp gate = gateOf(*this); gate && of.tilesOf(getInput()).isTiled())
    return gatedCall(*this, gate, facts);
  return of.callFor<fixed::LinearQ8, fixed::LinearF32>(
      getInput(),
      productArguments(of, getInput(), getResults(), getResidual()));
}

DriverCall LmHeadOp::getDriverCall(const CallFacts &facts) {
  CallOf of(*this, facts);
  return of.callFor<fixed::LmHeadQ8, fixed::LmHeadF32>(
      getInput(),
      productArguments(of, getInput(), getResult(), /*residual=*/nullptr));
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

/// Half of the values of a head that `cos` rotates, which may be absent.
static Length rotatedHalf(Value cos) { return cos ? lengthOf(cos) : Length(0); }

/// Bytes of the keys of a head, or of its values, in a page.
template <typename HeadsOp> static Bytes headBytesOf(HeadsOp op) {
  return Bytes(layoutOf(op.getFormat()->getValue()).headBytes(op.getHeadDim()));
}

DriverCall AppendOp::getDriverCall(const CallFacts &facts) {
  CallOf of(*this, facts);
  const CachePlace place = facts.cacheOf(*this);
  const int64_t headDim = getHeadDim();
  const bool hasHeadNorm = kernelOf(*this, KernelOp::RmsNormF32);
  return of.call<fixed::Append>(
      {.keys = floatPlaceOf(getKeys()),
       .values = floatPlaceOf(getValues()),
       .cos = optionalPlaceOf(getCos()),
       .sin = optionalPlaceOf(getSin()),
       .norm = of.part(0),
       .eps = toFloat(getEps(), 0),
       .layer = place.layer,
       .op = of.id()},
      {.kvHeads = Heads(getKvHeads()),
       .headDim = Length(headDim),
       .half = rotatedHalf(getCos()),
       .headBytes = headBytesOf(*this),
       .cache = place.cache,
       .pageBytes = place.stride,
       .scratch = Length(appendScratch(headDim, hasHeadNorm))});
}

/// The call of attention over keys and values of the call.
static DriverCall callAttention(AttentionOp op, const CallFacts &facts) {
  CallOf of(op, facts);
  of.stem = "call_attention";
  const auto kvHeads = static_cast<int64_t>(op.getKvHeads());
  const int64_t groupQueries = static_cast<int64_t>(op.getHeads()) / kvHeads;
  const int64_t headDim = op.getHeadDim();
  const int64_t blockTokens = callBlockTokens(groupQueries);
  return of.call<fixed::CallAttention>(
      {.queries = floatPlaceOf(op.getQueries()),
       .keys = floatPlaceOf(op.getKeys()),
       .values = floatPlaceOf(op.getValues()),
       .cos = optionalPlaceOf(op.getCos()),
       .sin = optionalPlaceOf(op.getSin()),
       .out = floatPlaceOf(op.getResult()),
       .op = of.id()},
      {.kvHeads = Heads(kvHeads),
       .groupQueries = Heads(groupQueries),
       .headDim = Length(headDim),
       .half = rotatedHalf(op.getCos()),
       .causal = Flag(op.getMask() == Mask::Causal),
       .windows = Flag(op.getMask() == Mask::Windows),
       .scale = queryScale(headDim),
       .blockTokens = Tokens(blockTokens),
       .scratch =
           Length(callAttentionScratch(groupQueries, headDim, blockTokens))});
}

DriverCall AttentionOp::getDriverCall(const CallFacts &facts) {
  if (getKeys())
    return callAttention(*this, facts);
  CallOf of(*this, facts);
  const CachePlace place = facts.cacheOf(*this);
  const auto kvHeads = static_cast<int64_t>(getKvHeads());
  const int64_t groupQueries = static_cast<int64_t>(getHeads()) / kvHeads;
  const int64_t headDim = getHeadDim();
  const Tokens blockTokens = facts.blockTokens(
      *kernelOf(*this, KernelOp::AttentionScores), groupQueries);
  const int64_t ofHeadNorm =
      kernelOf(*this, KernelOp::RmsNormF32) ? headDim : 0;
  return of.call<fixed::Attention>(
      {.queries = floatPlaceOf(getQueries()),
       .cos = optionalPlaceOf(getCos()),
       .sin = optionalPlaceOf(getSin()),
       .norm = of.part(0),
       .out = floatPlaceOf(getResult()),
       .eps = toFloat(getEps(), 0),
       .layer = place.layer,
       .op = of.id()},
      {.kvHeads = Heads(kvHeads),
       .groupQueries = Heads(groupQueries),
       .headDim = Length(headDim),
       .half = rotatedHalf(getCos()),
       .headBytes = headBytesOf(*this),
       .cache = place.cache,
       .pageBytes = place.stride,
       .scale = queryScale(headDim),
       .blockTokens = blockTokens,
       .room = Tokens(
           *limitOf((*this)->getParentOfType<func::FuncOp>(), runsOn(*this))),
       .scratch = Length(attentionScratch(groupQueries, headDim, blockTokens) +
                         ofHeadNorm)});
}

//===----------------------------------------------------------------------===//
// Linear attention
//===----------------------------------------------------------------------===//

DriverCall ShortConvolutionOp::getDriverCall(const CallFacts &facts) {
  CallOf of(*this, facts);
  const CachePlace place = facts.cacheOf(*this);
  return of.call<fixed::ShortConvolution>({.in = floatPlaceOf(getInput()),
                                           .weight = of.part(0),
                                           .out = floatPlaceOf(getResult()),
                                           .channels = lengthOf(getResult()),
                                           .layer = place.layer,
                                           .op = of.id()},
                                          {.cache = place.cache,
                                           .cacheStride = place.stride,
                                           .stepBack = place.stepBack});
}

DriverCall DeltaGatesOp::getDriverCall(const CallFacts &facts) {
  CallOf of(*this, facts);
  return of.call<fixed::DeltaGates>({.a = floatPlaceOf(getA()),
                                     .b = floatPlaceOf(getB()),
                                     .rate = of.part(0),
                                     .bias = of.part(1),
                                     .decay = floatPlaceOf(getDecay()),
                                     .beta = floatPlaceOf(getBeta()),
                                     .heads = Heads(widthOf(getDecay())),
                                     .count = of.count(),
                                     .op = of.id()});
}

DriverCall DeltaRuleOp::getDriverCall(const CallFacts &facts) {
  CallOf of(*this, facts);
  const CachePlace place = facts.cacheOf(*this);
  const int64_t keyDim = getKeyDim();
  return of.call<fixed::DeltaRule>(
      {.in = floatPlaceOf(getInput()),
       .decay = floatPlaceOf(getDecay()),
       .beta = floatPlaceOf(getBeta()),
       .out = floatPlaceOf(getResult()),
       .layer = place.layer,
       .op = of.id()},
      {.cache = place.cache,
       .cacheStride = place.stride,
       .stepBack = place.stepBack,
       .keyHeads = Heads(static_cast<int64_t>(getKeyHeads())),
       .keyDim = Length(keyDim),
       .heads = Heads(getValueHeads()),
       .valueDim = Length(getValueDim()),
       .sharing = Heads(getSharing()),
       .scale = queryScale(keyDim),
       .scratch = Length(deltaRuleScratch(keyDim))});
}
