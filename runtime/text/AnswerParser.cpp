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
      options(std::move(answerOptions)),
      stops(options.stops, options.includeStop),
      isClosed(format && format->isClosedIn(tokenizer, prompt)),
      calls(options.calls) {
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
// Marks
//===----------------------------------------------------------------------===//

void AnswerParser::findPatterns() {
  patterns.clear();
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

bool AnswerParser::mayOpen() const {
  constexpr size_t kMostSpace = 64;
  return isStart && !section && format && format->reasons() &&
         spaceBefore(held) <= kMostSpace;
}

const AnswerFormat::Section *AnswerParser::markedBy(int32_t id) const {
  if (section)
    return section->close.token == id ? section : nullptr;
  if (mayOpen() && spaceBefore(held) == held.size())
    for (const Section &each : format->sections())
      if (each.open.token == id)
        return &each;
  return nullptr;
}

std::optional<AnswerParser::Match> AnswerParser::findFirst() const {
  std::optional<Match> first;
  for (const Pattern &pattern : patterns) {
    const size_t at = held.find(pattern.text);
    if (at == std::string::npos ||
        (!section && !(mayOpen() && at == spaceBefore(held))))
      continue;
    if (!first || at < first->begin)
      first = {at, at + pattern.text.size(), &pattern};
  }
  return first;
}

size_t AnswerParser::startOfPattern() const {
  const std::string_view text =
      std::string_view(held).substr(spaceBefore(held));
  size_t longest = mayOpen() && text.empty() ? held.size() : 0;
  for (const Pattern &pattern : patterns) {
    if (!section) {
      if (mayOpen() && pattern.text.starts_with(text))
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
      waiting, [told = toldCharacters()](const AnswerToken &token) {
        return token.begin > told;
      });
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
  AnswerEvents all;
  if (options.calls.format)
    calls.push(kind, isReasoning(), text, all);
  else
    all.push_back({kind, std::move(text)});
  for (AnswerEvent &event : all)
    add(std::move(event), events);
}

void AnswerParser::add(AnswerEvent event, AnswerEvents &events) {
  if (stop())
    return;
  if (event.kind == AnswerEventKind::Text)
    return addText(event.text, events);
  if (std::string text = stops.finish(); !text.empty())
    events.push_back({AnswerEventKind::Text, std::move(text)});
  begunCalls += event.kind == AnswerEventKind::ToolCallBegin;
  endedCalls += event.kind == AnswerEventKind::ToolCallEnd;
  if (event.kind == AnswerEventKind::Reasoning && !options.splitReasoning)
    event.kind = AnswerEventKind::Text;
  events.push_back(std::move(event));
}

void AnswerParser::addText(std::string_view text, AnswerEvents &events) {
  const size_t blank = isBlank ? spaceBefore(text) : 0;
  isBlank &= blank == text.size();
  std::string final(text.substr(0, blank));
  final += stops.push(text.substr(blank));
  if (!final.empty())
    events.push_back({AnswerEventKind::Text, std::move(final)});
  if (stop())
    events.push_back({AnswerEventKind::StopString, *stop()});
}

void AnswerParser::giveTokens(size_t index, AnswerEvents &events) {
  if (events.size() > index &&
      events[index].kind != AnswerEventKind::StopString)
    events[index].tokens = takeTokens();
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
  } else if (section) {
    tell(AnswerEventKind::Reasoning, std::move(text), events);
  } else {
    if (afterReasoning)
      text.erase(0, text.find_first_not_of('\n'));
    if (!text.empty()) {
      afterReasoning = false;
      tell(AnswerEventKind::Text, std::move(text), events);
    }
  }
  giveTokens(before, events);
}

void AnswerParser::dropSpace() {
  const size_t size = spaceBefore(held);
  passed += static_cast<int64_t>(size);
  held.erase(0, size);
}

void AnswerParser::endText(AnswerEvents &events) {
  const size_t before = events.size();
  AnswerEvents rest;
  if (options.calls.format)
    calls.finish(isReasoning(), rest);
  for (AnswerEvent &event : rest)
    add(std::move(event), events);
  if (!stop())
    if (std::string text = stops.finish(); !text.empty())
      events.push_back({AnswerEventKind::Text, std::move(text)});
  giveTokens(before, events);
}

void AnswerParser::toggle(const Section &of) {
  afterReasoning = section && options.splitReasoning;
  isBlank = section;
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
  if (!section && options.splitReasoning)
    dropSpace();
  else
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
  while (!stop()) {
    const std::optional<Match> match = findFirst();
    if (!match)
      return pass(held.size() - (mayGoOn ? startOfPattern() : 0), events);
    passMark(*match, events);
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

bool AnswerParser::endsText(int32_t id) const {
  if (!std::ranges::count(options.stopTokens, id))
    return false;
  if (tokenizer.isSpecial(id))
    return true;
  const std::string_view bytes = bytesOf(tokenizer, id);
  return !section && !markedBy(id) && !std::ranges::count(callMarks, id) &&
         !calls.mayTake(bytes) &&
         !(isBlank && spaceBefore(bytes) == bytes.size());
}

AnswerEvents AnswerParser::push(int32_t id) {
  AnswerEvents events;
  given += next() ? 1 : 0;
  const Section *const mark = markedBy(id);
  const bool isCut = mark && options.splitReasoning, isEnd = endsText(id);
  isStopped |= isEnd;
  const std::string_view bytes =
      !isCut && !isEnd && hasText(id) ? bytesOf(tokenizer, id) : "";
  const int64_t begin = characters.place(bytes);
  waiting.push_back({id, begin});
  held += isCut ? characters.finish() : characters.push(bytes);
  if (isCut && mayOpen())
    dropSpace();
  scan(!isCut, events);
  if (mark)
    toggle(*mark);
  else if (isReasoning())
    count(begin);
  return events;
}

AnswerEvents AnswerParser::finish() {
  AnswerEvents events;
  held += characters.finish();
  scan(false, events);
  if (!stop())
    endText(events);
  for (AnswerToken &token : waiting)
    token.begin = std::min(token.begin, toldCharacters());
  events.push_back({AnswerEventKind::End, "", std::exchange(waiting, {})});
  return events;
}
