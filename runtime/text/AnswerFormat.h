//===- AnswerFormat.h - The sections of answers -----------------*- C++ -*-===//
//
// An answer has more than text for the user: reasoning and calls of tools stand
// between two marks. What lies between two marks is a section. Each kind of
// section is a row; AnswerParser is a loop over rows.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_TEXT_ANSWERFORMAT_H
#define QWEN_RUNTIME_TEXT_ANSWERFORMAT_H

#include "text/Tokenizer.h"

#include <memory>

namespace qwen {

enum class AnswerEventKind : uint8_t {
  /// Text for the user.
  Text,
  Reasoning,
  /// A call of a tool begins. The text is the name of the tool.
  ToolCallBegin,
  /// The text goes on with the call's arguments, a JSON object.
  ToolCallArguments,
  ToolCallEnd,
  /// No text follows. The text is the stop string, which no other event has
  /// unless the caller wants it.
  StopString,
  /// The last event.
  End,
};

/// A token of an answer.
struct AnswerToken {
  int32_t id;
  /// Number of characters of the answer's tokens before its first one, at most
  /// those up to a stop string. The tokens of one character have the same.
  int64_t begin;
};

struct AnswerEvent {
  AnswerEventKind kind;
  std::string text = {};
  /// The tokens that begin in the answer up to the end of this event and that
  /// no event before it has. A stop string has none; End has all others.
  std::vector<AnswerToken> tokens = {};
};

using AnswerEvents = std::vector<AnswerEvent>;

/// Turns the text of one section into events, which it appends. The parser adds
/// their tokens.
class SectionReader {
public:
  SectionReader() = default;
  SectionReader(const SectionReader &) = delete;
  SectionReader &operator=(const SectionReader &) = delete;
  virtual ~SectionReader() = default;
  /// The section goes on with `text`, which is UTF-8 and not empty. How the
  /// text is divided must not change the events, joined by their kinds.
  virtual void push(std::string_view text, AnswerEvents &events) = 0;
  /// The section ends: by its mark, or with the answer.
  virtual void finish(bool isClosed, AnswerEvents &events) = 0;
};

/// A kind of section.
struct AnswerSection {
  /// The marks; none is empty.
  std::string_view open, close;
  /// Reasoning is the first section: its mark begins the answer or stands in
  /// the prompt. Others begin at any place outside of sections.
  bool isReasoning;
  /// What chat templates write after the closing mark.
  std::string_view after;
  std::unique_ptr<SectionReader> (*makeReader)();
};

/// All kinds of sections.
std::span<const AnswerSection> answerSections();

/// The sections of a model's answers. Immutable.
class AnswerFormat {
public:
  /// A mark: a token where the vocabulary has one, else text.
  struct Mark {
    std::string_view text;
    std::optional<int32_t> token;
  };
  struct Section {
    AnswerSection row;
    Mark open, close;
    /// The ids of the closing mark and of what follows it.
    std::vector<int32_t> closing;
  };

  /// Takes the rows whose marks are tokens or stand in the chat template.
  AnswerFormat(const Tokenizer &tokenizer, std::string_view chatTemplate,
               std::span<const AnswerSection> rows = answerSections());

  std::span<const Section> sections() const { return all; }
  /// Whether answers may have reasoning.
  bool reasons() const;
  /// The reasoning that the end of a prompt has begun, or null.
  const Section *begunIn(const Tokenizer &tokenizer,
                         std::span<const int32_t> prompt) const;

private:
  std::vector<Section> all;
};

} // namespace qwen

#endif // QWEN_RUNTIME_TEXT_ANSWERFORMAT_H
