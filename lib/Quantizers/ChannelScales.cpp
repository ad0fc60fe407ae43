//===- ChannelScales.cpp - Scales of a product's inputs -------------------===//

#include "qwen/Quantizers/ChannelScales.h"

#include "qwen/Numerics/Kernels.h"
#include "qwen/Numerics/Rotation.h"
#include "qwen/Quantizers/PanelProducts.h"
#include "qwen/Weights/Sources.h"

#include <algorithm>
#include <cmath>
#include <optional>

using namespace qwen;
using numerics::EncodeStatus;

/// Steps of the exponents of a candidate.
static constexpr int kSteps = 8;

namespace {
/// Finds the scales of some products.
class ScaleSearch {
public:
  ScaleSearch(const ScaledProducts &products, unsigned threads)
      : products(products), threads(threads), k(std::ssize(products.scaleOf)),
        tokens(std::ssize(products.inputs) / k),
        panels(ceilDiv(tokens, kPanel)),
        inputs(static_cast<size_t>(panels * k * kPanel)) {}

  std::vector<float> run();

private:
  using Values = std::vector<float>;

  /// Sums of the magnitudes of columns, by their scales.
  Values inputMagnitudes() const;
  Values weightMagnitudes() const;
  /// Sets `inputs` to the inputs of the products, divided by `columns`, turned
  /// and in int8; without columns, to the inputs alone.
  void setInputs(const Values &columns);
  /// Sets panel[k][16] to outputs of a matrix.
  static void readPanel(const WeightSource &source, int64_t first,
                        float *panel);
  /// The same, as `format` rounds them.
  static void roundPanel(const WeightSource &source, WeightFormat format,
                         int64_t first, float *panel);
  /// Calls use(matrix, panel, thread) for all panels of 16 outputs.
  template <typename Use> void forPanels(Use use) const;
  void setExpected();
  double errorOf(const Values &scales);

  const ScaledProducts &products;
  const unsigned threads;
  const int64_t k, tokens, panels;
  const size_t scaleCount =
      static_cast<size_t>(std::ranges::max(products.scaleOf)) + 1;
  /// Panels [k][16 tokens].
  Values inputs;
  /// By matrix: tiles [16 tokens][16 outputs] of the products that are to be
  /// had, and the sum of their squares.
  std::vector<Values> expected;
  std::vector<double> energy;
};
} // namespace

//===----------------------------------------------------------------------===//
// Candidates
//===----------------------------------------------------------------------===//

std::vector<float> ScaleSearch::inputMagnitudes() const {
  Values sums(scaleCount);
  for (int64_t token = 0; token < tokens; ++token)
    for (int64_t i = 0; i < k; ++i)
      sums[products.scaleOf[i]] += std::fabs(products.inputs[token * k + i]);
  return sums;
}

std::vector<float> ScaleSearch::weightMagnitudes() const {
  Values sums(scaleCount);
  std::vector<float> output(static_cast<size_t>(k));
  for (const ScaledProducts::Matrix &matrix : products.matrices)
    for (int64_t i = 0; i < matrix.source->shape().outputs(); ++i) {
      matrix.source->read(i, 1, output.data());
      for (int64_t j = 0; j < k; ++j)
        sums[products.scaleOf[j]] += std::fabs(output[j]);
    }
  return sums;
}

/// The roots x^(1 / kSteps), without a function of libm whose bits differ.
static std::vector<float> rootsOf(std::vector<float> magnitudes) {
  const float most = *std::ranges::max_element(magnitudes);
  for (float &value : magnitudes) {
    // A channel that is always 0 has no magnitude of its own.
    value = most > 0 ? std::max(value / most, 0x1p-20f) : 1.0f;
    for (int step = kSteps; step > 1; step /= 2)
      value = std::sqrt(value);
  }
  return magnitudes;
}

static float power(float root, int steps) {
  float value = 1;
  for (; steps > 0; --steps)
    value *= root;
  return value;
}

