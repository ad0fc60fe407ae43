//===- Track.cpp - A sequence of a job, with its known tokens -------------===//

#include "engine/Track.h"

using namespace qwen;

void Track::begin(std::span<const int32_t> prompt, size_t most,
                  int64_t firstRow) {
  sampler.reset();
  sampler.reserve(most);
  for (int32_t token : prompt)
    sampler.acceptPrompt(token);
  tokens.reserve(most);
  tokens.assign(prompt.begin(), prompt.end());
  settledCount = seen = tokens.size();
  rowsEnd = firstRow;
  draftCount = 0;
}

void Track::draft(std::span<const int32_t> next) {
  dropDrafts();
  tokens.insert(tokens.end(), next.begin(), next.end());
  draftCount = std::ssize(next);
  acceptedCount = 0;
}

void Track::see(int32_t token) {
  sampler.acceptDrawn(token);
  ++seen;
}

void Track::settle(size_t position, int32_t token) {
  if (position < tokens.size() && tokens[position] == token) {
    ++acceptedCount;
  } else {
    tokens.resize(position);
    tokens.push_back(token);
  }
  settledCount = position + 1;
}

void Track::copySampler(Sampler &other, int64_t position) const {
  other.become(sampler);
  for (size_t i = settledCount; i <= static_cast<size_t>(position); ++i)
    other.acceptDrawn(tokens[i]);
}

void Track::follow(const Track &other) {
  tokens = other.tokens;
  settledCount = other.settledCount;
  seen = other.seen;
  rowsEnd = other.rowsEnd;
  sampler.follow(other.sampler);
}

void Track::extend(int32_t token) {
  tokens.push_back(token);
  settledCount = seen = tokens.size();
  sampler.acceptDrawn(token);
}

void Track::assign(std::span<const int32_t> prompt,
                   std::span<const int32_t> ids) {
  tokens.assign(prompt.begin(), prompt.end());
  tokens.insert(tokens.end(), ids.begin(), ids.end());
  settledCount = tokens.size();
  rowsEnd = std::max(rowsEnd, knownSize() - 1);
}

void Track::shorten(size_t count) {
  tokens.resize(count);
  settledCount = count;
}
