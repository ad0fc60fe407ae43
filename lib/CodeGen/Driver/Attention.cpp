//===- Attention.cpp - Cache append and attention -------------------------===//

#include "SharedPages.h"

#include "qwen/CodeGen/Driver/Driver.h"

using namespace qwen;
using namespace qwen::driver;

namespace {
/// The place of a layer's cache in a page.
struct CacheLayout {
  /// Bytes of one head's keys, and of the layer's keys. A head's values have as
  /// many as its keys.
  int64_t headBytes, keyBytes;
  CacheId cache;
  Bytes pageBytes;
  CacheOffset layer;

  template <typename Instance>
  CacheLayout(const Instance &fixed, CacheOffset layer)
      : headBytes(fixed.headBytes), keyBytes(fixed.kvHeads * headBytes),
        cache(fixed.cache), pageBytes(fixed.pageBytes), layer(layer) {}

  /// The keys of a head in page `page` of the sequence of `token`.
  uint8_t *keys(const Context *context, int64_t token, int64_t page,
                int64_t head) const {
    return pageOf(context, token, page, cache, pageBytes) + layer +
           head * headBytes;
  }
};
} // namespace

//===----------------------------------------------------------------------===//
// Append
//===----------------------------------------------------------------------===//

/// A unit is a KV head of one token.
QWEN_ENTRY(Append, Append) {
  const AppendArguments of = arguments;
  const Floats keys = floatsAt(context, of.keys),
               values = floatsAt(context, of.values);
  const int64_t headDim = fixed.headDim;
  float *scratch = fixed.scratch;
  const Rotation rotation = rotationOf(context, of, fixed, scratch + headDim);
  const CacheLayout layout(fixed, of.layer);
  forUnits(
      context, thread, context->tokens() * fixed.kvHeads,
      [&](int64_t unit) QWEN_SPECIALISED_LAMBDA {
        const int64_t token = unit / fixed.kvHeads, head = unit % fixed.kvHeads;
        const auto [page, slot] = slotOf(context, token);
        uint8_t *keysOfHead = layout.keys(context, token, page, head);
        uint8_t *valuesOfHead = keysOfHead + layout.keyBytes;
        rotation.call(keys.of(token) + head * headDim, token, scratch);
        const int32_t badK = fixed.appendK(scratch, headDim, slot, keysOfHead);
        const int32_t badV = fixed.appendV(values.of(token) + head * headDim,
                                           headDim, slot, valuesOfHead);
        flag(context, token, of.op, badK | badV);
      });
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

/// Whether two tokens that follow each other may share pages.
static inline bool sharesPages(const Context *context) {
  for (int64_t token = 1; token < context->tokens(); ++token)
    if (context->sequences[token] == context->sequences[token - 1])
      return true;
  return false;
}

/// Calls compute(head, first, last) for the thread's units. A unit is a KV head
/// of a block of tokens, with all query heads that share it, so that they share
/// each read of keys and values. The first and the last block follow each
/// other, then the second and the one before the last: threads have equal work
/// although later tokens of a prompt see more. Where no token shares pages with
/// the next one, a block has one token, so that units are small.
template <typename Instance, typename Compute>
QWEN_SPECIALISED static void
forTokenBlocks(const Context *context, int32_t thread, OpId op,
               const Instance &fixed, const Compute &compute) {
  const int64_t tokens = context->tokens();
  const int64_t kvHeads = fixed.kvHeads;
  const int64_t blockTokens = sharesPages(context) ? fixed.blockTokens : 1;
  const int64_t blocks = ceilDiv(tokens, blockTokens);
  forStolenUnits(context, thread, op, blocks * kvHeads, 1, 1,
                 [&](int64_t begin, int64_t end) QWEN_SPECIALISED_LAMBDA {
                   for (int64_t unit = begin; unit < end; ++unit) {
                     const int64_t turn = unit / kvHeads, head = unit % kvHeads;
                     const int64_t block =
                         turn % 2 ? blocks - 1 - turn / 2 : turn / 2;
                     compute(head, block * blockTokens,
                             std::min((block + 1) * blockTokens, tokens));
                   }
                 });
}

//===----------------------------------------------------------------------===//
// Attention over the cache
//===----------------------------------------------------------------------===//

namespace {
/// The pages of the sequence that `token` belongs to.
struct CachePages {
  const Context *context;
  const CacheLayout &layout;
  int64_t token, head;

  int64_t keyBytes() const { return layout.keyBytes; }
  const uint8_t *read(int64_t number) const {
    return layout.keys(context, token, number, head);
  }
  const uint8_t *next(int64_t number) const { return read(number + 1); }
};
} // namespace

QWEN_ENTRY(Attention, Attention) {
  const AttentionArguments of = arguments;
  const Attention<AttentionInstance> attention = {
      context,
      rotationOf(context, of, fixed,
                 fixed.scratch + attentionScratch(fixed.groupQueries,
                                                  fixed.headDim,
                                                  fixed.blockTokens)),
      floatsAt(context, of.queries),
      floatsAt(context, of.out),
      of.op,
      fixed};
  const CacheLayout layout(fixed, of.layer);
  const auto pagesOf = [&](int64_t token, int64_t head)
                           QWEN_SPECIALISED_LAMBDA {
                             return CachePages{context, layout, token, head};
                           };
  SharedPages shared(attention);
  if (shared.plan())
    return shared.run(thread, pagesOf);
  forTokenBlocks(context, thread, of.op, fixed,
                 [&](int64_t head, int64_t first, int64_t last)
                     QWEN_SPECIALISED_LAMBDA {
                       for (int64_t start = first; start < last;) {
                         const int64_t count = runLength(context, start, last);
                         attention.run({start, count, head,
                                        context->positions[start] + int64_t{1},
                                        /*causal=*/true},
                                       pagesOf(start, head));
                         start += count;
                       }
                     });
}

//===----------------------------------------------------------------------===//
// Attention over the call
//===----------------------------------------------------------------------===//

/// The field of `token`: the tokens around it of its sequence or, with
/// `windows`, of its window. It sees them as a cache that has no others.
static inline Range fieldOf(const Context *context, int64_t token,
                            bool windows) {
  const auto isSame = [&](int64_t other) {
    return context->sequences[other] == context->sequences[token] &&
           (!windows || context->windows[other] == context->windows[token]);
  };
  Range field = {token, token + 1};
  while (field.begin > 0 && isSame(field.begin - 1))
    --field.begin;
  while (field.end < context->tokens() && isSame(field.end))
    ++field.end;
  return field;
}

namespace {
/// The pages of a field, in f32: `memory` has one at a time.
struct CallPages {
  const Context *context;
  const CallAttentionInstance &fixed;
  const Rotation &rotation;
  Floats keys, values;
  OpId op;
  float *memory;
  Range field;
  int64_t head;

  int64_t keyBytes() const {
    return fixed.headDim * kPageTokens * int64_t{sizeof(float)};
  }
  QWEN_SPECIALISED const uint8_t *read(int64_t number) const {
    const int64_t headDim = fixed.headDim;
    auto *const keysOfPage = reinterpret_cast<uint8_t *>(memory);
    float *rotated = memory + 2 * headDim * kPageTokens;
    const int64_t first = field.begin + number * kPageTokens;
    const int64_t count = std::min(kPageTokens, field.end - first);
    for (int64_t slot = 0; slot < count; ++slot) {
      const int64_t token = first + slot;
      rotation.call(keys.of(token) + head * headDim, token, rotated);
      const int32_t badK = fixed.appendK(rotated, headDim, slot, keysOfPage);
      const int32_t badV =
          fixed.appendV(values.of(token) + head * headDim, headDim, slot,
                        keysOfPage + keyBytes());
      flag(context, token, op, badK | badV);
    }
    return next(number);
  }
  /// All pages lie in one place.
  const uint8_t *next(int64_t) const {
    return reinterpret_cast<const uint8_t *>(memory);
  }
};
} // namespace

QWEN_ENTRY(CallAttention, CallAttention) {
  const CallAttentionArguments of = arguments;
  const Rotation rotation = plainRotationOf(context, of, fixed);
  const Attention<CallAttentionInstance> attention = {
      context,
      rotation,
      floatsAt(context, of.queries),
      floatsAt(context, of.out),
      of.op,
      fixed};
  CallPages pages = {context,
                     fixed,
                     rotation,
                     floatsAt(context, of.keys),
                     floatsAt(context, of.values),
                     of.op,
                     fixed.scratch + attentionScratch(fixed.groupQueries,
                                                      fixed.headDim,
                                                      fixed.blockTokens),
                     {},
                     0};
  const bool causal = fixed.causal != 0;
  forTokenBlocks(
      context, thread, of.op, fixed,
      [&](int64_t head, int64_t first, int64_t last) QWEN_SPECIALISED_LAMBDA {
        pages.head = head;
        for (int64_t start = first; start < last;) {
          pages.field = fieldOf(context, start, fixed.windows != 0);
          const int64_t before = start - pages.field.begin;
          int64_t end = std::min(last, pages.field.end);
          // Tokens that see more than the one before share a page.
          if (causal)
            end = std::min(end, start + kPageTokens - before % kPageTokens);
          attention.run(
              {start, end - start, head,
               causal ? before + 1 : pages.field.end - pages.field.begin,
               causal},
              pages);
          start = end;
        }
      });
}
