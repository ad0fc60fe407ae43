//===- CallParser.cpp - Finds calls of tools in an answer -----------------===//

#include "text/CallParser.h"

#include <algorithm>
#include <iterator>
#include <utility>

using namespace qwen;

using Begin = CallReader::Begin;

void CallParser::Lines::add(char byte) {
  if (byte == '\n') {
    const bool inFence = isInFence;
    *this = {};
    isInFence = inFence;
    return;
  }
  isStart = false;
  if (isDecided || (byte == ' ' && !first))
    return;
  if (!first && (byte == '`' || byte == '~'))
    first = byte;
  isDecided = byte != first || ++equal == 3;
  if (equal == 3)
    isInFence = !isInFence;
}

void CallParser::push(AnswerEventKind textKind, bool isReasoning,
                      std::string_view text, AnswerEvents &events) {
  if (textKind != kind || isReasoning != inReasoning) {
    endPart(events);
    release(events);
    kind = textKind;
    inReasoning = isReasoning;
    lines = {};
    hasText = false;
    before.clear();
    behind.clear();
  }
  held += text;
  scan(false, events);
}

bool CallParser::mayTake(std::string_view next) const {
  switch (state) {
  case State::Outside:
    return !held.empty();
  case State::Call:
    return true;
  case State::After:
    return spaceBefore(next) == next.size();
  }
  return false;
}

void CallParser::endPart(AnswerEvents &events) {
  scan(true, events);
  if (state == State::Call)
    drop(held.size());
  state = State::Outside;
}

void CallParser::finish(bool isReasoning, AnswerEvents &events) {
  endPart(events);
  const auto countOf = [&](AnswerEventKind each) {
    return std::ranges::count(doubtful, each, &AnswerEvent::kind);
  };
  const auto ends = countOf(AnswerEventKind::ToolCallEnd);
  if (isReasoning && ends > 0 &&
      ends == countOf(AnswerEventKind::ToolCallBegin)) {
    whole += ends;
    std::ranges::move(doubtful, std::back_inserter(events));
    thought.clear();
    newlines.clear();
  }
  release(events);
}

void CallParser::release(AnswerEvents &events) {
  std::string text = std::exchange(newlines, {}) + std::exchange(thought, {});
  doubtful.clear();
  reader.reset();
  if (!text.empty())
    events.push_back({kind, std::move(text)});
}

void CallParser::pass(size_t size, AnswerEvents &events) {
  if (size == 0)
    return;
  if (std::string &gap = before.size() > behind.size() ? before : behind;
      hasText)
    newlines += gap;
  before.clear();
  behind.clear();
  std::string text = std::exchange(newlines, {}) + held.substr(0, size);
  for (size_t i = 0; i < size; ++i)
    lines.add(held[i]);
  held.erase(0, size);
  const size_t end = text.find_last_not_of('\n') + 1;
  newlines = text.substr(end);
  text.resize(end);
  hasText |= !text.empty();
  if (!text.empty())
    events.push_back({kind, std::move(text)});
}

void CallParser::drop(size_t size) {
  if (inReasoning)
    thought += held.substr(0, size);
  held.erase(0, size);
}

Begin CallParser::beginsCall(bool isLast, size_t &size) {
  if (options.rules && inReasoning)
    return Begin::No;
  const std::string_view text = std::string_view(held).substr(0, kMostHeld);
  const auto known = [&](Begin begin) {
    const bool isLong = text.size() == kMostHeld;
    return begin == Begin::Maybe && (isLast || isLong) ? Begin::No : begin;
  };
  if (const Begin marked = beginsWith(text, kCallOpen); marked != Begin::No) {
    const std::string_view rest =
        text.substr(std::min(kCallOpen.size(), text.size()));
    const size_t space = spaceBefore(rest);
    if (marked == Begin::Maybe || space == rest.size())
      return known(Begin::Maybe);
    size_t name = 0;
    const Begin begin = reader->begin(rest.substr(space), false, name);
    size = kCallOpen.size() + space + name;
    return known(begin);
  }
  if (inReasoning || options.rules || !lines.isStart || lines.isInFence)
    return Begin::No;
  if (const Begin bare = beginsWith(text, options.format->start);
      bare != Begin::Yes)
    return known(bare);
  return known(reader->begin(text, true, size));
}

bool CallParser::findCall(bool isLast, AnswerEvents &events) {
  if (!reader)
    reader = options.format->makeReader(*options.tools);
  while (!held.empty()) {
    // Only a line's start and a bracket may begin a call.
    size_t at = lines.isStart ? 0 : held.find_first_of("<\n");
    if (at != std::string::npos && held[at] == '\n')
      ++at;
    if (at >= held.size()) {
      pass(held.size(), events);
      return false;
    }
    if (at > 0) {
      pass(at, events);
      continue;
    }
    size_t size = 0;
    const Begin begin = beginsCall(isLast, size);
    if (begin == Begin::Maybe)
      return false;
    if (begin == Begin::Yes) {
      if (!inReasoning) {
        if (newlines.size() > before.size())
          before = newlines;
        newlines.clear();
        behind.clear();
      }
      drop(size);
      return true;
    }
    release(events);
    reader = options.format->makeReader(*options.tools);
    pass(characterSize(held), events);
  }
  return false;
}

void CallParser::readCall(bool isLast, AnswerEvents &events) {
  AnswerEvents call;
  drop(reader->push(held, isLast, call));
  if (inReasoning) {
    std::ranges::move(call, std::back_inserter(doubtful));
  } else {
    whole += std::ranges::count(call, AnswerEventKind::ToolCallEnd,
                                &AnswerEvent::kind);
    broken |= reader->isBroken();
    std::ranges::move(call, std::back_inserter(events));
  }
}

bool CallParser::skipBetween(bool isLast) {
  const auto skipSpace = [&] {
    const size_t size = spaceBefore(held);
    const auto end = held.begin() + static_cast<int64_t>(size);
    if (!inReasoning)
      behind.append(static_cast<size_t>(std::count(held.begin(), end, '\n')),
                    '\n');
    drop(size);
  };
  while (true) {
    skipSpace();
    if (held.empty())
      return false;
    if (!mayClose)
      return true;
    const size_t brackets =
        std::min(held.find_first_not_of("} \t\r\n"), held.size());
    const std::string_view rest = std::string_view(held).substr(brackets);
    const Begin closes = beginsWith(rest, kCallClose);
    if (closes == Begin::Maybe && !isLast && brackets < kMostHeld)
      return false;
    if (closes != Begin::Yes && !(isLast && rest.empty()))
      return true;
    drop(brackets + (closes == Begin::Yes ? kCallClose.size() : 0));
    behind.clear();
    mayClose = false;
  }
}

void CallParser::scan(bool isLast, AnswerEvents &events) {
  while (true) {
    switch (state) {
    case State::Outside:
      if (!findCall(isLast, events))
        return;
      state = State::Call;
      break;
    case State::Call:
      readCall(isLast, events);
      if (!reader->isDone())
        return;
      reader.reset();
      state = State::After;
      mayClose = true;
      break;
    case State::After:
      if (!skipBetween(isLast))
        return;
      lines = {};
      state = State::Outside;
      break;
    }
  }
}
