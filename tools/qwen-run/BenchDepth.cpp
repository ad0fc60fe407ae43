//===- BenchDepth.cpp - Sequences that are long already -------------------===//

#include "Bench.h"

#include "qwen/Support/Error.h"

#include <cstring>

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

/// The fixed state as behind `depth` positions. A snapshot begins with the
/// number of positions that each group of caches has run.
std::vector<uint8_t> FilledPage::behind(int64_t depth,
                                        const SequenceState &state) const {
  std::vector<uint8_t> bytes = fixed;
  const auto end = bytes.size() - static_cast<size_t>(state.fixedBytes());
  for (size_t at = 0; at < end; at += sizeof(int64_t)) {
    int64_t known = 0;
    std::memcpy(&known, &bytes[at], sizeof(known));
    if (known == kPageTokens)
      std::memcpy(&bytes[at], &depth, sizeof(depth));
  }
  return bytes;
}

SequenceId FilledPage::open(Engine &engine, int64_t depth) const {
  SequenceState &state = engine.state();
  const SequenceId sequence = state.open();
  for (int64_t i = 0; i < depth; i += kPageTokens)
    if (!state.adoptPage(sequence, page))
      throw Error(state.describeFull());
  if (!fixed.empty()) {
    const SnapshotId snapshot =
        state.adoptSnapshot(depth, behind(depth, state)).value();
    state.restore(sequence, snapshot);
    state.drop(snapshot);
  }
  return sequence;
}
