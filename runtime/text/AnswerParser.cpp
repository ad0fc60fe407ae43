//===- AnswerParser.cpp - From the tokens of an answer to events ----------===//

#include "text/AnswerParser.h"

#include "text/Unicode.h"

#include <algorithm>
#include <utility>

using namespace qwen;

AnswerParser::AnswerParser(const Tokenizer &textTokenizer,
                           const AnswerFormat *answerFormat,
                           std::span<const int32_t> prompt,
                           AnswerOptions answerOptions)
    : tokenizer(textTokenizer), format(answerFormat),
      options(std::move(answerOptions)), calls(options.calls) {
  if (options.calls.format)
    for (const std::string_view mark : {kCallOpen, kCallClose})
      if (const std::optional<int32_t> id = tokenizer.findAddedToken(mark))
        callMarks.push_back(*id);
  findPatterns();
  if (format)
    if (const Section *begun = format->begunIn(tokenizer, prompt))
      toggle(*begun);
}

//===----------------------------------------------------------------------===//
// Marks and stop strings
//===----------------------------------------------------------------------===//

void AnswerParser::findPatterns() {
  patterns.clear();
  for (const std::string &stop : options.stops)
    patterns.push_back({stop, nullptr});
  const auto add = [&](const Section &of, const AnswerFormat::Mark &mark) {
    if (!mark.token)
      patterns.push_back({mark.text, &of});
  };
  if (section)
    add(*section, section->close);
  else if (format)
    for (const Section &each : format->sections())
      add(each, each.open);
}

const AnswerFormat::Section *AnswerParser::markedBy(int32_t id) const {
  if (section)
    return section->close.token == id ? section : nullptr;
  if (format)
    for (const Section &each : format->sections())
      if (each.open.token == id && isFirst)
        return &each;
  return nullptr;
}

std::optional<AnswerParser::Match> AnswerParser::findFirst() const {
  std::optional<Match> first;
  for (const Pattern &pattern : patterns) {
    const size_t at = held.find(pattern.text);
    if (at == std::string::npos ||
        (isFirstOnly(pattern) && !(isStart && at == 0)))
      continue;
    const size_t end = at + pattern.text.size();
    // Stop strings come before marks.
    if (!first || end < first->end ||
        (end == first->end && at < first->begin && !pattern.section))
      first = {at, end, &pattern};
  }
  return first;
}

size_t AnswerParser::startOfPattern() const {
  size_t longest = 0;
  for (const Pattern &pattern : patterns) {
    if (isFirstOnly(pattern)) {
      if (isStart && pattern.text.starts_with(held))
        longest = held.size();
      continue;
    }
    for (size_t size = std::min(pattern.text.size() - 1, held.size());
         size > longest; --size)
      if (held.ends_with(pattern.text.substr(0, size)))
        longest = size;
  }
  return longest;
}

//===----------------------------------------------------------------------===//
// Events
//===----------------------------------------------------------------------===//

std::vector<AnswerToken> AnswerParser::takeTokens() {
  const auto later = std::ranges::find_if(
      waiting, [&](const AnswerToken &token) { return token.begin > passed; });
  std::vector<AnswerToken> taken(waiting.begin(), later);
  waiting.erase(waiting.begin(), later);
  return taken;
}

void AnswerParser::passReasoning(const std::string &text,
                                 AnswerEvents &events) {
  const size_t first = isEmpty ? text.find_first_not_of('\n') : 0;
  if (first == std::string::npos)
    return;
  isEmpty = false;
  std::string piece = std::exchange(newlines, {}) + text.substr(first);
  const size_t end = piece.find_last_not_of('\n') + 1;
  newlines = piece.substr(end);
  piece.resize(end);
  if (!piece.empty())
    tell(AnswerEventKind::Reasoning, std::move(piece), events);
}

void AnswerParser::tell(AnswerEventKind kind, std::string text,
                        AnswerEvents &events) {
  if (options.calls.format)
    calls.push(kind, isReasoning(), text, events);
  else
    events.push_back({kind, std::move(text)});
}

