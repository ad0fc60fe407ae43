//===- SuffixAutomaton.h - All substrings of a list of tokens ---*- C++ -*-===//
//
// A. Blumer et al., "The smallest automaton recognizing the subwords of a
// text", Theoretical Computer Science 40 (1985), built token by token. A state
// stands for the substrings that end at the same places.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_ENGINE_DRAFTERS_SUFFIXAUTOMATON_H
#define QWEN_RUNTIME_ENGINE_DRAFTERS_SUFFIXAUTOMATON_H

#include <cstddef>
#include <cstdint>
#include <vector>

namespace qwen {

/// Finds the longest suffix of its tokens that stands in them earlier.
class SuffixAutomaton {
public:
  /// Bytes that the constructor reserves for each token.
  static constexpr size_t kBytesPerToken = 96;

  /// Reserves memory for `capacity` tokens, at most 2^28.
  explicit SuffixAutomaton(size_t capacity);

  size_t size() const { return count; }
  size_t capacity() const { return most; }
  /// Appends a token. There must be room. Takes constant time, averaged over
  /// the tokens.
  void append(int32_t token);
  void clear();

  /// A suffix of the tokens, and its place before.
  struct Match {
    /// Number of its tokens; 0: the last token stands nowhere else.
    size_t length = 0;
    /// Number of tokens up to the end of the earlier place, which may overlap
    /// the suffix.
    size_t end = 0;
  };
  /// The longest suffix that stands earlier. Its place is the most recent one,
  /// unless there are more than kUpdates suffixes of other places.
  Match match() const { return found; }

private:
  /// Suffixes of a text that learn of a place of theirs. Repetitions of one
  /// token would need as many as there are tokens.
  static constexpr int kUpdates = 32;

  struct State {
    /// Of its longest substring.
    int32_t length;
    /// The state of the longest suffix that ends at further places; -1: none.
    int32_t link;
    /// Number of tokens up to the end of its most recent place.
    int32_t end;
    /// One of its edges; -1: none.
    int32_t edges;
  };
  /// A token that follows the substrings of a state.
  struct Edge {
    /// -1: the slot is free.
    int32_t from;
    int32_t token, to;
    /// The next edge of the state; -1: none.
    int32_t next;
  };

  int32_t addState(const State &state);
  /// The slot of an edge, or the free one for it.
  Edge &slot(int32_t from, int32_t token);
  void addEdge(int32_t from, int32_t token, int32_t to);
  /// The state of the substrings of `parent` with a token behind them, apart
  /// from the longer ones of `state`.
  int32_t split(int32_t state, int32_t parent, int32_t token);

  size_t most, count = 0;
  std::vector<State> states;
  /// Open addressing; three quarters are used at most.
  std::vector<Edge> edges;
  /// The state of all tokens.
  int32_t last = 0;
  Match found;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_DRAFTERS_SUFFIXAUTOMATON_H
