//===- BackwardLinearAttention.cpp - The ops of linear attention ----------===//

#include "calibration/BackwardRules.h"

#include "qwen/Gradients/LinearAttention.h"
#include "qwen/Numerics/Kernels.h"
#include "qwen/Support/Parallel.h"

#include <algorithm>

using namespace qwen;

//===----------------------------------------------------------------------===//
// The convolution
//===----------------------------------------------------------------------===//

/// Calls `work` for some channels of each window: its first token, the first
/// channel, and their convolution. They run on all threads.
static void forEachChannels(
    BackwardPass &pass, ShortConvolutionOp op,
    const std::function<void(int64_t token, int64_t channel,
                             gradients::ShortConvolution &of)> &work) {
  constexpr int64_t kTogether = 256;
  const std::span<const float> weights =
      pass.weights.vector(op.getWeightAttr());
  const int64_t channels = widthOf(op.getInput());
  const auto parts = static_cast<size_t>(ceilDiv(channels, kTogether));
  parallelFor(static_cast<size_t>(pass.tokens / pass.window) * parts,
              pass.weights.threadCount(), [&](size_t i, unsigned) {
                const int64_t first =
                    static_cast<int64_t>(i % parts) * kTogether;
                gradients::ShortConvolution of(
                    weights.data() + first * kConvolutionTaps, pass.window,
                    std::min(kTogether, channels - first));
                work(static_cast<int64_t>(i / parts) * pass.window, first, of);
              });
}

void qwen::runForward(BackwardPass &pass, ShortConvolutionOp op) {
  const std::span<const float> input = pass.rows(op.getInput());
  std::vector<float> &result = pass.make(op.getResult());
  const int64_t width = widthOf(op.getInput());
  forEachChannels(
      pass, op,
      [&](int64_t token, int64_t channel, gradients::ShortConvolution &of) {
        of.run(headRows(input.data(), width, token, channel),
               headRows(result.data(), width, token, channel));
      });
}

void qwen::runBackward(BackwardPass &pass, ShortConvolutionOp op) {
  const std::span<const float> input = pass.rows(op.getInput());
  const std::vector<float> &from = pass.gradient(op.getResult());
  std::vector<float> &to = pass.gradient(op.getInput());
  const int64_t width = widthOf(op.getInput());
  forEachChannels(
      pass, op,
      [&](int64_t token, int64_t channel, gradients::ShortConvolution &of) {
        of.add(headRows(input.data(), width, token, channel),
               headRows(from.data(), width, token, channel),
               headRows(to.data(), width, token, channel));
      });
}

//===----------------------------------------------------------------------===//
// The gates
//===----------------------------------------------------------------------===//

void qwen::runForward(BackwardPass &pass, DeltaGatesOp op) {
  const std::span<const float> rate = pass.weights.vector(op.getRateAttr()),
                               bias = pass.weights.vector(op.getBiasAttr());
  const std::span<const float> a = pass.rows(op.getA()),
                               b = pass.rows(op.getB());
  std::vector<float> &decay = pass.make(op.getDecay()),
                     &beta = pass.make(op.getBeta());
  const int64_t width = widthOf(op.getA());
  pass.forEachToken([&](int64_t token) {
    const int64_t at = token * width;
    numerics::deltaGates(a.data() + at, b.data() + at, rate.data(), bias.data(),
                         width, decay.data() + at, beta.data() + at);
  });
}

void qwen::runBackward(BackwardPass &pass, DeltaGatesOp op) {
  const std::span<const float> rate = pass.weights.vector(op.getRateAttr()),
                               bias = pass.weights.vector(op.getBiasAttr());
  const std::span<const float> a = pass.rows(op.getA()),
                               b = pass.rows(op.getB());
  const std::vector<float> &decay = pass.gradient(op.getDecay()),
                           &beta = pass.gradient(op.getBeta());
  std::vector<float> &toA = pass.gradient(op.getA()),
                     &toB = pass.gradient(op.getB());
  const int64_t width = widthOf(op.getA());
  pass.forEachToken([&](int64_t token) {
    const int64_t at = token * width;
    gradients::deltaGates(
        a.subspan(static_cast<size_t>(at), static_cast<size_t>(width)),
        b.data() + at, rate.data(), bias.data(), decay.data() + at,
        beta.data() + at, toA.data() + at, toB.data() + at);
  });
}

//===----------------------------------------------------------------------===//
// The delta rule
//===----------------------------------------------------------------------===//

