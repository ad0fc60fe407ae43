//===- FusedProducts.h - Matrices of one product ----------------*- C++ -*-===//

#ifndef QWEN_TRANSFORMS_FUSEDPRODUCTS_H
#define QWEN_TRANSFORMS_FUSEDPRODUCTS_H

#include "qwen/Dialect/QwenDialect.h"

#include <string>
#include <vector>

namespace qwen {

/// The linears of `block` that can become one product, in program order: they
/// read one value and have no residual, and all or none of them have a bias.
/// qwen-fuse-projections joins those whose weights have one format and are in
/// one image.
llvm::SmallVector<llvm::SmallVector<LinearOp>>
productsOfOneInput(mlir::Block &block);

/// The lists of matrices that share a product where they have one format (q, k
/// and v; gate and up), in program order. `module` is at stage "graph".
std::vector<std::vector<std::string>> fusedMatrices(mlir::ModuleOp module);

} // namespace qwen

#endif // QWEN_TRANSFORMS_FUSEDPRODUCTS_H
