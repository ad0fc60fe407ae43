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

/// The matrices that share a product with the matrix `name` where they have its
/// format (q, k and v; gate and up), in program order and itself among them.
/// `module` is at stage "graph".
std::vector<std::string> fusedWith(mlir::ModuleOp module, llvm::StringRef name);

} // namespace qwen

#endif // QWEN_TRANSFORMS_FUSEDPRODUCTS_H
