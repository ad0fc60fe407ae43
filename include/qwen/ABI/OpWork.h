//===- OpWork.h - What an op of forward moves and computes ------*- C++ -*-===//
//
// Facts that the compiler writes for each op (the manifest's "work"), and what
// they come to in a step, by which profiles and reports divide times.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_ABI_OPWORK_H
#define QWEN_ABI_OPWORK_H

#include <cstdint>
#include <string>

namespace qwen {

/// Bytes that one op has to move at least, each counted once, and its
/// multiplications (MACs). Kernels may well read something twice; where that
/// comes from a cache it costs no memory's time.
struct OpWork {
  /// The op's name in the dialect: "linear", "attention", ...
  std::string kind;
  /// Bytes of the weight image read in a call, whatever its rows.
  int64_t weightBytes = 0;
  /// Bytes read and written for each row: activations, rows of the embedding,
  /// what is appended to the cache.
  int64_t rowBytes = 0;
  /// MACs of a row.
  int64_t macs = 0;
  /// Bytes of the cache that are read for each position of a sequence.
  int64_t positionBytes = 0;
  /// MACs of a row for each position that it sees.
  int64_t positionMacs = 0;
  /// Whether its rows are those whose output is wanted, not all tokens.
  bool outputRows = false;
};

/// A step of one sequence: `tokens` from position `first` on, run in calls of
/// at most `callTokens`, with one output row.
struct SequenceStep {
  int64_t first;
  int64_t tokens;
  int64_t callTokens;
};

/// What an op moves and computes in a step. Exact up to 2^53.
struct StepWork {
  double bytes;
  double macs;
};

/// The work of an op in a step: weights are read once a call, the cache of the
/// sequence once a call up to its last token, and a token sees itself and all
/// before it.
StepWork workOfStep(const OpWork &work, const SequenceStep &step);

} // namespace qwen

#endif // QWEN_ABI_OPWORK_H
