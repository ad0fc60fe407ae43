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

/// The choices of experts whose matrices `op` multiplies, or null.
static RouteOp routeOf(ForwardOp op) {
  for (const WeightUse &use : op.getWeightUses())
    if (use.experts)
      return use.experts->choice.getDefiningOp<RouteOp>();
  return nullptr;
}

/// Adds the products of `op` to the input that they read.
static void addProducts(std::vector<ProductInput> &inputs,
                        mlir::Operation &op) {
  auto product = llvm::dyn_cast<ForwardOp>(op);
  mlir::OpOperand *input = product ? product.getProductInput() : nullptr;
  if (!input)
    return;
  ProductInput made = {input->get(), {}};
  if (RouteOp route = routeOf(product)) {
    made.ids = route.getIds();
    made.experts = route.getFirst().getType().getDimSize(0) - 1;
  }
  auto found = llvm::find_if(inputs, [&](const ProductInput &other) {
    return other.rows == made.rows && other.ids == made.ids;
  });
  if (found == inputs.end())
    found = inputs.insert(inputs.end(), made);
  for (mlir::FlatSymbolRefAttr matrix : matricesOf(product))
    found->weights.push_back(matrix.getValue().str());
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
  Sublayer next = {{}, chain.embedding.getResult(), {}, {}};
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
    if (streamUseOf(op) == StreamUse::Heads) {
      chain.sublayers.push_back(std::move(next));
      return chain;
    }
    for (mlir::Value result : op->getResults())
      define(result);
    if (alive.size() != 1 || next.inputs.empty())
      continue;
    next.result = alive.front();
    chain.sublayers.push_back(std::move(next));
    next = {{}, alive.front(), {}, {}};
  }
  throw Error("the model has no head: it cannot be calibrated");
}
