//===- AnswerConstraint.cpp - A grammar behind the reasoning --------------===//

#include "grammar/AnswerConstraint.h"

#include "qwen/Support/Error.h"

#include <algorithm>

using namespace qwen;

static std::span<const AnswerFormat::Section>
sectionsOf(const AnswerFormat *format) {
  return format ? format->sections() : std::span<const AnswerFormat::Section>();
}

void qwen::requireMarks(const AnswerFormat *format) {
  for (const AnswerFormat::Section &section : sectionsOf(format))
    if (!section.open.token || !section.close.token)
      throw Error("a grammar needs a model with the tokens " +
                  std::string(section.open.text) + " and " +
                  std::string(section.close.text));
}

AnswerConstraint::AnswerConstraint(std::unique_ptr<TokenConstraint> textGrammar,
                                   const AnswerParser &answerParser,
                                   const AnswerFormat *format,
                                   std::span<const int32_t> answerEnds)
    : grammar(std::move(textGrammar)), parser(answerParser),
      sections(sectionsOf(format)), ends(answerEnds.begin(), answerEnds.end()) {
}

template <typename Ask> auto AnswerConstraint::asked(const Ask &ask) {
  try {
    return ask();
  } catch (const Error &) {
    failed = true;
    throw;
  }
}

std::vector<int32_t> AnswerConstraint::others() const {
  std::vector<int32_t> ids;
  if (isFirst && parser.mayReason())
    for (const Section &section : sections)
      ids.push_back(*section.open.token);
  if (ended && !isBegun && closed < ended->closing.size())
    ids.push_back(ended->closing[closed]);
  return ids;
}

static constexpr uint32_t kBits = 32;
static uint32_t &wordOf(int32_t id, std::span<uint32_t> words) {
  return words[static_cast<uint32_t>(id) / kBits];
}
static uint32_t bitOf(int32_t id) {
  return 1U << static_cast<uint32_t>(id) % kBits;
}

std::span<const uint32_t> AnswerConstraint::allowed() {
  if (parser.isReasoning()) {
    if (reasoning.empty()) {
      reasoning.assign(asked([&] { return grammar->allowed(); }).size(),
                       UINT32_MAX);
      for (const int32_t id : ends)
        wordOf(id, reasoning) &= ~bitOf(id);
    }
    return reasoning;
  }
  const std::span<const uint32_t> allowed =
      asked([&] { return grammar->allowed(); });
  const std::vector<int32_t> more = others();
  if (more.empty())
    return allowed;
  words.assign(allowed.begin(), allowed.end());
  for (const int32_t id : more)
    wordOf(id, words) |= bitOf(id);
  return words;
}

void AnswerConstraint::accept(int32_t id) {
  const std::vector<int32_t> more = others();
  isFirst = false;
  if (parser.isReasoning()) {
    for (const Section &section : sections)
      if (section.close.token == id) {
        ended = &section;
        closed = 1;
      }
    return;
  }
  if (std::ranges::count(more, id)) {
    closed += ended ? 1 : 0;
    return;
  }
  isBegun = true;
  asked([&] { grammar->accept(id); });
}
