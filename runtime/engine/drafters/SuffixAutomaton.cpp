//===- SuffixAutomaton.cpp - All substrings of a list of tokens -----------===//

#include "engine/drafters/SuffixAutomaton.h"

#include <algorithm>

using namespace qwen;

/// A text of n tokens has at most 2n states, with the one of the empty text,
/// and 3n edges.
static constexpr size_t kStatesOfToken = 2, kSlotsOfToken = 4;

SuffixAutomaton::SuffixAutomaton(size_t capacity) : most(capacity) {
  static_assert(kBytesPerToken ==
                kStatesOfToken * sizeof(State) + kSlotsOfToken * sizeof(Edge));
  states.reserve(kStatesOfToken * std::max<size_t>(most, 1));
  clear();
}

void SuffixAutomaton::clear() {
  edges.assign(kSlotsOfToken * std::max<size_t>(most, 1), Edge{-1, 0, 0, -1});
  states.assign(1, State{0, -1, 0, -1});
  last = 0;
  count = 0;
  found = {};
}

int32_t SuffixAutomaton::addState(const State &state) {
  states.push_back(state);
  return static_cast<int32_t>(states.size()) - 1;
}

SuffixAutomaton::Edge &SuffixAutomaton::slot(int32_t from, int32_t token) {
  uint64_t hash = static_cast<uint64_t>(static_cast<uint32_t>(from)) << 32 |
                  static_cast<uint32_t>(token);
  // The mixing of SplitMix64.
  hash = (hash ^ hash >> 30) * 0xbf58476d1ce4e5b9U;
  hash = (hash ^ hash >> 27) * 0x94d049bb133111ebU;
  // The high half, scaled to the number of slots.
  size_t index = static_cast<size_t>((hash >> 32) * edges.size() >> 32);
  while (edges[index].from >= 0 &&
         (edges[index].from != from || edges[index].token != token))
    index = index + 1 == edges.size() ? 0 : index + 1;
  return edges[index];
}

void SuffixAutomaton::addEdge(int32_t from, int32_t token, int32_t to) {
  State &state = states[static_cast<size_t>(from)];
  Edge &edge = slot(from, token);
  edge = {from, token, to, state.edges};
  state.edges = static_cast<int32_t>(&edge - edges.data());
}

int32_t SuffixAutomaton::split(int32_t state, int32_t parent, int32_t token) {
  const State whole = states[static_cast<size_t>(state)];
  const int32_t part = addState({states[static_cast<size_t>(parent)].length + 1,
                                 whole.link, whole.end, -1});
  for (int32_t at = whole.edges; at >= 0;) {
    const Edge edge = edges[static_cast<size_t>(at)];
    addEdge(part, edge.token, edge.to);
    at = edge.next;
  }
  for (int32_t from = parent; from >= 0;
       from = states[static_cast<size_t>(from)].link) {
    Edge &edge = slot(from, token);
    if (edge.to != state)
      break;
    edge.to = part;
  }
  states[static_cast<size_t>(state)].link = part;
  return part;
}

void SuffixAutomaton::append(int32_t token) {
  const auto end = static_cast<int32_t>(++count);
  const int32_t all = addState({end, 0, end, -1});
  int32_t from = last;
  for (; from >= 0 && slot(from, token).from < 0;
       from = states[static_cast<size_t>(from)].link)
    addEdge(from, token, all);
  last = all;
  int32_t link = 0;
  if (from >= 0) {
    link = slot(from, token).to;
    if (states[static_cast<size_t>(link)].length !=
        states[static_cast<size_t>(from)].length + 1)
      link = split(link, from, token);
  }
  states[static_cast<size_t>(all)].link = link;
  const State &suffix = states[static_cast<size_t>(link)];
  found = {static_cast<size_t>(suffix.length), static_cast<size_t>(suffix.end)};
  for (int i = 0; i < kUpdates && link > 0; ++i) {
    states[static_cast<size_t>(link)].end = end;
    link = states[static_cast<size_t>(link)].link;
  }
}
