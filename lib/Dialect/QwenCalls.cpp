//===- QwenCalls.cpp - The calls of the driver, op by op ------------------===//
//
// What each op gives to the structs of DriverABI.def: numbers by their names.
// The structs name kinds of kernels, and the op has the kernels.
//
//===----------------------------------------------------------------------===//

#include "qwen/Dialect/QwenDialect.h"

#include "mlir/IR/Builders.h"

#include <cmath>
#include <utility>

using namespace mlir;
using namespace qwen;

//===----------------------------------------------------------------------===//
// Structs as fields
//===----------------------------------------------------------------------===//

namespace {
/// The numbers of the structs of instances.
namespace fixed {
#define QWEN_ARGUMENTS(...)
#define QWEN_DRIVER(Function, Reads, Fields)                                   \
  struct Function {                                                            \
    using Arguments = Reads##Arguments;                                        \
    static constexpr char kFunction[] = "qwenDriver" #Function;                \
    Fields                                                                     \
  };
#define QWEN_FIELD(Type, name) Type name;
#define QWEN_KERNEL(Op, name)
#define QWEN_PRODUCT(Op)
#define QWEN_SCRATCH(name) Length name;
#include "qwen/ABI/DriverABI.def"
} // namespace fixed
} // namespace

// visitFields(of, list): gives each field to `list`.
#define QWEN_ARGUMENTS(Name, Fields)                                           \
  template <typename List>                                                     \
  static void visitFields(const Name##Arguments &of, List &list) {             \
    Fields                                                                     \
  }
#define QWEN_DRIVER(Function, Reads, Fields)                                   \
  template <typename List>                                                     \
  static void visitFields([[maybe_unused]] const fixed::Function &of,          \
                          List &list) {                                        \
    Fields                                                                     \
  }
#define QWEN_FIELD(Type, name) list.add(#name, of.name);
#define QWEN_KERNEL(Op, name) list.addKernel(#name, KernelOp::Op);
#define QWEN_PRODUCT(Op) list.addProduct();
#define QWEN_SCRATCH(name) list.addScratch(#name, of.name);
#include "qwen/ABI/DriverABI.def"

namespace {
/// Makes the call of one op. It calls the kernels of `op`, or of `next`.
class CallOf {
public:
  CallOf(ForwardOp op, const CallFacts &facts, ForwardOp next = nullptr)
      : stem(op->getName().stripDialect()), facts(facts), op(op), next(next),
        builder(op->getContext()) {}

  template <typename Fixed>
  DriverCall call(const typename Fixed::Arguments &arguments,
                  const Fixed &constants = {}) {
    visitFields(arguments, *this);
    StructFields differing = std::exchange(fields, {});
    visitFields(constants, *this);
    return {firstKernel.empty() ? stem : stem + "." + firstKernel,
            Fixed::kFunction, std::move(differing), std::move(fields)};
  }

  /// The call of `Quantized` if `value` is int8, else the call of `Floats`.
  template <typename Quantized, typename Floats>
  DriverCall callFor(Value value, const typename Floats::Arguments &arguments) {
    if (isInBlocks(value.getType()))
      return call<Quantized>(arguments);
    return call<Floats>(arguments);
  }

  OpId id() { return OpId(op.getPlanAttr().getId()); }
  /// The part that the op reads as its weight `i`; absent if there are fewer.
  WeightPlace part(size_t i) {
    const ArrayAttr parts = op.getPackedAttr();
    return parts && i < parts.size()
               ? facts.partAt(cast<FlatSymbolRefAttr>(parts[i]))
               : WeightPlace{ImageId(0), WeightOffset(-1)};
  }

  // What visitFields gives.
  void add(StringRef name, Attribute value) {
    fields.emplace_back(builder.getStringAttr(name), value);
  }
  template <typename Kind> void add(StringRef name, Number<Kind> value) {
    add(name, builder.getI64IntegerAttr(value));
  }
  void add(StringRef name, float value) {
    add(name, builder.getF32FloatAttr(value));
  }
  void add(StringRef name, const WeightPlace &place) {
    add((name + ".image").str(), place.image);
    add(name, place.offset);
  }
  void add(StringRef name, const Rows &rows) {
    add(name, rows.at);
    add((name + ".stride").str(), rows.stride);
  }
  void add(StringRef name, const BlockRows &rows) {
    add(name, Rows{rows.at, rows.stride});
    add((name + ".scales").str(), rows.scales);
    add((name + ".sums").str(), rows.sums);
  }
  void addKernel(StringRef name, KernelOp kind) {
    const KernelInfo *kernel = kernelOf(op, kind);
    if (!kernel && next)
      kernel = kernelOf(next, kind);
    add(name,
        kernel ? attribute(kernel) : TypeAttr::get(builder.getNoneType()));
  }
  void addProduct() {
    const auto kernels = op.getKernelsAttr().getAsRange<KernelAttr>();
    const ProductPlan plan =
        facts.productOf(*(*kernels.begin()).getInfo(),
                        *(*std::next(kernels.begin())).getInfo());
    add("cached", plan.cached);
    add("least", plan.least);
    add("reused", plan.reused);
    add("together", plan.together);
    SmallVector<Attribute> tiles;
    for (const KernelInfo *kernel : plan.tiles)
      tiles.push_back(attribute(kernel));
    add("tiles", builder.getArrayAttr(tiles));
  }
  void addScratch(StringRef name, Length floats) {
    add(name, TypeAttr::get(MemRefType::get({floats}, builder.getF32Type())));
  }

