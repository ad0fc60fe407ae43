//===- Sublayers.cpp - The parts of a model, in order ---------------------===//

#include "qwen/Calibration/Sublayers.h"

#include "qwen/Support/Error.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SetVector.h"

using namespace qwen;

/// The weight of a product, or null for another op.
static mlir::FlatSymbolRefAttr productWeight(mlir::Operation &op) {
  if (auto linear = llvm::dyn_cast<LinearOp>(op))
    return llvm::cast<mlir::FlatSymbolRefAttr>(linear.getWeights()[0]);
  if (auto head = llvm::dyn_cast<LmHeadOp>(op))
    return head.getWeightAttr();
  return {};
}

static std::string pathOf(mlir::Operation &op) {
  const auto name = llvm::dyn_cast<mlir::NameLoc>(op.getLoc());
  return name ? name.getName().str() : op.getName().getStringRef().str();
}

/// Adds a product to the input that it reads.
static void addProduct(std::vector<ProductInput> &inputs, mlir::Value rows,
                       mlir::FlatSymbolRefAttr weight) {
  auto found = llvm::find_if(
      inputs, [&](const ProductInput &input) { return input.rows == rows; });
  if (found == inputs.end())
    found = inputs.insert(inputs.end(), {rows, {}});
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
  if (auto experts = forward.getOps<ExpertsUpOp>(); !experts.empty())
    throw Error(part::subject(pathOf(**experts.begin())) +
                " has experts, which cannot be calibrated; compile without "
                "--calibrate, --awq, --quantizer gptq and --prune METHOD");
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
    if (mlir::FlatSymbolRefAttr weight = productWeight(*op))
      addProduct(next.inputs, op->getOperand(0), weight);
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
