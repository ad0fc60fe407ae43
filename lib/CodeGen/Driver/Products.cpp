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

QWEN_ENTRY(LinearF32, Linear) {
  const LinearArguments of = arguments;
  linear(context, thread, of, FloatInput{arenaAt(context, of.in.at), of.k},
         fixed.product);
}

QWEN_ENTRY(LinearQ8, Linear) {
  const LinearArguments of = arguments;
  linear(context, thread, of, QuantizedInput{quantizedAt(context, of.in, of.k)},
         fixed.product);
}

QWEN_ENTRY(LmHeadF32, Linear) {
  const LinearArguments of = arguments;
  lmHead(context, thread, of, FloatInput{arenaAt(context, of.in.at), of.k},
         fixed.product, fixed.check);
}

QWEN_ENTRY(LmHeadQ8, Linear) {
  const LinearArguments of = arguments;
  lmHead(context, thread, of, QuantizedInput{quantizedAt(context, of.in, of.k)},
         fixed.product, fixed.check);
}
