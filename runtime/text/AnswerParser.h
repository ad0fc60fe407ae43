//===- AnswerParser.h - From the tokens of an answer to events --*- C++ -*-===//
//
// Divides an answer into text, reasoning and calls of tools, and ends its text
// at a stop string. The events joined by their kinds do not depend on how the
// bytes of the answer are divided into tokens.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_TEXT_ANSWERPARSER_H
#define QWEN_RUNTIME_TEXT_ANSWERPARSER_H

#include "text/AnswerFormat.h"
#include "text/CallParser.h"
#include "text/StopMatcher.h"

namespace qwen {

struct AnswerOptions {
  /// Strings that end the text for the user; none may be empty. They do not
  /// count in reasoning, in white space behind it, or in calls. The one that
  /// ends first wins; of those, the longest.
  std::vector<std::string> stops = {};
  /// Whether a stop string that is found belongs to the text.
  bool includeStop = false;
  /// Tokens that do the same. Special ones, which no text has, do it anywhere.
  std::vector<int32_t> stopTokens = {};
  /// Tokens without text: those that end the answer, ...
  std::vector<int32_t> ends = {};
  /// ... and special tokens.
  bool skipSpecial = true;
  /// Without it, reasoning is text, with its marks.
  bool splitReasoning = true;
  /// Whether the request lets the answer reason.
  bool mayReason = true;
  /// Maximum number of tokens of the reasoning.
  std::optional<int64_t> reasoningBudget = {};
  /// Its last tokens if it uses up the budget, at most as many.
  std::vector<int32_t> budgetMessage = {};
  /// How calls of tools are read.
  CallOptions calls = {};
};

/// Parses one answer.
class AnswerParser {
public:
  /// Without a format, an answer has no sections. The reasoning may begin at
  /// the end of `prompt`. `tokenizer` and `format` must outlive the parser.
  AnswerParser(const Tokenizer &tokenizer, const AnswerFormat *format,
               std::span<const int32_t> prompt, AnswerOptions options);
  AnswerParser(const AnswerParser &) = delete;
  AnswerParser &operator=(const AnswerParser &) = delete;

  /// Takes the next token of the answer. Returns events whose text is final:
  /// bytes that may go on with a character, a mark or a stop string are held
  /// back.
  AnswerEvents push(int32_t id);
  /// Ends the answer. Returns what was held back, and End, which has the tokens
  /// that no event had.
  AnswerEvents finish();

  /// The token that the answer gets next, because the reasoning has used up its
  /// budget: of the message, of the closing mark and of what templates write
  /// after it.
  std::optional<int32_t> next() const;
  /// Whether the next token belongs to the reasoning, unless it ends it.
  bool isReasoning() const { return section; }
  /// Whether the answer may begin with reasoning: the request lets it, and its
  /// prompt has not closed the reasoning. Only a grammar keeps to it: without
  /// one, reasoning is read where a model writes it.
  bool mayReason() const { return options.mayReason && !isClosed; }
  /// Number of tokens of the reasoning so far, without its marks. While the
  /// start of a mark of several tokens is held back, it counts.
  int64_t reasoningTokens() const { return reasoned; }
  /// The stop string that ended the text.
  const std::optional<std::string> &stop() const { return stops.found(); }
  /// Whether a stop token has ended the text.
  bool hasStopToken() const { return isStopped; }
  /// Whether it has called tools, each of them with whole arguments.
  bool hasCalls() const { return endedCalls > 0 && endedCalls == begunCalls; }
  /// Takes the tokens that the next event would have if it had no more text.
  std::vector<AnswerToken> takeTokens();

private:
  using Section = AnswerFormat::Section;
  /// A mark that is text.
  struct Pattern {
    std::string_view text;
    const Section *section;
  };
  /// The place of a pattern in `held`.
  struct Match {
    size_t begin, end;
    const Pattern *pattern;
  };

  /// The section that the token begins or ends as a mark.
  const Section *markedBy(int32_t id) const;
  /// Whether the reasoning may begin behind what is held: nothing but some
  /// white space has come.
  bool mayOpen() const;
  /// Whether the token has text besides a mark.
  bool hasText(int32_t id) const;
  /// Whether it is a stop token that ends the text here.
  bool endsText(int32_t id) const;
  /// The pattern in `held` that ends first.
  std::optional<Match> findFirst() const;
  /// Number of bytes at the end of `held` that may start a pattern.
  size_t startOfPattern() const;
  /// Passes on what is held, up to what may start a pattern, if the answer may
  /// go on.
  void scan(bool mayGoOn, AnswerEvents &events);
  /// Passes on the first `size` bytes that are held.
  void pass(size_t size, AnswerEvents &events);
  /// Passes on what is held before a mark, and the mark.
  void passMark(const Match &match, AnswerEvents &events);
  /// Begins the section, or ends it.
  void toggle(const Section &of);
  /// Drops what is held before the opening mark.
  void dropSpace();
  /// Appends the event of a text, or the events of the calls in it.
  void tell(AnswerEventKind kind, std::string text, AnswerEvents &events);
  /// Appends an event, with its text up to what may begin a stop string.
  void add(AnswerEvent event, AnswerEvents &events);
  void addText(std::string_view text, AnswerEvents &events);
  /// Gives the first event from `index` on the tokens that have come.
  void giveTokens(size_t index, AnswerEvents &events);
  /// Number of characters that the events and the marks have.
  int64_t toldCharacters() const { return passed - stops.heldCharacters(); }
  /// Passes on reasoning without the newlines beside its marks.
  void passReasoning(const std::string &text, AnswerEvents &events);
  /// Passes on what is held back of the text and the calls in it.
  void endText(AnswerEvents &events);
  /// Finds the patterns of the present section.
  void findPatterns();
  /// Counts a token of the reasoning.
  void count(int64_t begin);

  const Tokenizer &tokenizer;
  const AnswerFormat *const format;
  const AnswerOptions options;
  std::vector<Pattern> patterns;
  Utf8Stream characters;
  /// Text that has not been passed on.
  std::string held;
  /// Number of characters that have been passed on, with the marks.
  int64_t passed = 0;
  /// Tokens that no event has had.
  std::vector<AnswerToken> waiting;
  StopMatcher stops;
  bool isStopped = false;

  /// Whether the prompt has closed the reasoning.
  const bool isClosed;
  const Section *section = nullptr;
  /// Number of characters before its text.
  int64_t sectionBegin = 0;
  /// Whether only newlines have come in it, and those that are held back, as
  /// the mark may follow.
  bool isEmpty = true;
  std::string newlines;
  CallParser calls;
  /// Number of calls that events begin and end.
  int64_t begunCalls = 0, endedCalls = 0;
  /// The tokens of a call's marks, which have text even where they are special.
  std::vector<int32_t> callMarks;
  /// Whether no text has been passed on, and no mark.
  bool isStart = true;
  /// No text has come since the reasoning, or nothing but white space.
  bool afterReasoning = false, isBlank = false;

  int64_t reasoned = 0;
  /// Where tokens of the reasoning begin whose text may be a mark.
  std::vector<int64_t> doubtful;
  /// Number of tokens that have come because the budget is used up, and the
  /// reasoning that they end.
  size_t given = 0;
  const Section *reasoning = nullptr;
};

} // namespace qwen

#endif // QWEN_RUNTIME_TEXT_ANSWERPARSER_H
