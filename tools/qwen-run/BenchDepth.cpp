//===- BenchDepth.cpp - Sequences that are long already -------------------===//

#include "Bench.h"

#include "qwen/Support/Error.h"

using namespace qwen;
using namespace qwen::run;

/// The bytes of the page and of the fixed state of a sequence of one page.
FilledPage::FilledPage(Engine &engine) {
  SequenceState &state = engine.state();
  const SequenceId sequence = state.open();
  std::vector<Token> tokens;
  tokens.reserve(kPageTokens);
  for (int64_t i = 0; i < kPageTokens; ++i)
    tokens.push_back({benchToken(engine.manifest(), i), sequence, i, false});
  engine.forward(tokens, [](size_t, std::span<float>) {});
  page.resize(static_cast<size_t>(state.pageBytes()));
  state.readPage(state.page(sequence, 0), page);
  if (state.fixedBytes() > 0) {
    const SnapshotId snapshot = state.snapshot(sequence);
    fixed.resize(static_cast<size_t>(state.snapshotBytes()));
    state.readSnapshot(snapshot, fixed);
    state.drop(snapshot);
  }
  state.close(sequence);
}

SequenceId FilledPage::open(Engine &engine, int64_t depth) const {
  SequenceState &state = engine.state();
  const SequenceId sequence = state.open();
  for (int64_t i = 0; i < depth; i += kPageTokens)
    if (!state.adoptPage(sequence, page))
      throw Error(state.describeFull());
  if (!fixed.empty()) {
    const SnapshotId snapshot = state.adoptSnapshot(depth, fixed).value();
    state.restore(sequence, snapshot);
    state.drop(snapshot);
  }
  return sequence;
}
