//===- QwenOps.cpp - Verifiers of the qwen ops ----------------------------===//

#include "qwen/ABI/ArtifactFormat.h"
#include "qwen/Dialect/QwenDialect.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/OpImplementation.h"

using namespace mlir;
using namespace qwen;

//===----------------------------------------------------------------------===//
// Syntax shared by the ops: numbers without their type
//===----------------------------------------------------------------------===//

static ParseResult parseInteger(OpAsmParser &parser, IntegerAttr &value) {
  int64_t number;
  if (parser.parseInteger(number))
    return failure();
  value = parser.getBuilder().getI64IntegerAttr(number);
  return success();
}

static void printInteger(OpAsmPrinter &printer, Operation *,
                         IntegerAttr value) {
  printer << value.getInt();
}

static ParseResult parseFloat(OpAsmParser &parser, FloatAttr &value) {
  double number;
  if (parser.parseFloat(number))
    return failure();
  value = parser.getBuilder().getF64FloatAttr(number);
  return success();
}

static void printFloat(OpAsmPrinter &printer, Operation *, FloatAttr value) {
  printer.printFloat(value.getValue());
}

static ParseResult parseFields(OpAsmParser &parser, ArrayAttr &names,
                               ArrayAttr &values) {
  SmallVector<Attribute> fieldNames, fieldValues;
  const auto parseField = [&] {
    std::string name;
    if (parser.parseKeywordOrString(&name) || parser.parseEqual() ||
        parser.parseAttribute(fieldValues.emplace_back()))
      return ParseResult::failure();
    fieldNames.push_back(parser.getBuilder().getStringAttr(name));
    return ParseResult::success();
  };
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Braces, parseField))
    return failure();
  names = parser.getBuilder().getArrayAttr(fieldNames);
  values = parser.getBuilder().getArrayAttr(fieldValues);
  return success();
}

static void printFields(OpAsmPrinter &printer, Operation *, ArrayAttr names,
                        ArrayAttr values) {
  printer << '{';
  llvm::interleaveComma(llvm::zip_equal(names.getAsRange<StringAttr>(), values),
                        printer, [&](const auto &field) {
                          const auto &[name, value] = field;
                          printer.printKeywordOrString(name.getValue());
                          printer << " = ";
                          if (isa<IntegerAttr>(value))
                            printer.printAttributeWithoutType(value);
                          else
                            printer << value;
                        });
  printer << '}';
}

#include "qwen/Dialect/QwenInterfaces.cpp.inc"

#define GET_OP_CLASSES
#include "qwen/Dialect/QwenOps.cpp.inc"

//===----------------------------------------------------------------------===//
// Checks shared by the ops
//===----------------------------------------------------------------------===//

/// Checks that `what`, a number of `op`, is as wide as it must be.
static LogicalResult verifyWidth(Operation *op, StringRef what, int64_t width,
                                 int64_t needed) {
  if (width == needed)
    return success();
  return op->emitOpError() << what << " is " << width << " wide when " << needed
                           << " is needed";
}

static LogicalResult verifyMultiple(Operation *op, StringRef what,
                                    int64_t value, int64_t factor) {
  if (value % factor == 0)
    return success();
  return op->emitOpError() << what << " is " << value << " when a multiple of "
                           << factor << " is needed";
}

/// Checks a result that an op may quantize: it keeps the width, and groups
/// of sums are whole.
static LogicalResult verifyTokenResult(Operation *op, Value input,
                                       Value result) {
  if (failed(verifyWidth(op, "result", widthOf(result), widthOf(input))))
    return failure();
  if (isQuantizedActivations(result.getType()))
    return verifyMultiple(op, "width of quantized activations", widthOf(result),
                          kGroup);
  return success();
}

/// Checks that K of `weight` is whole groups.
static LogicalResult verifyK(Operation *op, Attribute weight, Value input) {
  if (widthOf(input) % kGroup == 0)
    return success();
  return op->emitOpError() << "reads " << weight
                           << " with K = " << widthOf(input)
                           << " when a multiple of " << kGroup << " is needed";
}

