//===- Notes.cpp - What the log says of a request -------------------------===//

#include "server/http/Notes.h"

#include "qwen/Support/Text.h"

#include <algorithm>
#include <utility>

using namespace qwen;
using namespace qwen::server;

/// A request adds at most as many lines to the log, each of at most as many
/// bytes.
static constexpr size_t kMostLines = 16, kMostBytes = 300;

/// The text without digits in brackets.
static std::string withoutIndices(std::string_view text) {
  std::string without;
  for (size_t at = 0; at < text.size();) {
    without += text[at];
    if (text[at++] != '[')
      continue;
    const size_t end =
        std::min(text.find_first_not_of("0123456789", at), text.size());
    if (end == text.size() || text[end] == ']')
      at = end;
  }
  return without;
}

void Notes::add(const std::string &line) {
  std::string text =
      printable(withoutIndices(std::string_view(line).substr(0, kMostBytes)));
  if (std::ranges::find(lines, text) != lines.end())
    return;
  if (lines.size() < kMostLines)
    lines.push_back(std::move(text));
  else
    ++others;
}

std::vector<std::string> Notes::take() {
  if (others)
    lines.push_back("and " + std::to_string(std::exchange(others, 0)) +
                    " more such lines");
  return std::exchange(lines, {});
}
