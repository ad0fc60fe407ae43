//===- Lookup.cpp - Drafts what followed the same text before -------------===//
//
// After A. Saxena, "Prompt lookup decoding" (2023), with the longest suffix
// that stands earlier in place of a few tokens.
//
//===----------------------------------------------------------------------===//

#include "engine/Job.h"
#include "engine/drafters/Drafters.h"
#include "engine/drafters/SuffixAutomaton.h"

#include <algorithm>
#include <unordered_map>

using namespace qwen;

/// Tokens that an automaton has at most, 6 MiB.
static constexpr int64_t kTextTokens = 65536;

/// Tokens that it keeps when it is full.
static constexpr int64_t kKeptTokens = kTextTokens / 4 * 3;

/// Tokens of a prompt that it reads in a step, about half a millisecond.
static constexpr int64_t kTokensOfStep = 2048;

namespace {
/// The text of a track, as far as it has been read.
class KnownText {
public:
  explicit KnownText(int64_t most)
      : automaton(static_cast<size_t>(std::min(most, kTextTokens))) {}

  /// Reads more of the text. Returns whether all of it has been read.
  bool read(std::span<const int32_t> text) {
    const int64_t size = std::ssize(text);
    if (size - first > capacity() && (count() == 0 || count() == capacity())) {
      automaton.clear();
      first = size - kKeptTokens;
    }
    const int64_t begin = first + count();
    const int64_t end =
        std::min({size, begin + kTokensOfStep, first + capacity()});
    for (int64_t i = begin; i < end; ++i)
      automaton.append(text[static_cast<size_t>(i)]);
    return end == size;
  }
  int64_t matched() const {
    return static_cast<int64_t>(automaton.match().length);
  }
  /// The token of the text that follows the earlier place.
  size_t next() const {
    return static_cast<size_t>(first) + automaton.match().end;
  }

private:
  int64_t count() const { return static_cast<int64_t>(automaton.size()); }
  int64_t capacity() const {
    return static_cast<int64_t>(automaton.capacity());
  }

  SuffixAutomaton automaton;
  /// The token of the text that is the automaton's first.
  int64_t first = 0;
};

class Lookup final : public Drafter {
public:
  void begin(const Track &track) override {
    texts.try_emplace(&track,
                      track.settledSize() + track.job().mostDrafts() + 1);
  }
  void end(const Track &track) override { texts.erase(&track); }

  int64_t strength(const Track &track) override {
    KnownText &text = texts.at(&track);
    return text.read(track.settled()) && text.matched() ? text.matched() : -1;
  }

  void draft(const Track &track, int64_t most,
             std::vector<int32_t> &tokens) override {
    const std::span<const int32_t> settled = track.settled();
    const size_t next = texts.at(&track).next();
    // The earlier place may run into the drafts.
    for (size_t i = next; i < next + static_cast<size_t>(most); ++i)
      tokens.push_back(i < settled.size() ? settled[i]
                                          : tokens[i - settled.size()]);
  }

private:
  std::unordered_map<const Track *, KnownText> texts;
};
} // namespace

std::unique_ptr<Drafter> qwen::makeLookup(Engine & /*engine*/) {
  return std::make_unique<Lookup>();
}
