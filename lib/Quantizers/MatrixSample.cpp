//===- MatrixSample.cpp - What a matrix loses in a format -----------------===//

#include "qwen/Quantizers/MatrixSample.h"

#include "qwen/Numerics/Kernels.h"
#include "qwen/Quantizers/PanelProducts.h"
#include "qwen/Quantizers/Quantizers.h"
#include "qwen/Weights/Sources.h"

#include <algorithm>
#include <numeric>

using namespace qwen;

static double squareOf(std::span<const float> row) {
  return std::transform_reduce(row.begin(), row.end(), 0.0, std::plus(),
                               [](float x) { return double{x} * x; });
}

MatrixSample::MatrixSample(WeightSourcePtr from) : source(std::move(from)) {
  const int64_t k = source->shape().k(), n = outputs(),
                count = std::min(kOutputs, n);
  for (int64_t i = 0; i < count; ++i)
    numbers.push_back(i * n / count);
  sampled = makeOutputs(source, numbers);
  values.resize(static_cast<size_t>(count * k));
  sampled->read(0, count, values.data());
  constexpr int64_t kRows = 256;
  std::vector<float> rows(static_cast<size_t>(std::min(kRows, n) * k));
  squares.reserve(static_cast<size_t>(n));
  for (int64_t first = 0; first < n; first += kRows) {
    const int64_t some = std::min(kRows, n - first);
    source->read(first, some, rows.data());
    for (int64_t i = 0; i < some; ++i)
      squares.push_back(squareOf(std::span(rows).subspan(
          static_cast<size_t>(i * k), static_cast<size_t>(k))));
  }
}

std::vector<float>
MatrixSample::errors(WeightFormat format, const InputFactor *factor,
                     std::shared_ptr<const std::vector<float>> columns) const {
  const auto count = static_cast<int64_t>(numbers.size()),
             k = source->shape().k();
  const WeightSourcePtr integers = quantize(
      factor ? Quantizer::Gptq : Quantizer::Search, sampled, format,
      {.inputs = factor, .columns = std::move(columns)}, {.threads = 1});
  const int64_t size = panelBytes(format, k);
  std::vector<uint8_t> panel(static_cast<size_t>(size));
  auto *decode = numerics::reference<KernelOp::Embed>(kernelFormat(format));
  std::vector<float> result = values, row(static_cast<size_t>(k));
  for (int64_t i = 0; i < count; ++i) {
    integers->keep(format, i, 1, 0, panel.data());
    decode(panel.data(), 0, k, row.data());
    for (int64_t j = 0; j < k; ++j)
      result[i * k + j] -= row[j];
  }
  return result;
}

double MatrixSample::extrapolate(std::span<const double> costs,
                                 std::span<const double> outputs) const {
  double part = 0, whole = 0, cost = 0;
  for (size_t i = 0; i < squares.size(); ++i)
    whole += outputs[i] * squares[i];
  for (size_t i = 0; i < numbers.size(); ++i) {
    const auto number = static_cast<size_t>(numbers[i]);
    part += outputs[number] * squares[number];
    cost += outputs[number] * costs[i];
  }
  return part > 0 ? cost * (whole / part) : 0;
}

double MatrixSample::cost(std::span<const float> errors,
                          std::span<const double> outputs,
                          const InputMoments &moments,
                          const InputFactor &factor, double damping) const {
  const int64_t k = source->shape().k();
  double mean = 0;
  for (int64_t i = 0; i < k; ++i)
    mean += double{moments.at(i, i)} / static_cast<double>(k);
  std::vector<float> panel(static_cast<size_t>(k * kPanel));
  std::vector<double> costs(numbers.size());
  for (size_t first = 0; first < costs.size(); first += kPanel) {
    const size_t some = std::min<size_t>(kPanel, costs.size() - first);
    const float *rows = errors.data() + first * static_cast<size_t>(k);
    float *to = panel.data();
    for (int64_t column : factor.blocks()) {
      const int64_t width = std::min(factor.block(), k - column);
      transposeRows(rows + column, k, static_cast<int64_t>(some), width, to);
      to += width * kPanel;
    }
    // |e R|^2 has the damping, too.
    for (int64_t j = 0; j < k; j += kPanel) {
      float terms[kPanel * kPanel] = {};
      addPanels(panel.data(), factor.panel(j / kPanel), j + kPanel, terms,
                kPanel);
      for (size_t i = 0; i < some; ++i)
        costs[first + i] += squareOf({terms + i * kPanel, size_t{kPanel}});
    }
    for (size_t i = 0; i < some; ++i)
      costs[first + i] =
          std::max(0.0, costs[first + i] -
                            damping * mean *
                                squareOf({rows + i * static_cast<size_t>(k),
                                          static_cast<size_t>(k)}));
  }
  return extrapolate(costs, outputs);
}

double MatrixSample::cost(std::span<const float> errors,
                          std::span<const double> outputs,
                          std::span<const double> columns) const {
  std::vector<double> costs(numbers.size());
  for (size_t i = 0; i < costs.size(); ++i)
    for (size_t j = 0; j < columns.size(); ++j) {
      const double error = errors[i * columns.size() + j];
      costs[i] += columns[j] * error * error;
    }
  return extrapolate(costs, outputs);
}
