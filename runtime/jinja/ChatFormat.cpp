//===- ChatFormat.cpp - From messages to token ids ------------------------===//

#include "jinja/ChatFormat.h"

#include "qwen/ABI/Error.h"

using namespace qwen;
using nlohmann::ordered_json;

ChatFormat::ChatFormat(std::string_view text, const Tokenizer &textTokenizer)
    : tokenizer(textTokenizer), source(ChatTemplate::parse(text)) {}

/// Cuts `prompt` after the content of the last message, as transformers does.
static MarkedText cutAfterContent(const MarkedText &marked,
                                  const ordered_json &messages) {
  const std::string_view prompt = marked.bytes();
  const auto &content =
      messages.back()["content"].get_ref<const std::string &>();
  const size_t first = content.find_first_not_of(" \t\r\n");
  const size_t last = content.find_last_not_of(" \t\r\n");
  const std::string trimmed =
      first == std::string::npos ? "" : content.substr(first, last + 1 - first);
  const size_t at = trimmed.empty() ? std::string::npos : prompt.rfind(trimmed);
  if (at == std::string::npos)
    throw Error("the chat template does not write the last message, so that "
                "it cannot be continued");
  // The spaces of the content after it, if the template keeps them.
  const std::string rest = content.substr(last + 1);
  size_t end = at + trimmed.size();
  if (prompt.compare(end, rest.size(), rest) == 0)
    end += rest.size();
  return marked.part(prompt.substr(0, end));
}

std::vector<int32_t> ChatFormat::encode(const ordered_json &variables,
                                        const Options &options) const {
  MarkedText prompt =
      source.render(variables, templateVariables(tokenizer), options.stop);
  if (options.continueFinalMessage)
    prompt = cutAfterContent(prompt, variables.at("messages"));
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
