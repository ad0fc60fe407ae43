//===- AnswerFormat.cpp - The sections of answers -------------------------===//

#include "text/AnswerFormat.h"

#include <algorithm>

using namespace qwen;

static constexpr AnswerSection kSections[] = {
    {"<think>", "</think>", "\n\n"},
};

std::span<const AnswerSection> qwen::answerSections() { return kSections; }

AnswerFormat::AnswerFormat(const Tokenizer &tokenizer,
                           std::string_view chatTemplate,
                           std::span<const AnswerSection> rows) {
  const auto isWritten = [&](std::string_view mark) {
    return chatTemplate.find(mark) != std::string_view::npos;
  };
  for (const AnswerSection &row : rows) {
    const Mark open = {row.open, tokenizer.findAddedToken(row.open)};
    const Mark close = {row.close, tokenizer.findAddedToken(row.close)};
    if (!(open.token && close.token) &&
        !(isWritten(row.open) && isWritten(row.close)))
      continue;
    std::vector<int32_t> closing = tokenizer.encode(row.close);
    const std::vector<int32_t> after = tokenizer.encode(row.after);
    closing.insert(closing.end(), after.begin(), after.end());
    all.push_back({row, open, close, std::move(closing)});
  }
}

/// Whether the last mark of a section in the turn that ends a prompt is the
/// opening one; nothing if the turn has none.
static std::optional<bool> isLastOpen(const AnswerFormat::Section &section,
                                      const Tokenizer &tokenizer,
                                      std::span<const int32_t> prompt) {
  // A special token ends the turn in which a mark would count.
  const auto last =
      std::find_if(prompt.rbegin(), prompt.rend(), [&](int32_t id) {
        return id == section.open.token || id == section.close.token ||
               tokenizer.isSpecial(id);
      });
  std::string text;
  for (auto id = last.base(); id != prompt.end(); ++id)
    text += bytesOf(tokenizer, *id);
  const auto placeOf = [&](const AnswerFormat::Mark &mark) {
    const size_t at = mark.token ? std::string::npos : text.rfind(mark.text);
    return at == std::string::npos ? -1 : static_cast<int64_t>(at);
  };
  const int64_t open = placeOf(section.open), close = placeOf(section.close);
  if (open != close)
    return open > close;
  if (last == prompt.rend() ||
      (*last != section.open.token && *last != section.close.token))
    return std::nullopt;
  return *last == section.open.token;
}

const AnswerFormat::Section *
AnswerFormat::begunIn(const Tokenizer &tokenizer,
                      std::span<const int32_t> prompt) const {
  for (const Section &section : all)
    if (isLastOpen(section, tokenizer, prompt) == true)
      return &section;
  return nullptr;
}

bool AnswerFormat::isClosedIn(const Tokenizer &tokenizer,
                              std::span<const int32_t> prompt) const {
  return std::ranges::any_of(all, [&](const Section &section) {
    return isLastOpen(section, tokenizer, prompt) == false;
  });
}
