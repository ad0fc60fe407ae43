//===- Sublayers.cpp - The parts of a model, in order ---------------------===//

#include "calibration/Sublayers.h"

#include "qwen/Support/Error.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SetVector.h"

using namespace qwen;

static std::string pathOf(mlir::Operation &op) {
  const auto name = llvm::dyn_cast<mlir::NameLoc>(op.getLoc());
  return name ? name.getName().str() : op.getName().getStringRef().str();
}

namespace {
/// What an op multiplies its first operand by.
struct Products {
  /// None of another op.
  llvm::SmallVector<mlir::FlatSymbolRefAttr, 2> weights;
  /// Of experts, the choices whose order the op reads.
  mlir::Value order = {};
};
} // namespace

static Products productsOf(mlir::Operation &op) {
  if (auto linear = llvm::dyn_cast<LinearOp>(op))
    return {{llvm::cast<mlir::FlatSymbolRefAttr>(linear.getWeights()[0])}};
  if (auto head = llvm::dyn_cast<LmHeadOp>(op))
    return {{head.getWeightAttr()}};
  if (auto up = llvm::dyn_cast<ExpertsUpOp>(op))
    return {{up.getGateAttr(), up.getUpAttr()}, up.getOrder()};
  if (auto down = llvm::dyn_cast<ExpertsDownOp>(op))
    return {{down.getDownAttr()}, down.getOrder()};
  return {};
}

/// Adds the products of `op` to the input that they read.
static void addProducts(std::vector<ProductInput> &inputs,
                        mlir::Operation &op) {
  const Products products = productsOf(op);
  if (products.weights.empty())
    return;
  ProductInput made = {op.getOperand(0), {}};
  if (products.order) {
    auto route = products.order.getDefiningOp<RouteOp>();
    made.ids = route.getIds();
    made.experts = route.getFirst().getType().getDimSize(0) - 1;
  }
  auto found = llvm::find_if(inputs, [&](const ProductInput &input) {
    return input.rows == made.rows && input.ids == made.ids;
  });
  if (found == inputs.end())
    found = inputs.insert(inputs.end(), made);
  for (mlir::FlatSymbolRefAttr weight : products.weights)
    found->weights.push_back(weight.getValue().str());
}

SublayerChain qwen::divide(mlir::func::FuncOp forward) {
  auto embeddings = forward.getOps<EmbeddingOp>();
  if (embeddings.empty())
    throw Error("the model has no embedding: it cannot be calibrated");
  SublayerChain chain = {*embeddings.begin(), {}};
  // Values that depend on the embedding and have readers left.
  llvm::SmallSetVector<mlir::Value, 8> alive;
  llvm::DenseMap<mlir::Value, int64_t> readers;
  const auto define = [&](mlir::Value value) {
    readers[value] = llvm::range_size(value.getUses());
    if (!value.use_empty())
      alive.insert(value);
  };
  define(chain.embedding.getResult());
  Sublayer next = {{}, chain.embedding.getResult(), {}, {}, {}};
  for (mlir::Operation *op = chain.embedding->getNextNode(); op;
       op = op->getNextNode()) {
    bool depends = false;
    for (mlir::Value operand : op->getOperands())
      if (alive.contains(operand)) {
        depends = true;
        if (--readers[operand] == 0)
          alive.remove(operand);
      }
    if (!depends)
      continue;
    next.name = pathOf(*op);
    addProducts(next.inputs, *op);
    if (llvm::isa<LmHeadOp>(op)) {
      chain.sublayers.push_back(std::move(next));
      return chain;
    }
    for (mlir::Value result : op->getResults())
      define(result);
    if (auto view = llvm::dyn_cast<WantedTokensOp>(op))
      next.view = view;
    if (alive.size() != 1 || next.inputs.empty())
      continue;
    next.result = alive.front();
    chain.sublayers.push_back(std::move(next));
    next = {{}, alive.front(), {}, {}, {}};
  }
  throw Error("the model has no head: it cannot be calibrated");
}
