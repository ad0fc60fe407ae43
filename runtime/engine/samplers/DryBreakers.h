//===- DryBreakers.h - What DRY does not look past --------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_ENGINE_SAMPLERS_DRYBREAKERS_H
#define QWEN_RUNTIME_ENGINE_SAMPLERS_DRYBREAKERS_H

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace qwen {

/// Sequences of tokens that have one of some texts: a first token in which it
/// begins, and the tokens of the rest, which may be empty.
class DryBreakers {
public:
  using Rests = std::vector<std::vector<int32_t>>;

  explicit DryBreakers(size_t tokens) : places(tokens, -1) {}

  void add(int32_t first, std::vector<int32_t> rest) {
    int32_t &place = places[static_cast<size_t>(first)];
    if (place < 0) {
      place = static_cast<int32_t>(rests.size());
      rests.emplace_back();
    }
    Rests &all = rests[static_cast<size_t>(place)];
    if (!std::ranges::count(all, rest))
      all.push_back(std::move(rest));
  }
  /// What may follow a first token; nothing for other tokens.
  std::span<const std::vector<int32_t>> restsAfter(int32_t first) const {
    const auto i = static_cast<size_t>(first);
    if (i >= places.size() || places[i] < 0)
      return {};
    return rests[static_cast<size_t>(places[i])];
  }
  /// Whether a token has such a text by itself.
  bool isWhole(int32_t token) const {
    return std::ranges::any_of(restsAfter(token),
                               [](const auto &rest) { return rest.empty(); });
  }

private:
  /// By token: an index of `rests`, or -1.
  std::vector<int32_t> places;
  std::vector<Rests> rests;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_SAMPLERS_DRYBREAKERS_H
