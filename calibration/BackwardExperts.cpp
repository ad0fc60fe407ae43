//===- BackwardExperts.cpp - The ops of experts ---------------------------===//

#include "calibration/BackwardRules.h"

#include "qwen/Numerics/Kernels.h"
#include "qwen/Numerics/Math.h"
#include "qwen/Support/Parallel.h"

#include <algorithm>
#include <numeric>

using namespace qwen;

//===----------------------------------------------------------------------===//
// The choice
//===----------------------------------------------------------------------===//

/// Orders the choices of all tokens by their expert.
static void orderByExpert(ExpertChoices &choices, int64_t experts) {
  choices.first.assign(static_cast<size_t>(experts + 1), 0);
  for (int32_t id : choices.ids)
    ++choices.first[static_cast<size_t>(id) + 1];
  std::partial_sum(choices.first.begin(), choices.first.end(),
                   choices.first.begin());
  choices.order.resize(choices.ids.size());
  std::vector<int32_t> next = choices.first;
  for (size_t choice = 0; choice < choices.ids.size(); ++choice) {
    const auto expert = static_cast<size_t>(choices.ids[choice]);
    choices.order[static_cast<size_t>(next[expert]++)] =
        static_cast<int32_t>(choice);
  }
}

void qwen::runForward(BackwardPass &pass, RouteOp op) {
  const std::span<const float> logits = pass.rows(op.getLogits());
  const float *shared =
      op.getShared() ? pass.rows(op.getShared()).data() : nullptr;
  std::vector<float> &weights = pass.make(op.getWeights());
  const int64_t experts = widthOf(op.getLogits()),
                chosen = widthOf(op.getIds()), width = widthOf(op.getWeights());
  ExpertChoices choices = {
      std::vector<int32_t>(static_cast<size_t>(pass.tokens * chosen)), chosen};
  pass.forEachToken([&](int64_t token) {
    float *p = weights.data() + token * width;
    numerics::chooseExperts(logits.data() + token * experts, experts, chosen,
                            choices.ids.data() + token * chosen, p);
    if (op.getNormalized()) {
      const float sum = std::accumulate(p, p + chosen, 0.0f);
      std::for_each_n(p, chosen, [&](float &value) { value /= sum; });
    }
    if (shared)
      p[chosen] = numerics::sigmoid(shared[token]);
  });
  orderByExpert(choices, experts);
  pass.setChoices(op.getOrder(), std::move(choices));
}

void qwen::runBackward(BackwardPass &pass, RouteOp op) {
  const std::span<const float> logits = pass.rows(op.getLogits()),
                               weights = pass.rows(op.getWeights());
  const ExpertChoices &choices = pass.choices(op.getOrder());
  const std::vector<float> &from = pass.gradient(op.getWeights());
  std::vector<float> &to = pass.gradient(op.getLogits());
  float *toShared =
      op.getShared() ? pass.gradient(op.getShared()).data() : nullptr;
  const int64_t experts = widthOf(op.getLogits()), chosen = choices.ofToken,
                width = widthOf(op.getWeights());
  pass.forEachToken([&](int64_t token) {
    const float *slopes = from.data() + token * width;
    gradients::route(logits.subspan(static_cast<size_t>(token * experts),
                                    static_cast<size_t>(experts)),
                     std::span(choices.ids)
                         .subspan(static_cast<size_t>(token * chosen),
                                  static_cast<size_t>(chosen)),
                     op.getNormalized(), slopes, to.data() + token * experts);
    if (toShared) {
      const float s = weights[static_cast<size_t>(token * width + chosen)];
      toShared[token] += slopes[chosen] * (s * (1 - s));
    }
  });
}

//===----------------------------------------------------------------------===//
// The products
//===----------------------------------------------------------------------===//

namespace {
/// The products of one expert with the rows of the tokens that chose it.
class ExpertProducts {
public:
  ExpertProducts(BackwardPass &pass, const ExpertChoices &choices,
                 int64_t expert)
      : pass(pass), part{expert, choices.experts()},
        threads(pass.weights.threadCount()), tokens(choices.tokens(expert)) {}

  /// The rows of its tokens.
  std::vector<float> gather(std::span<const float> rows, int64_t width) const {
    std::vector<float> result(tokens.size() * static_cast<size_t>(width));
    forEachRow([&](size_t row) {
      std::copy_n(rows.data() + tokens[row] * width, width,
                  result.data() + row * static_cast<size_t>(width));
    });
    return result;
  }
  /// Adds row i, times factor(i), to the row of token i.
  template <typename Factor>
  void scatter(std::span<const float> rows, std::vector<float> &to,
               const Factor &factor) const {
    const size_t width = rows.size() / tokens.size();
    forEachRow([&](size_t row) {
      const float scale = factor(row);
      float *sums = to.data() + static_cast<size_t>(tokens[row]) * width;
      for (size_t i = 0; i < width; ++i)
        sums[i] += scale * rows[row * width + i];
    });
  }

