//===- QwenOps.cpp - Verifiers of the qwen ops ----------------------------===//

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

#define GET_OP_CLASSES
#include "qwen/Dialect/QwenOps.cpp.inc"

//===----------------------------------------------------------------------===//
// Checks shared by the ops
//===----------------------------------------------------------------------===//

/// Columns of a tensor of rows.
static int64_t columns(Value rows) {
  return cast<RankedTensorType>(rows.getType()).getDimSize(1);
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

LogicalResult WeightOp::verify() { return success(); }
LogicalResult PackedOp::verify() { return success(); }
LogicalResult PackedOp::verifySymbolUses(SymbolTableCollection &) {
  return success();
}
int64_t PackedOp::getByteSize() {
  auto type = cast<RankedTensorType>(getType());
  if (!getLayout())
    return alignTo(type.getNumElements(), kPanelRows) * 4;
  return packedBytes(getLayout()->getFormat().getValue(), type.getDimSize(0),
                     type.getDimSize(1));
}
LogicalResult EmbeddingOp::verifySymbolUses(SymbolTableCollection &) {
  return success();
}
LogicalResult RmsNormOp::verifySymbolUses(SymbolTableCollection &) {
  return success();
}
LogicalResult RmsNormOp::verify() { return success(); }
LogicalResult LinearOp::verifySymbolUses(SymbolTableCollection &) {
  return success();
}
LogicalResult LinearOp::verify() { return success(); }
LogicalResult AddBiasOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyWeight(*this, symbols, getBiasAttr(), {columns(getInput())});
}
LogicalResult SwiGluOp::verifySymbolUses(SymbolTableCollection &) {
  return success();
}
LogicalResult SwiGluOp::verify() { return success(); }
LogicalResult QuantizeOp::verifySymbolUses(SymbolTableCollection &) {
  return success();
}
LogicalResult QuantizeOp::verify() { return success(); }
LogicalResult RopeTableOp::verifySymbolUses(SymbolTableCollection &) {
  return success();
}
LogicalResult RopeTableOp::verify() { return success(); }
LogicalResult RopeOp::verify() { return success(); }
LogicalResult AppendOp::verifySymbolUses(SymbolTableCollection &) {
  return success();
}
LogicalResult AppendOp::verify() { return success(); }
LogicalResult AttentionOp::verifySymbolUses(SymbolTableCollection &) {
  return success();
}
LogicalResult AttentionOp::verify() { return success(); }
LogicalResult LmHeadOp::verifySymbolUses(SymbolTableCollection &) {
  return success();
}
LogicalResult LmHeadOp::verify() { return success(); }
