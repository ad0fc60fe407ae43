//===- AnswerConstraint.h - A grammar behind the reasoning ------*- C++ -*-===//

#ifndef QWEN_RUNTIME_GRAMMAR_ANSWERCONSTRAINT_H
#define QWEN_RUNTIME_GRAMMAR_ANSWERCONSTRAINT_H

#include "engine/TokenConstraint.h"
#include "text/AnswerParser.h"

#include <memory>

namespace qwen {

/// Throws Error if answers may have reasoning whose marks are no tokens: one
/// token may then end it and begin the answer.
void requireMarks(const AnswerFormat *format);

/// A grammar of an answer that may have reasoning, which it says nothing of,
/// except that the answer does not end in it. Where the reasoning may begin,
/// its mark may come in place of the first token, unless the prompt has closed
/// it or the request is not to think (AnswerParser::mayReason). What templates
/// write behind the reasoning may come before the grammar's first token.
class AnswerConstraint final : public TokenConstraint {
public:
  /// `parser` parses the answer; it gets each token after this. `format` is its
  /// own, which passed requireMarks. Both must outlive the constraint. `ends`
  /// are the tokens that end an answer.
  AnswerConstraint(std::unique_ptr<TokenConstraint> grammar,
                   const AnswerParser &parser, const AnswerFormat *format,
                   std::span<const int32_t> ends);

  std::span<const uint32_t> allowed() override;
  void accept(int32_t id) override;
  bool isDone() const override { return grammar->isDone(); }
  /// Whether the grammar has thrown an error.
  bool hasFailed() const { return failed; }

private:
  using Section = AnswerFormat::Section;

  /// The grammar's answer to `ask`. Notes that it failed.
  template <typename Ask> auto asked(const Ask &ask);
  /// The tokens besides the grammar's that may come next.
  std::vector<int32_t> others() const;

  const std::unique_ptr<TokenConstraint> grammar;
  const AnswerParser &parser;
  const std::span<const Section> sections;
  const std::vector<int32_t> ends;
  /// Whether no token has come, and whether the grammar has had one.
  bool isFirst = true, isBegun = false;
  bool failed = false;
  /// The section that has ended, and how many of its closing tokens have come.
  const Section *ended = nullptr;
  size_t closed = 0;
  /// What is allowed in the reasoning, when it has been asked for, and beside
  /// the grammar's tokens.
  std::vector<uint32_t> reasoning, words;
};

} // namespace qwen

#endif // QWEN_RUNTIME_GRAMMAR_ANSWERCONSTRAINT_H
