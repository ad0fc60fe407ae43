//===- InputFactor.cpp - What quantizers need of moments ------------------===//

#include "qwen/Quantizers/InputFactor.h"

#include "EightFloats.h"

#include "qwen/Quantizers/PanelProducts.h"
#include "qwen/Support/Error.h"
#include "qwen/Support/Parallel.h"

#include <algorithm>
#include <cmath>
#include <numeric>

using namespace qwen;

/// Columns that are factored together.
static constexpr int64_t kColumns = 128;

/// The first columns of the blocks of moments, in falling order of the sums of
/// their diagonals.
static std::vector<int64_t> orderBlocks(const InputMoments &moments,
                                        int64_t block) {
  std::vector<std::pair<double, int64_t>> sums;
  for (int64_t first = 0; first < moments.k(); first += block) {
    double sum = 0;
    for (int64_t i = first; i < std::min(first + block, moments.k()); ++i)
      sum += double{moments.at(i, i)};
    sums.emplace_back(-sum, first);
  }
  std::sort(sums.begin(), sums.end());
  std::vector<int64_t> firsts;
  firsts.reserve(sums.size());
  for (const auto &[sum, first] : sums)
    firsts.push_back(first);
  return firsts;
}

/// What is added to the diagonal of moments.
static float dampingOf(const InputMoments &moments, double damping) {
  double sum = 0;
  for (int64_t i = 0; i < moments.k(); ++i)
    sum += double{moments.at(i, i)};
  if (!std::isfinite(sum))
    throw Error("second moments of inputs are not finite; the calibration text "
                "makes values that f32 cannot square");
  const double mean = sum / static_cast<double>(moments.k());
  // Inputs that are all zero tell nothing.
  return static_cast<float>(mean > 0 ? mean * damping : 1.0);
}

/// Factors the first `count` columns of the lower triangle of `a`, in place, as
/// far as their first `count` rows. False if a pivot is not positive.
static bool factorDiagonal(float *a, int64_t count, int64_t stride) {
  float column[kColumns];
  for (int64_t j = 0; j < count; ++j) {
    if (!(a[j * stride + j] > 0))
      return false;
    const float pivot = a[j * stride + j] = std::sqrt(a[j * stride + j]);
    for (int64_t i = j + 1; i < count; ++i)
      column[i] = a[i * stride + j] /= pivot;
    for (int64_t i = j + 1; i < count; ++i)
      for (int64_t l = j + 1; l <= i; ++l)
        a[i * stride + l] = std::fma(-column[i], column[l], a[i * stride + l]);
  }
  return true;
}

/// panel = panel L^-T, where `panel` has `count` columns of 16 rows of the
/// matrix below the factored diagonal block `l`.
static void solvePanel(const float *l, int64_t count, int64_t stride,
                       float *panel) {
  for (int64_t half = 0; half < kPanel; half += kLanes)
    for (int64_t j = 0; j < count; ++j) {
      float *at = panel + j * kPanel + half;
      const Lanes x = load(at) / splat(l[j * stride + j]);
      store(x, at);
      for (int64_t i = j + 1; i < count; ++i) {
        float *to = panel + i * kPanel + half;
        store(fma(x, splat(-l[i * stride + j]), load(to)), to);
      }
    }
}

/// Replaces the lower triangle of `a` [k][k] by L with L L^T = a. False if f32
/// has no such L.
static bool factor(float *a, int64_t k, unsigned threads) {
  const auto size = static_cast<size_t>(k * kColumns);
  std::vector<float> solved(size), negated(size);
  for (int64_t first = 0; first < k; first += kColumns) {
    const int64_t count = std::min(kColumns, k - first), rest = first + count;
    float *diagonal = a + first * k + first;
    if (!factorDiagonal(diagonal, count, k))
      return false;
    const int64_t panels = (k - rest) / kPanel;
    parallelFor(static_cast<size_t>(panels), threads, [&](size_t i, unsigned) {
      const auto number = static_cast<int64_t>(i);
      float *from = a + (rest + number * kPanel) * k + first;
      float *panel = solved.data() + number * count * kPanel;
      transposeRows(from, k, kPanel, count, panel);
      solvePanel(diagonal, count, k, panel);
      for (int64_t j = 0; j < count * kPanel; ++j) {
        negated[number * count * kPanel + j] = -panel[j];
        from[j % kPanel * k + j / kPanel] = panel[j];
      }
    });
    addLowerTriangle(negated.data(), solved.data(), panels, count,
                     a + rest * k + rest, k, threads);
  }
  return true;
}

InputFactor::InputFactor(const InputMoments &moments, double damping,
                         int64_t block, unsigned threads, Place place)
    : size(moments.k()), blockSize(block), firsts(orderBlocks(moments, block)),
      pages(bytesFor(size), place, "the factor of second moments") {
  // The factor of the columns in reverse order is lower triangular.
  std::vector<int64_t> columns;
  for (int64_t first : firsts)
    for (int64_t i = first; i < std::min(first + block, size); ++i)
      columns.push_back(i);
  std::reverse(columns.begin(), columns.end());
  const Pages work(bytesFor(size), place, "factoring second moments");
  auto *a = work.as<float>();
  float added = dampingOf(moments, damping);
  do {
    parallelFor(columns.size(), threads, [&](size_t i, unsigned) {
      float *row = a + static_cast<int64_t>(i) * size;
      for (size_t j = 0; j <= i; ++j)
        row[j] = moments.at(columns[i], columns[j]);
      row[i] += added;
    });
    added *= 2;
  } while (!factor(a, size, threads));
  parallelFor(static_cast<size_t>(size / kPanel), threads,
              [&](size_t i, unsigned) {
                const int64_t first = static_cast<int64_t>(i) * kPanel;
                float *to = pages.as<float>() + first * size;
                for (int64_t row = 0; row < first + kPanel; ++row)
                  for (int64_t j = 0; j < kPanel; ++j, ++to)
                    if (first + j >= row)
                      *to = a[(size - 1 - row) * size + size - 1 - first - j];
              });
}
