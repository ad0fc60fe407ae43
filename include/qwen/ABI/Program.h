//===- Program.h - Programs, their arguments and results --------*- C++ -*-===//
//
// The names that compiler and runtime share. The compiler writes arguments and
// results into the manifest ("programs" in docs/artifact.md), and the engine
// gives and takes rows where they say.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_ABI_PROGRAM_H
#define QWEN_ABI_PROGRAM_H

#include "qwen/ABI/KernelABI.h"
#include "qwen/Support/Fact.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

namespace qwen {

/// Names of a program's token ids, of their positions, and of its logits.
inline constexpr std::string_view kIdsName = "ids",
                                  kPositionsName = "positions",
                                  kLogitsName = "logits";
/// Names of the three positions of tokens for the rotary embedding, in the
/// order of Context::ropePositions, and of the numbers of their windows.
inline constexpr std::string_view kAxisNames[] = {"times", "heights", "widths"};
inline constexpr std::string_view kWindowsName = "windows";

/// The program of a draft head (multi-token prediction), and what the names of
/// its weights begin with. The head guesses the token behind the next one. It
/// reads a row of `forward` and the next token, and gives logits and a row of
/// its own, from which it goes on.
inline constexpr std::string_view kDraftHeadName = "mtp",
                                  kDraftHeadTensors = "mtp.";
/// These rows: f32 [hidden size], behind a final norm. `forward` gives one for
/// each token, and the head for each wanted token.
inline constexpr std::string_view kHiddenRowsName = "hidden";

/// Whether an argument of this name has an integer for each token of a call.
constexpr bool isTokenArgument(std::string_view name) {
  return name == kIdsName || name == kPositionsName || name == kWindowsName ||
         std::ranges::find(kAxisNames, name) != std::end(kAxisNames);
}

/// The most of a count in a call.
inline constexpr int64_t kMostTokens = int64_t{1} << 20;

/// The most floats of a row, or from one to the next.
inline constexpr double kMaxWidth = 0x1p31;

/// An argument or a result of a program.
struct ProgramValue {
  /// isTokenArgument, kLogitsName, or the name of rows in the arena.
  std::string name;
  /// Floats of a row, and from one row to the next; 0 for integers of tokens.
  int64_t width = 0;
  int64_t stride = 0;
  /// Bytes from the start of the arena to the first row; -1 for other values.
  int64_t offset = -1;
  /// What rows in the arena count: an index in Context::counts.
  int64_t count = kTokensOfCall;
  /// The program that leaves the rows of an argument there, as its result of
  /// the same name. Empty if the caller gives them.
  std::string from = {};
};

/// The keys of a value in the manifest beside "name". A key with the value 0 is
/// left out, and only kCountFact may be absent of rows.
inline constexpr Fact<ProgramValue> kValueFacts[] = {
    {"width", &ProgramValue::width, 1, kMaxWidth},
    {"stride", &ProgramValue::stride, 1, kMaxWidth}};
inline constexpr Fact<ProgramValue> kCountFact = {"count", &ProgramValue::count,
                                                  0, kMostCounts - 1};

} // namespace qwen

#endif // QWEN_ABI_PROGRAM_H
