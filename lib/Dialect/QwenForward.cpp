//===- QwenForward.cpp - The facts of ForwardOp, op by op -----------------===//
//
// The facts that each op gives to passes.
//
//===----------------------------------------------------------------------===//

#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Numerics/Rotation.h"

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

static SmallVector<int64_t> widthsOf(ValueRange values) {
  return SmallVector<int64_t>(llvm::map_range(values, widthOf));
}

/// a / b; 0 for a divisor that no valid op has, because kernels may be checked
/// before attributes.
static int64_t quotient(int64_t a, int64_t b) { return b > 0 ? a / b : 0; }

/// A kernel with `number` calls for each token, of vectors of `length`.
static KernelUse called(KernelOp kind, int64_t length, int64_t number = 1) {
  return {.kind = kind, .calls = {{.length = length, .calls = number}}};
}

/// A kernel that takes the values of a token in calls of at most `most`.
static KernelUse calledInBlocks(KernelOp kind, Value values,
                                int64_t most = kStackValues) {
  const int64_t n = widthOf(values);
  KernelUse use = {kind};
  if (n >= most)
    use.calls.push_back({.length = most, .calls = n / most});
  if (n % most != 0)
    use.calls.push_back({.length = n % most, .calls = 1});
  return use;
}

/// The kernels of products with `input`, with `macs` multiplications for each
/// token.
static SmallVector<KernelUse> productUses(Value input, int64_t macs) {
  const KernelOp kind =
      isInBlocks(input.getType()) ? KernelOp::LinearQ8 : KernelOp::LinearF32;
  return {{.kind = kind, .calls = {{.macs = macs}}}, {kind, /*gemm=*/true}};
}

static SmallVector<KernelUse> productUses(Value input, ValueRange results) {
  return productUses(input, widthOf(input) * llvm::sum_of(widthsOf(results)));
}

bool qwen::detail::hasMatrices(ArrayRef<WeightUse> uses) {
  return llvm::any_of(uses, [](const WeightUse &use) {
    return use.role == WeightRole::Matrix;
  });
}

SmallVector<FlatSymbolRefAttr> qwen::matricesOf(ForwardOp op) {
  SmallVector<FlatSymbolRefAttr> matrices;
  for (const WeightUse &use : op.getWeightUses())
    if (use.role != WeightRole::Vector)
      llvm::append_range(matrices,
                         use.segments.getAsRange<FlatSymbolRefAttr>());
  return matrices;
}

ForwardOp qwen::productOf(OpOperand &use) {
  auto op = dyn_cast<ForwardOp>(use.getOwner());
  return op && op.getProductInput() == &use ? op : nullptr;
}

StreamUse qwen::streamUseOf(Operation *op) {
  auto user = dyn_cast<StreamOp>(op);
  return user ? user.getStreamUse() : StreamUse::Other;
}

//===----------------------------------------------------------------------===//
// Activations of each token
//===----------------------------------------------------------------------===//

StreamUse EmbeddingOp::getStreamUse() { return StreamUse::Starts; }
StreamUse AddOp::getStreamUse() { return StreamUse::Adds; }
StreamUse WantedTokensOp::getStreamUse() { return StreamUse::Leaves; }

SmallVector<KernelUse> EmbeddingOp::getKernelUses() {
  return {called(KernelOp::Embed, widthOf(getResult()))};
}

SmallVector<WeightUse> EmbeddingOp::getWeightUses() {
  return {{only(getWeightAttr()),
           WeightRole::Gathered,
           {ShapedType::kDynamic},
           widthOf(getResult())}};
}

SmallVector<KernelUse> RopeTableOp::getKernelUses() {
  const auto positions = 1 + static_cast<int64_t>(getGrid().size());
  return {called(KernelOp::RopeTable, widthOf(getCos()), positions)};
}

SmallVector<WeightUse> RopeTableOp::getWeightUses() {
  return vectorUse(getFrequenciesAttr(), widthOf(getCos()));
}