  /// Adds the product of rows with `weight`.
  void multiply(std::span<const float> rows, mlir::FlatSymbolRefAttr weight,
                float *to) const {
    addTo(rows, pass.weights.outputs(weight, part), to);
  }
  /// Adds the product of gradients with `weight`.
  void multiplyBack(std::span<const float> slopes,
                    mlir::FlatSymbolRefAttr weight, float *to) const {
    addTo(slopes, pass.weights.columns(weight, part), to);
  }
  /// Tells the gradient by the product of `rows` with `weight`.
  void tell(std::span<const float> slopes, std::span<const float> rows,
            mlir::FlatSymbolRefAttr weight) const {
    pass.tell({weight.getValue(), slopes, std::ssize(slopes) / count(),
               part.number, tokens, rows});
  }

  int64_t count() const { return std::ssize(tokens); }
  template <typename Work> void forEachRow(const Work &work) const {
    parallelFor(tokens.size(), threads,
                [&](size_t row, unsigned) { work(row); });
  }

private:
  void addTo(std::span<const float> rows, const ProductSide &side,
             float *to) const {
    const int64_t width = std::ssize(rows) / count();
    addProduct(
        ProductSide::ofRows({rows.data(), count(), width, width}, threads),
        side, to, side.vectors(), threads);
  }

  BackwardPass &pass;
  const ExpertPart part;
  const unsigned threads;
  const std::vector<int64_t> tokens;
};
} // namespace

/// Calls `work` for each expert that some token chose, with its first choice in
/// the order of experts. One expert comes after another, so that sums of a
/// token's experts have one order.
static void forEachExpert(
    BackwardPass &pass, const ExpertChoices &choices,
    const std::function<void(const ExpertProducts &of, int64_t first)> &work) {
  for (int64_t expert = 0; expert < choices.experts(); ++expert)
    if (choices.count(expert) != 0)
      work(ExpertProducts(pass, choices, expert), choices.begin(expert));
}

namespace {
/// The gates and the products that they multiply: what an op has between its
/// products and its result.
struct UpParts {
  UpParts(BackwardPass &pass, ExpertsUpOp op)
      : gate(pass.part(op, 0)), up(pass.part(op, 1)) {}
  std::vector<float> &gate, &up;
};
} // namespace

void qwen::runForward(BackwardPass &pass, ExpertsUpOp op) {
  std::vector<float> &result = pass.make(op.getResult());
  const UpParts parts(pass, op);
  parts.gate.resize(result.size());
  parts.up.resize(result.size());
  const int64_t k = widthOf(op.getInput()), width = widthOf(op.getResult());
  for (const auto &[weight, to] : {std::pair(op.getGateAttr(), &parts.gate),
                                   {op.getUpAttr(), &parts.up}}) {
    const std::span<const float> read = pass.productRows(op.getInput(), weight);
    forEachExpert(pass, pass.choices(op.getOrder()),
                  [&](const ExpertProducts &of, int64_t first) {
                    of.multiply(of.gather(read, k), weight,
                                to->data() + first * width);
                  });
  }
  const int64_t ofToken = choicesOfToken(op.getResult()) * width;
  pass.forEachToken([&](int64_t token) {
    const int64_t at = token * ofToken;
    numerics::swiGluF32(parts.gate.data() + at, parts.up.data() + at, ofToken,
                        result.data() + at);
  });
}

void qwen::runBackward(BackwardPass &pass, ExpertsUpOp op) {
  // Also computes the parts.
  (void)pass.rows(op.getResult());
  const UpParts parts(pass, op);
  const std::vector<float> &from = pass.gradient(op.getResult());
  std::vector<float> &to = pass.gradient(op.getInput());
  std::vector<float> gate(from.size()), up(from.size());
  const int64_t k = widthOf(op.getInput()), width = widthOf(op.getResult()),
                ofToken = choicesOfToken(op.getResult()) * width;
  pass.forEachToken([&](int64_t token) {
    const int64_t at = token * ofToken;
    gradients::swiGlu({parts.gate.data() + at, static_cast<size_t>(ofToken)},
                      parts.up.data() + at, from.data() + at, gate.data() + at,
                      up.data() + at);
  });
  const std::span<const float> gateRows = pass.productRows(op.getInput(),
                                                           op.getGateAttr()),
                               upRows = pass.productRows(op.getInput(),
                                                         op.getUpAttr());
  forEachExpert(pass, pass.choices(op.getOrder()),
                [&](const ExpertProducts &of, int64_t first) {
                  std::vector<float> slopes(
                      static_cast<size_t>(of.count() * k));
                  const auto own = [&](const std::vector<float> &rows) {
                    return std::span(rows).subspan(
                        static_cast<size_t>(first * width),
                        static_cast<size_t>(of.count() * width));
                  };
                  of.tell(own(gate), of.gather(gateRows, k), op.getGateAttr());
                  of.multiplyBack(own(gate), op.getGateAttr(), slopes.data());
                  of.tell(own(up), of.gather(upRows, k), op.getUpAttr());
                  of.multiplyBack(own(up), op.getUpAttr(), slopes.data());
                  of.scatter(slopes, to, [](size_t) { return 1.0f; });
                });
}

