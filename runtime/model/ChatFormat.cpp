//===- ChatFormat.cpp - From messages to token ids ------------------------===//

#include "model/ChatFormat.h"

#include "qwen/Support/Error.h"

#include <nlohmann/json.hpp>

using namespace qwen;
using nlohmann::ordered_json;

nlohmann::ordered_json qwen::templateVariables(const Tokenizer &tokenizer) {
  const auto spelling = [&](std::optional<int32_t> id) {
    return id ? nlohmann::ordered_json(std::string(tokenizer.tokenBytes(*id)))
              : nlohmann::ordered_json();
  };
  return {{"add_generation_prompt", true},
          {"bos_token", spelling(tokenizer.bosToken())},
          {"eos_token", spelling(tokenizer.eosToken())}};
}

ChatFormat::ChatFormat(std::string_view text, const Tokenizer &textTokenizer)
    : tokenizer(textTokenizer), source(ChatTemplate::parse(text)) {}

MarkedText ChatFormat::render(const ordered_json &variables,
                              const std::function<bool()> &stop) const {
  return source.render(variables, templateVariables(tokenizer), stop);
}

[[noreturn]] static void refuseToContinue() {
  throw Error("the chat template does not write the last message, so that it "
              "cannot be continued");
}

static bool hasNoText(const std::string &text) {
  return text.find_first_not_of(" \t\r\n") == std::string::npos;
}

/// Cuts `prompt` after the content of the last message, which is not blank, as
/// transformers does.
static MarkedText cutAfterContent(const MarkedText &marked,
                                  const ordered_json &messages) {
  const std::string_view prompt = marked.bytes();
  const auto &content =
      messages.back()["content"].get_ref<const std::string &>();
  const size_t first = content.find_first_not_of(" \t\r\n");
  const size_t last = content.find_last_not_of(" \t\r\n");
  const std::string trimmed = content.substr(first, last + 1 - first);
  const size_t at = prompt.rfind(trimmed);
  if (at == std::string::npos)
    refuseToContinue();
  // The spaces of the content after it, if the template keeps them.
  const std::string rest = content.substr(last + 1);
  size_t end = at + trimmed.size();
  if (prompt.compare(end, rest.size(), rest) == 0)
    end += rest.size();
  return marked.part(prompt.substr(0, end));
}

MarkedText ChatFormat::renderOpen(ordered_json variables,
                                  const Options &options) const {
  ordered_json &messages = variables.at("messages");
  ordered_json &content = messages.back()["content"];
  // No text tells where a blank content stands, so that another one does.
  const bool isMarked = hasNoText(content.get_ref<const std::string &>());
  constexpr const char *kMark = "The message continues here.";
  if (isMarked)
    content = kMark;
  const MarkedText prompt = render(variables, options.stop);
  if (!isMarked)
    return cutAfterContent(prompt, messages);
  const size_t at = prompt.bytes().rfind(kMark);
  if (at == std::string::npos)
    refuseToContinue();
  return prompt.part(std::string_view(prompt.bytes()).substr(0, at));
}

std::vector<int32_t> ChatFormat::encode(const ordered_json &variables,
                                        const Options &options) const {
  const MarkedText prompt = options.continueFinalMessage
                                ? renderOpen(variables, options)
                                : render(variables, options.stop);
  return options.allowSpecial ? tokenizer.encode(prompt.bytes())
                              : tokenizer.encode(prompt);
}

int64_t ChatFormat::conversationLength(std::span<const int32_t> prompt,
                                       ordered_json variables,
                                       const Options &options) const {
  variables["add_generation_prompt"] = false;
  const std::vector<int32_t> conversation = encode(variables, options);
  return std::ranges::mismatch(conversation, prompt).in1 - conversation.begin();
}

std::vector<int32_t> ChatFormat::endTokens(std::vector<int32_t> ends) const {
  for (std::optional<int32_t> id :
       {tokenizer.findAddedToken("<|im_end|>"), tokenizer.eosToken()})
    if (id)
      ends.push_back(*id);
  return ends;
}