  /// The instance is called by this and its first kernel.
  std::string stem;

private:
  Attribute attribute(const KernelInfo *kernel) {
    if (firstKernel.empty())
      firstKernel = kernel->name;
    return KernelAttr::get(builder.getContext(), kernel);
  }

  const CallFacts &facts;
  ForwardOp op, next;
  Builder builder;
  std::string firstKernel;
  StructFields fields;
};
} // namespace

//===----------------------------------------------------------------------===//
// Fields of values and attributes
//===----------------------------------------------------------------------===//

BufferAttr qwen::bufferOf(Value value) {
  if (auto view = value.getDefiningOp<WantedTokensOp>())
    return bufferOf(view.getInput());
  if (auto argument = dyn_cast<BlockArgument>(value))
    return cast<func::FuncOp>(argument.getOwner()->getParentOp())
        .getArgAttrOfType<BufferAttr>(argument.getArgNumber(), kPlaceAttr);
  auto writer = dyn_cast<ForwardOp>(value.getDefiningOp());
  if (!writer || !writer.getPlanAttr())
    return {};
  return writer.getPlanAttr()
      .getBuffers()[cast<OpResult>(value).getResultNumber()];
}

static Rows rowsOf(Value value) {
  const BufferAttr buffer = bufferOf(value);
  return {ArenaOffset(buffer.getOffset()), Stride(buffer.getStride())};
}

/// The rows of `value`, which may be absent.
static Rows optionalRows(Value value) {
  return value ? rowsOf(value) : Rows{ArenaOffset(-1), Stride(0)};
}

static BlockRows blockRowsOf(Value value) {
  const BufferAttr buffer = bufferOf(value);
  return {ArenaOffset(buffer.getOffset()), Stride(buffer.getStride()),
          ArenaOffset(buffer.getScales()), ArenaOffset(buffer.getSums())};
}

static Length lengthOf(Value value) { return Length(widthOf(value)); }

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
// Activations of each token
//===----------------------------------------------------------------------===//

DriverCall EmbeddingOp::getDriverCall(const CallFacts &facts) {
  CallOf of(*this, facts);
  return of.call<fixed::Embedding>({.weight = of.part(0),
                                    .out = rowsOf(getResult()),
                                    .k = lengthOf(getResult()),
                                    .op = of.id()});
}