namespace {
/// The places of heads in what the delta rule reads.
struct DeltaHeads {
  explicit DeltaHeads(DeltaRuleOp op)
      : keyHeads(static_cast<int64_t>(op.getKeyHeads())),
        valueHeads(op.getValueHeads()), sharing(op.getSharing()),
        keyDim(op.getKeyDim()), valueDim(op.getValueDim()),
        width(widthOf(op.getInput())), resultWidth(widthOf(op.getResult())) {}

  /// A row has the heads of q, then the heads of k, then the heads of v.
  template <typename T>
  gradients::HeadRows<T> query(T *rows, int64_t token, int64_t head) const {
    return headRows(rows, width, token, keyHead(head) * keyDim);
  }
  template <typename T>
  gradients::HeadRows<T> key(T *rows, int64_t token, int64_t head) const {
    return headRows(rows, width, token, (keyHeads + keyHead(head)) * keyDim);
  }
  template <typename T>
  gradients::HeadRows<T> value(T *rows, int64_t token, int64_t head) const {
    return headRows(rows, width, token,
                    2 * keyHeads * keyDim + head * valueDim);
  }
  template <typename T>
  gradients::HeadRows<T> result(T *rows, int64_t token, int64_t head) const {
    return headRows(rows, resultWidth, token, head * valueDim);
  }
  template <typename T>
  gradients::HeadRows<T> gate(T *rows, int64_t token, int64_t head) const {
    return headRows(rows, valueHeads, token, head);
  }

  int64_t keyHead(int64_t head) const { return head / sharing % keyHeads; }

  int64_t keyHeads, valueHeads, sharing, keyDim, valueDim, width, resultWidth;
};
} // namespace

/// Calls `work` for each value head of each window, with its first token.
/// Threads share the keys; the heads of one key run in order on one thread.
static void
forEachValueHead(const BackwardPass &pass, const DeltaHeads &heads,
                 const std::function<void(int64_t token, int64_t head,
                                          gradients::DeltaRule &rule)> &work) {
  const auto keyHeads = static_cast<size_t>(heads.keyHeads);
  parallelFor(
      static_cast<size_t>(pass.tokens / pass.window) * keyHeads,
      pass.weights.threadCount(), [&](size_t i, unsigned) {
        gradients::DeltaRule rule(pass.window, heads.keyDim, heads.valueDim);
        for (int64_t head = 0; head < heads.valueHeads; ++head)
          if (heads.keyHead(head) == static_cast<int64_t>(i % keyHeads))
            work(static_cast<int64_t>(i / keyHeads) * pass.window, head, rule);
      });
}

/// What a value head reads of a window.
static gradients::DeltaRule::Inputs inputsOf(BackwardPass &pass, DeltaRuleOp op,
                                             const DeltaHeads &heads,
                                             int64_t token, int64_t head) {
  const float *rows = pass.rows(op.getInput()).data();
  return {heads.query(rows, token, head), heads.key(rows, token, head),
          heads.value(rows, token, head),
          heads.gate(pass.rows(op.getDecay()).data(), token, head),
          heads.gate(pass.rows(op.getBeta()).data(), token, head)};
}

/// Computes what the op reads, which threads may then look up.
static void computeInputs(BackwardPass &pass, DeltaRuleOp op) {
  for (mlir::Value operand : op->getOperands())
    (void)pass.rows(operand);
}

void qwen::runForward(BackwardPass &pass, DeltaRuleOp op) {
  const DeltaHeads heads(op);
  computeInputs(pass, op);
  std::vector<float> &result = pass.make(op.getResult());
  forEachValueHead(
      pass, heads,
      [&](int64_t token, int64_t head, gradients::DeltaRule &rule) {
        rule.run(inputsOf(pass, op, heads, token, head),
                 heads.result(result.data(), token, head));
      });
}

void qwen::runBackward(BackwardPass &pass, DeltaRuleOp op) {
  const DeltaHeads heads(op);
  computeInputs(pass, op);
  const std::vector<float> &from = pass.gradient(op.getResult());
  float *to = pass.gradient(op.getInput()).data(),
        *decay = pass.gradient(op.getDecay()).data(),
        *beta = pass.gradient(op.getBeta()).data();
  forEachValueHead(
      pass, heads,
      [&](int64_t token, int64_t head, gradients::DeltaRule &rule) {
        rule.add(inputsOf(pass, op, heads, token, head),
                 heads.result(from.data(), token, head),
                 {heads.query(to, token, head), heads.key(to, token, head),
                  heads.value(to, token, head), heads.gate(decay, token, head),
                  heads.gate(beta, token, head)});
      });
}
