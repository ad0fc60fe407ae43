//===- HashModel.h - A model whose logits are hashes ------------*- C++ -*-===//
//
// Each logit is a hash of all tokens up to its own, which is read back from the
// pages or from fixed state. So a page or a state with other content, or a
// token that ran twice or not at all, gives another answer. It needs no
// compiled code.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_TEST_UNIT_HASHMODEL_H
#define QWEN_TEST_UNIT_HASHMODEL_H

#include "HandmadeArtifact.h"
#include "engine/Engine.h"
#include "engine/Request.h"

#include "qwen/ABI/Blocks.h"

#include <algorithm>

namespace qwen::test {

/// The token whose numbers are not finite.
inline constexpr int32_t kNotFiniteId = 38;

/// The logits after a token with id `id`, and the hash of the tokens up to it,
/// from the hash of the tokens before it.
inline uint64_t hashAfter(uint64_t before, int32_t id) {
  uint64_t z = (before + static_cast<uint64_t>(id) + 1) * 0x9E3779B97F4A7C15;
  return z ^ z >> 29;
}
inline float hashLogit(uint64_t hash, int32_t id) {
  return static_cast<float>(hashAfter(hash, id) >> 40) * 0x1p-22f;
}

/// `count` ids of the vocabulary. Lists with another `first` differ.
inline std::vector<int32_t> squareTokens(int64_t count, int32_t first = 0) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i)
    ids.push_back(static_cast<int32_t>((first + i * i) % 37));
  return ids;
}

/// The hash before a token is that of the slot before it or, with the states of
/// a fixed cache, in the second layer of caches[1].
template <int64_t kStates>
void hashForwardOf(const Context *context, int32_t thread, int32_t) {
  if (thread == 0) {
    // Of a token: its id, and the hash up to it.
    struct Slot {
      int64_t id;
      uint64_t hash;
    };
    const auto slot = [&](int64_t token, int64_t position) -> Slot & {
      const int32_t page = context->pageTables[context->sequences[token] *
                                                   context->pageTableStride +
                                               position / kPageTokens];
      return reinterpret_cast<Slot *>(context->caches[0] +
                                      int64_t{page} * 8192)[position % 64];
    };
    [[maybe_unused]] const auto state = [&](int64_t token,
                                            int64_t length) -> uint64_t & {
      constexpr int64_t states = std::max<int64_t>(kStates, 1);
      const int64_t end =
          (context->sequences[token] + 1) * context->pageTableStride;
      const int64_t row =
          states == 1 ? context->sequences[token]
                      : context->pageTables[end - states + length % states];
      return *reinterpret_cast<uint64_t *>(context->caches[1] + row * 128 + 64);
    };
    int64_t row = 0;
    for (int64_t t = 0; t < context->tokens(); ++t) {
      const int32_t id = context->tokenIds[t];
      const int32_t position = context->positions[t];
      uint64_t before = 0;
      if constexpr (kStates)
        before = state(t, position);
      else if (position)
        before = slot(t, position - 1).hash;
      const uint64_t hash = hashAfter(before, id);
      if constexpr (kStates)
        state(t, position + 1) = hash;
      slot(t, position) = {id, hash};
      if (id == kNotFiniteId)
        context->counts[kTokensOfCall].flags[t] = 1;
      const CountOfCall &wanted = context->counts[kWantedTokens];
      if (row < wanted.number && wanted.tokens[row] == t) {
        for (int32_t i = 0; i < 40; ++i)
          context->result[row * 48 + i] = hashLogit(hash, i);
        ++row;
      }
    }
  }
  context->barrier(context->barrierState, thread);
}

inline constexpr int64_t kHashStepBack = 3;
inline constexpr ForwardFn *hashForward = hashForwardOf<0>,
                           *fixedHashForward = hashForwardOf<1>,
                           *steppingHashForward =
                               hashForwardOf<kHashStepBack + 1>;

/// The manifest of a hash model with fixed state, or without.
inline Manifest hashManifest(int64_t context, int64_t tokens,
                             bool fixed = false, int64_t stepBack = 0) {
  Manifest manifest = parseManifest(handmadeManifest(), "f", 64);
  manifest.model.context = context;
  manifest.programs[0].limits = {tokens, 2, stepBack};
  if (fixed)
    for (auto *caches : {&manifest.caches, &manifest.programs[0].caches})
      caches->push_back({"hash", CacheKind::Fixed, 64, {0, 1}, stepBack});
  return manifest;
}

/// The drawn tokens of a request, without an engine.
inline std::vector<int32_t> hashAnswer(const Request &request) {
  Sampler sampler(request.sampling, 40, 37, request.answer, request.stopTokens);
  uint64_t hash = 0;
  for (int32_t id : request.prompt.ids) {
    hash = hashAfter(hash, id);
    sampler.acceptPrompt(id);
  }
  std::vector<int32_t> drawn;
  std::vector<float> logits(40);
  while (std::ssize(drawn) < request.maxTokens) {
    for (int32_t i = 0; i < 40; ++i)
      logits[static_cast<size_t>(i)] = hashLogit(hash, i);
    drawn.push_back(
        sampler.sample(logits, request.prompt.ids.size() + drawn.size()));
    sampler.acceptDrawn(drawn.back());
    hash = hashAfter(hash, drawn.back());
    if (std::ranges::count(request.stopTokens, drawn.back()))
      break;
  }
  return drawn;
}

} // namespace qwen::test

#endif // QWEN_TEST_UNIT_HASHMODEL_H
