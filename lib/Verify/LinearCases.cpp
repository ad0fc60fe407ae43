//===- LinearCases.cpp - Cases of products with a packed matrix -----------===//

#include "Cases.h"

#include "qwen/ABI/DriverABI.h"
#include "qwen/Numerics/Float16.h"

using namespace qwen;
using namespace qwen::verify;

namespace {
struct LinearShape {
  int64_t m, k, panels, panelBegin, panelEnd, ld;
  bool bias, residual;
  /// The residual is the result's memory.
  bool inPlace;
  /// Outputs that the last row of the result lacks.
  int64_t lacking = 0;
};

/// Codes and scales of activations as a layout has them. Their memory ends
/// behind the last tile.
struct Activations {
  Guarded<int8_t> q;
  Guarded<float> d;

  Activations(ActivationLayoutInfo layout, int64_t m, int64_t k)
      : q(alignTo(m, layout.tokens) * layout.codes(k)),
        d(alignTo(m, layout.tokens) * ceilDiv(k, kActivationBlock)) {}
};

/// Operands of both kinds of linear kernels.
struct LinearOperands {
  LinearShape shape;
  WeightFormat format;
  Guarded<float> x, d, bias, residual;
  Guarded<int8_t> q;
  Guarded<int32_t> sums;
  Guarded<uint8_t> weights;

  LinearOperands(const LinearShape &shape, WeightFormat format, Values kind,
                 Random &random)
      : shape(shape), format(format), x(random.floats(shape.m * shape.k, kind)),
        d(shape.m * ceilDiv(shape.k, kActivationBlock)),
        bias(random.floats(shape.panels * kPanelOutputs)),
        residual(random.floats(shape.m * shape.ld - shape.lacking)),
        q(shape.m * shape.k), sums(shape.m * shape.k / kGroup),
        weights(packedBytes(format, shape.panels * kPanelOutputs, shape.k)) {
    if (isQuantized(format))
      fillQuantized(kind, random);
    else
      fillFloats(kind, random);
  }

  /// Products that are -0: the product of the first block is too small for f32,
  /// and the short block behind it has a negative scale and zeros.
  void makeNegativeZeros() {
    // The first value of each token is 1, the others stay 0.
    for (int64_t token = 0; token < shape.m; ++token) {
      q[token * shape.k] = 1;
      sums[token * shape.k / kGroup] = 1;
    }
    const int64_t blocks = ceilDiv(shape.k, kActivationBlock);
    for (int64_t i = 0; i < d.length(); ++i)
      d[i] = i % blocks == 0 ? std::numeric_limits<float>::denorm_min() : 1;
    // In every format a first value above 0, and sub-blocks with integers above
    // 0.
    std::ranges::fill(weights, uint8_t{0x0f});
    // The least negative scale of f16, and a minimum of -0.
    setNumbers([](int64_t number) -> uint16_t {
      return number == 0 ? 0x8001 : 0x8000;
    });
  }

private:
  /// Sets number 0 of each block, the scale, and where there is one number 1,
  /// the minimum or zero point, to valueOf(number).
  template <typename ValueOf> void setNumbers(ValueOf valueOf) {
    for (int64_t panel = 0; panel < shape.panels; ++panel)
      for (int64_t i = 0; i < shape.k; i += weightBlock(format))
        for (int64_t at = 0; at < panelNumberBytes(format); at += 2) {
          const uint16_t value = valueOf(at / kMinimumOffset);
          std::memcpy(
              &weights[panel * panelBytes(format, shape.k) +
                       i / weightBlock(format) * panelBlockBytes(format) + at],
              &value, sizeof(value));
        }
  }

  void fillFloats(Values kind, Random &random) {
    const int64_t bytes = codingOf(format).bits / 8;
    for (int64_t i = 0; i < weights.length(); i += bytes) {
      const float w = random.value(kind);
      const uint16_t half = f32ToBF16(w);
      if (bytes == 2)
        std::memcpy(&weights[i], &half, 2);
      else
        std::memcpy(&weights[i], &w, 4);
    }
  }