/// x^a / w^b, whose least and greatest are each other's reciprocals.
static std::vector<float> candidate(const std::vector<float> &inputRoots,
                                    const std::vector<float> &weightRoots,
                                    int a, int b) {
  std::vector<float> scales(inputRoots.size());
  for (size_t i = 0; i < scales.size(); ++i)
    scales[i] = power(inputRoots[i], a) / power(weightRoots[i], b);
  const auto [least, most] = std::ranges::minmax(scales);
  const float middle = std::sqrt(least) * std::sqrt(most);
  for (float &scale : scales)
    scale /= middle;
  return scales;
}

std::vector<float> qwen::columnScales(std::span<const int32_t> scaleOf,
                                      std::span<const float> scales) {
  std::vector<float> columns;
  columns.reserve(scaleOf.size());
  for (int32_t number : scaleOf)
    columns.push_back(scales[static_cast<size_t>(number)]);
  return columns;
}

//===----------------------------------------------------------------------===//
// Errors
//===----------------------------------------------------------------------===//

/// Turns an input as the model does before a product.
static void turnInput(const Turn &turn, std::vector<float> &input) {
  const std::vector<float> from = input;
  if (turn.hadamard)
    numerics::hadamard(from.data(), std::ssize(input), input.data());
  if (turn.columns == 0)
    return;
  const numerics::Rotation rotation(turn.columns);
  std::vector<double> block(static_cast<size_t>(turn.columns));
  for (auto at = input.begin(); at != input.end(); at += turn.columns) {
    std::copy_n(at, turn.columns, block.begin());
    rotation.turn(block.data());
    std::ranges::copy(block, at);
  }
}

/// Rounds an input to int8 and back.
static void roundInput(std::vector<float> &input) {
  const int64_t size = std::ssize(input);
  std::vector<int8_t> integers(input.size());
  std::vector<float> scales(
      static_cast<size_t>(ceilDiv(size, kActivationBlock)));
  std::vector<int32_t> sums(static_cast<size_t>(size / kGroup));
  numerics::quantizeQ8(input.data(), size, integers.data(), scales.data(),
                       sums.data());
  for (int64_t i = 0; i < size; ++i)
    input[i] = static_cast<float>(integers[i]) * scales[i / kActivationBlock];
}

void ScaleSearch::setInputs(const Values &columns) {
  parallelFor(
      static_cast<size_t>(panels), threads, [&](size_t panel, unsigned) {
        std::vector<float> input(static_cast<size_t>(k));
        float *to = inputs.data() + panel * k * kPanel;
        for (int64_t i = 0; i < kPanel; ++i) {
          const int64_t token = static_cast<int64_t>(panel) * kPanel + i;
          std::ranges::fill(input, 0.0f);
          if (token < tokens)
            std::copy_n(products.inputs.data() + token * k, k, input.data());
          if (!columns.empty()) {
            for (int64_t j = 0; j < k; ++j)
              input[j] /= columns[j];
            turnInput(products.turn, input);
            roundInput(input);
          }
          for (int64_t j = 0; j < k; ++j)
            to[j * kPanel + i] = input[j];
        }
      });
}

void ScaleSearch::readPanel(const WeightSource &source, int64_t first,
                            float *panel) {
  const int64_t k = source.shape().k(),
                count = std::min(kPanel, source.shape().outputs() - first);
  std::vector<float> values(static_cast<size_t>(count * k));
  source.read(first, count, values.data());
  transposeRows(values.data(), k, count, k, panel);
}

void ScaleSearch::roundPanel(const WeightSource &source, WeightFormat format,
                             int64_t first, float *panel) {
  const int64_t k = source.shape().k(),
                count = std::min(kPanel, source.shape().outputs() - first);
  std::vector<float> values(static_cast<size_t>(count * k));
  source.read(first, count, values.data());
  const float *outputs[kPanelOutputs] = {};
  for (int64_t i = 0; i < count; ++i)
    outputs[i] = values.data() + i * k;
  std::vector<uint8_t> packed(static_cast<size_t>(panelBytes(format, k)));
  const EncodeStatus status =
      numerics::packPanel(format, outputs, k, packed.data());
  if (status != EncodeStatus::Ok)
    throw refusal(source, status, first);
  auto *decode = numerics::reference<KernelOp::Embed>(kernelFormat(format));
  for (int64_t i = 0; i < count; ++i)
    decode(packed.data(), static_cast<int32_t>(i), k, values.data() + i * k);
  transposeRows(values.data(), k, count, k, panel);
}

