//===- Experts.cpp - The choice of experts, and their products ------------===//

#include "Products.h"

#include "qwen/CodeGen/Driver/Driver.h"

using namespace qwen;
using namespace qwen::driver;

//===----------------------------------------------------------------------===//
// Choices
//===----------------------------------------------------------------------===//

/// Orders `count` choices by expert. The choices of expert e begin at first[e].
/// Returns how many experts have choices.
static uint32_t orderChoices(const int32_t *ids, int64_t count, int64_t experts,
                             int32_t *order, int32_t *first) {
  std::fill_n(first, experts + 1, 0);
  for (int64_t i = 0; i < count; ++i)
    ++first[ids[i] + 1];
  uint32_t used = 0;
  for (int64_t e = 0; e < experts; ++e) {
    used += first[e + 1] != 0 ? 1 : 0;
    first[e + 1] += first[e];
  }
  // first[e] is the place of the next choice of expert e. After the loop it is
  // the begin of expert e + 1.
  for (int64_t i = 0; i < count; ++i)
    order[first[ids[i]]++] = static_cast<int32_t>(i);
  for (int64_t e = experts; e > 0; --e)
    first[e] = first[e - 1];
  first[0] = 0;
  return used;
}

/// Divides the weights by their sum, in their order.
static void normalize(float *weights, int64_t count) {
  float sum = 0;
  for (int64_t i = 0; i < count; ++i)
    sum = sum + weights[i];
  for (int64_t i = 0; i < count; ++i)
    weights[i] = weights[i] / sum;
}

/// A thread chooses for its tokens; the one that is done last orders all
/// choices.
QWEN_ENTRY(Route, Route) {
  const RouteArguments of = arguments;
  const Floats logits = floatsAt(context, of.logits),
               weights = floatsAt(context, of.weights);
  int32_t *ids = arenaAt<int32_t>(context, of.ids);
  const CountOfCall &tokens = context->counts[of.count];
  const Range range = shareOf(context, thread, tokens.number);
  for (int64_t token = range.begin; token < range.end; ++token) {
    float *w = weights.of(token);
    flag(tokens, token, of.op,
         fixed.choose(logits.of(token), fixed.experts, fixed.chosen,
                      ids + token * fixed.chosen, w));
    if (of.normalized)
      normalize(w, fixed.chosen);
    if (fixed.sigmoid)
      fixed.sigmoid(floatsAt(context, of.shared).of(token), 1,
                    w + fixed.chosen);
  }
  const auto count = static_cast<uint32_t>(range.end - range.begin);
  const std::atomic_ref<uint32_t> done(context->taken[of.op]);
  if (count != 0 && done.fetch_add(count, std::memory_order_acq_rel) + count ==
                        static_cast<uint32_t>(tokens.number))
    done.store(orderChoices(ids, tokens.number * fixed.chosen, fixed.experts,
                            arenaAt<int32_t>(context, of.order),
                            arenaAt<int32_t>(context, of.first)),
               std::memory_order_relaxed);
}

namespace {
/// Choices by their places in the order of experts.
struct Choices {
  const int32_t *order, *first;
  int64_t chosen;

  /// The places of an expert's.
  Range of(int64_t expert) const { return {first[expert], first[expert + 1]}; }
  int64_t token(int64_t place) const { return order[place] / chosen; }
  /// The number of the expert among the experts of its token.
  int64_t number(int64_t place) const { return order[place] % chosen; }
};
} // namespace

/// Calls visit(place, count) for the choices of an expert, up to kExpertTokens
/// at a time.
template <typename Visit>
QWEN_SPECIALISED static void forStrips(Range places, const Visit &visit) {
  for (int64_t place = places.begin; place < places.end; place += kExpertTokens)
    visit(place, std::min(kExpertTokens, places.end - place));
}

//===----------------------------------------------------------------------===//
// Up
//===----------------------------------------------------------------------===//

/// Whether the tokens of `count` choices follow each other.
static bool isRun(const Choices &choices, int64_t place, int64_t count) {
  return choices.token(place + count - 1) - choices.token(place) == count - 1;
}

