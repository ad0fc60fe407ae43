//===- Products.cpp - Linear and lm_head ----------------------------------===//

#include "Products.h"

#include "qwen/CodeGen/Driver/Driver.h"

using namespace qwen;
using namespace qwen::driver;

template <typename Input, typename Fn>
QWEN_SPECIALISED static void
linear(const Context *context, int32_t thread, const LinearArguments &of,
       const Input &input, const ProductInstance<Fn> &fixed) {
  const Product<Fn> product = {weightsAt<uint8_t>(context, of.weight),
                               weightsAt(context, of.bias),
                               of.residual < 0 ? nullptr
                                               : arenaAt(context, of.residual),
                               arenaAt(context, of.out.at),
                               context->counts[of.count].number,
                               of.out.stride,
                               fixed};
  forPanels(context, thread, of.op, of.k, of.panels, product.m, fixed.together,
            [&](Range range)
                QWEN_SPECIALISED_LAMBDA { multiply(input, product, range); });
}

template <typename Input, typename Fn>
QWEN_SPECIALISED static void
lmHead(const Context *context, int32_t thread, const LinearArguments &of,
       const Input &input, const ProductInstance<Fn> &fixed,
       CheckFiniteFn *check) {
  const CountOfCall &tokens = context->counts[of.count];
  const Product<Fn> product = {weightsAt<uint8_t>(context, of.weight),
                               nullptr,
                               nullptr,
                               context->result,
                               tokens.number,
                               of.out.stride,
                               fixed};
  forPanels(context, thread, of.op, of.k, of.panels, product.m, fixed.together,
            [&](Range range) QWEN_SPECIALISED_LAMBDA {
              multiply(input, product, range);
              // Each thread tests the outputs that it wrote, in its cache.
              for (int64_t i = 0; i < product.m; ++i)
                flag(tokens, i, of.op,
                     check(product.out + i * product.stride +
                               range.begin * kPanelOutputs,
                           (range.end - range.begin) * kPanelOutputs));
            });
}

/// The activations of the call's tokens. `first` says which tokens the first
/// kernel multiplies.
QWEN_SPECIALISED static QuantizedInput quantizedInput(const Context *context,
                                                      const LinearArguments &of,
                                                      const TokenTiles &first) {
  return {quantizedAt(context, of.in, of.k, first,
                      context->counts[of.count].number)};
}

QWEN_ENTRY(LinearF32, Linear) {
  const LinearArguments of = arguments;
  linear(context, thread, of, FloatInput{arenaAt(context, of.in.at), of.k},
         fixed.product);
}

QWEN_ENTRY(LinearQ8, Linear) {
  const LinearArguments of = arguments;
  linear(context, thread, of,
         quantizedInput(context, of, fixed.product.tiles[0].tokens),
         fixed.product);
}

/// Multiplies all tokens with a block of gate and of up, and calls
/// finish(token, first output, outputs, gate, up) for each token.
template <typename Finish>
QWEN_SPECIALISED static void
gateBlock(const Context *context, const LinearSwiGluArguments &of,
          const QuantizedInput &input, const LinearSwiGluQ8Instance &fixed,
          int64_t block, const Finish &finish) {
  const LinearArguments &product = of.product;
  const auto *weights = weightsAt<uint8_t>(context, product.weight);
  const float *bias = weightsAt(context, product.bias);
  const int64_t width = product.panels * kPanelOutputs / 2;
  const int64_t first = block * kActivationBlock;
  const int64_t size = std::min(kActivationBlock, width - first);
  const int64_t m = context->counts[product.count].number;
  for (const int64_t part : {0, 1}) {
    const int64_t output = part * width + first;
    multiply(input,
             Product<LinearQ8Fn>{
                 weights + output / kPanelOutputs * of.panelBytes,
                 bias ? bias + output : nullptr, nullptr,
                 fixed.scratch + part * size, m, 2 * size, fixed.product},
             {0, size / kPanelOutputs});
  }
  for (int64_t token = 0; token < m; ++token) {
    const float *gate = fixed.scratch + token * 2 * size;
    finish(token, first, size, gate, gate + size);
  }
}

QWEN_ENTRY(LinearSwiGluQ8, LinearSwiGlu) {
  const LinearSwiGluArguments of = arguments;
  const LinearArguments &product = of.product;
  const CountOfCall &count = context->counts[product.count];
  const TokenTiles &inTiles = fixed.product.tiles[0].tokens;
  const QuantizedInput input = quantizedInput(context, product, inTiles);
  if (!isGateInProduct(inTiles, count.number)) {
    linear(context, thread, product, input, fixed.product);
    return;
  }
  const int64_t width = product.panels * kPanelOutputs / 2;
  const Quantized gated =
      quantizedAt(context, of.gated, width, fixed.tiles, count.number);
  const auto finish = [&](int64_t token, int64_t first, int64_t size,
                          const float *gate,
                          const float *up) QWEN_SPECIALISED_LAMBDA {
    writeBlocks(count, of.gateOp, gated, token, first, size,
                [&](int8_t *q, float *d, int32_t *sums)
                    QWEN_SPECIALISED_LAMBDA {
                      return fixed.swiGlu(gate, up, size, q, d, sums);
                    });
  };
  forStolenUnits(context, thread, product.op, ceilDiv(width, kActivationBlock),
                 1, 1, [&](int64_t begin, int64_t end) QWEN_SPECIALISED_LAMBDA {
                   for (int64_t block = begin; block < end; ++block)
                     gateBlock(context, of, input, fixed, block, finish);
                 });
}

QWEN_ENTRY(LmHeadF32, Linear) {
  const LinearArguments of = arguments;
  lmHead(context, thread, of, FloatInput{arenaAt(context, of.in.at), of.k},
         fixed.product, fixed.check);
}

QWEN_ENTRY(LmHeadQ8, Linear) {
  const LinearArguments of = arguments;
  lmHead(context, thread, of,
         quantizedInput(context, of, fixed.product.tiles[0].tokens),
         fixed.product, fixed.check);
}