template <typename Use> void ScaleSearch::forPanels(Use use) const {
  for (size_t matrix = 0; matrix < products.matrices.size(); ++matrix)
    parallelFor(
        static_cast<size_t>(ceilDiv(
            products.matrices[matrix].source->shape().outputs(), kPanel)),
        threads, [&](size_t panel, unsigned) {
          use(matrix, static_cast<int64_t>(panel));
        });
}

void ScaleSearch::setExpected() {
  setInputs({});
  for (const ScaledProducts::Matrix &matrix : products.matrices)
    expected.emplace_back(
        static_cast<size_t>(ceilDiv(matrix.source->shape().outputs(), kPanel) *
                            panels * kPanel * kPanel));
  forPanels([&](size_t matrix, int64_t panel) {
    Values weights(static_cast<size_t>(k * kPanel));
    readPanel(*products.matrices[matrix].source, panel * kPanel,
              weights.data());
    for (int64_t i = 0; i < panels; ++i)
      addPanels(inputs.data() + i * k * kPanel, weights.data(), k,
                expected[matrix].data() +
                    (panel * panels + i) * kPanel * kPanel,
                kPanel);
  });
  for (const Values &tiles : expected) {
    double &sum = energy.emplace_back();
    for (float value : tiles)
      sum += double{value} * value;
  }
}

/// The sum over the matrices of the error's part of the outputs' squares.
double ScaleSearch::errorOf(const Values &scales) {
  const Values columns = columnScales(products.scaleOf, scales);
  setInputs(columns);
  std::vector<WeightSourcePtr> sources;
  std::vector<std::vector<double>> errors;
  for (const ScaledProducts::Matrix &matrix : products.matrices) {
    sources.push_back(
        makeTurned(makeScaled(matrix.source, {columns, {}}), products.turn));
    errors.emplace_back(
        static_cast<size_t>(ceilDiv(matrix.source->shape().outputs(), kPanel)));
  }
  forPanels([&](size_t matrix, int64_t panel) {
    Values weights(static_cast<size_t>(k * kPanel));
    roundPanel(*sources[matrix], products.matrices[matrix].format,
               panel * kPanel, weights.data());
    double sum = 0;
    for (int64_t i = 0; i < panels; ++i) {
      float tile[kPanel * kPanel] = {};
      addPanels(inputs.data() + i * k * kPanel, weights.data(), k, tile,
                kPanel);
      const float *want =
          expected[matrix].data() + (panel * panels + i) * kPanel * kPanel;
      for (int64_t j = 0; j < kPanel * kPanel; ++j)
        sum += (double{tile[j]} - want[j]) * (double{tile[j]} - want[j]);
    }
    errors[matrix][static_cast<size_t>(panel)] = sum;
  });
  double whole = 0;
  for (size_t matrix = 0; matrix < errors.size(); ++matrix)
    for (double error : errors[matrix])
      whole += energy[matrix] > 0 ? error / energy[matrix] : 0;
  return whole;
}

std::vector<float> ScaleSearch::run() {
  const Values inputRoots = rootsOf(inputMagnitudes());
  const Values weightRoots = rootsOf(weightMagnitudes());
  setExpected();
  std::vector<float> best;
  double least = errorOf(Values(inputRoots.size(), 1.0f));
  const auto attempt = [&](int a, int b) {
    Values scales = candidate(inputRoots, weightRoots, a, b);
    if (const double error = errorOf(scales); error < least) {
      least = error;
      best = std::move(scales);
    }
  };
  for (int a = 1; a <= kSteps; ++a)
    attempt(a, 0);
  for (int a = 0; a < kSteps; ++a)
    attempt(a, kSteps - a);
  return best;
}

std::vector<float> qwen::searchChannelScales(const ScaledProducts &products,
                                             unsigned threads) {
  return ScaleSearch(products, threads).run();
}
