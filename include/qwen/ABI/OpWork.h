//===- OpWork.h - Bytes and multiplications of an op ------------*- C++ -*-===//
//
// The work that the compiler writes for each op (the manifest's "work"), and
// its sum for a step. Profiles and reports divide it by times.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_ABI_OPWORK_H
#define QWEN_ABI_OPWORK_H

#include "qwen/Support/Fact.h"

#include <cstdint>
#include <optional>
#include <string_view>

namespace qwen {

enum class OpKind : uint8_t {
#define QWEN_OP_KIND(Kind, Name) Kind,
#include "qwen/ABI/OpKinds.def"
};

/// The op's name in the dialect: "linear", "attention", ...
std::string_view opKindName(OpKind kind);
std::optional<OpKind> parseOpKind(std::string_view name);

/// The least number of bytes that an op moves, and its multiplications (MACs).
/// Each byte counts once: if a kernel reads it again, it comes from a CPU cache
/// and costs no memory bandwidth.
struct OpWork {
  OpKind kind = OpKind::Other;
  /// Bytes of the weight image that a call reads, for any number of tokens.
  int64_t weightBytes = 0;
  /// Bytes read and written for each token: activations, its embedding, its
  /// appended keys and values.
  int64_t tokenBytes = 0;
  /// MACs of a token.
  int64_t macs = 0;
  /// Bytes of the cache that are read for each position of a sequence.
  int64_t positionBytes = 0;
  /// MACs of a token for each position that it attends to.
  int64_t positionMacs = 0;
  /// Whether the op runs on the wanted tokens only.
  bool wantedTokens = false;
};

/// The most bytes or multiplications of a fact that files may have.
inline constexpr double kMaxWork = 0x1p46;

/// The keys of the manifest's "work" beside "kind"; those of 0 are left out.
inline constexpr Fact<OpWork> kWorkFacts[] = {
    {"weight_bytes", &OpWork::weightBytes, 0, kMaxWork},
    {"token_bytes", &OpWork::tokenBytes, 0, kMaxWork},
    {"macs", &OpWork::macs, 0, kMaxWork},
    {"position_bytes", &OpWork::positionBytes, 0, kMaxWork},
    {"position_macs", &OpWork::positionMacs, 0, kMaxWork},
    {"wanted_tokens", &OpWork::wantedTokens}};

/// A step of one sequence: `tokens` from position `first` on, run in calls of
/// at most `callTokens`, with one wanted token.
struct SequenceStep {
  int64_t first;
  int64_t tokens;
  int64_t callTokens;
};

/// The work of an op in a step. Exact up to 2^53.
struct StepWork {
  double bytes;
  double macs;
};

/// The work of an op in a step. A call reads the weights once, and the cache of
/// the sequence once, up to its last token. A token attends to itself and all
/// earlier tokens.
StepWork workOfStep(const OpWork &work, const SequenceStep &step);

} // namespace qwen

#endif // QWEN_ABI_OPWORK_H
