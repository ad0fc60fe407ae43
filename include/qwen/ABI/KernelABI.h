//===- KernelABI.h - Calling interface of generated code --------*- C++ -*-===//
//
// The Context that the runtime passes to compiled code, and the C signatures of
// the generated kernels (KernelOps.def). A change of either that changes bytes
// needs a new kKernelAbiVersion; each artifact names the version that it needs.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_ABI_KERNELABI_H
#define QWEN_ABI_KERNELABI_H

#include <cstddef>
#include <cstdint>

namespace qwen {

inline constexpr uint32_t kKernelAbiVersion = 11;

/// Value of a token's flag (CountOfCall) if every quantizer, cache append and
/// row of logits of the token had finite values only. Otherwise the flag is the
/// lowest id (index in the manifest's "ops") of an op with another value.
inline constexpr uint32_t kNoFlag = 0xFFFFFFFF;

/// How many values of a count a call has, which tokens they are, and their
/// flags.
struct CountOfCall {
  int64_t number;
  /// Of a count that selects tokens: the index of each one's token, [number].
  /// Null of any other count.
  const int32_t *tokens;
  /// First op that saw a value that is not finite; the runtime sets kNoFlag
  /// before the call. Of a count that selects tokens, the flags of all tokens.
  uint32_t *flags;
};

/// Indices in Context::counts: the tokens of the call, those whose logits are
/// wanted, those whose hidden values are wanted, and then the program's own
/// counts (the manifest's "counts").
inline constexpr int64_t kTokensOfCall = 0, kWantedTokens = 1,
                         kHiddenTokens = 2, kFirstOwnCount = 3, kMostCounts = 8;

/// Everything that one call of a program reads and writes. The runtime owns
/// all memory. The alignment of all pointers is at least 64 bytes.
struct Context {
  /// Base of each weight image, mapped read-only. The first is the model's, and
  /// the manifest's "images" names the others.
  const uint8_t *const *images;
  /// Base of the arena: the program's "arena_bytes" bytes or more.
  uint8_t *arena;
  /// Base of each cache (mergeCache). Page p of a paged cache begins at
  /// p * stride (CacheInfo), and so does row r of a fixed one. In a page of
  /// "kv", a layer has the keys of each KV head, then the values of each
  /// (KvLayout). A row is the state of a sequence after n tokens, and 0 before
  /// the first. With one state a sequence, r is its number; with more, entry
  /// n % states of the last `states` of its row in pageTables. A call writes
  /// the states after the last tokens of each sequence, or the last one alone
  /// if all entries are the same.
  uint8_t *const *caches;
  /// Token ids, [tokens].
  const int32_t *tokenIds;
  /// Number of each token's sequence, [tokens]: its row in pageTables.
  const int32_t *sequences;
  /// Position of each token in its sequence, [tokens]. Tokens of one sequence
  /// come in ascending order of position.
  const int32_t *positions;
  /// Time, height and width of each token for the rotary embedding,
  /// [tokens][3], and the number of its window, [tokens]. Programs without such
  /// arguments read neither.
  const int32_t *ropePositions;
  const int32_t *windows;
  /// Page numbers of each sequence, [sequence][pageTableStride]; entry p is
  /// the page of positions 64p .. 64p+63. Rows of fixed caches may end a row.
  const int32_t *pageTables;
  /// What the call has of each count.
  CountOfCall counts[kMostCounts];
  /// Results: logits, f32 [wanted tokens][stride of the output], and hidden
  /// values, f32 [hidden tokens][hidden size].
  float *result;
  float *hidden;
  /// Static shares: thread t runs units [u * shares[t] >> 16,
  /// u * shares[t + 1] >> 16) of the u units of an op that are not in its tail;
  /// shares[0] = 0, shares[threads] = 65536, ascending.
  const uint32_t *shares;
  /// Waits until every thread of the call has reached the barrier.
  void (*barrier)(void *state, int32_t thread);
  void *barrierState;
  int64_t pageTableStride;
  /// Null, or a function that each thread calls when it begins op `op` (after
  /// the op's barrier) and, with the number of ops, when it ends.
  void (*trace)(void *state, int32_t thread, int32_t op);
  void *traceState;
  /// Units that threads have stolen from the tail of each op, [ops]; the
  /// runtime sets zeros before the call. After the call, a route has the number
  /// of experts that have tokens.
  uint32_t *taken;

  /// The number of tokens of the call.
  int64_t tokens() const { return counts[kTokensOfCall].number; }
};
static_assert(sizeof(Context) == (18 + 3 * kMostCounts) * size_t{8});

/// A program. Every thread of a call runs it with the same context.
using ForwardFn = void(const Context *context, int32_t thread, int32_t threads);

/// Attention's state of a page has maxima and sums of queries, each padded to a
/// multiple of this many.
inline constexpr int64_t kStateQueries = 16;

/// Taps of a short convolution: the token and the three before it.
inline constexpr int64_t kConvolutionTaps = 4;

/// Columns of a state that a kernel of the gated delta rule takes.
inline constexpr int64_t kDeltaColumns = 32;

/// Most experts of a layer.
inline constexpr int64_t kMaxExperts = 1024;

// LinearF32Fn and so on: the C signature of each kind of kernel.
#define QWEN_KERNEL_OP(Op, Function, Provider, Reads, Sizes, Result,           \
                       Parameters)                                             \
  using Op##Fn = Result Parameters;
#include "qwen/ABI/KernelOps.def"

} // namespace qwen

#endif // QWEN_ABI_KERNELABI_H
