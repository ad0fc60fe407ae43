//===- OutputFeedback.cpp - Outputs that make up for each other -----------===//

#include "OutputFeedback.h"

#include "qwen/Quantizers/PanelProducts.h"

#include <algorithm>
#include <cstring>

using namespace qwen;

OutputFeedback::OutputFeedback(const InputFactor &outputs, int64_t k,
                               int64_t groups)
    : factor(outputs), terms(static_cast<size_t>(outputs.k() * k)),
      finished(static_cast<size_t>(groups)) {}

// The terms F of a panel cost |B^T F + K|^2, where K is what the outputs before
// make of it and B the diagonal block of S: without an error of their own they
// should be -B^-T K.
void OutputFeedback::share(int64_t first, int64_t column, float *shares) const {
  const float *panel = factor.panel(first / kPanel);
  addPanels(terms.data() + column / kPanel * factor.k() * kPanel, panel, first,
            shares, kPanel);
  const float *diagonal = panel + first * kPanel;
  for (int64_t i = 0; i < kPanel; ++i)
    for (int64_t j = 0; j < kPanel; ++j) {
      float &own = shares[i * kPanel + j];
      for (int64_t before = 0; before < j; ++before)
        own -= diagonal[before * kPanel + j] * shares[i * kPanel + before];
      own /= diagonal[j * kPanel + j];
    }
}

void OutputFeedback::keep(int64_t first, int64_t column, const float *own) {
  float *to = terms.data() + (column / kPanel * factor.k() + first) * kPanel;
  for (int64_t i = 0; i < kPanel; ++i)
    for (int64_t j = 0; j < kPanel; ++j)
      to[j * kPanel + i] = own[i * kPanel + j];
}

void OutputFeedback::await(int64_t group, int64_t blocks) const {
  if (group == 0)
    return;
  const std::atomic<int64_t> &before = finished[static_cast<size_t>(group - 1)];
  for (int64_t seen; (seen = before.load(std::memory_order_acquire)) < blocks;)
    before.wait(seen, std::memory_order_acquire);
}

void OutputFeedback::finish(int64_t group, int64_t blocks) {
  std::atomic<int64_t> &own = finished[static_cast<size_t>(group)];
  own.store(blocks, std::memory_order_release);
  own.notify_all();
}
