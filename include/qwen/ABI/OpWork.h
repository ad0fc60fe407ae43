//===- OpWork.h - Bytes and kernel calls of an op ---------------*- C++ -*-===//
//
// The work that the compiler writes for each op (the manifest's "work"), and
// its sum for a step. Profiles divide it by times, reports give it cycles.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_ABI_OPWORK_H
#define QWEN_ABI_OPWORK_H

#include "qwen/ABI/KernelABI.h"
#include "qwen/Support/Fact.h"

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace qwen {

enum class OpKind : uint8_t {
#define QWEN_OP_KIND(Kind, Name) Kind,
#include "qwen/ABI/OpKinds.def"
};

/// The op's name in the dialect: "linear", "attention", ...
std::string_view opKindName(OpKind kind);
std::optional<OpKind> parseOpKind(std::string_view name);

/// Calls of one kernel of an op, with the same sizes. A product costs its
/// multiplications (MACs), any other kernel its calls.
struct KernelCalls {
  /// The kernel's index among the op's kernels.
  int64_t kernel = 0;
  /// The index of the kernel that takes its place where an op runs on many
  /// tokens; 0 if none does.
  int64_t gemm = 0;
  /// SizeRole::Length, Queries and Chosen of a call.
  int64_t length = 0;
  int64_t queries = 0;
  int64_t chosen = 0;
  /// Calls for each token that the op runs on. A call of a kernel with
  /// SizeRole::Tokens takes all tokens of a sequence: it counts once for each.
  int64_t calls = 0;
  /// Calls of a token for each page of its sequence before its own page, or, if
  /// the op attends to the whole sequence, for each but the last.
  int64_t pageCalls = 0;
  /// MACs of all calls for a token, and those for each position that the token
  /// attends to.
  int64_t macs = 0;
  int64_t positionMacs = 0;
};

/// The most bytes, calls or multiplications of a fact that files may have.
inline constexpr double kMaxWork = 0x1p46;
/// The longest vector of a call.
inline constexpr double kMaxLength = 0x1p31;

/// The keys of an element of "calls" of the manifest's "work". A key with the
/// value 0 is left out.
inline constexpr Fact<KernelCalls> kCallFacts[] = {
    {"kernel", &KernelCalls::kernel, 0, 255},
    {"gemm", &KernelCalls::gemm, 0, 255},
    {"length", &KernelCalls::length, 0, kMaxLength},
    {"queries", &KernelCalls::queries, 0, kMaxLength},
    {"chosen", &KernelCalls::chosen, 0, kMaxLength},
    {"calls", &KernelCalls::calls, 0, kMaxWork},
    {"page_calls", &KernelCalls::pageCalls, 0, kMaxWork},
    {"macs", &KernelCalls::macs, 0, kMaxWork},
    {"position_macs", &KernelCalls::positionMacs, 0, kMaxWork}};

/// The least number of bytes that an op moves, and the calls of its kernels.
/// Each byte counts once: if a kernel reads it again, it comes from a CPU cache
/// and costs no memory bandwidth.
struct OpWork {
  OpKind kind = OpKind::Other;
  /// Bytes of the op's weights in the image.
  int64_t weightBytes = 0;
  /// The bytes of weights that a token reads: all of a product, one row of an
  /// embedding, the matrices of a token's experts.
  int64_t activeBytes = 0;
  /// Activations read and written for each token, and its appended keys and
  /// values.
  int64_t tokenBytes = 0;
  /// Bytes of the cache that are read for each position of a sequence.
  int64_t positionBytes = 0;
  /// What the op runs on: an index in Context::counts.
  int64_t count = kTokensOfCall;
  /// Whether a token attends to all tokens of its sequence, not only to those
  /// before it. Windows count so, too: the caller knows their lengths.
  bool wholeSequence = false;
  /// Whether each token chooses its active bytes: two tokens of a call may
  /// choose the same ones.
  bool routed = false;
  std::vector<KernelCalls> calls = {};
};

/// The keys of the manifest's "work" beside "kind" and "calls". A key with the
/// value 0 is left out.
inline constexpr Fact<OpWork> kWorkFacts[] = {
    {"weight_bytes", &OpWork::weightBytes, 0, kMaxWork},
    {"active_bytes", &OpWork::activeBytes, 0, kMaxWork},
    {"token_bytes", &OpWork::tokenBytes, 0, kMaxWork},
    {"position_bytes", &OpWork::positionBytes, 0, kMaxWork},
    {"count", &OpWork::count, 0, kMostCounts - 1},
    {"whole_sequence", &OpWork::wholeSequence},
    {"routed", &OpWork::routed}};

/// A step of `sequences`, one after another: `tokens` of each from position
/// `first` on, the last of them wanted, run in calls of at most `callTokens`.
/// It has nothing of other counts.
struct SequenceStep {
  int64_t first;
  int64_t tokens;
  int64_t callTokens;
  int64_t sequences = 1;
};

/// The work of an op in a step. Exact up to 2^53.
struct StepWork {
  /// Bytes of weights and of the cache, which come from memory.
  double memoryBytes;
  /// All bytes: activations, too.
  double bytes;
  double macs;
};

/// The work of an op in a step. A call reads the active bytes of its tokens, at
/// most all weights once, and the cache of each sequence once, up to its last
/// token. If tokens choose what they read (`routed`), a token reads a share p,
/// and a call of n tokens reads the share 1 - (1 - p)^n: the expectation for
/// choices that are uniform and independent. A token attends to itself and all
/// earlier tokens of its sequence, or to all tokens of the step
/// (`wholeSequence`).
StepWork workOfStep(const OpWork &work, const SequenceStep &step);

/// The calls of `calls`, of the op `work`, in a step, and their MACs.
struct StepCalls {
  double calls;
  double macs;
};
StepCalls callsOfStep(const OpWork &work, const KernelCalls &calls,
                      const SequenceStep &step);

} // namespace qwen

#endif // QWEN_ABI_OPWORK_H
