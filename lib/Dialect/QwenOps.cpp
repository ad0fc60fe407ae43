//===- QwenOps.cpp - Verifiers of the qwen ops ----------------------------===//

#include "qwen/ABI/Artifact.h"
#include "qwen/ABI/KernelTable.h"
#include "qwen/Dialect/QwenDialect.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/OpImplementation.h"

#include <cmath>

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

#define GET_OP_CLASSES
#include "qwen/Dialect/QwenOps.cpp.inc"

//===----------------------------------------------------------------------===//
// Checks shared by the ops
//===----------------------------------------------------------------------===//

/// Columns of a tensor of rows.
static int64_t columns(Value rows) {
  return cast<RankedTensorType>(rows.getType()).getDimSize(1);
}

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

static LogicalResult verifyNotNegative(Operation *op, StringRef what,
                                       int64_t value) {
  if (value >= 0)
    return success();
  return op->emitOpError() << what << " is " << value
                           << " when 0 or more is needed";
}

/// Checks the number of a layer.
static LogicalResult verifyLayer(Operation *op, uint64_t layer) {
  if (layer < kMaxLayers)
    return success();
  return op->emitOpError() << "layer is " << static_cast<int64_t>(layer)
                           << " when 0 to " << kMaxLayers - 1 << " is needed";
}

/// Checks a number that must be positive and finite, as f32 too.
static LogicalResult verifyPositive(Operation *op, StringRef what,
                                    const APFloat &value) {
  const auto number = static_cast<float>(value.convertToDouble());
  if (std::isfinite(number) && number > 0)
    return success();
  return op->emitOpError() << what << " is " << value.convertToDouble()
                           << " when a positive number is needed";
}

/// Checks the rows that an op may quantize: they keep their width, and groups
/// of sums are whole.
static LogicalResult verifyRowResult(Operation *op, Value input, Value result) {
  if (failed(verifyWidth(op, "result", columns(result), columns(input))))
    return failure();
  if (isQuantizedActivations(result.getType()))
    return verifyMultiple(op, "width of quantized rows", columns(result),
                          kGroup);
  return success();
}

/// The weight or packed part that `symbol` names, or an error.
static FailureOr<RankedTensorType>
lookupWeightType(Operation *op, SymbolTableCollection &symbols,
                 FlatSymbolRefAttr symbol) {
  if (auto weight = symbols.lookupNearestSymbolFrom<WeightOp>(op, symbol))
    return cast<RankedTensorType>(weight.getType());
  if (auto packed = symbols.lookupNearestSymbolFrom<PackedOp>(op, symbol))
    return cast<RankedTensorType>(packed.getType());
  op->emitOpError() << "names " << symbol << ", which is not a weight";
  return failure();
}

/// Checks that `symbol` is a weight of `shape`.
static LogicalResult verifyWeight(Operation *op, SymbolTableCollection &symbols,
                                  FlatSymbolRefAttr symbol,
                                  ArrayRef<int64_t> shape) {
  FailureOr<RankedTensorType> type = lookupWeightType(op, symbols, symbol);
  if (failed(type))
    return failure();
  if (type->getShape() == shape)
    return success();
  InFlightDiagnostic diagnostic = op->emitOpError()
                                  << "weight " << symbol << " is [";
  llvm::interleaveComma(type->getShape(), diagnostic);
  diagnostic << "] when [";
  llvm::interleaveComma(shape, diagnostic);
  return diagnostic << "] is needed";
}

/// Checks that `packed` is the part of the image that holds `segments`.
static LogicalResult verifyPacked(Operation *op, SymbolTableCollection &symbols,
                                  FlatSymbolRefAttr packed,
                                  ArrayRef<Attribute> segments) {
  if (!packed)
    return success();
  auto part = symbols.lookupNearestSymbolFrom<PackedOp>(op, packed);
  if (!part)
    return op->emitOpError()
           << "names " << packed << ", which is not a qwen.packed";
  if (part.getSegments().getValue() == segments)
    return success();
  return op->emitOpError() << packed << " has other segments than the op";
}

/// Checks that K, the length of the rows of `weight`, is whole groups.
static LogicalResult verifyK(Operation *op, Attribute weight, Value input) {
  if (columns(input) % kGroup == 0)
    return success();
  return op->emitOpError() << "reads " << weight
                           << " with K = " << columns(input)
                           << " when a multiple of " << kGroup << " is needed";
}

