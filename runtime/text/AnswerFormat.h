//===- AnswerFormat.h - The sections of answers -----------------*- C++ -*-===//
//
// An answer has more than text for the user: reasoning stands between two
// marks. What lies between them is a section. Each pair of marks is a row;
// AnswerParser is a loop over rows. Calls of tools are no sections
// (CallParser.h).
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_TEXT_ANSWERFORMAT_H
#define QWEN_RUNTIME_TEXT_ANSWERFORMAT_H

#include "text/AnswerEvent.h"
#include "text/Tokenizer.h"

namespace qwen {

/// A kind of section: reasoning, which its mark begins at the start of the
/// answer or at the end of the prompt.
struct AnswerSection {
  /// The marks; none is empty.
  std::string_view open, close;
  /// What chat templates write after the closing mark.
  std::string_view after;
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
  bool reasons() const { return !all.empty(); }
  /// The reasoning that the end of a prompt has begun, or null.
  const Section *begunIn(const Tokenizer &tokenizer,
                         std::span<const int32_t> prompt) const;
  /// Whether the end of a prompt has closed the reasoning of its answer, as
  /// templates write it for a model that is not to think.
  bool isClosedIn(const Tokenizer &tokenizer,
                  std::span<const int32_t> prompt) const;

private:
  std::vector<Section> all;
};

} // namespace qwen

#endif // QWEN_RUNTIME_TEXT_ANSWERFORMAT_H
