//===- Tokenize.cpp - /tokenize, /detokenize and /tokenizer_info ----------===//

#include "server/protocols/Tokenize.h"

#include "server/Routes.h"
#include "server/Service.h"
#include "server/protocols/openai/OpenAi.h"

#include "text/Unicode.h"

using namespace qwen;
using namespace qwen::server;
using nlohmann::ordered_json;

using J = const ordered_json &;
using Kind = ParameterKind;
using Tokenize = TokenizeParameters;
using Detokenize = DetokenizeParameters;

// clang-format off
static constexpr Parameter kTokenizeRows[] = {
    {"content", Kind::String, "The same as prompt", at<Tokenize, &Tokenize::prompt>},
    {"prompt", Kind::String, "A text", at<Tokenize, &Tokenize::prompt>},
    {"add_special_tokens", Kind::Boolean, "The same as add_special", at<Tokenize, &Tokenize::addSpecial>},
    {"add_special", Kind::Boolean, "Append the token that the model wants after a text that is embedded",
     at<Tokenize, &Tokenize::addSpecial>},
    {"parse_special", Kind::Boolean, "Special tokens in the text are tokens; default is true",
     at<Tokenize, &Tokenize::parseSpecial>},
    {.name = "messages", .kind = Kind::Own, .help = "A chat in place of a text: the tokens are its prompt",
     .store = at<Tokenize, &Tokenize::messages>, .own = &kMessagesKind},
    {"add_generation_prompt", Kind::Boolean, "The chat template begins the answer", at<Tokenize, &Tokenize::addGenerationPrompt>},
    {"continue_final_message", Kind::Boolean, "The answer continues the last message",
     at<Tokenize, &Tokenize::continueFinalMessage>},
    {"chat_template_kwargs", Kind::Object, "Further variables of the chat template", at<Tokenize, &Tokenize::otherVariables>},
    {"return_token_strs", Kind::Neutral, "", nullptr, 0, 0, "[false]"},
    {"with_pieces", Kind::Boolean, "Each token is an object with its id and its piece of the text",
     at<Tokenize, &Tokenize::withPieces>},
};
// clang-format on

static constexpr ParameterRule kTokenizeRules[] = {
    {"prompt", "is missing",
     [](J, const void *group) {
       const auto &values = *static_cast<const Tokenize *>(group);
       return values.prompt.has_value() || !values.messages.is_null();
     },
     R"({"anyOf": [
       {"required": ["prompt"], "properties": {"prompt": {"type": "string"}}},
       {"required": ["content"], "properties": {"content": {"type": "string"}}},
       {"required": ["messages"], "properties": {"messages": {"type": "array"}}}
     ]})"},
    {"messages", "excludes prompt",
     [](J, const void *group) {
       const auto &values = *static_cast<const Tokenize *>(group);
       return !values.prompt.has_value() || values.messages.is_null();
     },
     R"({"anyOf": [
       {"properties": {"messages": {"type": "null"}}},
       {"properties": {"prompt": {"type": "null"}, "content": {"type": "null"}}}
     ]})"},
};
const ParameterTable TokenizeParameters::table = {kTokenizeRows,
                                                  kTokenizeRules};

// clang-format off
static constexpr Parameter kDetokenizeRows[] = {
    {"tokens", Kind::Ids, "Token ids", at<Detokenize, &Detokenize::tokens>, 0, 0, "[]", kRequired},
};
// clang-format on
const ParameterTable DetokenizeParameters::table = {kDetokenizeRows};

/// A token and its part of the text: a string, or bytes that are not UTF-8.
static ordered_json pieceOf(const Tokenizer &tokenizer, int32_t id) {
  const std::string bytes(bytesOf(tokenizer, id));
  ordered_json piece = bytes;
  if (!isValidUtf8(bytes))
    piece = std::vector<uint8_t>(bytes.begin(), bytes.end());
  return {{"id", id}, {"piece", piece}};
}