/// Checks that `name`, where given, is a row of the kernel table for `kernelOp`
/// (for several rows of activations at once if `gemm`).
static LogicalResult verifyKernel(Operation *op, std::optional<StringRef> name,
                                  KernelOp kernelOp, bool gemm = false) {
  if (!name)
    return success();
  const KernelInfo *row = findKernel({name->data(), name->size()});
  if (!row)
    return op->emitOpError()
           << "has kernel '" << *name << "', which is not in the kernel table";
  if (row->op != kernelOp || (row->m > 1) != gemm)
    return op->emitOpError()
           << "has kernel '" << *name << "', which computes something else";
  return success();
}

/// Checks the kernels of a product: those of its activations.
template <typename ProductOp>
static LogicalResult verifyProductKernels(ProductOp op) {
  const KernelOp kind = isQuantizedActivations(op.getInput().getType())
                            ? KernelOp::LinearQ8
                            : KernelOp::LinearF32;
  return success(
      succeeded(verifyKernel(op, op.getGemv(), kind)) &&
      succeeded(verifyKernel(op, op.getGemm(), kind, /*gemm=*/true)));
}

/// Checks that `plan`, where given, has room for each result.
static LogicalResult verifyPlan(Operation *op, PlanAttr plan) {
  if (!plan)
    return success();
  if (failed(verifyNotNegative(op, "id", plan.getId())))
    return failure();
  const size_t count = plan.getBuffers().size();
  if (count != op->getNumResults())
    return op->emitOpError()
           << "has " << count << " buffers when " << op->getNumResults()
           << " is needed, one for each result";
  for (auto [buffer, result] :
       llvm::zip_equal(plan.getBuffers(), op->getResults())) {
    if (isa<LmHeadOp>(op)) {
      if (buffer.getOffset() != -1)
        return op->emitOpError() << "offset of logits is " << buffer.getOffset()
                                 << " when -1 is needed: they are not in the "
                                    "arena";
    } else if (failed(verifyNotNegative(op, "offset", buffer.getOffset()))) {
      return failure();
    }
    if (buffer.getStride() < columns(result))
      return op->emitOpError() << "stride is " << buffer.getStride() << " when "
                               << columns(result) << " or more is needed";
    const bool quantized = isQuantizedActivations(result.getType());
    if (quantized != (buffer.getScales() >= 0) ||
        quantized != (buffer.getSums() >= 0))
      return op->emitOpError()
             << "has a buffer with scales = " << buffer.getScales()
             << " and sums = " << buffer.getSums() << " for "
             << (quantized ? "quantized" : "f32") << " rows";
  }
  return success();
}

/// Checks the norm of heads that `append` and `attention` may have.
template <typename HeadsOp> static LogicalResult verifyHeadNorm(HeadsOp op) {
  if (op.getNorm().has_value() != op.getEps().has_value())
    return op.emitOpError() << "has " << (op.getNorm() ? "norm" : "eps")
                            << " without " << (op.getNorm() ? "eps" : "norm");
  return op.getEps() ? verifyPositive(op, "eps", *op.getEps()) : success();
}

//===----------------------------------------------------------------------===//
// Rows in, rows out
//===----------------------------------------------------------------------===//

LogicalResult EmbeddingOp::verify() {
  return success(succeeded(verifyKernel(*this, getKernel(), KernelOp::Embed)) &&
                 succeeded(verifyPlan(*this, getPlanAttr())));
}

LogicalResult EmbeddingOp::verifySymbolUses(SymbolTableCollection &symbols) {
  const FailureOr<RankedTensorType> type =
      lookupWeightType(*this, symbols, getWeightAttr());
  if (failed(type))
    return failure();
  if (type->getRank() != 2)
    return emitOpError() << "weight " << getWeightAttr() << " is a vector when "
                         << "a matrix is needed";
  return verifyWidth(*this, "result", columns(getResult()),
                     type->getDimSize(1));
}

