//===- LarkText.cpp - Pieces of grammars in Lark --------------------------===//

#include "text/LarkText.h"

#include <nlohmann/json.hpp>

#include <map>
#include <vector>

using namespace qwen;

std::string qwen::larkString(std::string_view text) {
  // Lark has no control characters in strings, 0x7f among them.
  return nlohmann::json(text).dump(-1, ' ', /*ensure_ascii=*/true);
}

/// The rests of words by their first characters.
using Rests = std::map<char, std::vector<std::string_view>>;
static Rests restsOf(std::span<const std::string_view> words) {
  Rests rests;
  for (const std::string_view word : words)
    rests[word.front()].push_back(word.substr(1));
  return rests;
}

static std::string escaped(char letter) {
  return letter == '/' ? "\\/" : std::string(1, letter);
}

/// A start of a word; its whole is none.
static std::string startOf(std::span<const std::string_view> words) {
  std::string starts;
  for (const auto &[letter, rests] : restsOf(words))
    if (!rests.front().empty())
      starts += (starts.empty() ? "(" : "|") + escaped(letter) + startOf(rests);
  return starts.empty() ? "" : starts + ")?";
}

/// A start of a word, and a character with which it does not go on.
static std::string missOf(std::span<const std::string_view> words) {
  std::string firsts, others;
  for (const auto &[letter, rests] : restsOf(words)) {
    firsts += escaped(letter);
    if (!rests.front().empty())
      others += "|" + escaped(letter) + missOf(rests);
  }
  return "([^<" + firsts + "]" + others + ")";
}

// A repetition of one expression, because llguidance takes the tokens without
// "<" together in it (LlGuidance.cpp).
std::string qwen::larkTextWithout(std::span<const std::string_view> words,
                                  bool mayBeEmpty) {
  std::vector<std::string_view> rests;
  for (const std::string_view word : words)
    rests.push_back(word.substr(1));
  const std::string starts = "(<" + startOf(rests) + ")*";
  return "/(?s:([^<]|" + starts + "<" + missOf(rests) + ")" +
         (mayBeEmpty ? "*" : "+") + starts + ")/";
}
