//===- ChatFormat.h - From messages to token ids ----------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_MODEL_CHATFORMAT_H
#define QWEN_RUNTIME_MODEL_CHATFORMAT_H

#include "jinja/ChatTemplate.h"
#include "text/Tokenizer.h"

#include <nlohmann/json_fwd.hpp>

namespace qwen {

/// The variables of a model that templates expect beside the messages:
/// add_generation_prompt (true), bos_token and eos_token.
nlohmann::ordered_json templateVariables(const Tokenizer &tokenizer);

/// A chat template with the tokenizer of its model. Immutable, so any number of
/// threads may use it at the same time.
class ChatFormat {
public:
  struct Options {
    /// Read special tokens in all of the prompt.
    bool allowSpecial = false;
    /// The prompt ends with the content of the last message.
    bool continueFinalMessage = false;
    /// Ends the rendering; see ChatTemplate.
    std::function<bool()> stop = {};
  };

  /// `tokenizer` must outlive the format. Throws Error if the template is not
  /// supported.
  ChatFormat(std::string_view source, const Tokenizer &tokenizer);

  /// The text of a conversation; see encode. `stop` ends the rendering.
  MarkedText render(const nlohmann::ordered_json &variables,
                    const std::function<bool()> &stop = {}) const;

  /// The token ids of a conversation. `variables` are the template's variables
  /// except `bos_token` and `eos_token`: "messages" and others. Throws Error as
  /// ChatTemplate does.
  std::vector<int32_t> encode(const nlohmann::ordered_json &variables,
                              const Options &options) const;

  /// The number of tokens at the front of `prompt`, which encode gave for the
  /// same arguments, that the conversation has without a generation prompt.
  /// Prompts that continue the conversation begin with these.
  int64_t conversationLength(std::span<const int32_t> prompt,
                             nlohmann::ordered_json variables,
                             const Options &options) const;

  /// Tokens that end an answer: `ends` of the model, the tokenizer's, and
  /// ChatML's end of a turn, which the config of base models lacks.
  std::vector<int32_t> endTokens(std::vector<int32_t> ends) const;

private:
  /// The prompt up to the end of the last message's content.
  MarkedText renderOpen(nlohmann::ordered_json variables,
                        const Options &options) const;

  const Tokenizer &tokenizer;
  const ChatTemplate source;
};

} // namespace qwen

#endif // QWEN_RUNTIME_MODEL_CHATFORMAT_H
