//===- MarkedText.cpp - Text that knows its origin ------------------------===//

#include "text/MarkedText.h"

#include <utility>

using namespace qwen;

MarkedText::MarkedText(std::string bytes, Origin origin)
    : text(std::move(bytes)), first(origin) {}

void MarkedText::append(std::string_view characters, Origin origin) {
  if (characters.empty())
    return;
  if (text.empty())
    first = origin;
  else if (originAfter(borders.size()) != origin)
    borders.push_back(static_cast<uint32_t>(text.size()));
  text += characters;
}

void MarkedText::append(const MarkedText &other, std::string_view part) {
  other.forEachRun(
      part, [&](std::string_view run, Origin origin) { append(run, origin); });
}

MarkedText MarkedText::part(std::string_view part) const {
  MarkedText result;
  result.append(*this, part);
  return result;
}

bool MarkedText::isWritten(size_t begin, size_t end) const {
  const size_t count = bordersUpTo(begin);
  return originAfter(count) == Origin::Template &&
         (count == borders.size() || borders[count] >= end);
}
