//===- BackwardPass.cpp - Gradients through a part of a model -------------===//

#include "calibration/BackwardPass.h"

#include "qwen/Numerics/Kernels.h"
#include "qwen/Support/Error.h"
#include "qwen/Support/Parallel.h"

#include "llvm/ADT/DenseSet.h"

#include <algorithm>

using namespace qwen;

//===----------------------------------------------------------------------===//
// Weights
//===----------------------------------------------------------------------===//

std::vector<float> BackwardWeights::read(mlir::FlatSymbolRefAttr name,
                                         ExpertPart part, int64_t &k) const {
  auto weight = symbols.lookup<WeightOp>(name.getValue());
  const WeightSourcePtr source = weight.open(weights);
  k = source->shape().k();
  const int64_t outputs = source->shape().outputs() / part.count,
                begin = part.number * outputs;
  std::vector<float> values(static_cast<size_t>(outputs * k));
  const int64_t most = std::max<int64_t>(1, (int64_t{1} << 18) / k);
  parallelFor(static_cast<size_t>(ceilDiv(outputs, most)), threads,
              [&](size_t i, unsigned) {
                const int64_t first = static_cast<int64_t>(i) * most;
                source->read(begin + first, std::min(most, outputs - first),
                             values.data() + first * k);
              });
  return values;
}

std::span<const float> BackwardWeights::vector(mlir::FlatSymbolRefAttr name) {
  std::vector<float> &values = vectors[name.getValue()];
  int64_t k = 0;
  if (values.empty())
    values = read(name, {}, k);
  return values;
}

const ProductSide &BackwardWeights::outputs(mlir::FlatSymbolRefAttr name,
                                            ExpertPart part) {
  std::optional<ProductSide> &side =
      outputSides[{name.getValue().str(), part.number}];
  if (!side) {
    int64_t k = 0;
    const std::vector<float> values = read(name, part, k);
    side = ProductSide::ofRows({values.data(), std::ssize(values) / k, k, k},
                               threads);
  }
  return *side;
}

const ProductSide &BackwardWeights::columns(mlir::FlatSymbolRefAttr name,
                                            ExpertPart part) {
  std::optional<ProductSide> &side =
      columnSides[{name.getValue().str(), part.number}];
  if (!side) {
    int64_t k = 0;
    const std::vector<float> values = read(name, part, k);
    side = ProductSide::ofColumns({values.data(), std::ssize(values) / k, k, k},
                                  threads);
  }
  return *side;
}

void BackwardWeights::clear() {
  vectors.clear();
  outputSides.clear();
  columnSides.clear();
}

bool BackwardWeights::hasIntegers(mlir::FlatSymbolRefAttr name) const {
  auto weight = symbols.lookup<WeightOp>(name.getValue());
  return weight.getSource().getIntegers().has_value();
}

//===----------------------------------------------------------------------===//
// The ops of a sublayer
//===----------------------------------------------------------------------===//

llvm::SmallVector<mlir::Operation *> qwen::opsOf(const Sublayer &sublayer) {
  llvm::SmallVector<mlir::Operation *> ops;
  llvm::DenseSet<mlir::Value> reached = {sublayer.input};
  mlir::Operation *op = sublayer.input.getDefiningOp()->getNextNode();
  for (; op; op = op->getNextNode()) {
    if (llvm::none_of(op->getOperands(), [&](mlir::Value operand) {
          return reached.contains(operand);
        }))
      continue;
    ops.push_back(op);
    reached.insert(op->result_begin(), op->result_end());
    if (streamUseOf(op) == StreamUse::Heads ||
        (sublayer.result && op == sublayer.result.getDefiningOp()))
      return ops;
  }
  return ops;
}

mlir::Operation *qwen::findOpWithoutGradient(const Sublayer &sublayer) {
  const llvm::SmallVector<mlir::Operation *> ops = opsOf(sublayer);
  const auto found = llvm::find_if_not(ops, findBackward);
  return found == ops.end() ? nullptr : *found;
}

//===----------------------------------------------------------------------===//
// The run
//===----------------------------------------------------------------------===//

void BackwardPass::forEachToken(
    const std::function<void(int64_t token)> &work) const {
  constexpr int64_t kTogether = 32;
  parallelFor(static_cast<size_t>(ceilDiv(tokens, kTogether)),
              weights.threadCount(), [&](size_t i, unsigned) {
                const int64_t first = static_cast<int64_t>(i) * kTogether;
                for (int64_t token = first;
                     token < std::min(first + kTogether, tokens); ++token)
                  work(token);
              });
}

size_t BackwardPass::sizeOf(mlir::Value value) const {
  return static_cast<size_t>(tokens * choicesOfToken(value) * widthOf(value));
}