  void fillQuantized(Values kind, Random &random) {
    const bool saturated = kind == Values::Edges;
    for (int64_t i = 0; i < q.length(); ++i) {
      const int64_t value = saturated ? (random.below(2) != 0 ? 127 : -127)
                            : kind == Values::Zeros ? 0
                                                    : random.below(255) - 127;
      q[i] = static_cast<int8_t>(value);
      sums[i / kGroup] += q[i];
    }
    for (float &scale : d)
      scale = std::fabs(random.value(kind));
    for (uint8_t &codes : weights) {
      // The extremes of codes of 4 bits and of 8, and of integers of
      // sub-blocks.
      static constexpr uint8_t extremes[] = {0x00, 0xff, 0x0f,
                                             0xf0, 0x80, 0x7f};
      codes = saturated ? extremes[random.below(6)]
                        : static_cast<uint8_t>(random.bits());
    }
    setNumbers([&](int64_t number) {
      // Zero points are integers of codes, or any numbers.
      return number == 1 && scalesOf(format).hasZero && random.below(2) != 0
                 ? f32ToF16(static_cast<float>(random.below(16)))
                 : random.half();
    });
  }
};
} // namespace

/// The operands' activations as `layout` has them.
static Activations arrange(const LinearOperands &o,
                           const ActivationLayoutInfo &layout) {
  const auto [m, k] = std::pair(o.shape.m, o.shape.k);
  Activations to(layout, m, k);
  for (int64_t token = 0; token < m; ++token) {
    for (int64_t i = 0; i < k; ++i)
      to.q[layout.codeAt(token, i, k)] = o.q[token * k + i];
    const int64_t blocks = ceilDiv(k, kActivationBlock);
    for (int64_t i = 0; i < blocks; ++i)
      to.d[layout.scaleAt(token, i, k)] = o.d[token * blocks + i];
  }
  return to;
}

static void callLinear(LinearF32Fn *fn, ActivationLayout,
                       const LinearOperands &o, const float *bias,
                       const float *residual, float *out) {
  const LinearShape &s = o.shape;
  fn(o.x.data(), o.weights.data(), bias, residual, out, s.m, s.k, s.ld,
     s.panelBegin, s.panelEnd);
}

static void callLinear(LinearQ8Fn *fn, ActivationLayout layout,
                       const LinearOperands &o, const float *bias,
                       const float *residual, float *out) {
  const LinearShape &s = o.shape;
  const Activations x = arrange(o, activationLayout(layout));
  fn(x.q.data(), x.d.data(), o.sums.data(), o.weights.data(), bias, residual,
     out, s.m, s.k, s.ld, s.panelBegin, s.panelEnd);
}

template <KernelOp Op>
static void compareLinear(Cases &cases, const Compared<Op> &of,
                          const LinearOperands &o) {
  const LinearShape &s = o.shape;
  cases.compare(of,
                s.inPlace ? o.residual
                          : Guarded<float>(s.m * s.ld - s.lacking, -77.0f),
                "out", [&](KernelFn<Op> *fn, float *out) {
                  const float *residual = s.inPlace ? out : o.residual.data();
                  const ActivationLayout layout =
                      fn == of.kernel ? isaInfo(of.info.isa).dot.layout
                                      : ActivationLayout::Rows;
                  callLinear(fn, layout, o, s.bias ? o.bias.data() : nullptr,
                             s.residual ? residual : nullptr, out);
                });
}

/// About `tokens` tokens, as many as a call of the kernel may have.
static int64_t callTokens(const KernelInfo &kernel, int64_t tokens) {
  return isaInfo(kernel.isa).dot.kind == DotKind::TileDot
             ? tokens
             : alignTo(tokens, kernel.m);
}

