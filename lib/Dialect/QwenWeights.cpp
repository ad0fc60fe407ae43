//===- QwenWeights.cpp - The symbols that name weights, and their sources -===//

#include "qwen/ABI/ArtifactFormat.h"
#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Numerics/Rotation.h"
#include "qwen/Support/Error.h"
#include "qwen/Support/Text.h"
#include "qwen/Weights/Sources.h"
#include "qwen/Weights/Turned.h"

using namespace mlir;
using namespace qwen;

/// Checks rank and dimensions of a weight's `type`.
static LogicalResult verifyShape(Operation *op, RankedTensorType type,
                                 int64_t leastRank, int64_t mostRank) {
  if (type.getRank() < leastRank || type.getRank() > mostRank) {
    InFlightDiagnostic diagnostic = op->emitOpError()
                                    << "has rank " << type.getRank() << " when "
                                    << leastRank;
    if (leastRank != mostRank)
      diagnostic << " or " << mostRank;
    return diagnostic << " is needed";
  }
  for (int64_t size : type.getShape()) {
    if (ShapedType::isDynamic(size))
      return op->emitOpError() << "has a dynamic dimension";
    if (size < 1 || size > kMaxDimension)
      return op->emitOpError() << "has a dimension of " << size << " when 1 to "
                               << kMaxDimension << " is needed";
  }
  return success();
}

LogicalResult WeightOp::verify() {
  auto type = cast<RankedTensorType>(getType());
  if (failed(verifyShape(*this, type, 1, 2)))
    return failure();
  Type element = type.getElementType();
  if (!element.isF32() && !element.isBF16())
    return emitOpError() << "has values of " << element
                         << " when f32 or bf16 is needed";
  if (failed(getSource().verifyWeight(*this, type)))
    return failure();
  if (getExact() && !isMatrix())
    return emitOpError() << "has exact when only a matrix can have it";
  if (getFormat() && type.getRank() == 1 &&
      getFormat()->getValue() != WeightFormat::F32)
    return emitOpError() << "has format "
                         << weightFormatName(getFormat()->getValue())
                         << " when f32 is needed for a vector";
  return success();
}

WeightFormat WeightOp::getKeptFormat() {
  const auto source = dyn_cast<SourceAttr>(getSource());
  if (source && !getExact())
    for (FormatAttr format : {source.getKeeps(), source.getNearest()})
      if (format)
        return format.getValue();
  return cast<ShapedType>(getType()).getElementType().isBF16()
             ? WeightFormat::BF16
             : WeightFormat::F32;
}

bool WeightOp::isMatrix() { return cast<ShapedType>(getType()).getRank() == 2; }

WeightSourcePtr WeightOp::open(const WeightSources &sources) {
  return getSource().open(cast<RankedTensorType>(getType()), sources);
}

//===----------------------------------------------------------------------===//
// Sources
//===----------------------------------------------------------------------===//

/// Checks that `op` has a vector of f32.
static LogicalResult verifyVector(Operation *op, RankedTensorType type,
                                  StringRef what) {
  if (type.getRank() == 1 && type.getElementType().isF32())
    return success();
  return op->emitOpError() << "has " << what
                           << " when only a vector of f32 can have them";
}

LogicalResult SourceAttr::verifyWeight(Operation *op,
                                       RankedTensorType type) const {
  if (getName().empty())
    return op->emitOpError() << "has a source without a name";
  for (FormatAttr format : {getKeeps(), getNearest()}) {
    if (!format)
      continue;
    if (type.getRank() != 2 || !type.getElementType().isF32())
      return op->emitOpError()
             << "keeps integers when only a matrix of f32 can have them";
    if (!isQuantized(format.getValue()))
      return op->emitOpError()
             << "keeps integers in " << weightFormatName(format.getValue())
             << " when a format of integers is needed";
  }
  return success();
}

std::optional<WeightFormat> SourceAttr::getIntegers() const {
  return getKeeps() ? std::optional(getKeeps().getValue()) : std::nullopt;
}

WeightSourcePtr SourceAttr::open(RankedTensorType type,
                                 const WeightSources &sources) const {
  const WeightSources::Entry *entry = sources.find(getName().getValue());
  if (!entry)
    throw Error("no source gives the values of the weight " +
                quote(getName().getValue()));
  const WeightShape &found = entry->source->shape();
  const bool isMatrix = type.getRank() == 2;
  if (found.values() != type.getNumElements() ||
      (isMatrix && found.k() != type.getDimSize(1)))
    throw Error(entry->source->name() + " has shape " + shapeText(found.sizes) +
                " when " + shapeText(type.getShape()) + " is needed");
  return entry->source;
}