/// The activations of the tokens of `count` choices: where they lie, or copied
/// to `scratch` as a kernel that takes `tiles` needs them.
static FloatInput gather(const FloatInput &input, const Choices &choices,
                         int64_t place, int64_t count, const TokenTiles &,
                         float *scratch) {
  if (isRun(choices, place, count))
    return {input.x + choices.token(place) * input.k, input.k};
  for (int64_t i = 0; i < count; ++i)
    copyValues(input.x + choices.token(place + i) * input.k, input.k,
               scratch + i * input.k);
  return {scratch, input.k};
}

/// Memory for the activations of an expert's `count` tokens.
QWEN_SPECIALISED static Quantized expertTokens(int64_t k, int64_t count,
                                               const TokenTiles &tiles,
                                               float *scratch) {
  float *scales = scratch + kExpertTokens * alignTo(k, kActivationBlock) / 4,
        *sums = scales + kExpertTokens * ceilDiv(k, kActivationBlock);
  return {reinterpret_cast<int8_t *>(scratch),
          scales,
          reinterpret_cast<int32_t *>(sums),
          k,
          tiles.layoutInfo(),
          tiles.inTiles(count)};
}

static QuantizedInput gather(const QuantizedInput &input,
                             const Choices &choices, int64_t place,
                             int64_t count, const TokenTiles &tiles,
                             float *scratch) {
  const Quantized to = expertTokens(input.k, count, tiles, scratch);
  const int64_t first = choices.token(place);
  if (to.inTiles == 0 && first >= input.inTiles && isRun(choices, place, count))
    return {input.from(first)};
  for (int64_t i = 0; i < count; ++i)
    copyToken(input, choices.token(place + i), to, i);
  return {to};
}

/// What a unit of ExpertsUp costs: the multiplications of its tokens, and
/// reading the weights, which takes as long as the multiplications of four
/// tokens.
static int64_t unitCost(Range places) { return places.end - places.begin + 4; }

/// Calls compute(expert, first block, last block) for the thread's units: the
/// blocks of outputs of the experts that have tokens. Threads share the costs.
template <typename Compute>
QWEN_SPECIALISED static void
forExpertBlocks(const Context *context, int32_t thread, OpId op,
                const Choices &choices, int64_t experts, int64_t blocks,
                const Compute &compute) {
  const auto forExperts = [&](const auto &visit) QWEN_SPECIALISED_LAMBDA {
    for (int64_t e = 0; e < experts; ++e)
      if (const Range places = choices.of(e); places.begin < places.end)
        visit(e, unitCost(places));
  };
  int64_t all = 0, most = 1;
  forExperts([&](int64_t, int64_t cost) QWEN_SPECIALISED_LAMBDA {
    all += blocks * cost;
    most = std::max(most, cost);
  });
  forStolenUnits(
      context, thread, op, all, most, most,
      [&](int64_t begin, int64_t end) QWEN_SPECIALISED_LAMBDA {
        // A unit is in the range where it begins.
        int64_t before = 0;
        forExperts([&](int64_t e, int64_t cost) QWEN_SPECIALISED_LAMBDA {
          const auto blockAt = [&](int64_t at) QWEN_SPECIALISED_LAMBDA {
            return std::min(ceilDiv(std::max<int64_t>(at - before, 0), cost),
                            blocks);
          };
          const int64_t first = blockAt(begin), last = blockAt(end);
          if (first < last)
            compute(e, first, last);
          before += blocks * cost;
        });
      });
}

