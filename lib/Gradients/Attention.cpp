//===- Attention.cpp - The backward pass of causal attention --------------===//

#include "qwen/ABI/Blocks.h"
#include "qwen/Gradients/Gradients.h"
#include "qwen/Gradients/Products.h"
#include "qwen/Numerics/Math.h"
#include "qwen/Quantizers/PanelProducts.h"

#include <algorithm>
#include <cmath>

using namespace qwen;
using namespace qwen::gradients;

struct CausalAttention::Sides {
  /// The vectors are tokens: q, k, v and the output's gradient.
  ProductSide q, k, v, dOutput;
};

CausalAttention::CausalAttention(int64_t tokens, int64_t size)
    : tokens(tokens), size(size), padded(alignTo(tokens, kPanel)),
      scale(static_cast<float>(1 / std::sqrt(static_cast<double>(size)))),
      weights(static_cast<size_t>(padded * padded)), slopes(weights.size()) {}

/// Sets the weights of a query, and the gradient by its scores: with p of the
/// softmax, ds = p (dp - sum p dp).
void CausalAttention::weighRow(int64_t query) {
  const auto at = [&](std::vector<float> &values, int64_t key) -> float & {
    return values[static_cast<size_t>((key / kPanel * padded + query) * kPanel +
                                      key % kPanel)];
  };
  std::vector<float> row(static_cast<size_t>(query + 1));
  for (int64_t key = 0; key <= query; ++key)
    row[static_cast<size_t>(key)] = at(weights, key) * scale;
  const float most = std::ranges::max(row);
  for (float &score : row)
    score -= most;
  numerics::exp(row);
  double sum = 0, mean = 0;
  for (int64_t key = 0; key <= query; ++key) {
    const double power = row[static_cast<size_t>(key)];
    sum += power;
    mean += power * double{at(slopes, key)};
  }
  const auto part = static_cast<float>(1 / sum);
  const auto shift = static_cast<float>(mean / sum);
  for (int64_t key = 0; key < alignTo(query + 1, kPanel); ++key) {
    const float p = key <= query ? row[static_cast<size_t>(key)] * part : 0;
    at(weights, key) = p;
    at(slopes, key) = key <= query ? p * (at(slopes, key) - shift) * scale : 0;
  }
}

void CausalAttention::weigh(const Sides &sides) {
  std::ranges::fill(weights, 0.0f);
  std::ranges::fill(slopes, 0.0f);
  const int64_t panels = padded / kPanel;
  for (int64_t key = 0; key < panels; ++key)
    for (int64_t query = key; query < panels; ++query) {
      const int64_t to = (key * padded + query * kPanel) * kPanel;
      addPanels(sides.q.panel(query), sides.k.panel(key), size,
                weights.data() + to, kPanel);
      addPanels(sides.dOutput.panel(query), sides.v.panel(key), size,
                slopes.data() + to, kPanel);
    }
  for (int64_t query = 0; query < tokens; ++query)
    weighRow(query);
  // Queries behind the last one have a gradient of 0, and no slopes.
}

/// Adds `values` [16][columns] to rows from `first` on, of which there are
/// `tokens`.
static void addRows(const std::vector<float> &values, int64_t columns,
                    int64_t first, int64_t tokens, int64_t size,
                    HeadRows<float> to) {
  for (int64_t i = 0; i < std::min(kPanel, tokens - first); ++i)
    for (int64_t j = 0; j < size; ++j)
      to.row(first + i)[j] += values[static_cast<size_t>(i * columns + j)];
}

void CausalAttention::add(const Inputs &inputs, HeadRows<const float> dOutput,
                          const Gradients &gradients) {
  const auto view = [&](HeadRows<const float> rows) {
    return MatrixView{rows.values, tokens, size, rows.stride};
  };
  weigh({ProductSide::ofRows(view(inputs.q), 1),
         ProductSide::ofRows(view(inputs.k), 1),
         ProductSide::ofRows(view(inputs.v), 1),
         ProductSide::ofRows(view(dOutput), 1)});
  const ProductSide q = ProductSide::ofColumns(view(inputs.q), 1),
                    k = ProductSide::ofColumns(view(inputs.k), 1),
                    of = ProductSide::ofColumns(view(dOutput), 1);
  const int64_t columns = alignTo(size, kPanel);
  std::vector<float> sums(static_cast<size_t>(kPanel * columns));
  // The product of a panel of 16 vectors with each of `other`, from place
  // `first` to `end`, added to the tokens from `token` on.
  const auto add = [&](const float *panel, const ProductSide &other,
                       int64_t first, int64_t end, int64_t token,
                       HeadRows<float> to) {
    std::ranges::fill(sums, 0.0f);
    for (int64_t j = 0; j < other.panels(); ++j)
      addPanels(panel, other.panel(j) + first * kPanel, end - first,
                sums.data() + j * kPanel, columns);
    addRows(sums, columns, token, tokens, size, to);
  };
  std::vector<float> turned(static_cast<size_t>(padded * kPanel));
  for (int64_t token = 0; token < tokens; token += kPanel) {
    // The queries that see these keys.
    const int64_t at = (token / kPanel * padded + token) * kPanel;
    add(weights.data() + at, of, token, tokens, token, gradients.v);
    add(slopes.data() + at, q, token, tokens, token, gradients.k);
    // The keys that these queries see.
    const int64_t end = std::min(token + kPanel, tokens);
    for (int64_t key = 0; key < end; ++key)
      for (int64_t i = 0; i < kPanel; ++i)
        turned[static_cast<size_t>(key * kPanel + i)] =
            slopes[static_cast<size_t>(
                (key / kPanel * padded + token + i) * kPanel + key % kPanel)];
    add(turned.data(), k, 0, end, token, gradients.q);
  }
}
