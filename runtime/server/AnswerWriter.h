//===- AnswerWriter.h - Answers as OpenAI's objects -------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_SERVER_ANSWERWRITER_H
#define QWEN_RUNTIME_SERVER_ANSWERWRITER_H

#include "server/Generation.h"

namespace qwen::server {

/// Writes the deltas of one generation, as a whole answer or as events of a
/// stream. One thread uses it.
class AnswerWriter {
public:
  /// `generation` and `tokenizer` must outlive the writer. `model` is the name
  /// of the model in the answer.
  AnswerWriter(const Generation &generation, const Tokenizer &tokenizer,
               std::string model);

  /// The events of deltas, "data: {...}\n\n" each.
  std::string events(std::vector<Delta> deltas);
  /// The last events: usage or an error, and [DONE].
  std::string lastEvents();

  /// Adds deltas to the whole answer.
  void add(std::vector<Delta> deltas);
  /// The whole answer, after all deltas.
  std::string whole() const;

private:
  struct Choice {
    /// Whether the role and the prompt's ids are written.
    bool hasRole = false, hasPrompt = false;
    /// Number of tokens so far.
    size_t tokens = 0;
    /// Of the whole answer.
    Delta delta{.choice = 0};
  };

  nlohmann::ordered_json base(bool isChunk) const;
  /// An event with one choice, or with none if it is null, and the members of
  /// `more`.
  std::string chunk(const nlohmann::ordered_json &choice,
                    nlohmann::ordered_json more = {}) const;
  std::string progressEvent(const Delta &delta) const;
  /// A choice of a chunk or of a whole answer.
  nlohmann::ordered_json choiceOf(const Delta &delta, bool isChunk,
                                  Choice &state) const;
  nlohmann::ordered_json logprobs(const Delta &delta) const;
  nlohmann::ordered_json
  completionLogprobs(const std::vector<TokenRecord> &tokens) const;
  nlohmann::ordered_json
  chatLogprobs(const std::vector<TokenRecord> &tokens) const;
  std::string tokenText(int32_t id) const;
  nlohmann::ordered_json usage(const Usage &tokens) const;
  nlohmann::ordered_json timings() const;
  /// The usage of an answer without drawn tokens.
  nlohmann::ordered_json promptUsage() const;
  /// The text of `object` with the list `list`, of an element for each choice,
  /// and then the members of `more`. Only one element is there as an object.
  std::string
  listOf(const nlohmann::ordered_json &object, const char *list,
         const std::function<nlohmann::ordered_json(const Delta &)> &element,
         const nlohmann::ordered_json &more) const;
  /// The answer of /v1/embeddings.
  std::string embeddings() const;
  /// The answer of /v1/rerank.
  nlohmann::ordered_json rerank() const;

  const Generation &generation;
  const GenerationTask &task;
  const Tokenizer &tokenizer;
  const std::string model;
  const std::string id;
  const int64_t created;
  /// What every chunk of a stream begins with, up to its choices.
  const std::string head;
  std::vector<Choice> choices;
};

/// A random id that begins with `prefix`.
std::string randomId(const std::string &prefix);

/// A JSON text; U+FFFD replaces bytes that are not UTF-8.
std::string dump(const nlohmann::ordered_json &object);

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_ANSWERWRITER_H
