//===- Thinking.cpp - The reasoning in an answer --------------------------===//

#include "server/Thinking.h"

#include <algorithm>
#include <utility>

using namespace qwen;
using namespace qwen::server;

std::optional<ThinkTokens> server::thinkTokens(const Tokenizer &tokenizer) {
  const std::optional<int32_t> open = tokenizer.findAddedToken("<think>");
  const std::optional<int32_t> close = tokenizer.findAddedToken("</think>");
  if (!open || !close)
    return std::nullopt;
  return ThinkTokens{*open, *close, tokenizer.encode("\n\n")};
}

Thinking::Thinking(const ThinkTokens *thinkTokens, const Tokenizer &tokenizer,
                   std::span<const int32_t> prompt,
                   std::optional<int64_t> tokenBudget)
    : tokens(thinkTokens), budget(tokenBudget) {
  if (!tokens)
    return;
  // A special token ends the turn in which <think> would count.
  const auto last =
      std::find_if(prompt.rbegin(), prompt.rend(), [&](int32_t id) {
        return id == tokens->open || id == tokens->close ||
               (id < tokenizer.vocabSize() && tokenizer.isSpecial(id));
      });
  inside = afterMark = last != prompt.rend() && *last == tokens->open;
}

std::optional<int32_t> Thinking::next() const {
  if (given > 0 && given <= tokens->after.size())
    return tokens->after[given - 1];
  if (inside && budget && reasoned >= *budget)
    return tokens->close;
  return std::nullopt;
}

bool Thinking::isMark(int32_t id) const {
  return tokens &&
         (inside ? id == tokens->close : isFirst && id == tokens->open);
}

void Thinking::push(int32_t id) {
  given += next() ? 1 : 0;
  if (isMark(id)) {
    inside = !inside;
    afterMark = true;
    newlines.clear();
  } else {
    reasoned += inside ? 1 : 0;
  }
  isFirst = false;
}

std::string Thinking::trim(std::string text) {
  if (afterMark)
    text.erase(0, text.find_first_not_of('\n'));
  if (text.empty())
    return text;
  afterMark = false;
  if (!inside)
    return text;
  text.insert(0, std::exchange(newlines, {}));
  const size_t end = text.find_last_not_of('\n') + 1;
  newlines = text.substr(end);
  text.resize(end);
  return text;
}
