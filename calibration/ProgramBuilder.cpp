//===- ProgramBuilder.cpp - Programs of parts of a model ------------------===//

#include "calibration/ProgramBuilder.h"

using namespace qwen;

mlir::Type qwen::integersType(mlir::MLIRContext *context) {
  return mlir::RankedTensorType::get({mlir::ShapedType::kDynamic},
                                     mlir::IntegerType::get(context, 32));
}

mlir::Type qwen::activationsType(mlir::MLIRContext *context, int64_t width) {
  return mlir::RankedTensorType::get({mlir::ShapedType::kDynamic, width},
                                     mlir::Float32Type::get(context));
}

ProgramBuilder::ProgramBuilder(mlir::ModuleOp module, llvm::StringRef name,
                               mlir::func::FuncOp original,
                               mlir::TypeRange arguments)
    : builder(module.getContext()) {
  builder.setInsertionPointToEnd(module.getBody());
  function = mlir::func::FuncOp::create(builder, module.getLoc(), name,
                                        builder.getFunctionType(arguments, {}));
  function->setAttr(kModelAttr, original->getAttr(kModelAttr));
  builder.setInsertionPointToEnd(function.addEntryBlock());
}

void ProgramBuilder::nameArgument(unsigned i, llvm::StringRef name,
                                  llvm::StringRef from) {
  function.setArgAttr(i, kNameAttr, builder.getStringAttr(name));
  if (!from.empty())
    function.setArgAttr(
        i, kFromAttr, mlir::FlatSymbolRefAttr::get(builder.getContext(), from));
}

void ProgramBuilder::setLimits(int64_t tokens, int64_t rows) {
  setLimit(function, nameOf(tokensOfCall(function)), tokens);
  setLimit(function, kWantedName, rows);
}

mlir::Value ProgramBuilder::copy(mlir::Value value) {
  if (mlir::Value known = copies.lookupOrNull(value))
    return known;
  copyOp(value.getDefiningOp());
  return copies.lookup(value);
}

void ProgramBuilder::copyOp(mlir::Operation *op) {
  if (auto attention = llvm::dyn_cast<AttentionOp>(op))
    if (AppendOp append = attention.getAppend())
      copyOp(append);
  for (mlir::Value operand : op->getOperands())
    copy(operand);
  mlir::Operation *clone = builder.clone(*op, copies);
  if (auto forwardOp = llvm::dyn_cast<ForwardOp>(clone);
      forwardOp && cacheLayer && forwardOp.getCacheUse())
    clone->setAttr("layer", builder.getI64IntegerAttr(*cacheLayer));
}

void ProgramBuilder::finish(
    llvm::ArrayRef<std::pair<std::string, mlir::Value>> results) {
  llvm::SmallVector<mlir::Value> operands(llvm::make_second_range(results));
  mlir::func::ReturnOp::create(builder, function.getLoc(), operands);
  function.setType(builder.getFunctionType(function.getArgumentTypes(),
                                           mlir::ValueRange(operands)));
  for (auto [i, result] : llvm::enumerate(results))
    if (!result.first.empty())
      function.setResultAttr(static_cast<unsigned>(i), kNameAttr,
                             builder.getStringAttr(result.first));
}
