//===- Student.cpp - A model of integers as its gradients see it ----------===//

#include "calibration/Student.h"

#include "calibration/LoadedPrograms.h"

#include <algorithm>

using namespace qwen;

Student::Student(mlir::ModuleOp module, const WeightSources &weights,
                 const SublayerChain &chain, int64_t window, unsigned threads,
                 bool quantizes)
    : module(module), sources(weights), chain(chain), window(window),
      width(modelFact(module, "hidden_size")), quantizes(quantizes),
      weights(module, weights, threads) {}

std::vector<float> Student::embed(std::span<const int32_t> ids) const {
  EmbeddingOp op = chain.embedding;
  auto weight = mlir::SymbolTable(module).lookup<WeightOp>(op.getWeight());
  const WeightSourcePtr source = weight.open(sources);
  std::vector<float> result(ids.size() * static_cast<size_t>(width));
  float *to = result.data();
  for (int32_t id : ids) {
    source->read(id, 1, to);
    to += width;
  }
  return result;
}

void Student::runForward(std::span<const int32_t> ids, bool keepsRows) {
  rows.clear();
  rows.push_back(embed(ids));
  const auto size = static_cast<size_t>(window * width);
  for (const Sublayer &sublayer : llvm::drop_end(chain.sublayers)) {
    weights.clear();
    std::vector<float> next;
    next.reserve(rows.back().size());
    for (size_t first = 0; first < rows.back().size(); first += size) {
      BackwardPass pass(weights, window, window, quantizes);
      llvm::append_range(
          next, pass.runForward(sublayer,
                                std::span(rows.back()).subspan(first, size)));
    }
    if (keepsRows)
      rows.push_back(std::move(next));
    else
      rows.back() = std::move(next);
  }
  // The head's.
  weights.clear();
}

void Student::forHeadTokens(
    const std::function<void(int64_t first, int64_t tokens)> &work) const {
  const int64_t total = std::ssize(rows.back()) / width;
  for (int64_t begin = 0; begin < total; begin += window)
    for (int64_t first = 0; first < window; first += kHeadTokens)
      work(begin + first, std::min(kHeadTokens, window - first));
}

std::span<const float> Student::headRows(int64_t first, int64_t tokens) const {
  return std::span(rows.back())
      .subspan(static_cast<size_t>(first * width),
               static_cast<size_t>(tokens * width));
}

void Student::forLogits(const LogitsFn &receive) {
  forHeadTokens([&](int64_t first, int64_t tokens) {
    BackwardPass pass(weights, tokens, window, quantizes);
    const std::span<const float> logits =
        pass.runForward(chain.sublayers.back(), headRows(first, tokens));
    receive(first, std::ssize(logits) / tokens, logits);
  });
}

BackwardPass::ReceiveFn Student::receiver(const Sublayer &sublayer,
                                          BackwardPass &pass,
                                          const ReceiveFn &receive) const {
  return [&](const ProductGradient &gradient) {
    const auto name = mlir::FlatSymbolRefAttr::get(
        mlir::ModuleOp(module).getContext(), gradient.weight);
    for (const ProductInput &input : sublayer.inputs)
      if (llvm::is_contained(input.weights, gradient.weight))
        receive(input.ids ? gradient.rows : pass.productRows(input.rows, name),
                gradient);
  };
}

std::vector<float> Student::runBackward(const SlopeFn &slopeOf,
                                        const ReceiveFn &receive,
                                        VectorGradients &norms) {
  std::vector<float> slopes;
  forHeadTokens([&](int64_t first, int64_t tokens) {
    const Sublayer &head = chain.sublayers.back();
    BackwardPass pass(weights, tokens, window, quantizes);
    const std::span<const float> read = headRows(first, tokens);
    const std::span<const float> logits = pass.runForward(head, read);
    std::vector<float> slope =
        slopeOf(first, std::ssize(logits) / tokens, logits);
    pass.run(head, read, slope, receiver(head, pass, receive), &norms);
    llvm::append_range(slopes, slope);
  });
  const int64_t tokens = std::ssize(slopes) / width;
  for (size_t i = chain.sublayers.size() - 1; i > 0; --i) {
    const Sublayer &sublayer = chain.sublayers[i - 1];
    weights.clear();
    BackwardPass pass(weights, tokens, window, quantizes);
    pass.run(sublayer, rows[i - 1], slopes, receiver(sublayer, pass, receive),
             &norms);
  }
  weights.clear();
  return slopes;
}