/// Calls finish(place, token, first output, outputs, gate, up) for the products
/// of the thread's units. Without SwiGLU there is one matrix, and gate and up
/// are its product.
template <typename Input, typename Instance, typename Finish>
QWEN_SPECIALISED static void
expertsUp(const Context *context, int32_t thread, const ExpertsUpArguments &of,
          const Input &input, const Instance &fixed, const Finish &finish) {
  const Choices choices = {arenaAt<int32_t>(context, of.order),
                           arenaAt<int32_t>(context, of.first), fixed.chosen};
  const auto *weights = weightsAt<uint8_t>(context, of.weight);
  const int64_t outputs = fixed.width, panels = outputs / kPanelOutputs;
  const bool hasGates = of.gates.at >= 0;
  const int64_t matrices =
      hasGates || (!fixed.swiGluF32 && !fixed.swiGluQ8) ? 1 : 2;
  float *results = fixed.scratch, *gathered = results + kExpertValues;
  const auto multiplyStrip = [&](int64_t e, Range blocks, int64_t place,
                                 int64_t count) QWEN_SPECIALISED_LAMBDA {
    const Input x = gather(input, choices, place, count,
                           fixed.product.tiles[0].tokens, gathered);
    // As many blocks as the results have room for, and SwiGLU takes.
    constexpr int64_t most = kStackValues / kActivationBlock;
    const int64_t step =
        std::min(kExpertValues / (2 * kActivationBlock) / count, most);
    for (int64_t block = blocks.begin; block < blocks.end; block += step) {
      const int64_t first = block * kActivationBlock;
      const int64_t size =
          std::min(std::min(block + step, blocks.end) * kActivationBlock,
                   outputs) -
          first;
      const uint8_t *matrix =
          weights + e * fixed.stride + first / kPanelOutputs * fixed.panelBytes;
      for (int64_t m = 0; m < matrices; ++m)
        multiply(x,
                 Product{matrix + m * panels * fixed.panelBytes, nullptr,
                         nullptr, results + m * size, count, matrices * size,
                         fixed.product},
                 {0, size / kPanelOutputs});
      for (int64_t i = 0; i < count; ++i) {
        const float *values = results + i * matrices * size;
        const float *gate =
            hasGates ? floatsAt(context, of.gates).of(place + i) + first
                     : values;
        finish(place + i, choices.token(place + i), first, size, gate,
               values + (matrices - 1) * size);
      }
    }
  };
  forExpertBlocks(
      context, thread, of.op, choices, fixed.experts,
      ceilDiv(outputs, kActivationBlock),
      [&](int64_t e, int64_t first, int64_t last) QWEN_SPECIALISED_LAMBDA {
        forStrips(choices.of(e),
                  [&](int64_t place, int64_t count) QWEN_SPECIALISED_LAMBDA {
                    multiplyStrip(e, {first, last}, place, count);
                  });
      });
}

/// The same with SwiGLU, whose kernel says whether it quantizes, or without.
template <typename Input, typename Instance>
QWEN_SPECIALISED static void
expertsUp(const Context *context, int32_t thread, const ExpertsUpArguments &of,
          const Input &input, const Instance &fixed) {
  if (!fixed.swiGluQ8) {
    float *out = arenaAt(context, of.out.at);
    expertsUp(context, thread, of, input, fixed,
              [&](int64_t place, int64_t, int64_t first, int64_t size,
                  const float *gate, const float *up) QWEN_SPECIALISED_LAMBDA {
                float *y = out + place * of.out.stride + first;
                if (fixed.swiGluF32)
                  fixed.swiGluF32(gate, up, size, y);
                else
                  copyValues(up, size, y);
              });
    return;
  }
  const Quantized out = quantizedAt(context, of.out, fixed.width);
  expertsUp(context, thread, of, input, fixed,
            [&](int64_t place, int64_t token, int64_t first, int64_t size,
                const float *gate, const float *up) QWEN_SPECIALISED_LAMBDA {
              flag(context->counts[of.count], token, of.op,
                   fixed.swiGluQ8(gate, up, size, out.codeOf(place, first),
                                  out.scaleOf(place, first / kActivationBlock),
                                  out.sumsOf(place) + first / kGroup));
            });
}

QWEN_ENTRY(ExpertsUpF32, ExpertsUp) {
  const ExpertsUpArguments of = arguments;
  expertsUp(context, thread, of,
            FloatInput{arenaAt(context, of.in.at), fixed.k}, fixed);
}

QWEN_ENTRY(ExpertsUpQ8, ExpertsUp) {
  const ExpertsUpArguments of = arguments;
  expertsUp(context, thread, of,
            QuantizedInput{quantizedAt(context, of.in, fixed.k, fixed.inTiles,
                                       context->counts[of.count].number)},
            fixed);
}

//===----------------------------------------------------------------------===//
// Down
//===----------------------------------------------------------------------===//