LogicalResult FrequenciesAttr::verifyWeight(Operation *op,
                                            RankedTensorType type) const {
  if (failed(verifyVector(op, type, "frequencies")))
    return failure();
  const int64_t count = type.getNumElements(), axes = getAxes();
  if (axes < 1 || count % axes != 0)
    return op->emitOpError() << "has " << count << " frequencies of " << axes
                             << " axes when as many of each are needed";
  if (isPositive(getTheta()))
    return success();
  return op->emitOpError() << "theta is "
                           << static_cast<float>(getTheta().convertToDouble())
                           << " when a positive number is needed";
}

std::optional<WeightFormat> FrequenciesAttr::getIntegers() const {
  return std::nullopt;
}

WeightSourcePtr FrequenciesAttr::open(RankedTensorType type,
                                      const WeightSources &) const {
  std::optional<Yarn> yarn;
  if (const YarnAttr from = getYarn())
    yarn = {from.getFactor().convertToDouble(), from.getPositions(),
            from.getFast().convertToDouble(), from.getSlow().convertToDouble()};
  return makeFrequencies(getTheta().convertToDouble(), yarn,
                         type.getNumElements(), getAxes());
}

LogicalResult TurnedAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                 SourceAttrInterface, SourceAttrInterface,
                                 int64_t columns, bool hadamard,
                                 int64_t outputs) {
  if (hadamard && columns != 0)
    return emitError() << "has columns and hadamard when one is needed";
  if (columns >= 0 && outputs >= 0)
    return success();
  return emitError() << "columns is " << columns << " and outputs is "
                     << outputs << " when 0 or more is needed";
}

LogicalResult TurnedAttr::verifyWeight(Operation *op,
                                       RankedTensorType type) const {
  if (!type.getElementType().isF32())
    return op->emitOpError() << "is turned when only f32 can be";
  const int64_t k = type.getRank() == 2 ? type.getDimSize(1) : 1;
  const auto divides = [](int64_t block, int64_t size) {
    return block == 0 || size % block == 0;
  };
  if (!divides(getColumns(), k) || !divides(getOutputs(), type.getDimSize(0)))
    return op->emitOpError()
           << "is turned in blocks of " << getColumns() << " columns and "
           << getOutputs() << " outputs, which do not divide " << type;
  return success();
}

std::optional<WeightFormat> TurnedAttr::getIntegers() const {
  return std::nullopt;
}

WeightSourcePtr TurnedAttr::open(RankedTensorType type,
                                 const WeightSources &sources) const {
  Turn turn = {{}, getColumns(), getHadamard(), getOutputs()};
  if (getScales())
    turn.scales =
        getScales().open(RankedTensorType::get(type.getShape().take_back(),
                                               type.getElementType()),
                         sources);
  return makeTurned(getSource().open(type, sources), turn);
}

LogicalResult RotationAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                   int64_t size) {
  if (size >= 1 && size <= kMaxDimension)
    return success();
  return emitError() << "size is " << size << " when 1 to " << kMaxDimension
                     << " is needed";
}

LogicalResult RotationAttr::verifyWeight(Operation *op,
                                         RankedTensorType type) const {
  if (failed(verifyVector(op, type, "a rotation's values")))
    return failure();
  const int64_t needed = getSize() + numerics::oddPart(getSize());
  if (type.getDimSize(0) == needed)
    return success();
  return op->emitOpError() << "has " << type.getDimSize(0)
                           << " values of a rotation when " << needed
                           << " is needed";
}

std::optional<WeightFormat> RotationAttr::getIntegers() const {
  return std::nullopt;
}

WeightSourcePtr RotationAttr::open(RankedTensorType,
                                   const WeightSources &) const {
  return makeRotation(getSize());
}

LogicalResult OnesAttr::verifyWeight(Operation *op,
                                     RankedTensorType type) const {
  return verifyVector(op, type, "ones");
}

std::optional<WeightFormat> OnesAttr::getIntegers() const {
  return std::nullopt;
}

WeightSourcePtr OnesAttr::open(RankedTensorType type,
                               const WeightSources &) const {
  return makeOnes(type.getNumElements());
}

//===----------------------------------------------------------------------===//
// Images and their parts
//===----------------------------------------------------------------------===//

int64_t qwen::indexOf(ModuleOp module, FlatSymbolRefAttr image) {
  int64_t index = 0;
  if (image)
    for (ImageOp other : module.getOps<ImageOp>()) {
      ++index;
      if (other.getSymNameAttr() == image.getAttr())
        break;
    }
  return index;
}