//===----------------------------------------------------------------------===//
// Activations of each token
//===----------------------------------------------------------------------===//

LogicalResult RmsNormOp::verify() {
  if (failed(verifyTokenResult(*this, getInput(), getResult())))
    return failure();
  if (!getHeadDim())
    return success();
  const auto headDim = static_cast<int64_t>(*getHeadDim());
  if (failed(verifyMultiple(*this, "width", widthOf(getInput()), headDim)))
    return failure();
  if (isQuantizedActivations(getResult().getType()))
    return emitOpError()
           << "quantizes normed heads when only normed tokens can "
              "be quantized";
  return success();
}

LogicalResult LinearOp::verify() {
  const size_t weights = getWeights().size();
  if (getNumResults() != weights)
    return emitOpError() << "has " << getNumResults() << " results when "
                         << weights << " is needed, one for each weight";
  if (getBias() && getBias()->size() != weights)
    return emitOpError() << "has " << getBias()->size() << " biases when "
                         << weights << " is needed, one for each weight";
  if (failed(verifyK(*this, getWeights()[0], getInput())))
    return failure();
  Value residual = getResidual();
  if (!residual)
    return success();
  if (weights != 1)
    return emitOpError() << "has a residual with " << weights
                         << " weights when 1 is needed";
  return verifyWidth(*this, "residual", widthOf(residual),
                     widthOf(getResult(0)));
}

LogicalResult AddBiasOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return detail::verifyWeight(*this, symbols, getBiasAttr(),
                              {widthOf(getInput())});
}

LogicalResult SwiGluOp::verify() {
  if (getHadamard() && !isQuantizedActivations(getResult().getType()))
    return emitOpError() << "has f32 results with hadamard when only quantized "
                            "ones can be transformed";
  return verifyTokenResult(*this, getGate(), getResult());
}

LogicalResult MapOp::verify() {
  return verifyTokenResult(*this, getInput(), getResult());
}

LogicalResult HadamardOp::verify() {
  return verifyMultiple(*this, "width", widthOf(getInput()), kGroup);
}

Type QuantizeOp::typeOf(Type type) {
  MLIRContext *context = type.getContext();
  return RankedTensorType::get(
      cast<RankedTensorType>(type).getShape(), IntegerType::get(context, 8),
      BlocksAttr::get(context, kActivationBlock, countOf(type)));
}

void QuantizeOp::build(OpBuilder &builder, OperationState &state, Value input) {
  build(builder, state, typeOf(input.getType()), input, /*packed=*/nullptr,
        /*kernels=*/nullptr,
        /*plan=*/nullptr);
}

LogicalResult QuantizeOp::verify() {
  return verifyTokenResult(*this, getInput(), getResult());
}

LogicalResult TurnOp::verify() {
  if (failed(verifyK(*this, getRotationAttr(), getInput())))
    return failure();
  return verifyTokenResult(*this, getInput(), getResult());
}

LogicalResult WantedTokensOp::inferReturnTypes(MLIRContext *context,
                                               std::optional<Location>,
                                               Adaptor adaptor,
                                               SmallVectorImpl<Type> &types) {
  auto input = dyn_cast<RankedTensorType>(adaptor.getInput().getType());
  if (!input)
    return failure();
  types.push_back(RankedTensorType::get(input.getShape(),
                                        input.getElementType(),
                                        countNamed(context, kWantedName)));
  return success();
}