SmallVector<KernelUse> RmsNormOp::getKernelUses() {
  const int64_t width = widthOf(getInput());
  const auto head = static_cast<int64_t>(getHeadDim().value_or(width));
  SmallVector<KernelUse> uses = {called(
      isQuantizedActivations(getResult().getType()) ? KernelOp::RmsNormQ8
                                                    : KernelOp::RmsNormF32,
      head, quotient(width, head))};
  // The kernel of hidden rows, which only some steps have.
  if (getLmHead())
    uses.push_back({KernelOp::RmsNormF32});
  return uses;
}

SmallVector<WeightUse> RmsNormOp::getWeightUses() {
  return vectorUse(getWeightAttr(), static_cast<int64_t>(getHeadDim().value_or(
                                        widthOf(getInput()))));
}

/// A block of 128 can span heads.
bool RmsNormOp::canQuantizeResult() { return !getHeadDim(); }

StreamUse RmsNormOp::getStreamUse() {
  return getHeadDim() ? StreamUse::Other : StreamUse::Norms;
}

FlatSymbolRefAttr RmsNormOp::getChannelFactors() { return getWeightAttr(); }

void RmsNormOp::setChannelFactors(FlatSymbolRefAttr factors) {
  setWeightAttr(factors);
}

bool RmsNormOp::gathersTokens() { return true; }

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
  const int64_t width = widthOf(getInput());
  SmallVector<KernelUse> uses = {called(KernelOp::Turn, width)};
  if (isQuantizedActivations(getResult().getType()))
    uses.push_back(called(KernelOp::QuantizeQ8, width));
  return uses;
}

SmallVector<WeightUse> TurnOp::getWeightUses() {
  const int64_t width = widthOf(getInput());
  return vectorUse(getRotationAttr(), width + numerics::oddPart(width));
}

bool TurnOp::canQuantizeResult() { return true; }

SmallVector<KernelUse> QuantizeOp::getKernelUses() {
  return {called(KernelOp::QuantizeQ8, widthOf(getInput()))};
}

SmallVector<KernelUse> SwiGluOp::getKernelUses() {
  if (getHadamard())
    return {calledInBlocks(KernelOp::SwiGluF32, getResult()),
            calledInBlocks(KernelOp::HadamardQ8, getResult())};
  return {calledInBlocks(isQuantizedActivations(getResult().getType())
                             ? KernelOp::SwiGluQ8
                             : KernelOp::SwiGluF32,
                         getResult())};
}

bool SwiGluOp::canQuantizeResult() { return true; }

SmallVector<KernelUse> MapOp::getKernelUses() {
  SmallVector<KernelUse> uses = {
      calledInBlocks(infoOf(getMap().getValue()).kernel, getResult())};
  if (isQuantizedActivations(getResult().getType()))
    uses.push_back(calledInBlocks(KernelOp::QuantizeQ8, getResult()));
  return uses;
}

bool MapOp::canQuantizeResult() { return true; }