/// Checks that the image of a weight or a part, if it has one, is a qwen.image.
static LogicalResult verifyImage(Operation *op, FlatSymbolRefAttr image,
                                 SymbolTableCollection &symbols) {
  if (!image || symbols.lookupNearestSymbolFrom<ImageOp>(op, image))
    return success();
  return op->emitOpError() << "is in " << image
                           << ", which is not a qwen.image";
}

LogicalResult WeightOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyImage(*this, getImageAttr(), symbols);
}

/// Checks the number of matrices and their distance.
static LogicalResult verifyExperts(PackedOp op) {
  if (!op.getLayout() || !op.getExperts() || !op.getStride())
    return op.emitOpError() << "has experts or stride when a matrix with a "
                               "layout needs both";
  const auto experts = static_cast<int64_t>(*op.getExperts());
  const int64_t outputs = cast<ShapedType>(op.getType()).getDimSize(0);
  if (experts < 1 || experts > kMaxExperts ||
      outputs % (experts * kPanelOutputs) != 0)
    return op.emitOpError() << "has " << outputs << " outputs of " << experts
                            << " experts when whole panels of 1 to "
                            << kMaxExperts << " experts are needed";
  const auto stride = static_cast<int64_t>(*op.getStride());
  if (stride >= op.getMatrixBytes() && stride < int64_t{1} << 46 &&
      stride % static_cast<int64_t>(kTensorAlign) == 0)
    return success();
  return op.emitOpError() << "stride is " << stride << " when a multiple of "
                          << kTensorAlign << " from " << op.getMatrixBytes()
                          << " on is needed";
}

LogicalResult PackedOp::verify() {
  auto type = cast<RankedTensorType>(getType());
  const int64_t rank = getLayout() ? 2 : 1;
  if (failed(verifyShape(*this, type, rank, rank)))
    return failure();
  if (!type.getElementType().isF32())
    return emitOpError() << "has values of " << type.getElementType()
                         << " when f32 is needed";
  if (getLayout() && type.getDimSize(1) % kGroup != 0)
    return emitOpError() << "has K = " << type.getDimSize(1)
                         << " when a multiple of " << kGroup << " is needed";
  return getExperts() || getStride() ? verifyExperts(*this) : success();
}

LogicalResult PackedOp::verifySymbolUses(SymbolTableCollection &symbols) {
  if (failed(verifyImage(*this, getImageAttr(), symbols)))
    return failure();
  auto type = cast<RankedTensorType>(getType());
  const WeightFormat needed =
      getLayout() ? getLayout()->getFormat() : WeightFormat::F32;
  int64_t outputs = 0;
  for (auto symbol : getSegments().getAsRange<FlatSymbolRefAttr>()) {
    auto weight = symbols.lookupNearestSymbolFrom<WeightOp>(*this, symbol);
    if (!weight)
      return emitOpError() << "segment " << symbol << " is not a qwen.weight";
    auto segment = cast<RankedTensorType>(weight.getType());
    if (segment.getShape().drop_front() != type.getShape().drop_front())
      return emitOpError() << "segment " << symbol << " is " << segment
                           << " in a part that is " << type;
    if (!weight.getFormat())
      return emitOpError() << "segment " << symbol << " has no format";
    if (weight.getImageAttr() != getImageAttr())
      return emitOpError() << "segment " << symbol
                           << " is in another image than the part";
    if (segment.getDimSize(0) % (getMatrices() * kPanelOutputs) != 0 &&
        getExperts())
      return emitOpError() << "segment " << symbol << " has "
                           << segment.getDimSize(0) << " outputs of "
                           << getMatrices()
                           << " experts when whole panels are needed";
    if (weight.getFormat()->getValue() != needed)
      return emitOpError() << "segment " << symbol << " is "
                           << weightFormatName(weight.getFormat()->getValue())
                           << " when " << weightFormatName(needed)
                           << " is needed";
    outputs += segment.getDimSize(0);
  }
  if (outputs != type.getDimSize(0))
    return emitOpError() << "segments have " << outputs << " outputs when "
                         << type.getDimSize(0) << " is needed";
  return success();
}

int64_t PackedOp::getByteSize() {
  auto type = cast<RankedTensorType>(getType());
  if (!getLayout())
    return alignTo(type.getNumElements(), kPanelOutputs) * 4;
  return packedBytes(getLayout()->getFormat(), type.getDimSize(0),
                     type.getDimSize(1));
}

int64_t PackedOp::getMatrices() {
  return static_cast<int64_t>(getExperts().value_or(1));
}

int64_t PackedOp::getEnd() {
  return static_cast<int64_t>(getOffset()) +
         (getMatrices() - 1) * static_cast<int64_t>(getStride().value_or(0)) +
         getMatrixBytes();
}