LogicalResult RmsNormOp::verify() {
  if (failed(verifyPositive(*this, "eps", getEps())) ||
      failed(verifyRowResult(*this, getInput(), getResult())))
    return failure();
  const bool quantized = isQuantizedActivations(getResult().getType());
  if (getHeadDim()) {
    const auto headDim = static_cast<int64_t>(*getHeadDim());
    if (headDim <= 0)
      return emitOpError() << "head is " << headDim
                           << " wide when 1 or more is needed";
    if (failed(verifyMultiple(*this, "row", columns(getInput()), headDim)))
      return failure();
    if (quantized)
      return emitOpError() << "quantizes normed heads when only normed rows "
                              "can be quantized";
  }
  return success(
      succeeded(verifyKernel(*this, getKernel(),
                             quantized ? KernelOp::RmsNormQ8
                                       : KernelOp::RmsNormF32)) &&
      succeeded(verifyKernel(*this, getHiddenKernel(), KernelOp::RmsNormF32)) &&
      succeeded(verifyPlan(*this, getPlanAttr())));
}

LogicalResult RmsNormOp::verifySymbolUses(SymbolTableCollection &symbols) {
  const int64_t width =
      getHeadDim() ? static_cast<int64_t>(*getHeadDim()) : columns(getInput());
  return verifyWeight(*this, symbols, getWeightAttr(), {width});
}

LogicalResult LinearOp::verify() {
  const size_t weights = getWeights().size();
  if (weights == 0)
    return emitOpError() << "has 0 weights when 1 or more is needed";
  if (getNumResults() != weights)
    return emitOpError() << "has " << getNumResults() << " results when "
                         << weights << " is needed, one for each weight";
  if (getBias() && getBias()->size() != weights)
    return emitOpError() << "has " << getBias()->size() << " biases when "
                         << weights << " is needed, one for each weight";
  if (failed(verifyK(*this, getWeights()[0], getInput())))
    return failure();
  if (Value residual = getResidual()) {
    if (weights != 1)
      return emitOpError() << "has a residual with " << weights
                           << " weights when 1 is needed";
    if (failed(verifyWidth(*this, "residual", columns(residual),
                           columns(getResult(0)))))
      return failure();
  }
  if (getPackedBias() && !getBias())
    return emitOpError() << "has packed_bias without bias";
  return success(succeeded(verifyProductKernels(*this)) &&
                 succeeded(verifyPlan(*this, getPlanAttr())));
}

LogicalResult LinearOp::verifySymbolUses(SymbolTableCollection &symbols) {
  for (auto [weight, result] : llvm::zip_equal(getWeights(), getResults()))
    if (failed(verifyWeight(*this, symbols, cast<FlatSymbolRefAttr>(weight),
                            {columns(result), columns(getInput())})))
      return failure();
  if (getBias())
    for (auto [bias, result] : llvm::zip_equal(*getBias(), getResults()))
      if (failed(verifyWeight(*this, symbols, cast<FlatSymbolRefAttr>(bias),
                              {columns(result)})))
        return failure();
  return success(succeeded(verifyPacked(*this, symbols, getPackedAttr(),
                                        getWeights().getValue())) &&
                 succeeded(verifyPacked(*this, symbols, getPackedBiasAttr(),
                                        getBias() ? getBias()->getValue()
                                                  : ArrayRef<Attribute>())));
}

LogicalResult AddBiasOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyWeight(*this, symbols, getBiasAttr(), {columns(getInput())});
}

LogicalResult SwiGluOp::verify() {
  return success(
      succeeded(verifyRowResult(*this, getGate(), getResult())) &&
      succeeded(verifyKernel(*this, getKernel(),
                             isQuantizedActivations(getResult().getType())
                                 ? KernelOp::SwiGluQ8
                                 : KernelOp::SwiGluF32)) &&
      succeeded(verifyPlan(*this, getPlanAttr())));
}

