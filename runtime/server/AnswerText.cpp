//===- AnswerText.cpp - The text of an answer, as a stream ----------------===//

#include "server/AnswerText.h"

#include <algorithm>
#include <utility>

using namespace qwen;
using namespace qwen::server;

std::string_view server::bytesOf(const Tokenizer &tokenizer, int32_t id) {
  return id < tokenizer.vocabSize() ? tokenizer.tokenBytes(id) : "";
}

int64_t server::characterCount(std::string_view text) {
  return std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; });
}

int64_t CharacterCount::push(std::string_view bytes) {
  // Bytes that do not go on with a character end it.
  if (characterCount(bytes.substr(0, 1)))
    finish();
  const int64_t before = count;
  count += characterCount(characters.push(bytes));
  return before;
}

int64_t CharacterCount::finish() {
  count += characterCount(characters.finish());
  return count;
}

AnswerText::AnswerText(std::vector<std::string> stopStrings, bool include)
    : stops(std::move(stopStrings)), includeStop(include) {}

bool AnswerText::findStop() {
  size_t end = std::string::npos, begin = 0;
  for (const std::string &stop : stops) {
    const size_t at = held.find(stop);
    if (at == std::string::npos)
      continue;
    const size_t last = at + stop.size();
    if (last < end || (last == end && at < begin)) {
      end = last;
      begin = at;
      found = stop;
    }
  }
  if (found)
    held.resize(includeStop ? end : begin);
  return found.has_value();
}

size_t AnswerText::startOfStop() const {
  size_t longest = 0;
  for (const std::string &stop : stops)
    for (size_t size = std::min(stop.size() - 1, held.size()); size > longest;
         --size)
      if (held.ends_with(std::string_view(stop).substr(0, size)))
        longest = size;
  return longest;
}

std::string AnswerText::push(std::string_view bytes) {
  if (found)
    return "";
  held += characters.push(bytes);
  if (findStop())
    return std::exchange(held, {});
  const size_t shown = held.size() - startOfStop();
  std::string text = held.substr(0, shown);
  held.erase(0, shown);
  return text;
}

std::string AnswerText::finish() {
  if (found)
    return "";
  held += characters.finish();
  findStop();
  return std::exchange(held, {});
}