/// The place of a choice's weight among the weights of all tokens.
static size_t weightPlace(ExpertsDownOp op, const ExpertChoices &choices,
                          int64_t choice) {
  const int64_t number = choices.order[static_cast<size_t>(choice)];
  return static_cast<size_t>(number / choices.ofToken *
                                 widthOf(op.getWeights()) +
                             number % choices.ofToken);
}

/// Where the weight of the shared expert of a token is.
static size_t sharedPlace(ExpertsDownOp op, int64_t token) {
  return static_cast<size_t>((token + 1) * widthOf(op.getWeights()) - 1);
}

void qwen::runForward(BackwardPass &pass, ExpertsDownOp op) {
  const ExpertChoices &choices = pass.choices(op.getOrder());
  const std::span<const float> weights = pass.rows(op.getWeights()),
                               read = pass.productRows(op.getInput(),
                                                       op.getDownAttr());
  std::vector<float> &result = pass.make(op.getResult());
  const int64_t k = widthOf(op.getInput()), width = widthOf(op.getResult());
  forEachExpert(pass, choices, [&](const ExpertProducts &of, int64_t first) {
    std::vector<float> products(static_cast<size_t>(of.count() * width));
    of.multiply(read.subspan(static_cast<size_t>(first * k),
                             static_cast<size_t>(of.count() * k)),
                op.getDownAttr(), products.data());
    of.scatter(products, result, [&](size_t row) {
      return weights[weightPlace(op, choices,
                                 first + static_cast<int64_t>(row))];
    });
  });
  for (const auto &[i, addend] : llvm::enumerate(op.getAddends())) {
    const std::span<const float> rows = pass.rows(addend);
    const bool isShared = i == 0 && op.hasSharedExpert();
    pass.forEachToken([&](int64_t token) {
      const float scale = isShared ? weights[sharedPlace(op, token)] : 1;
      for (int64_t j = token * width; j < (token + 1) * width; ++j)
        result[static_cast<size_t>(j)] += scale * rows[static_cast<size_t>(j)];
    });
  }
}

/// The gradients by the addends, and by the weight of the shared expert.
static void addToAddends(BackwardPass &pass, ExpertsDownOp op) {
  const std::span<const float> weights = pass.rows(op.getWeights());
  const std::vector<float> &from = pass.gradient(op.getResult());
  std::vector<float> &toWeights = pass.gradient(op.getWeights());
  const int64_t width = widthOf(op.getResult());
  for (const auto &[i, addend] : llvm::enumerate(op.getAddends())) {
    std::vector<float> &to = pass.gradient(addend);
    const bool isShared = i == 0 && op.hasSharedExpert();
    const float *rows = isShared ? pass.rows(addend).data() : nullptr;
    pass.forEachToken([&](int64_t token) {
      const float scale = isShared ? weights[sharedPlace(op, token)] : 1;
      double slope = 0;
      for (int64_t j = token * width; j < (token + 1) * width; ++j) {
        const float dy = from[static_cast<size_t>(j)];
        to[static_cast<size_t>(j)] += scale * dy;
        if (isShared)
          slope += double{dy} * rows[j];
      }
      if (isShared)
        toWeights[sharedPlace(op, token)] += static_cast<float>(slope);
    });
  }
}

void qwen::runBackward(BackwardPass &pass, ExpertsDownOp op) {
  const ExpertChoices &choices = pass.choices(op.getOrder());
  const std::span<const float> weights = pass.rows(op.getWeights()),
                               read = pass.productRows(op.getInput(),
                                                       op.getDownAttr());
  const std::vector<float> &from = pass.gradient(op.getResult());
  std::vector<float> &to = pass.gradient(op.getInput()),
                     &toWeights = pass.gradient(op.getWeights());
  const int64_t k = widthOf(op.getInput()), width = widthOf(op.getResult());
  addToAddends(pass, op);
  forEachExpert(pass, choices, [&](const ExpertProducts &of, int64_t first) {
    const float *rows = read.data() + first * k;
    std::vector<float> slopes = of.gather(from, width),
                       inputSlopes(static_cast<size_t>(of.count() * k));
    of.multiplyBack(slopes, op.getDownAttr(), inputSlopes.data());
    // Without its weight, a product is what the weight multiplies.
    of.forEachRow([&](size_t row) {
      const auto number = static_cast<int64_t>(row);
      const size_t place = weightPlace(op, choices, first + number);
      double slope = 0;
      for (int64_t i = number * k; i < (number + 1) * k; ++i) {
        const float own = inputSlopes[static_cast<size_t>(i)];
        slope += double{own} * rows[i];
        to[static_cast<size_t>(first * k + i)] += weights[place] * own;
      }
      toWeights[place] += static_cast<float>(slope);
      for (int64_t i = number * width; i < (number + 1) * width; ++i)
        slopes[static_cast<size_t>(i)] *= weights[place];
    });
    of.tell(slopes, {rows, static_cast<size_t>(of.count() * k)},
            op.getDownAttr());
  });
}