std::vector<float> &BackwardPass::make(mlir::Value value) {
  std::vector<float> &rows = values[value.getAsOpaquePointer()];
  rows.resize(sizeOf(value));
  return rows;
}

/// Runs the op that makes `value`.
void BackwardPass::compute(mlir::Value value) {
  mlir::Operation *op = value.getDefiningOp();
  const BackwardOp *row = op ? findBackward(op) : nullptr;
  if (!row || !row->forward)
    throw Error("no rule computes the rows of " +
                (op ? op->getName().getStringRef().str() : "an argument") +
                " again");
  row->forward(*this, op);
}

std::span<const float> BackwardPass::rows(mlir::Value value) {
  const void *key = value.getAsOpaquePointer();
  if (const auto found = values.find(key); found != values.end())
    return found->second;
  compute(value);
  return values[key];
}

std::vector<float> &BackwardPass::part(mlir::Operation *op, int number) {
  return parts[{op, number}];
}

std::vector<int64_t> ExpertChoices::tokens(int64_t expert) const {
  std::vector<int64_t> result;
  for (int64_t i = begin(expert); i < begin(expert + 1); ++i)
    result.push_back(order[static_cast<size_t>(i)] / ofToken);
  return result;
}

const ExpertChoices &BackwardPass::choices(mlir::Value order) {
  const void *key = order.getAsOpaquePointer();
  if (!routes.contains(key))
    compute(order);
  return routes.at(key);
}

void BackwardPass::setChoices(mlir::Value order, ExpertChoices choices) {
  routes[order.getAsOpaquePointer()] = std::move(choices);
}

/// Rounds rows as the engine quantizes them. A row with a value that is not
/// finite stays.
void BackwardPass::roundRows(std::vector<float> &rows, int64_t width) const {
  const auto size = static_cast<size_t>(width);
  parallelFor(
      rows.size() / size, weights.threadCount(), [&](size_t i, unsigned) {
        float *row = rows.data() + i * size;
        std::vector<int8_t> integers(static_cast<size_t>(width));
        std::vector<float> scales(
            static_cast<size_t>(ceilDiv(width, kActivationBlock)));
        std::vector<int32_t> sums(static_cast<size_t>(ceilDiv(width, kGroup)));
        if (numerics::quantizeQ8(row, width, integers.data(), scales.data(),
                                 sums.data()) != 0)
          return;
        for (int64_t j = 0; j < width; ++j)
          row[j] = static_cast<float>(integers[static_cast<size_t>(j)]) *
                   scales[static_cast<size_t>(j / kActivationBlock)];
      });
}

std::span<const float>
BackwardPass::productRows(mlir::Value input, mlir::FlatSymbolRefAttr weight) {
  if (!quantizes || !weights.hasIntegers(weight))
    return rows(input);
  std::vector<float> &own = rounded[input.getAsOpaquePointer()];
  if (own.empty()) {
    const std::span<const float> exact = rows(input);
    own.assign(exact.begin(), exact.end());
    roundRows(own, widthOf(input));
  }
  return own;
}

std::vector<float> &BackwardPass::gradient(mlir::Value value) {
  std::vector<float> &rows = slopes[value.getAsOpaquePointer()];
  if (rows.empty())
    rows.resize(sizeOf(value));
  return rows;
}

float *BackwardPass::normGradient(mlir::FlatSymbolRefAttr weight) {
  if (!norms)
    return nullptr;
  std::vector<float> &sums = (*norms)[weight.getValue()];
  sums.resize(weights.vector(weight).size());
  return sums.data();
}

/// The result of a sublayer, or the logits of the head.
static mlir::Value lastOf(const Sublayer &sublayer) {
  return sublayer.result ? sublayer.result
                         : opsOf(sublayer).back()->getResult(0);
}

std::span<const float> BackwardPass::runForward(const Sublayer &sublayer,
                                                std::span<const float> input) {
  values[sublayer.input.getAsOpaquePointer()].assign(input.begin(),
                                                     input.end());
  return rows(lastOf(sublayer));
}

void BackwardPass::run(const Sublayer &sublayer, std::span<const float> input,
                       std::vector<float> &slope, const ReceiveFn &receive,
                       VectorGradients *gradients) {
  const llvm::SmallVector<mlir::Operation *> ops = opsOf(sublayer);
  values[sublayer.input.getAsOpaquePointer()].assign(input.begin(),
                                                     input.end());
  slopes[lastOf(sublayer).getAsOpaquePointer()] = std::move(slope);
  receiver = &receive;
  norms = gradients;
  for (mlir::Operation *op : llvm::reverse(ops))
    findBackward(op)->backward(*this, op);
  slope = std::move(gradient(sublayer.input));
}