static Parsed tokenizeText(const Service &service, const HttpRequest &request) {
  const auto asked = service.parse<Tokenize>(request);
  std::vector<int32_t> ids;
  if (asked.prompt) {
    service.checkSize(*asked.prompt, "prompt");
    ids = service.tokenizer.encode(*asked.prompt, asked.parseSpecial);
  } else {
    ids = taskOf(service, asked, asked.conversation()).prompts.front();
  }
  if (const auto last = service.tokenizer.appendedToken();
      last && asked.addSpecial)
    ids.push_back(*last);
  ordered_json tokens = ids;
  if (asked.withPieces)
    for (ordered_json &token : tokens)
      token = pieceOf(service.tokenizer, token);
  return Reply{.body =
                   dump({{"tokens", tokens},
                         {"count", ids.size()},
                         {"max_model_len", service.manifest.model.context}})};
}

static Parsed detokenize(const Service &service, const HttpRequest &request) {
  std::string text;
  for (int32_t id : service.parse<Detokenize>(request).tokens)
    text += bytesOf(service.tokenizer, id);
  return Reply{.body = dump({{"prompt", text}, {"content", text}})};
}

static Parsed describeTokenizer(const Service &service, const HttpRequest &) {
  const Tokenizer &tokenizer = service.tokenizer;
  const auto spelling = [&](std::optional<int32_t> id) {
    return id ? ordered_json(tokenizer.tokenBytes(*id)) : ordered_json();
  };
  return Reply{.body =
                   dump({{"tokenizer_class", "PreTrainedTokenizerFast"},
                         {"bos_token", spelling(tokenizer.bosToken())},
                         {"eos_token", spelling(tokenizer.eosToken())},
                         {"pad_token", spelling(tokenizer.padToken())},
                         {"vocab_size", tokenizer.vocabSize()},
                         {"model_max_length", service.manifest.model.context},
                         {"chat_template", service.chatTemplate}})};
}

static constexpr Route kTokenizeRoutes[] = {
    {"POST", "/tokenize", "Convert a text or a chat to token ids", tokenizeText,
     "Tokenized", 0, Tokenize::List::schema},
    {"POST", "/detokenize", "Convert token ids to text", detokenize,
     "Detokenized", 0, Detokenize::List::schema},
    {"GET", "/tokenizer_info", "Describe the tokenizer", describeTokenizer,
     "TokenizerInfo"},
};
const Protocol protocols::tokenize = {kTokenizeRoutes, R"json({
"Tokenized": {
  "type": "object", "required": ["tokens", "count", "max_model_len"],
  "properties": {
    "tokens": {"type": "array", "items": {"anyOf": [
      {"type": "integer", "minimum": 0},
      {"type": "object", "required": ["id", "piece"],
       "properties": {
         "id": {"type": "integer", "minimum": 0},
         "piece": {"anyOf": [
           {"type": "string"},
           {"type": "array", "items": {"type": "integer", "minimum": 0,
                                       "maximum": 255}}]}}}]}},
    "count": {"type": "integer", "minimum": 0},
    "max_model_len": {"type": "integer", "minimum": 1}}},
"Detokenized": {
  "type": "object", "required": ["prompt", "content"],
  "properties": {"prompt": {"type": "string"}, "content": {"type": "string"}}},
"TokenizerInfo": {
  "type": "object",
  "required": ["tokenizer_class", "bos_token", "eos_token", "pad_token",
               "vocab_size", "model_max_length", "chat_template"],
  "properties": {
    "tokenizer_class": {"type": "string"},
    "bos_token": {"type": ["string", "null"]},
    "eos_token": {"type": ["string", "null"]},
    "pad_token": {"type": ["string", "null"]},
    "vocab_size": {"type": "integer", "minimum": 1},
    "model_max_length": {"type": "integer", "minimum": 1},
    "chat_template": {"type": "string"}}}
})json",
                                      &openai::kFraming};
