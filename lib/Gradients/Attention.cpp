//===- Attention.cpp - The backward pass of causal attention --------------===//

#include "qwen/ABI/Blocks.h"
#include "qwen/Gradients/Gradients.h"
#include "qwen/Gradients/Products.h"
#include "qwen/Numerics/Math.h"
#include "qwen/Quantizers/PanelProducts.h"

#include <algorithm>
#include <cmath>
#include <optional>

using namespace qwen;
using namespace qwen::gradients;

struct CausalAttention::Sides {
  /// The vectors are tokens: q and k, and of a gradient v and the result's
  /// gradient.
  ProductSide q, k;
  std::optional<ProductSide> v = {}, dOutput = {};
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
      if (sides.dOutput)
        addPanels(sides.dOutput->panel(query), sides.v->panel(key), size,
                  slopes.data() + to, kPanel);
    }
  for (int64_t query = 0; query < tokens; ++query)
    weighRow(query);
  // Queries behind the last one have a gradient of 0, and no slopes.
}

/// Adds the product of a panel of 16 vectors with each of `other`, from place
/// `first` to `end`, to the rows of the tokens from `token` on.
void CausalAttention::addRows(const float *panel, const ProductSide &other,
                              int64_t first, int64_t end, int64_t token,
                              HeadRows<float> to) const {
  const int64_t columns = alignTo(size, kPanel);
  std::vector<float> sums(static_cast<size_t>(kPanel * columns));
  for (int64_t j = 0; j < other.panels(); ++j)
    addPanels(panel, other.panel(j) + first * kPanel, end - first,
              sums.data() + j * kPanel, columns);
  for (int64_t i = 0; i < std::min(kPanel, tokens - token); ++i)
    for (int64_t j = 0; j < size; ++j)
      to.row(token + i)[j] += sums[static_cast<size_t>(i * columns + j)];
}

/// Adds the products of the queries' rows of `values`, weights or slopes, with
/// the keys' vectors in `other` to the rows of the queries.
void CausalAttention::addQueries(const std::vector<float> &values,
                                 const ProductSide &other,
                                 HeadRows<float> to) const {
  std::vector<float> turned(static_cast<size_t>(padded * kPanel));
  for (int64_t token = 0; token < tokens; token += kPanel) {
    // The keys that these queries see.
    const int64_t end = std::min(token + kPanel, tokens);
    for (int64_t key = 0; key < end; ++key)
      for (int64_t i = 0; i < kPanel; ++i)
        turned[static_cast<size_t>(key * kPanel + i)] =
            values[static_cast<size_t>(
                (key / kPanel * padded + token + i) * kPanel + key % kPanel)];
    addRows(turned.data(), other, 0, end, token, to);
  }
}

static MatrixView viewOfHead(HeadRows<const float> rows, int64_t tokens,
                             int64_t size) {
  return {rows.values, tokens, size, rows.stride};
}

void CausalAttention::run(const Inputs &inputs, HeadRows<float> output) {
  weigh({ProductSide::ofRows(viewOfHead(inputs.q, tokens, size), 1),
         ProductSide::ofRows(viewOfHead(inputs.k, tokens, size), 1)});
  addQueries(weights,
             ProductSide::ofColumns(viewOfHead(inputs.v, tokens, size), 1),
             output);
}

void CausalAttention::add(const Inputs &inputs, HeadRows<const float> dOutput,
                          const Gradients &gradients) {
  const auto rowsOf = [&](HeadRows<const float> rows) {
    return ProductSide::ofRows(viewOfHead(rows, tokens, size), 1);
  };
  weigh(
      {rowsOf(inputs.q), rowsOf(inputs.k), rowsOf(inputs.v), rowsOf(dOutput)});
  const auto columnsOf = [&](HeadRows<const float> rows) {
    return ProductSide::ofColumns(viewOfHead(rows, tokens, size), 1);
  };
  const ProductSide q = columnsOf(inputs.q), k = columnsOf(inputs.k),
                    of = columnsOf(dOutput);
  for (int64_t token = 0; token < tokens; token += kPanel) {
    // The queries that see these keys.
    const int64_t at = (token / kPanel * padded + token) * kPanel;
    addRows(weights.data() + at, of, token, tokens, token, gradients.v);
    addRows(slopes.data() + at, q, token, tokens, token, gradients.k);
  }
  addQueries(slopes, k, gradients.q);
}
