//===- AnswerFormat.cpp - The sections of answers -------------------------===//

#include "text/AnswerFormat.h"

#include <algorithm>
#include <utility>

using namespace qwen;

namespace {
/// Reasoning without the newlines beside its marks.
class ReasoningReader final : public SectionReader {
public:
  void push(std::string_view text, AnswerEvents &events) override {
    const size_t first = isEmpty ? text.find_first_not_of('\n') : 0;
    if (first == std::string_view::npos)
      return;
    isEmpty = false;
    std::string piece = std::exchange(newlines, {});
    piece += text.substr(first);
    const size_t end = piece.find_last_not_of('\n') + 1;
    newlines = piece.substr(end);
    piece.resize(end);
    if (!piece.empty())
      events.push_back({AnswerEventKind::Reasoning, std::move(piece)});
  }
  void finish(bool, AnswerEvents &) override {}

private:
  /// Whether only newlines have come.
  bool isEmpty = true;
  /// Newlines that are held back, as the mark may follow.
  std::string newlines;
};

} // namespace

template <typename ReaderType> static std::unique_ptr<SectionReader> make() {
  return std::make_unique<ReaderType>();
}

static constexpr AnswerSection kSections[] = {
    {"<think>", "</think>", true, "\n\n", make<ReasoningReader>},
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

bool AnswerFormat::reasons() const {
  return std::ranges::any_of(
      all, [](const Section &section) { return section.row.isReasoning; });
}

/// Whether the end of a prompt has begun a section.
static bool isBegun(const AnswerFormat::Section &section,
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
  return last != prompt.rend() && *last == section.open.token;
}

const AnswerFormat::Section *
AnswerFormat::begunIn(const Tokenizer &tokenizer,
                      std::span<const int32_t> prompt) const {
  for (const Section &section : all)
    if (section.row.isReasoning && isBegun(section, tokenizer, prompt))
      return &section;
  return nullptr;
}
