//===- OpWithoutGradient.h - Models that have no gradients ------*- C++ -*-===//

#ifndef QWEN_TEST_UNIT_OPWITHOUTGRADIENT_H
#define QWEN_TEST_UNIT_OPWITHOUTGRADIENT_H

#include "qwen/Dialect/QwenDialect.h"

namespace qwen::test {

/// Puts `qwen.map`, which has no backward pass, behind the norm before the last
/// feed-forward network of a model.
inline void addOpWithoutGradient(mlir::ModuleOp module) {
  const auto norms =
      llvm::to_vector(programsOf(module).front().getOps<RmsNormOp>());
  // The head has the last norm.
  RmsNormOp norm = norms[norms.size() - 2];
  mlir::OpBuilder builder(norm.getContext());
  builder.setInsertionPointAfter(norm);
  MapOp::Properties properties;
  properties.setMap(
      ElementMapAttr::get(builder.getContext(), ElementMap::Sigmoid));
  mlir::Value rows = norm.getResult();
  auto map =
      MapOp::create(builder, norm.getLoc(), mlir::TypeRange(rows.getType()),
                    mlir::ValueRange(rows), properties);
  rows.replaceAllUsesExcept(map.getResult(), map);
}

} // namespace qwen::test

#endif // QWEN_TEST_UNIT_OPWITHOUTGRADIENT_H
