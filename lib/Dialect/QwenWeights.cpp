//===- QwenWeights.cpp - Verifiers of the symbols that name weights -------===//

#include "qwen/ABI/Artifact.h"
#include "qwen/Dialect/QwenDialect.h"

#include "mlir/IR/Builders.h"

#include <cmath>

using namespace mlir;
using namespace qwen;

void WeightOp::build(OpBuilder &builder, OperationState &state, StringRef name,
                     ArrayRef<int64_t> shape, StoredType stored, StringRef file,
                     uint64_t offset) {
  Type element = builder.getF32Type();
  if (stored == StoredType::F16)
    element = builder.getF16Type();
  else if (stored == StoredType::BF16)
    element = builder.getBF16Type();
  build(builder, state, builder.getStringAttr(name),
        TypeAttr::get(RankedTensorType::get(shape, element)),
        builder.getStringAttr(file),
        builder.getI64IntegerAttr(static_cast<int64_t>(offset)),
        isBlocks(stored) ? StoredAttr::get(builder.getContext(), stored)
                         : StoredAttr(),
        /*frequencies=*/nullptr, /*map=*/nullptr, /*outputs=*/nullptr,
        /*exact=*/nullptr, /*format=*/nullptr);
}

void WeightOp::build(OpBuilder &builder, OperationState &state, StringRef name,
                     RankedTensorType type, FrequenciesAttr frequencies) {
  build(builder, state, builder.getStringAttr(name), TypeAttr::get(type),
        /*file=*/nullptr, /*offset=*/nullptr, /*stored=*/nullptr, frequencies,
        /*map=*/nullptr, /*outputs=*/nullptr,
        /*exact=*/nullptr, /*format=*/nullptr);
}

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
  if (!element.isF32() && !element.isF16() && !element.isBF16())
    return emitOpError() << "has values of " << element
                         << " when f32, f16 or bf16 is needed";
  if (getStored()) {
    const StoredTypeInfo &info = infoOf(getStoredType());
    if (!getFile() || type.getRank() != 2 || !element.isF32())
      return emitOpError()
             << "is stored in blocks when only a matrix of f32 in "
                "a file can be";
    if (type.getDimSize(1) % info.values != 0)
      return emitOpError() << "has K " << type.getDimSize(1)
                           << " when blocks of " << info.name
                           << " need a multiple of " << info.values;
  }
  if (getFrequencies()) {
    if (getFile() || getOffset() || type.getRank() != 1 || !element.isF32())
      return emitOpError() << "has frequencies when only a vector of f32 "
                              "without file can have them";
    const auto theta =
        static_cast<float>(getFrequencies()->getTheta().convertToDouble());
    if (!std::isfinite(theta) || theta <= 0)
      return emitOpError() << "theta is " << theta
                           << " when a positive number is needed";
  } else if (!getFile() || getFile()->empty() || !getOffset()) {
    return emitOpError() << "has no file";
  } else if (static_cast<int64_t>(*getOffset()) < 0) {
    return emitOpError() << "offset is " << static_cast<int64_t>(*getOffset())
                         << " when 0 or more is needed";
  }
  if (getMap() && (type.getRank() != 1 || getFrequencies()))
    return emitOpError()
           << "has a map when only a vector in a file can have one";
  if ((getOutputs() || getExact()) && type.getRank() != 2)
    return emitOpError() << "has " << (getExact() ? "exact" : "outputs")
                         << " when only a matrix can have it";
  if (getOutputs()) {
    const int64_t outputs = type.getDimSize(0),
                  count = getOutputs()->getCount();
    if (outputs % count != 0)
      return emitOpError() << "has " << outputs
                           << " outputs when a multiple of " << count
                           << " is needed";
    if (outputs / count > kMaxDimension / getOutputs()->getPeriod())
      return emitOpError() << "has outputs of a tensor of more than "
                           << kMaxDimension;
  }
  if (getFormat() && type.getRank() == 1 &&
      getFormat()->getValue() != WeightFormat::F32)
    return emitOpError() << "has format "
                         << weightFormatName(getFormat()->getValue())
                         << " when f32 is needed for a vector";
  return success();
}

StoredType WeightOp::getStoredType() {
  if (getStored())
    return getStored()->getValue();
  const Type element = cast<RankedTensorType>(getType()).getElementType();
  if (element.isF16())
    return StoredType::F16;
  return element.isBF16() ? StoredType::BF16 : StoredType::F32;
}

WeightFormat WeightOp::getKeptFormat() {
  const StoredTypeInfo &stored = infoOf(getStoredType());
  if (getExact() && getStored())
    return WeightFormat::F32;
  return stored.kept;
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
    return emitOpError() << "has rows of " << type.getDimSize(1)
                         << " when a multiple of " << kGroup << " is needed";
  const auto offset = static_cast<int64_t>(getOffset());
  if (offset < 0 || offset % static_cast<int64_t>(kTensorAlign) != 0)
    return emitOpError() << "offset is " << offset << " when a multiple of "
                         << kTensorAlign << " is needed";
  return success();
}

LogicalResult PackedOp::verifySymbolUses(SymbolTableCollection &symbols) {
  auto type = cast<RankedTensorType>(getType());
  const WeightFormat needed =
      getLayout() ? getLayout()->getFormat() : WeightFormat::F32;
  int64_t rows = 0;
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
    if (weight.getFormat()->getValue() != needed)
      return emitOpError() << "segment " << symbol << " is "
                           << weightFormatName(weight.getFormat()->getValue())
                           << " when " << weightFormatName(needed)
                           << " is needed";
    rows += segment.getDimSize(0);
  }
  if (rows != type.getDimSize(0))
    return emitOpError() << "segments have " << rows << " rows when "
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