LogicalResult LmHeadOp::verify() {
  return verifyK(*this, getWeightAttr(), getInput());
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

/// Checks that a head has the values that are rotated, twice as many as `cos`.
static LogicalResult verifyRotation(Operation *op, int64_t headSize,
                                    Value cos) {
  if (headSize >= 2 * widthOf(cos))
    return success();
  return op->emitOpError() << "head is " << headSize << " wide when "
                           << 2 * widthOf(cos) << " or more is needed";
}

LogicalResult RopeTableOp::verify() {
  const size_t positions = 1 + getGrid().size(), needed = getSections() ? 3 : 1;
  if (positions != needed)
    return emitOpError() << "has " << positions << " positions of a token when "
                         << needed << (needed == 1 ? " is" : " are")
                         << " needed";
  const std::optional<SectionsAttr> of = getSections();
  if (!of)
    return success();
  return verifyWidth(*this, "cos", widthOf(getCos()),
                     of->getTimes() + of->getHeights() + of->getWidths());
}

int64_t RopeOp::getHeadSize() {
  return static_cast<int64_t>(getHeadDim().value_or(2 * widthOf(getCos())));
}

LogicalResult RopeOp::verify() {
  if (failed(detail::verifyCounts(*this)) ||
      failed(verifyRotation(*this, getHeadSize(), getCos())))
    return failure();
  return verifyMultiple(*this, "width", widthOf(getInput()), getHeadSize());
}

/// Checks the layer of an op, its heads in `values`, and their norm and
/// rotation.
template <typename HeadsOp>
static LogicalResult verifyHeads(HeadsOp op, Value values, int64_t heads) {
  if (failed(verifyMultiple(op, "width", widthOf(values), heads)) ||
      failed(verifyMultiple(op, "width of a head", op.getHeadDim(), 8)))
    return failure();
  if (!op.getCos() != !op.getSin())
    return op.emitOpError() << "needs both of rope(cos, sin)";
  if (op.getCos() && (failed(verifyWidth(op, "sin", widthOf(op.getSin()),
                                         widthOf(op.getCos()))) ||
                      failed(verifyRotation(op, op.getHeadDim(), op.getCos()))))
    return failure();
  if (op.getNorm() && !op.getCos())
    return op.emitOpError() << "has norm without rope";
  if (op.getNorm().has_value() != op.getEps().has_value())
    return op.emitOpError() << "has " << (op.getNorm() ? "norm" : "eps")
                            << " without " << (op.getNorm() ? "eps" : "norm");
  if (const auto format = op.getFormat();
      format && !layoutOf(format->getValue()).isFloat() &&
      op.getHeadDim() > kStackValues)
    return op.emitOpError()
           << "has heads of " << op.getHeadDim() << " values when a cache in "
           << kvFormatName(format->getValue()) << " has at most "
           << kStackValues << "; --kv f16 has no such limit";
  return success();
}

int64_t AppendOp::getHeadDim() {
  return widthOf(getKeys()) / static_cast<int64_t>(getKvHeads());
}

LogicalResult AppendOp::verify() {
  return verifyHeads(*this, getKeys(), static_cast<int64_t>(getKvHeads()));
}

int64_t AttentionOp::getHeadDim() {
  return widthOf(getQueries()) / static_cast<int64_t>(getHeads());
}

AppendOp AttentionOp::getAppend() {
  if (!getLayer())
    return nullptr;
  for (AppendOp append : (*this)->getBlock()->getOps<AppendOp>())
    if (append.getLayer() == getLayer())
      return append;
  return nullptr;
}

Value AttentionOp::getWeighed() {
  if (getValues())
    return getValues();
  AppendOp append = getAppend();
  return append ? append.getValues() : Value();
}

/// Checks what `op` attends to: the cache, or keys and values of the call.
static LogicalResult verifyMask(AttentionOp op) {
  if (!op.getKeys() != !op.getValues())
    return op.emitOpError() << "needs both of over(keys, values)";
  if (op.getLayer().has_value() == bool(op.getKeys()))
    return op.emitOpError() << "needs either a layer of the cache or "
                               "over(keys, values)";
  if (op.getMask() == Mask::Windows ? !op.getWindows() : !!op.getWindows())
    return op.emitOpError()
           << "has mask " << stringifyMask(op.getMask())
           << (op.getWindows() ? " with" : " without") << " windows of tokens";
  if (op.getLayer() && op.getMask() != Mask::Causal)
    return op.emitOpError()
           << "has mask " << stringifyMask(op.getMask())
           << " over the cache, of which later calls see more; only causal can "
              "be";
  if (!op.getKeys())
    return success();
  if (op.getNorm())
    return op.emitOpError() << "norms queries without a cache; a qwen.rms_norm "
                               "before it does";
  const int64_t width = static_cast<int64_t>(op.getKvHeads()) * op.getHeadDim();
  return success(
      succeeded(verifyWidth(op, "keys", widthOf(op.getKeys()), width)) &&
      succeeded(verifyWidth(op, "values", widthOf(op.getValues()), width)));
}

LogicalResult AttentionOp::verify() {
  const auto heads = static_cast<int64_t>(getHeads());
  if (failed(verifyMultiple(*this, "heads", heads,
                            static_cast<int64_t>(getKvHeads()))) ||
      failed(verifyHeads(*this, getQueries(), heads)))
    return failure();
  return verifyMask(*this);
}

LogicalResult GateOp::verify() {
  return verifyTokenResult(*this, getInput(), getResult());
}

//===----------------------------------------------------------------------===//
// Linear attention
//===----------------------------------------------------------------------===//

LogicalResult ShortConvolutionOp::verify() {
  return verifyMultiple(*this, "width", widthOf(getInput()), kPanelOutputs);
}

int64_t DeltaRuleOp::getValueHeads() { return widthOf(getDecay()); }

int64_t DeltaRuleOp::getSharing() {
  return getInterleaved()
             ? 1
             : getValueHeads() / static_cast<int64_t>(getKeyHeads());
}

int64_t DeltaRuleOp::getKeyDim() {
  return (widthOf(getInput()) - widthOf(getResult())) / 2 /
         static_cast<int64_t>(getKeyHeads());
}

int64_t DeltaRuleOp::getValueDim() {
  return widthOf(getResult()) / getValueHeads();
}

LogicalResult DeltaRuleOp::verify() {
  const auto keyHeads = static_cast<int64_t>(getKeyHeads());
  const int64_t keys = widthOf(getInput()) - widthOf(getResult());
  if (keys <= 0)
    return emitOpError() << "input is " << widthOf(getInput())
                         << " wide when more than the result's "
                         << widthOf(getResult()) << " is needed";
  return success(succeeded(verifyMultiple(*this, "heads of values",
                                          getValueHeads(), keyHeads)) &&
                 succeeded(verifyMultiple(*this, "result", widthOf(getResult()),
                                          kGroup * getValueHeads())) &&
                 succeeded(verifyMultiple(*this, "width of q and k", keys,
                                          2 * kGroup * keyHeads)));
}

//===----------------------------------------------------------------------===//
// Experts
//===----------------------------------------------------------------------===//

/// Checks that `what`, choices of experts, has `needed` for each token.
static LogicalResult verifyChosen(Operation *op, StringRef what, int64_t chosen,
                                  int64_t needed) {
  if (chosen == needed)
    return success();
  return op->emitOpError() << what << " has " << chosen
                           << " experts of a token when " << needed
                           << " is needed";
}

LogicalResult RouteOp::verify() {
  const int64_t experts = widthOf(getLogits()), chosen = widthOf(getIds());
  if (experts > kMaxExperts)
    return emitOpError() << "chooses of " << experts << " experts when up to "
                         << kMaxExperts << " is supported";
  if (chosen > experts)
    return emitOpError() << "chooses " << chosen << " experts when 1 to "
                         << experts << " is needed";
  if (getShared() && failed(verifyWidth(*this, "logit of the shared expert",
                                        widthOf(getShared()), 1)))
    return failure();
  return success(
      succeeded(verifyWidth(*this, "weights", widthOf(getWeights()),
                            chosen + (getShared() ? 1 : 0))) &&
      succeeded(verifyWidth(*this, "first", widthOf(getFirst()), experts + 1)));
}

/// Checks the choices that products of experts read, and their widths.
template <typename ExpertsOp>
static LogicalResult verifyExperts(ExpertsOp op, Value activations, int64_t k,
                                   int64_t outputs) {
  const int64_t experts = widthOf(op.getFirst()) - 1;
  if (experts < 1 || experts > kMaxExperts)
    return op.emitOpError() << "has " << experts << " experts when 1 to "
                            << kMaxExperts << " is needed";
  if (choicesOfToken(activations) > experts)
    return op.emitOpError()
           << "has " << choicesOfToken(activations)
           << " experts of a token when 1 to " << experts << " is needed";
  // Experts have outputs one after another, in one dimension.
  if (outputs > kMaxDimension / experts)
    return op.emitOpError()
           << "has " << outputs << " outputs of " << experts << " experts when "
           << kMaxDimension << " is the most of all";
  return success(
      succeeded(verifyChosen(op, "order", widthOf(op.getOrder()),
                             choicesOfToken(activations))) &&
      succeeded(verifyMultiple(op, "K", k, kGroup)) &&
      succeeded(verifyMultiple(op, "width of the result", outputs, kGroup)));
}

LogicalResult ExpertsGateOp::verify() {
  if (isInBlocks(getResult().getType()))
    return emitOpError() << "has a quantized result";
  return verifyExperts(*this, getResult(), widthOf(getInput()),
                       widthOf(getResult()));
}

LogicalResult ExpertsUpOp::verify() {
  if (getGate().has_value() == (getGates() != nullptr))
    return emitOpError() << "needs either a gate or gates";
  if (getGates() &&
      (isInBlocks(getGates().getType()) ||
       choicesOfToken(getGates()) != choicesOfToken(getResult()) ||
       widthOf(getGates()) != widthOf(getResult())))
    return emitOpError() << "has gates of " << getGates().getType()
                         << " when f32 of the shape of "
                         << getResult().getType() << " is needed";
  return verifyExperts(*this, getResult(), widthOf(getInput()),
                       widthOf(getResult()));
}

bool ExpertsDownOp::hasSharedExpert() {
  return widthOf(getWeights()) > choicesOfToken(getInput());
}

LogicalResult ExpertsDownOp::verify() {
  const int64_t weights =
      choicesOfToken(getInput()) + (hasSharedExpert() ? 1 : 0);
  if (failed(verifyExperts(*this, getInput(), widthOf(getInput()),
                           widthOf(getResult()))) ||
      failed(verifyWidth(*this, "weights", widthOf(getWeights()), weights)))
    return failure();
  if (hasSharedExpert() && getAddends().empty())
    return emitOpError() << "has a weight of a shared expert, but no addend";
  if (getAddends().size() > kMaxAddends)
    return emitOpError() << "has " << getAddends().size() << " addends when "
                         << kMaxAddends << " is the most";
  for (Value addend : getAddends())
    if (failed(verifyWidth(*this, "addend", widthOf(addend),
                           widthOf(getResult()))))
      return failure();
  return success();
}

//===----------------------------------------------------------------------===//
// qwen.struct
//===----------------------------------------------------------------------===//

void StructOp::build(OpBuilder &builder, OperationState &state, Type pointer,
                     ArrayRef<NamedAttribute> fields) {
  build(builder, state, pointer,
        builder.getArrayAttr(llvm::map_to_vector(
            fields,
            [](NamedAttribute field) -> Attribute { return field.getName(); })),
        builder.getArrayAttr(llvm::map_to_vector(
            fields, [](NamedAttribute field) { return field.getValue(); })));
}

LogicalResult StructOp::verify() {
  if (getNames().size() == getValues().size())
    return success();
  return emitOpError() << "has " << getNames().size() << " names for "
                       << getValues().size() << " values";
}