LogicalResult QuantizeOp::verify() {
  return success(
      succeeded(verifyRowResult(*this, getInput(), getResult())) &&
      succeeded(verifyKernel(*this, getKernel(), KernelOp::QuantizeQ8)) &&
      succeeded(verifyPlan(*this, getPlanAttr())));
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

LogicalResult RopeTableOp::verify() {
  if (failed(verifyPositive(*this, "theta", getTheta())))
    return failure();
  if (getFrequencies()) {
    const auto offset = static_cast<int64_t>(*getFrequencies());
    if (failed(verifyNotNegative(*this, "frequencies", offset)) ||
        failed(verifyMultiple(*this, "frequencies", offset, kTensorAlign)))
      return failure();
  }
  return success(
      succeeded(verifyKernel(*this, getKernel(), KernelOp::RopeTable)) &&
      succeeded(verifyPlan(*this, getPlanAttr())));
}

LogicalResult RopeOp::verify() {
  return verifyMultiple(*this, "row", columns(getInput()),
                        2 * columns(getCos()));
}

LogicalResult AppendOp::verify() {
  return success(
      succeeded(verifyMultiple(*this, "row", columns(getKeys()),
                               2 * columns(getCos()))) &&
      succeeded(verifyLayer(*this, getLayer())) &&
      succeeded(verifyHeadNorm(*this)) &&
      succeeded(
          verifyKernel(*this, getRopeKernel(),
                       getNorm() ? KernelOp::NormRope : KernelOp::Rope)) &&
      succeeded(verifyKernel(*this, getAppendKKernel(), KernelOp::AppendK)) &&
      succeeded(verifyKernel(*this, getAppendVKernel(), KernelOp::AppendV)) &&
      succeeded(verifyPlan(*this, getPlanAttr())));
}

LogicalResult AppendOp::verifySymbolUses(SymbolTableCollection &symbols) {
  if (!getNorm())
    return success();
  return verifyWeight(*this, symbols, getNormAttr(), {2 * columns(getCos())});
}

LogicalResult AttentionOp::verify() {
  const auto heads = static_cast<int64_t>(getHeads());
  const auto kvHeads = static_cast<int64_t>(getKvHeads());
  if (heads <= 0 || kvHeads <= 0)
    return emitOpError() << "has " << heads << " heads and " << kvHeads
                         << " kv_heads when 1 or more is needed";
  if (failed(verifyMultiple(*this, "heads", heads, kvHeads)) ||
      failed(verifyMultiple(*this, "row", columns(getQueries()), heads)) ||
      failed(verifyMultiple(*this, "width of a head", getHeadDim(), 8)) ||
      failed(verifyLayer(*this, getLayer())))
    return failure();

  if (!getKeys() != !getValues() || !getCos() != !getSin() ||
      !getKeys() == !getCos())
    return emitOpError() << "needs append(keys, values) or rope(cos, sin), and "
                            "not both";
  for (auto [what, rows, width] :
       {std::tuple<StringRef, Value, int64_t>{"keys", getKeys(),
                                              kvHeads * getHeadDim()},
        {"values", getValues(), kvHeads * getHeadDim()},
        {"cos", getCos(), getHeadDim() / 2},
        {"sin", getSin(), getHeadDim() / 2}})
    if (rows && failed(verifyWidth(*this, what, columns(rows), width)))
      return failure();
  if (getNorm() && !getCos())
    return emitOpError() << "has norm without rope";

  return success(
      succeeded(verifyHeadNorm(*this)) &&
      succeeded(
          verifyKernel(*this, getRopeKernel(),
                       getNorm() ? KernelOp::NormRope : KernelOp::Rope)) &&
      succeeded(
          verifyKernel(*this, getScoresKernel(), KernelOp::AttentionScores)) &&
      succeeded(
          verifyKernel(*this, getValuesKernel(), KernelOp::AttentionValues)) &&
      succeeded(
          verifyKernel(*this, getSoftmaxKernel(), KernelOp::SoftmaxPage)) &&
      succeeded(verifyKernel(*this, getMergeKernel(), KernelOp::MergePage)) &&
      succeeded(
          verifyKernel(*this, getFinishKernel(), KernelOp::FinishAttention)) &&
      succeeded(verifyPlan(*this, getPlanAttr())));
}

LogicalResult AttentionOp::verifySymbolUses(SymbolTableCollection &symbols) {
  if (!getNorm())
    return success();
  return verifyWeight(*this, symbols, getNormAttr(), {getHeadDim()});
}

//===----------------------------------------------------------------------===//
// Output
//===----------------------------------------------------------------------===//

LogicalResult LmHeadOp::verify() {
  return success(
      succeeded(verifyK(*this, getWeightAttr(), getInput())) &&
      succeeded(verifyProductKernels(*this)) &&
      succeeded(verifyKernel(*this, getCheckKernel(), KernelOp::CheckFinite)) &&
      succeeded(verifyPlan(*this, getPlanAttr())));
}

LogicalResult LmHeadOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return success(
      succeeded(verifyWeight(*this, symbols, getWeightAttr(),
                             {columns(getResult()), columns(getInput())})) &&
      succeeded(
          verifyPacked(*this, symbols, getPackedAttr(), {getWeightAttr()})));
}