DriverCall RopeTableOp::getDriverCall(const CallFacts &facts) {
  CallOf of(*this, facts);
  const RopeTableArguments arguments = {.frequencies = of.part(0),
                                        .cos = rowsOf(getCos()),
                                        .sin = rowsOf(getSin()),
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
  return {.in = rowsOf(op.getInput()),
          .weight = of.part(0),
          .out = blockRowsOf(op.getResult()),
          .k = lengthOf(op.getInput()),
          .eps = toFloat(op.getEps()),
          .wanted = Flag(isOverWantedTokens(op)),
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
  return of.callFor<fixed::RmsNormQ8, fixed::RmsNormF32>(getResult(),
                                                         arguments);
}

DriverCall RmsNormOp::getHiddenCall(const CallFacts &facts) {
  CallOf of(*this, facts, getLmHead());
  of.stem = "hidden_rows";
  return of.call<fixed::HiddenRows>(argumentsOf(*this, of));
}

DriverCall QuantizeOp::getDriverCall(const CallFacts &facts) {
  CallOf of(*this, facts);
  return of.call<fixed::Quantize>({.in = rowsOf(getInput()),
                                   .out = blockRowsOf(getResult()),
                                   .k = lengthOf(getResult()),
                                   .op = of.id()});
}

DriverCall HadamardOp::getDriverCall(const CallFacts &facts) {
  CallOf of(*this, facts);
  return of.call<fixed::Hadamard>({.in = rowsOf(getInput()),
                                   .out = blockRowsOf(getResult()),
                                   .k = lengthOf(getResult()),
                                   .op = of.id()});
}

DriverCall TurnOp::getDriverCall(const CallFacts &facts) {
  CallOf of(*this, facts);
  const Length k = lengthOf(getInput());
  const TurnArguments arguments = {.in = rowsOf(getInput()),
                                   .rotation = of.part(0),
                                   .out = blockRowsOf(getResult()),
                                   .k = k,
                                   .back = Flag(getBack()),
                                   .wanted = Flag(isOverWantedTokens(*this)),
                                   .op = of.id()};
  if (isQuantizedActivations(getResult().getType()))
    return of.call<fixed::TurnQ8>(arguments, {.scratch = Length(2 * k)});
  return of.call<fixed::TurnF32>(arguments, {.scratch = k});
}

static GateArguments gateArguments(CallOf &of, Value in, Value gate,
                                   Value result) {
  return {.in = rowsOf(in),
          .gate = rowsOf(gate),
          .out = blockRowsOf(result),
          .k = lengthOf(result),
          .op = of.id()};
}

DriverCall SwiGluOp::getDriverCall(const CallFacts &facts) {
  CallOf of(*this, facts);
  const GateArguments arguments =
      gateArguments(of, getUp(), getGate(), getResult());
  if (getHadamard())
    return of.call<fixed::SwiGluHadamardQ8>(arguments);
  return of.callFor<fixed::SwiGluQ8, fixed::SwiGluF32>(getResult(), arguments);
}

DriverCall GateOp::getDriverCall(const CallFacts &facts) {
  CallOf of(*this, facts);
  return of.callFor<fixed::GateQ8, fixed::GateF32>(
      getResult(), gateArguments(of, getInput(), getGate(), getResult()));
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
  return {.in = blockRowsOf(input),
          .weight = of.part(0),
          .bias = of.part(1),
          .out = rowsOf(results.front()),
          .k = lengthOf(input),
          .panels = Panels(ceilDiv(width, kPanelOutputs)),
          .residual = residual ? rowsOf(residual).at : ArenaOffset(-1),
          .op = of.id()};
}

DriverCall LinearOp::getDriverCall(const CallFacts &facts) {
  CallOf of(*this, facts);
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
      {.keys = rowsOf(getKeys()),
       .values = rowsOf(getValues()),
       .cos = optionalRows(getCos()),
       .sin = optionalRows(getSin()),
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
      {.queries = rowsOf(op.getQueries()),
       .keys = rowsOf(op.getKeys()),
       .values = rowsOf(op.getValues()),
       .cos = optionalRows(op.getCos()),
       .sin = optionalRows(op.getSin()),
       .out = rowsOf(op.getResult()),
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
      {.queries = rowsOf(getQueries()),
       .cos = optionalRows(getCos()),
       .sin = optionalRows(getSin()),
       .norm = of.part(0),
       .out = rowsOf(getResult()),
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
       .scratch = Length(attentionScratch(groupQueries, headDim, blockTokens) +
                         ofHeadNorm)});
}

//===----------------------------------------------------------------------===//
// Linear attention
//===----------------------------------------------------------------------===//

DriverCall ShortConvolutionOp::getDriverCall(const CallFacts &facts) {
  CallOf of(*this, facts);
  const CachePlace place = facts.cacheOf(*this);
  return of.call<fixed::ShortConvolution>({.in = rowsOf(getInput()),
                                           .weight = of.part(0),
                                           .out = rowsOf(getResult()),
                                           .channels = lengthOf(getResult()),
                                           .layer = place.layer,
                                           .op = of.id()},
                                          {.cache = place.cache,
                                           .cacheStride = place.stride,
                                           .stepBack = place.stepBack});
}

DriverCall DeltaGatesOp::getDriverCall(const CallFacts &facts) {
  CallOf of(*this, facts);
  return of.call<fixed::DeltaGates>({.a = rowsOf(getA()),
                                     .b = rowsOf(getB()),
                                     .rate = of.part(0),
                                     .bias = of.part(1),
                                     .decay = rowsOf(getDecay()),
                                     .beta = rowsOf(getBeta()),
                                     .heads = Heads(widthOf(getDecay())),
                                     .op = of.id()});
}

DriverCall DeltaRuleOp::getDriverCall(const CallFacts &facts) {
  CallOf of(*this, facts);
  const CachePlace place = facts.cacheOf(*this);
  const int64_t keyDim = getKeyDim();
  return of.call<fixed::DeltaRule>(
      {.in = rowsOf(getInput()),
       .decay = rowsOf(getDecay()),
       .beta = rowsOf(getBeta()),
       .out = rowsOf(getResult()),
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

//===----------------------------------------------------------------------===//
// Experts
//===----------------------------------------------------------------------===//

DriverCall RouteOp::getDriverCall(const CallFacts &facts) {
  CallOf of(*this, facts);
  return of.call<fixed::Route>({.logits = rowsOf(getLogits()),
                                .shared = optionalRows(getShared()),
                                .weights = rowsOf(getWeights()),
                                .ids = rowsOf(getIds()).at,
                                .order = rowsOf(getOrder()).at,
                                .first = rowsOf(getFirst()).at,
                                .normalized = Flag(getNormalized()),
                                .op = of.id()},
                               {.experts = Experts(widthOf(getLogits())),
                                .chosen = Experts(widthOf(getIds()))});
}

/// What an instance fixes of the products of `op`, which give `width` values.
/// `activations` has a row for each choice.
template <typename Fixed, typename ExpertsOp>
static Fixed expertsFixed(ExpertsOp op, const CallFacts &facts,
                          Value activations, int64_t width, int64_t scratch) {
  const Value input = op.getInput();
  const KernelInfo &kernel = *cast<KernelAttr>((*op.getKernels())[0]).getInfo();
  return {.experts = Experts(widthOf(op.getFirst()) - 1),
          .chosen = Experts(choicesOfToken(activations)),
          .k = lengthOf(input),
          .width = Length(width),
          .stride =
              facts.strideOf(cast<FlatSymbolRefAttr>((*op.getPacked())[0])),
          .panelBytes =
              Bytes(panelBytes(*weightFormat(kernel.format), widthOf(input))),
          .scratch = Length(scratch)};
}

/// The call of experts_gate or experts_up.
template <typename ExpertsOp>
static DriverCall expertsUpCall(ExpertsOp op, Value gates,
                                const CallFacts &facts) {
  CallOf of(op, facts);
  const bool isQuantized = isInBlocks(op.getInput().getType());
  const ExpertsUpArguments arguments = {.in = blockRowsOf(op.getInput()),
                                        .order = rowsOf(op.getOrder()).at,
                                        .first = rowsOf(op.getFirst()).at,
                                        .weight = of.part(0),
                                        .gates = optionalRows(gates),
                                        .out = blockRowsOf(op.getResult()),
                                        .op = of.id()};
  const auto constants = [&]<typename Fixed>(Fixed) {
    return expertsFixed<Fixed>(
        op, facts, op.getResult(), widthOf(op.getResult()),
        expertsUpScratch(widthOf(op.getInput()), isQuantized));
  };
  if (isQuantized)
    return of.call(arguments, constants(fixed::ExpertsUpQ8()));
  return of.call(arguments, constants(fixed::ExpertsUpF32()));
}

DriverCall ExpertsGateOp::getDriverCall(const CallFacts &facts) {
  return expertsUpCall(*this, nullptr, facts);
}

DriverCall ExpertsUpOp::getDriverCall(const CallFacts &facts) {
  return expertsUpCall(*this, getGates(), facts);
}

DriverCall ExpertsDownOp::getDriverCall(const CallFacts &facts) {
  CallOf of(*this, facts);
  const auto addend = [&](size_t i) {
    return optionalRows(i < getAddends().size() ? getAddends()[i] : Value());
  };
  const ExpertsDownArguments arguments = {.in = blockRowsOf(getInput()),
                                          .weights = rowsOf(getWeights()),
                                          .order = rowsOf(getOrder()).at,
                                          .first = rowsOf(getFirst()).at,
                                          .weight = of.part(0),
                                          .addend = addend(0),
                                          .isScaled = Flag(hasSharedExpert()),
                                          .last = addend(1),
                                          .out = rowsOf(getResult()),
                                          .op = of.id()};
  const auto constants = [&]<typename Fixed>(Fixed) {
    return expertsFixed<Fixed>(*this, facts, getInput(), widthOf(getResult()),
                               kExpertValues);
  };
  if (isInBlocks(getInput().getType()))
    return of.call(arguments, constants(fixed::ExpertsDownQ8()));
  return of.call(arguments, constants(fixed::ExpertsDownF32()));
}

DriverCall CountOp::getDriverCall(const CallFacts &facts) {
  CallOf of(*this, facts);
  const bool inArena = isIntegers(getIds().getType());
  return of.call<fixed::Count>(
      {.ids = inArena ? rowsOf(getIds()).at : ArenaOffset(-1),
       .n = inArena ? lengthOf(getIds()) : Length(0),
       .limit = getLimit() ? rowsOf(getLimit()).at : ArenaOffset(-1),
       .out = rowsOf(getResult()).at,
       .k = lengthOf(getResult()),
       .op = of.id()});
}