void AnswerParser::pass(size_t size, AnswerEvents &events) {
  std::string text = held.substr(0, size);
  held.erase(0, size);
  if (text.empty())
    return;
  isStart = false;
  passed += static_cast<int64_t>(countCodePoints(text));
  const size_t before = events.size();
  if (section && options.splitReasoning) {
    passReasoning(text, events);
  } else {
    if (afterReasoning)
      text.erase(0, text.find_first_not_of('\n'));
    if (!text.empty()) {
      afterReasoning = false;
      tell(AnswerEventKind::Text, std::move(text), events);
    }
  }
  if (events.size() > before)
    events[before].tokens = takeTokens();
}

void AnswerParser::endText(AnswerEvents &events) {
  if (!options.calls.format)
    return;
  const size_t before = events.size();
  calls.finish(isReasoning(), events);
  if (events.size() > before)
    events[before].tokens = takeTokens();
}

void AnswerParser::toggle(const Section &of) {
  afterReasoning = section && options.splitReasoning && !found;
  section = section ? nullptr : &of;
  if (section) {
    reasoning = section;
    isEmpty = true;
    newlines.clear();
  }
  sectionBegin = passed;
  isStart = false;
  findPatterns();
}

void AnswerParser::passMark(const Match &match, AnswerEvents &events) {
  const Section &of = *match.pattern->section;
  const size_t size = match.end - match.begin;
  pass(match.begin, events);
  if (isReasoning())
    reasoned -= std::ranges::count_if(
        doubtful, [&](int64_t begin) { return begin >= passed; });
  doubtful.clear();
  if (options.splitReasoning) {
    passed += static_cast<int64_t>(
        countCodePoints(std::string_view(held).substr(0, size)));
    held.erase(0, size);
  } else {
    pass(size, events);
  }
  toggle(of);
}

void AnswerParser::scan(bool mayGoOn, AnswerEvents &events) {
  while (!found) {
    const std::optional<Match> match = findFirst();
    if (!match) {
      pass(held.size() - (mayGoOn ? startOfPattern() : 0), events);
      return;
    }
    if (match->pattern->section) {
      passMark(*match, events);
      continue;
    }
    found = match->pattern->text;
    pass(options.includeStop ? match->end : match->begin, events);
    endText(events);
    events.push_back({AnswerEventKind::StopString, *found});
  }
  held.clear();
}

//===----------------------------------------------------------------------===//
// Tokens
//===----------------------------------------------------------------------===//

void AnswerParser::count(int64_t begin) {
  // A token that ends the opening mark.
  if (begin < sectionBegin)
    return;
  ++reasoned;
  if (section->close.token)
    return;
  std::erase_if(doubtful, [&](int64_t each) { return each < passed; });
  doubtful.push_back(begin);
}

std::optional<int32_t> AnswerParser::next() const {
  if (!reasoning)
    return std::nullopt;
  const std::vector<int32_t> &message = options.budgetMessage;
  const std::vector<int32_t> &closing = reasoning->closing;
  const auto isUsedUp = [&] {
    return isReasoning() && options.reasoningBudget &&
           reasoned + std::ssize(message) >= *options.reasoningBudget;
  };
  if (given ? given >= message.size() + closing.size() : !isUsedUp())
    return std::nullopt;
  return given < message.size() ? message[given]
                                : closing[given - message.size()];
}

bool AnswerParser::hasText(int32_t id) const {
  if (std::ranges::count(options.ends, id))
    return false;
  return !options.skipSpecial || !tokenizer.isSpecial(id) ||
         std::ranges::count(callMarks, id);
}

AnswerEvents AnswerParser::push(int32_t id) {
  AnswerEvents events;
  given += next() ? 1 : 0;
  const Section *const mark = markedBy(id);
  const bool isCut = mark && options.splitReasoning;
  const std::string_view bytes =
      !isCut && hasText(id) ? bytesOf(tokenizer, id) : "";
  const int64_t begin = characters.place(bytes);
  waiting.push_back({id, begin});
  held += isCut ? characters.finish() : characters.push(bytes);
  scan(!isCut, events);
  if (mark)
    toggle(*mark);
  else if (isReasoning())
    count(begin);
  isFirst = false;
  return events;
}

AnswerEvents AnswerParser::finish() {
  AnswerEvents events;
  held += characters.finish();
  scan(false, events);
  if (!found)
    endText(events);
  for (AnswerToken &token : waiting)
    token.begin = std::min(token.begin, passed);
  events.push_back({AnswerEventKind::End, "", std::exchange(waiting, {})});
  return events;
}