template <KernelOp Op>
static void checkLinear(Cases &cases, const Compared<Op> &of) {
  static constexpr int64_t ranges[][3] = {{1, 0, 1},   {2, 0, 2}, {3, 1, 2},
                                          {10, 0, 10}, {2, 1, 2}, {3, 1, 3},
                                          {3, 2, 2}};
  const WeightFormat format = *weightFormat(of.info.format);
  Random random(1);
  int64_t turn = 0;
  for (int64_t k : cases.sizes.depths)
    for (int64_t tokens : cases.sizes.tokens) {
      const int64_t *range = ranges[turn % 7];
      const Values kind = kValues[turn % 5]; // sums of Large ones overflow
      const int64_t epilogue = turn % 6;
      const LinearShape shape = {callTokens(of.info, tokens),
                                 k,
                                 range[0],
                                 range[1],
                                 range[2],
                                 (range[0] + turn % 2) * kPanelOutputs,
                                 epilogue % 2 == 1,
                                 epilogue >= 2,
                                 epilogue >= 4};
      ++turn;
      cases.start("m ", shape.m, ", k ", k, ", panels ", range[1], " to ",
                  range[2], " of ", range[0], shape.bias ? ", bias" : "",
                  shape.inPlace    ? ", residual in place"
                  : shape.residual ? ", residual"
                                   : "",
                  ", values ", valuesName(kind));
      compareLinear(cases, of, LinearOperands(shape, format, kind, random));
    }
}

void verify::checkKernel(Cases &cases,
                         const Compared<KernelOp::LinearF32> &of) {
  checkLinear(cases, of);
}

/// Results that no cache holds, which may bypass caches (Schedule.h). Their
/// rows begin at a cache line, or half of one behind it.
static void checkLargeResults(Cases &cases,
                              const Compared<KernelOp::LinearQ8> &of) {
  static constexpr int64_t bytes = int64_t{5} << 20;
  const int64_t m = of.info.m, ld = alignTo(bytes / 4 / m, kPanelOutputs);
  Random random(3);
  for (const int64_t lacking : {int64_t{0}, kPanelOutputs / 2}) {
    const bool inPlace = lacking == 0;
    const LinearShape shape = {m,    kActivationBlock, 3,       1,      3, ld,
                               true, inPlace,          inPlace, lacking};
    cases.start("m ", m, ", rows of ", ld, " outputs",
                lacking == 0 ? "" : ", not at a cache line");
    compareLinear(cases, of,
                  LinearOperands(shape, *weightFormat(of.info.format),
                                 kValues[0], random));
  }
}

/// Tokens of several strips, which have fewer tokens the longer K is, up to the
/// longest K (lib/CodeGen/Products/TileTurns.cpp).
static void checkStrips(Cases &cases, const Compared<KernelOp::LinearQ8> &of) {
  static constexpr int64_t sizes[][2] = {
      {112, 8064}, {112, 8224}, {48, kMostTiledLength}};
  Random random(4);
  for (const auto &[m, k] : sizes) {
    const LinearShape shape = {m,     k,     3,    0, 3, 3 * kPanelOutputs,
                               false, false, false};
    cases.start("m ", m, ", k ", k);
    compareLinear(cases, of,
                  LinearOperands(shape, *weightFormat(of.info.format),
                                 kValues[0], random));
  }
}

void verify::checkKernel(Cases &cases, const Compared<KernelOp::LinearQ8> &of) {
  checkLinear(cases, of);
  // Other kernels bypass no caches, and their strips are shorter.
  if (isaInfo(of.info.isa).dot.kind == DotKind::TileDot) {
    checkLargeResults(cases, of);
    checkStrips(cases, of);
  }
  const WeightFormat format = *weightFormat(of.info.format);
  Random random(2);
  for (int64_t k = kActivationBlock + kGroup; k <= 2 * kActivationBlock;
       k += kGroup) {
    const LinearShape shape = {of.info.m, k, 1, 0, 1, 16, false, false, false};
    cases.start("m ", shape.m, ", k ", k, ", products that are -0");
    LinearOperands operands(shape, format, Values::Zeros, random);
    operands.makeNegativeZeros();
    compareLinear(cases, of, operands);
  }
}

void verify::checkKernel(Cases &cases, const Compared<KernelOp::Embed> &of) {
  const WeightFormat format = *weightFormat(of.info.format);
  Random random(14);
  for (int64_t k : cases.sizes.depths) {
    const LinearShape shape = {1,     k,     3,    0, 3, 3 * kPanelOutputs,
                               false, false, false};
    const LinearOperands operands(shape, format, Values::Magnitudes, random);
    for (int32_t id = 0; id < 3 * kPanelOutputs; ++id) {
      cases.start("k ", k, ", id ", id);
      cases.compare(of, Guarded<float>(k, kNaN), "out",
                    [&](EmbedFn *fn, float *out) {
                      fn(operands.weights.data(), id, k, out);
                    });
    }
  }
}
