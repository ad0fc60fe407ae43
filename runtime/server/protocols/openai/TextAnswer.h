//===- TextAnswer.h - Answers with drawn tokens -----------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_SERVER_PROTOCOLS_OPENAI_TEXTANSWER_H
#define QWEN_RUNTIME_SERVER_PROTOCOLS_OPENAI_TEXTANSWER_H

#include "server/Answer.h"
#include "server/Service.h"
#include "server/protocols/openai/Fold.h"

namespace qwen::server {

/// What OpenAI's answers of chats and of completions share.
class TextAnswer : public Answer {
public:
  /// What ids begin with, and the "object" of an answer and of a chunk.
  struct Names {
    const char *id, *object, *chunk;
  };

  TextAnswer(const Service &service, const Names &names);
  void begin(std::shared_ptr<Generation> from,
             const Framing &protocolFraming) final;

protected:
  /// Adds a text to a choice of an answer or of a chunk.
  virtual void addText(nlohmann::ordered_json &choice,
                       const openai::Folded &part, bool isChunk) const = 0;
  virtual nlohmann::ordered_json
  logprobs(const std::vector<TokenRecord> &tokens) const = 0;
  /// "finish_reason" of a choice; null if it has not ended.
  virtual nlohmann::ordered_json finishOf(const Delta &end) const {
    return openai::finishReason(end);
  }
  /// Leaves out choices of a whole answer that are not told.
  virtual void select(std::vector<Delta> & /*all*/) const {}
  /// A choice of a stream before its first text; null for none.
  virtual nlohmann::ordered_json firstChoice(size_t choice) const = 0;

  /// The text of a token, or its number as vLLM writes it.
  std::string tokenText(int32_t id) const;
  const Tokenizer &tokenizer;

private:
  /// What a choice has written.
  struct State {
    openai::Fold fold = {};
    bool hasOpening = false, hasPrompt = false;
    /// Number of tokens so far.
    size_t tokens = 0;
  };

  std::string write(Delta delta) final;
  std::string finish() final;
  nlohmann::ordered_json base(bool isChunk) const;
  /// An event with one choice, or with none if it is null, and the members of
  /// `more`.
  std::string chunk(const nlohmann::ordered_json &choice,
                    nlohmann::ordered_json more = {}) const;
  std::string progressEvent(const Delta &delta) const;
  /// A choice of a chunk or of a whole answer: a part of it, and how it ends.
  nlohmann::ordered_json choiceOf(const openai::Folded &part, const Delta &end,
                                  bool isChunk, State &state) const;
  nlohmann::ordered_json usage(const Usage &tokens) const;
  /// The members at the end of an answer.
  nlohmann::ordered_json closing() const;
  nlohmann::ordered_json verbose() const;

  const Names names;
  const std::string model, fingerprint;
  const std::string id;
  const int64_t created;
  /// What every chunk of a stream begins with, up to its choices.
  std::string head;
  std::vector<State> states;
};

/// llama-server's times of an answer that has ended.
nlohmann::ordered_json timingsOf(const Generation &generation);

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_PROTOCOLS_OPENAI_TEXTANSWER_H
