//===- StopMatcher.cpp - Strings that end a text --------------------------===//

#include "text/StopMatcher.h"

#include "text/Unicode.h"

#include <algorithm>
#include <utility>

using namespace qwen;

/// The number of bytes at the end of `text` that may start `stop`.
static size_t startOf(std::string_view stop, std::string_view text) {
  size_t size = std::min(stop.size() - 1, text.size());
  while (size > 0 && !text.ends_with(stop.substr(0, size)))
    --size;
  return size;
}

std::string StopMatcher::push(std::string_view text) {
  if (stops.empty())
    return std::string(text);
  held += text;
  size_t end = std::string::npos, kept = held.size();
  const std::string *first = nullptr;
  for (const std::string &stop : stops)
    if (const size_t at = held.find(stop);
        at != std::string::npos &&
        (at + stop.size() < end || (at + stop.size() == end && at < kept))) {
      first = &stop;
      end = at + stop.size();
      kept = at;
    }
  if (first) {
    foundStop = *first;
    kept = isIncluded ? end : kept;
  } else {
    for (const std::string &stop : stops)
      kept = std::min(kept, held.size() - startOf(stop, held));
  }
  std::string rest = held.substr(kept);
  held.resize(kept);
  characters = static_cast<int64_t>(countCodePoints(rest));
  return std::exchange(held, first ? "" : std::move(rest));
}

std::string StopMatcher::finish() {
  characters = 0;
  return std::exchange(held, {});
}