SmallVector<KernelUse> HadamardOp::getKernelUses() {
  return {calledInBlocks(KernelOp::Hadamard, getResult())};
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

SmallVector<KernelUse> LinearOp::getKernelUses() {
  return productUses(getInput(), getResults());
}

SmallVector<WeightUse> LinearOp::getWeightUses() {
  const SmallVector<int64_t> outputs = widthsOf(getResults());
  SmallVector<WeightUse> uses = {
      {getWeightsAttr(), WeightRole::Matrix, outputs, widthOf(getInput())}};
  if (getBias())
    uses.push_back({getBiasAttr(), WeightRole::Vector, outputs});
  return uses;
}

std::optional<SmallVector<Value>> LinearOp::getSummands() {
  if (getWeights().size() != 1 || getBias() || getResidual())
    return std::nullopt;
  return SmallVector<Value>();
}

bool LinearOp::fuseBias(FlatSymbolRefAttr bias) {
  if (!getSummands())
    return false;
  setBiasAttr(only(bias));
  return true;
}

bool LinearOp::fuseAddend(Value addend) {
  if (getWeights().size() != 1 || getResidual())
    return false;
  getResidualMutable().assign(addend);
  return true;
}

ResultPlace LinearOp::getResultPlace() { return ResultPlace::OneBuffer; }

OpOperand *LinearOp::getInPlaceOperand() {
  return getResidual() ? &*getResidualMutable().begin() : nullptr;
}

SmallVector<KernelUse> LmHeadOp::getKernelUses() {
  SmallVector<KernelUse> uses = productUses(getInput(), getResult());
  uses.push_back(called(KernelOp::CheckFinite, widthOf(getResult())));
  return uses;
}

StreamUse LmHeadOp::getStreamUse() { return StreamUse::Heads; }

SmallVector<WeightUse> LmHeadOp::getWeightUses() {
  return {{only(getWeightAttr()),
           WeightRole::Matrix,
           {widthOf(getResult())},
           widthOf(getInput())}};
}

ResultPlace LmHeadOp::getResultPlace() { return ResultPlace::CallResult; }

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

/// The kernels that norm and rotate the `heads` heads of a token in `op`, or a
/// part of each, if it has angles.
template <typename HeadsOp>
static SmallVector<KernelUse> rotationUses(HeadsOp op, int64_t heads) {
  if (!op.getCos())
    return {};
  const int64_t size = heads > 0 ? op.getHeadDim() : 0;
  const int64_t half = widthOf(op.getCos());
  if (!op.getNorm())
    return {called(KernelOp::Rope, half, heads)};
  if (2 * half == size)
    return {called(KernelOp::NormRope, half, heads)};
  return {called(KernelOp::RmsNormF32, size, heads),
          called(KernelOp::Rope, half, heads)};
}

/// The effects of an op on its cache.
static void
addCacheEffects(ForwardOp op,
                SmallVectorImpl<MemoryEffects::EffectInstance> &effects) {
  const std::optional<CacheUse> use = op.getCacheUse();
  if (use && use->reads)
    effects.emplace_back(MemoryEffects::Read::get(), CacheResource::get());
  if (use && use->writes)
    effects.emplace_back(MemoryEffects::Write::get(), CacheResource::get());
}

bool qwen::lacksFormat(ForwardOp op) {
  const std::optional<CacheUse> use = op.getCacheUse();
  return use && use->kind == CacheKind::Paged && !use->format;
}

/// Keys and values of the layer of `op`.
template <typename HeadsOp>
static CacheUse kvCacheUse(HeadsOp op, uint64_t layer, bool reads,
                           bool writes) {
  CacheUse use = {CacheKind::Paged, "kv",  static_cast<int64_t>(layer),
                  /*bytes=*/0,      reads, writes};
  if (const auto format = op.getFormat()) {
    use.format = format->getValue();
    use.bytes = 2 * static_cast<int64_t>(op.getKvHeads()) *
                layoutOf(*use.format).slotBytes(op.getHeadDim());
  }
  return use;
}

SmallVector<KernelUse> AppendOp::getKernelUses() {
  const auto heads = static_cast<int64_t>(getKvHeads());
  const int64_t size = quotient(widthOf(getKeys()), heads);
  SmallVector<KernelUse> uses = rotationUses(*this, heads);
  uses.append({called(KernelOp::AppendK, size, heads),
               called(KernelOp::AppendV, size, heads)});
  return uses;
}

SmallVector<WeightUse> AppendOp::getWeightUses() {
  return vectorUse(getNormAttr(), getHeadDim());
}

std::optional<CacheUse> AppendOp::getCacheUse() {
  return kvCacheUse(*this, getLayer(), /*reads=*/false, /*writes=*/true);
}

void AppendOp::setCacheFormat(KvFormatAttr format) { setFormatAttr(format); }

void AppendOp::getEffects(
    SmallVectorImpl<MemoryEffects::EffectInstance> &effects) {
  addCacheEffects(*this, effects);
}

void AppendOp::addWork(OpWork &work) {
  work.tokenBytes += getCacheUse()->bytes;
}

/// The kernels that lay out keys and values of the call. Each block of tokens
/// lays out all pages that it reads.
static void addLayoutUses(AttentionOp op, SmallVectorImpl<KernelUse> &uses) {
  const auto heads = static_cast<int64_t>(op.getHeads());
  const auto kvHeads = static_cast<int64_t>(op.getKvHeads());
  const int64_t size = quotient(widthOf(op.getQueries()), heads);
  const int64_t block =
      callBlockTokens(std::max<int64_t>(1, quotient(heads, kvHeads)));
  const auto calls = [&](int64_t length) -> KernelCalls {
    const int64_t number = ceilDiv(kPageTokens * kvHeads, block);
    return {.length = length, .calls = number, .pageCalls = number};
  };
  // The kernel that rotates queries.
  for (KernelUse &rope : uses)
    rope.calls.push_back(calls(widthOf(op.getCos())));
  uses.push_back({.kind = KernelOp::AppendK, .calls = {calls(size)}});
  uses.push_back({.kind = KernelOp::AppendV, .calls = {calls(size)}});
}

SmallVector<KernelUse> AttentionOp::getKernelUses() {
  const auto heads = static_cast<int64_t>(getHeads());
  const auto kvHeads = static_cast<int64_t>(getKvHeads());
  const int64_t size = quotient(widthOf(getQueries()), heads);
  const int64_t queries = quotient(heads, kvHeads);
  SmallVector<KernelUse> uses = rotationUses(*this, heads);
  if (getKeys())
    addLayoutUses(*this, uses);
  if (const auto format = getFormat();
      format && !layoutOf(format->getValue()).isFloat())
    uses.push_back(called(KernelOp::EncodeQuery, size, heads));
  // A token sees half of its own page in the mean.
  const KernelCalls ofPage = {.length = kPageTokens,
                              .queries = queries,
                              .pageCalls = kvHeads},
                    ofOwnPage = {.length = kPageTokens / 2,
                                 .queries = queries,
                                 .calls = kvHeads},
                    merges = {.length = size,
                              .queries = queries,
                              .pageCalls = kvHeads},
                    products = {.positionMacs = heads * size};
  uses.append({{.kind = KernelOp::AttentionScores, .calls = {products}},
               {.kind = KernelOp::AttentionValues, .calls = {products}},
               {.kind = KernelOp::SoftmaxPage, .calls = {ofPage, ofOwnPage}},
               {.kind = KernelOp::MergePage, .calls = {merges}},
               called(KernelOp::FinishAttention, size, heads)});
  return uses;
}

SmallVector<WeightUse> AttentionOp::getWeightUses() {
  return vectorUse(getNormAttr(), getHeadDim());
}

std::optional<CacheUse> AttentionOp::getCacheUse() {
  if (!getLayer())
    return std::nullopt;
  return kvCacheUse(*this, *getLayer(), /*reads=*/true, /*writes=*/false);
}

void AttentionOp::setCacheFormat(KvFormatAttr format) { setFormatAttr(format); }

void AttentionOp::getEffects(
    SmallVectorImpl<MemoryEffects::EffectInstance> &effects) {
  addCacheEffects(*this, effects);
}

void AttentionOp::addWork(OpWork &work) {
  if (const std::optional<CacheUse> use = getCacheUse())
    work.positionBytes = use->bytes;
  work.wholeSequence = getMask() != Mask::Causal;
}

SmallVector<KernelUse> GateOp::getKernelUses() {
  SmallVector<KernelUse> uses = {
      calledInBlocks(KernelOp::SigmoidGate, getResult())};
  if (isQuantizedActivations(getResult().getType()))
    uses.push_back(calledInBlocks(KernelOp::QuantizeQ8, getResult()));
  return uses;
}

bool GateOp::canQuantizeResult() { return true; }

//===----------------------------------------------------------------------===//
// Linear attention
//===----------------------------------------------------------------------===//

SmallVector<KernelUse> ShortConvolutionOp::getKernelUses() {
  constexpr int64_t kChannels = 64;
  KernelUse use =
      calledInBlocks(KernelOp::ShortConvolution, getInput(), kChannels);
  for (KernelCalls &calls : use.calls)
    calls.macs = kConvolutionTaps * calls.length * calls.calls;
  return {use};
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

SmallVector<KernelUse> DeltaGatesOp::getKernelUses() {
  return {called(KernelOp::DeltaGates, widthOf(getA()))};
}

SmallVector<WeightUse> DeltaGatesOp::getWeightUses() {
  SmallVector<WeightUse> uses = vectorUse(getRateAttr(), widthOf(getA()));
  llvm::append_range(uses, vectorUse(getBiasAttr(), widthOf(getA())));
  return uses;
}

SmallVector<KernelUse> DeltaRuleOp::getKernelUses() {
  const int64_t width = widthOf(getResult());
  const int64_t keyDim = getKeyHeads() > 0 ? getKeyDim() : 0;
  return {{.kind = KernelOp::DeltaRule,
           .calls = {{.length = keyDim,
                      .calls = width / kDeltaColumns,
                      .macs = 4 * width * keyDim}}}};
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

//===----------------------------------------------------------------------===//
// Experts
//===----------------------------------------------------------------------===//

/// The matrices of all experts of `choice`, one after another in each of
/// `segments`. `activations` belong to choices, not to tokens, and an expert
/// has `outputs` outputs.
static WeightUse expertsUse(ArrayAttr segments, Value choice, Value activations,
                            int64_t outputs, int64_t k) {
  const int64_t experts = widthOf(choice) - 1;
  return {segments, WeightRole::Matrix,
          SmallVector<int64_t>(segments.size(), experts * outputs), k,
          ExpertsUse{experts, choicesOfToken(activations), choice}};
}

SmallVector<KernelUse> RouteOp::getKernelUses() {
  SmallVector<KernelUse> uses = {{.kind = KernelOp::ChooseExperts,
                                  .calls = {{.length = widthOf(getLogits()),
                                             .chosen = widthOf(getIds()),
                                             .calls = 1}}}};
  if (getShared())
    uses.push_back(called(KernelOp::Sigmoid, 1));
  return uses;
}

/// Multiplications of a token in a product of experts with one matrix.
static int64_t expertMacs(Value input, Value result) {
  return choicesOfToken(result) * widthOf(input) * widthOf(result);
}

SmallVector<KernelUse> ExpertsGateOp::getKernelUses() {
  return productUses(getInput(), expertMacs(getInput(), getResult()));
}

SmallVector<WeightUse> ExpertsGateOp::getWeightUses() {
  return {expertsUse(only(getGateAttr()), getFirst(), getResult(),
                     widthOf(getResult()), widthOf(getInput()))};
}

SmallVector<KernelUse> ExpertsUpOp::getKernelUses() {
  const int64_t choices = choicesOfToken(getResult());
  SmallVector<KernelUse> uses = productUses(
      getInput(), (getGate() ? 2 : 1) * expertMacs(getInput(), getResult()));
  KernelUse activation =
      calledInBlocks(isInBlocks(getResult().getType()) ? KernelOp::SwiGluQ8
                                                       : KernelOp::SwiGluF32,
                     getResult());
  for (KernelCalls &calls : activation.calls)
    calls.calls *= choices;
  uses.push_back(activation);
  return uses;
}

SmallVector<WeightUse> ExpertsUpOp::getWeightUses() {
  SmallVector<Attribute> segments = {getUpAttr()};
  if (getGate())
    segments.insert(segments.begin(), getGateAttr());
  return {expertsUse(ArrayAttr::get(getContext(), segments), getFirst(),
                     getResult(), widthOf(getResult()), widthOf(getInput()))};
}

SmallVector<KernelUse> ExpertsDownOp::getKernelUses() {
  const int64_t choices = choicesOfToken(getInput());
  const int64_t width = widthOf(getResult());
  SmallVector<KernelUse> uses =
      productUses(getInput(), choices * widthOf(getInput()) * width);
  uses.push_back(called(KernelOp::AddScaled, width,
                        choices + static_cast<int64_t>(getAddends().size())));
  return uses;
}

std::optional<SmallVector<Value>> ExpertsDownOp::getSummands() {
  return SmallVector<Value>(getAddends());
}

bool ExpertsDownOp::fuseAddend(Value addend) {
  if (getAddends().size() == kMaxAddends)
    return false;
  getAddendsMutable().append(addend);
  return true;
}

SmallVector<WeightUse> ExpertsDownOp::getWeightUses() {
  return {expertsUse(only(getDownAttr()), getFirst(), getInput(),
                     widthOf(getResult()), widthOf(getInput()))};
}

/// The driver counts without a kernel.
SmallVector<KernelUse> CountOp::getKernelUses() { return {}; }