/// The panels of `range` of all tokens: experts in ascending order, so that
/// each token adds them in that order.
template <typename Input, typename Instance, typename InputFrom>
QWEN_SPECIALISED static void
sumExperts(const Context *context, const ExpertsDownArguments &of,
           const Instance &fixed, const InputFrom &inputFrom, Range range) {
  const Choices choices = {arenaAt<int32_t>(context, of.order),
                           arenaAt<int32_t>(context, of.first), fixed.chosen};
  const Floats out = floatsAt(context, of.out),
               factors = floatsAt(context, of.weights);
  const auto *weights = weightsAt<uint8_t>(context, of.weight);
  const int64_t tokens = context->counts[of.count].number;
  const auto forTokens = [&](const auto &visit) QWEN_SPECIALISED_LAMBDA {
    for (int64_t token = 0; token < tokens; ++token)
      visit(token, out.of(token) + range.begin * kPanelOutputs,
            (range.end - range.begin) * kPanelOutputs);
  };
  forTokens([](int64_t, float *y, int64_t size)
                QWEN_SPECIALISED_LAMBDA { clearValues(y, size); });
  for (int64_t e = 0; e < fixed.experts; ++e)
    forStrips(choices.of(e), [&](int64_t place,
                                 int64_t count) QWEN_SPECIALISED_LAMBDA {
      const Input x = inputFrom(place, count);
      const int64_t step = kExpertValues / kPanelOutputs / count;
      for (int64_t panel = range.begin; panel < range.end; panel += step) {
        const int64_t size =
            (std::min(panel + step, range.end) - panel) * kPanelOutputs;
        multiply(x,
                 Product{weights + e * fixed.stride + panel * fixed.panelBytes,
                         nullptr, nullptr, fixed.scratch, count, size,
                         fixed.product},
                 {0, size / kPanelOutputs});
        for (int64_t i = 0; i < count; ++i) {
          const int64_t token = choices.token(place + i);
          fixed.addScaled(fixed.scratch + i * size,
                          factors.of(token)[choices.number(place + i)], size,
                          out.of(token) + panel * kPanelOutputs);
        }
      }
    });
  const auto add = [&](const FloatPlace &addend,
                       bool isScaled) QWEN_SPECIALISED_LAMBDA {
    const Floats x = floatsAt(context, addend);
    forTokens([&](int64_t token, float *y,
                  int64_t size) QWEN_SPECIALISED_LAMBDA {
      const float w = isScaled ? factors.of(token)[fixed.chosen] : 1;
      fixed.addScaled(x.of(token) + range.begin * kPanelOutputs, w, size, y);
    });
  };
  if (of.addend.at >= 0)
    add(of.addend, of.isScaled != 0);
  if (of.last.at >= 0)
    add(of.last, false);
}

template <typename Input, typename Instance, typename InputFrom>
QWEN_SPECIALISED static void expertsDown(const Context *context, int32_t thread,
                                         const ExpertsDownArguments &of,
                                         const Instance &fixed,
                                         const InputFrom &inputFrom) {
  forPanels(context, thread, of.op, fixed.k, fixed.width / kPanelOutputs,
            context->counts[of.count].number, fixed.product.together,
            [&](Range range) QWEN_SPECIALISED_LAMBDA {
              sumExperts<Input>(context, of, fixed, inputFrom, range);
            });
}

QWEN_ENTRY(ExpertsDownF32, ExpertsDown) {
  const ExpertsDownArguments of = arguments;
  const FloatInput in = {arenaAt(context, of.in.at), fixed.k};
  expertsDown<FloatInput>(context, thread, of, fixed,
                          [&](int64_t place, int64_t) QWEN_SPECIALISED_LAMBDA {
                            return FloatInput{in.x + place * in.k, in.k};
                          });
}

QWEN_ENTRY(ExpertsDownQ8, ExpertsDown) {
  const ExpertsDownArguments of = arguments;
  const Quantized in = quantizedAt(context, of.in, fixed.k);
  expertsDown<QuantizedInput>(
      context, thread, of, fixed,
      [&](int64_t place, int64_t count) QWEN_SPECIALISED_LAMBDA {
        const Quantized to =
            expertTokens(fixed.k, count, fixed.product.tiles[0].tokens,
                         fixed.scratch + kExpertValues);
        if (to.inTiles == 0)
          return QuantizedInput{in.from(place)};
        for (int64_t i = 0; i < count; ++i)
          copyToken(in, place + i, to, i);
        return QuantizedInput{to};
      });
}
