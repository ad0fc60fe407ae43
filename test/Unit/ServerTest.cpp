//===- ServerTest.cpp - Parameters of the server --------------------------===//

#include "RequestBodies.h"

#include "server/http/ApiError.h"
#include "server/protocols/Rerank.h"
#include "server/protocols/Tokenize.h"
#include "server/protocols/openai/Completions.h"
#include "server/protocols/openai/Embeddings.h"

#include <gtest/gtest.h>

#include <iomanip>
#include <regex>
#include <sstream>

using namespace qwen;
using namespace qwen::server;
using namespace qwen::test;

namespace {

// Open WebUI 0.12.4 sent these to a recording proxy: a chat of its page with
// all controls that OpenAI's and llama.cpp's servers have, a chat without any,
// and two tasks of its own.
TEST(ParametersTest, ReadsWhatOpenWebUiSends) {
  const ChatParameters parameters = parse(
      R"({"stream":true,"messages":[{"role":"system","content":"Be brief."},)"
      R"({"role":"user","content":[{"type":"text","text":"a"},)"
      R"({"type":"text","text":"b"}]}],"model":"stories","stop":["User:"],)"
      R"("temperature":0.5,"top_p":0.9,"top_k":40,"min_p":0.05,)"
      R"("max_tokens":20,"seed":7,"frequency_penalty":0.5,)"
      R"("presence_penalty":-1,"repeat_penalty":1.1,)"
      R"("logit_bias":{"5":-100,"7":1},"reasoning_effort":"none",)"
      R"("repeat_last_n":-1,"mirostat":2,"mirostat_eta":0.2,)"
      R"("mirostat_tau":4,"tfs_z":1,)"
      R"("chat_template_kwargs":{"enable_thinking":false}})");
  EXPECT_TRUE(parameters.stream);
  EXPECT_EQ(parameters.maxTokens, 20);
  EXPECT_EQ(parameters.seed, 7U);
  EXPECT_EQ(parameters.sampling.temperature, 0.5F);
  EXPECT_EQ(parameters.sampling.topP, 0.9);
  EXPECT_EQ(parameters.sampling.topK, 40);
  EXPECT_EQ(parameters.sampling.minP, 0.05);
  EXPECT_EQ(parameters.sampling.repetitionPenalty, 1.1F);
  EXPECT_EQ(parameters.sampling.frequencyPenalty, 0.5F);
  EXPECT_EQ(parameters.sampling.presencePenalty, -1);
  EXPECT_EQ(parameters.sampling.mirostat, 2);
  EXPECT_EQ(parameters.sampling.mirostatTau, 4);
  EXPECT_EQ(parameters.sampling.mirostatEta, 0.2);
  ASSERT_EQ(parameters.sampling.logitBias.size(), 2U);
  EXPECT_EQ(parameters.sampling.logitBias[1].id, 7);
  EXPECT_EQ(parameters.sampling.logitBias[1].bias, 1);
  EXPECT_EQ(parameters.templateVariables(),
            nlohmann::ordered_json(
                {{"reasoning_effort", "none"}, {"enable_thinking", false}}));
  EXPECT_EQ(parameters.stop, (std::vector<std::string>{"User:"}));
  ASSERT_EQ(parameters.messages.size(), 2U);
  EXPECT_EQ(parameters.messages[1]["content"], "ab");

  const ChatParameters plain = parse(
      R"({"stream":true,"messages":[{"role":"user","content":"Tell a story."},)"
      R"({"role":"assistant","content":"Once."},)"
      R"({"role":"user","content":"Go on."}],"model":"stories"})");
  EXPECT_EQ(plain.messages.size(), 3U);
  EXPECT_FALSE(plain.seed || plain.maxTokens);
  EXPECT_EQ(
      parse(chat(R"("model":"m","stream":false,"max_tokens":1000)")).maxTokens,
      1000);
  EXPECT_FALSE(parse(chat(R"("model":"m","stream":false)")).stream);
  // Its source adds these: for a connection of the type llama.cpp that
  // continues an answer, and for a model with the capability "usage".
  const ChatParameters more = parse(chat(
      R"("continue_final_message": true, "add_generation_prompt": false,
         "stream": true, "stream_options": {"include_usage": true})"));
  EXPECT_TRUE(more.continueFinalMessage && !more.addGenerationPrompt);
  EXPECT_TRUE(more.includeUsage);

  // Other values of its controls have no effect on this server.
  EXPECT_EQ(errorOf(chat(R"("mirostat":3)")),
            "mirostat: mirostat must be an integer from 0 to 2, not \"3\"");
  EXPECT_EQ(errorOf(chat(R"("repeat_last_n":64)")),
            "repeat_last_n: repeat_last_n is not supported; only -1 is "
            "accepted");
  // Those of Ollama alone need --ignore-unknown. Tools, which each chat has
  // unless its function calling is "legacy", do not.
  const std::string tools = R"("tools":[{"type":"function","function":)"
                            R"({"name":"get_current_timestamp"}}])";
  EXPECT_EQ(parse(chat(tools)).tools[0]["function"]["name"],
            "get_current_timestamp");
  EXPECT_EQ(errorOf(chat(R"("num_ctx":2048)")),
            "num_ctx: unknown parameter num_ctx");
  EXPECT_NO_THROW(parse(chat(tools + R"(,"num_ctx":2048)"), true));
}

TEST(ParametersTest, APresetComesBeforeOtherSettings) {
  const SamplerOptions sampling =
      parse(chat(R"("top_k":5,"preset":"creative","xtc_threshold":0.2)"))
          .sampling;
  EXPECT_EQ(sampling.topK, 5);
  EXPECT_EQ(sampling.minP, 0.02);
  EXPECT_EQ(sampling.xtcThreshold, 0.2);
  EXPECT_EQ(errorOf(chat(R"("preset":"best")")),
            "preset: preset must be one of exact, balanced, creative, not "
            "\"best\"");
}

TEST(ParametersTest, RefusesOptionsOfTheSamplerOutOfRange) {
  const auto expectRange = [](const std::string &name, double least,
                              double most) {
    for (double value : {least - 1, most + 1}) {
      const std::string number = nlohmann::json(value).dump();
      std::ostringstream range;
      range << std::setprecision(10) << " from " << least << " to " << most
            << ", not ";
      const std::string error = errorOf(chat('"' + name + "\":" + number));
      EXPECT_EQ(error.rfind(name + ": " + name + " must be a", 0), 0U) << error;
      EXPECT_NE(error.find(range.str()), std::string::npos) << error;
    }
    EXPECT_EQ(errorOf(chat('"' + name + "\":\"1\"")).rfind(name + ": ", 0), 0U);
  };
#define QWEN_SAMPLING(Type, Field, Name, Default, Least, Most, ...)            \
  expectRange(#Name, Least, Most);
#include "qwen/ABI/SamplerOptions.def"
}

TEST(ParametersTest, SamplersHaveTextsAndAnOrder) {
  const SamplerOptions sampling =
      parse(chat(R"("bad_words":"a","dry_sequence_breakers":["b","\n"],)"
                 R"("samplers":["top_k","typ_p"])"))
          .sampling;
  EXPECT_EQ(sampling.texts.badWords, std::vector<std::string>{"a"});
  EXPECT_EQ(sampling.texts.breakers(), (std::vector<std::string>{"b", "\n"}));
  EXPECT_EQ(sampling.samplers, (std::vector<SamplerKind>{
                                   SamplerKind::TopK, SamplerKind::TypicalP}));
  // A description is a request.
  nlohmann::ordered_json body = describeSampling(sampling);
  body["messages"] = nlohmann::json::parse(chat("\"n\":1"))["messages"];
  EXPECT_EQ(describeSampling(parse(body.dump()).sampling),
            describeSampling(sampling));
  EXPECT_TRUE(parse(chat(R"("samplers":[])")).sampling.samplers->empty());
  EXPECT_EQ(
      errorOf(chat(R"("samplers":["top_k","infill"])"))
          .rfind("samplers[1]: samplers[1] must be one of penalties, ", 0),
      0u);
  EXPECT_EQ(errorOf(chat(R"("samplers":["xtc","xtc"])")),
            "samplers[0]: samplers[0] must be a string that comes once");
  EXPECT_EQ(errorOf(chat(R"("bad_words":[""])")),
            "bad_words: bad_words must be strings of 1 to 1024 characters, "
            "not 0");
}

TEST(ParametersTest, SetsVariablesOfTheTemplate) {
  const auto variables = [](const std::string &more) {
    return parse(chat(more)).templateVariables().dump();
  };
  EXPECT_EQ(variables(R"("reasoning_effort": "low")"),
            R"({"reasoning_effort":"low"})");
  EXPECT_EQ(variables(R"("enable_thinking": true, "preserve_thinking": false)"),
            R"({"enable_thinking":true,"preserve_thinking":false})");
  EXPECT_EQ(variables(R"("enable_thinking": true, "reasoning_effort": "none")"),
            R"({"reasoning_effort":"none","enable_thinking":true})");
  EXPECT_EQ(variables(R"("enable_thinking": true,
                         "chat_template_kwargs": {"enable_thinking": 1})"),
            R"({"enable_thinking":1})");
  EXPECT_EQ(parse(chat(R"("reasoning_budget_message": "a",
                          "thinking_budget_message": "b")"))
                .budgetMessage,
            "b");
}

TEST(ParametersTest, NullIsAbsent) {
  const ChatParameters parameters = parse(R"({
    "messages": [{"role": "assistant", "content": null,
                  "reasoning_content": "Hm."}],
    "top_p": null, "top_k": -1, "seed": null})");
  EXPECT_EQ(parameters.messages[0]["content"], "");
  EXPECT_EQ(parameters.sampling.topP, 1);
  EXPECT_FALSE(parameters.seed);
  // -1 keeps all tokens, as 0 does.
  EXPECT_EQ(parameters.sampling.topK, 0);
  EXPECT_TRUE(parse(chat(R"("continue_final_message": true,
                    "add_generation_prompt": null, "stream_options": null)"))
                  .continueFinalMessage);
}

// Each of OpenAI's parameters is in the table: as null, all of them are taken.
TEST(ParametersTest, KnowsAllOfOpenAI) {
  const auto expectKnown =
      []<typename Parameters>(Parameters, std::string body,
                              std::initializer_list<const char *> names) {
        for (const char *name : names)
          body += std::string(", \"") + name + "\": null";
        EXPECT_NO_THROW(parse<Parameters>("{" + body + "}"));
      };
  // The optional parameters of openai-python 3.54.0.
  expectKnown(ChatParameters(), kMessages,
              {"model",
               "audio",
               "frequency_penalty",
               "function_call",
               "functions",
               "logit_bias",
               "logprobs",
               "max_completion_tokens",
               "max_tokens",
               "metadata",
               "modalities",
               "moderation",
               "n",
               "parallel_tool_calls",
               "prediction",
               "presence_penalty",
               "prompt_cache_key",
               "prompt_cache_options",
               "prompt_cache_retention",
               "reasoning_effort",
               "response_format",
               "safety_identifier",
               "seed",
               "service_tier",
               "stop",
               "store",
               "stream",
               "stream_options",
               "temperature",
               "tool_choice",
               "tools",
               "top_logprobs",
               "top_p",
               "user",
               "verbosity",
               "web_search_options"});
  expectKnown(CompletionParameters(), R"("prompt": "x")",
              {"model", "best_of", "echo", "frequency_penalty", "logit_bias",
               "logprobs", "max_tokens", "n", "presence_penalty", "seed",
               "stop", "stream", "stream_options", "suffix", "temperature",
               "top_p", "user"});
  expectKnown(EmbeddingParameters(), R"("input": "x")",
              {"model", "dimensions", "encoding_format", "user"});
  // A value without effect on answers is accepted; another value is refused.
  EXPECT_NO_THROW(parse(chat(
      R"("prediction": {"type": "content", "content": "x"},
         "verbosity": "low", "functions": [], "function_call": "none",
         "prompt_cache_options": {"mode": "explicit"})")));
  EXPECT_EQ(errorOf(chat(R"("verbosity": "max")")),
            "verbosity: verbosity must be one of low, medium, high, not "
            "\"max\"");
  EXPECT_EQ(errorOf(chat(R"("web_search_options": {})")),
            "web_search_options: web_search_options is not supported; only "
            "null is accepted");
}

// Whatever their order in a request.
TEST(ParametersTest, OneOfSeveralNamesGoesFirst) {
  EXPECT_EQ(parse(chat(R"("max_completion_tokens": 1, "max_tokens": 2,
                          "n_predict": 3)"))
                .maxTokens,
            1);
  EXPECT_EQ(parse(chat(R"("max_tokens": 2, "n_predict": 3,
                          "max_completion_tokens": null)"))
                .maxTokens,
            2);
  EXPECT_EQ(parse(chat(R"("repetition_penalty": 1.5, "repeat_penalty": 1.1)"))
                .sampling.repetitionPenalty,
            1.5F);
  EXPECT_EQ(parse(chat(R"("thinking_token_budget": 5, "thinking_budget": 6)"))
                .thinkingBudget,
            5);
  EXPECT_EQ(
      parse<TokenizeParameters>(R"({"prompt": "a", "content": "b"})").prompt,
      "a");
}

TEST(ParametersTest, ReadsUsualValues) {
  for (const char *name : {"max_tokens", "max_completion_tokens", "n_predict"})
    EXPECT_EQ(parse(chat("\"" + std::string(name) + "\": -1")).maxTokens,
              std::numeric_limits<int64_t>::max());
  EXPECT_FALSE(parse(chat(R"("thinking_budget_tokens": -1)")).thinkingBudget);
  const auto seed = [](const std::string &text) {
    return parse(chat("\"seed\": " + text)).seed;
  };
  EXPECT_FALSE(seed("-1"));
  EXPECT_EQ(seed("18446744073709551615"), ~uint64_t{0});
  EXPECT_EQ(seed("9223372036854775807"), ~uint64_t{0} >> 1);
  EXPECT_EQ(seed("-9223372036854775808"), uint64_t{1} << 63);
  EXPECT_EQ(seed("-2.0"), ~uint64_t{0} - 1);
  EXPECT_EQ(errorOf(chat(R"("seed": 18446744073709551616)")),
            "seed: seed must be an integer of 64 bits, not "
            "\"18446744073709551616\"");
  EXPECT_EQ(errorOf(chat(R"("seed": 0.5)")),
            "seed: seed must be an integer of 64 bits, not \"0.5\"");
  const ChatParameters parameters = parse(
      chat(R"("top_p": 0, "n": 2.0, "max_tokens": 6.0, "stop_token_ids": [5.0],
              "stream": true,
              "stream_options": {"include_obfuscation": false})"));
  EXPECT_GT(parameters.sampling.topP, 0);
  EXPECT_LT(parameters.sampling.topP, 1e-6);
  EXPECT_EQ(parameters.choices, 2);
  EXPECT_EQ(parameters.maxTokens, 6);
  EXPECT_EQ(parameters.stopTokens, std::vector<int32_t>{5});
  EXPECT_EQ(parse<CompletionParameters>(R"({"prompt": [1.0, 2]})").prompts,
            (std::vector<PromptValue>{std::vector<int32_t>{1, 2}}));
  EXPECT_EQ(errorOf(chat(R"("max_tokens": 6.5)")),
            "max_tokens: max_tokens must be an integer from -1 to 2147483647, "
            "not \"6.5\"");
  EXPECT_EQ(errorOf(chat(R"("stream": true, "stream_options": {"colour": 1})")),
            "stream_options.colour: unknown parameter stream_options.colour");
}

TEST(ParametersTest, KnowsTheModel) {
  const auto status = [](const std::string &body,
                         const ParameterLimits &limits) {
    ChatParameters parameters;
    try {
      ChatParameters::List::parse(body, limits, parameters);
    } catch (const ApiError &error) {
      return error.status();
    }
    return 200U;
  };
  const ParameterLimits limits = {
      .vocabSize = 100, .models = {"a", "b/c"}, .thinks = false};
  EXPECT_EQ(status(chat(R"("model": "b/c")"), limits), 200U);
  EXPECT_EQ(status(chat(R"("model": "d")"), limits), 404U);
  EXPECT_EQ(status(chat(R"("model": "d")"), {.vocabSize = 100}), 200U);
  EXPECT_EQ(status(chat(R"("thinking_token_budget": 5)"), limits), 400U);
  EXPECT_EQ(status(chat(R"("thinking_token_budget": -1)"), limits), 200U);
}

TEST(ParametersTest, ReadsMessages) {
  const auto message = [](const std::string &text) {
    return parse("{\"messages\": [" + text + "]}").messages[0];
  };
  const auto error = [](const std::string &text) {
    return errorOf("{\"messages\": [" + text + "]}");
  };
  EXPECT_EQ(message(R"({"role": "assistant", "tool_calls": [],
                        "function_call": null, "refusal": null})")["content"],
            "");
  // What clients add to the messages that they got.
  EXPECT_EQ(message(R"({"role": "assistant", "content": "x", "parsed": {},
                        "annotations": [], "provider_specific_fields": {},
                        "reasoning_details": [], "thinking_blocks": [],
                        "cache_control": {}, "extra_content": {}})")
                .dump(),
            R"({"role":"assistant","content":"x"})");
  EXPECT_EQ(message(R"({"role": "developer", "content": "x"})")["role"],
            "system");
  EXPECT_EQ(error(R"({"role": "user"})"),
            "messages[0].content: messages[0].content is missing");
  EXPECT_EQ(error(R"({"role": "system", "content": null})"),
            "messages[0].content: messages[0].content is missing");
  EXPECT_EQ(error(R"({"role": "user", "content": []})"),
            "messages[0].content: messages[0].content must be a string or an "
            "array of text parts, not empty");
  EXPECT_EQ(error(R"({"role": "critic", "content": "x"})"),
            "messages[0].role: messages[0].role must be one of system, "
            "developer, user, assistant, tool, function, not \"critic\"");
  EXPECT_EQ(error(R"({"role": "user", "content": "x", "colour": 1})"),
            "messages[0].colour: unknown parameter messages[0].colour");
}

TEST(ParametersTest, ReadsAllKindsOfPrompts) {
  const auto prompts = [](const std::string &prompt) {
    return parse<CompletionParameters>(R"({"prompt": )" + prompt + "}").prompts;
  };
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(prompts(R"("a")"), std::vector<PromptValue>{"a"});
  EXPECT_EQ(prompts(R"(["a", "b"])"), (std::vector<PromptValue>{"a", "b"}));
  EXPECT_EQ(prompts("[1, 2]"), (std::vector<PromptValue>{Ids{1, 2}}));
  EXPECT_EQ(prompts("[[1, 2], [3]]"),
            (std::vector<PromptValue>{Ids{1, 2}, Ids{3}}));
  // Those of llama-server and Jina: a number makes a list one prompt.
  const PromptValue mixed = MixedPrompt{1, "a", 2};
  EXPECT_EQ(prompts(R"([1, "a", 2])"), std::vector<PromptValue>{mixed});
  EXPECT_EQ(prompts(R"(["a", [1, "a", 2], [3], {"text": "b"}])"),
            (std::vector<PromptValue>{"a", mixed, Ids{3}, "b"}));
  EXPECT_EQ(prompts(R"({"prompt_string": "a"})"),
            std::vector<PromptValue>{"a"});
  EXPECT_FALSE(
      parse<CompletionParameters>(R"({"prompt": [1, "a"]})").hasPromptList);
  EXPECT_TRUE(
      parse<CompletionParameters>(R"({"prompt": [[1, "a"]]})").hasPromptList);
  const auto error = [](const std::string &prompt) {
    return errorOf<CompletionParameters>(R"({"prompt": )" + prompt + "}");
  };
  const std::string object =
      "an object with a string as text or prompt_string alone: the model reads "
      "text only";
  EXPECT_EQ(error(R"({"prompt_string": "a", "multimodal_data": ["x"]})"),
            "prompt: prompt must be " + object);
  EXPECT_EQ(error(R"(["a", {"image": "x"}])"),
            "prompt[1]: prompt[1] must be " + object);
  EXPECT_EQ(error(R"([1, ""])"), "prompt: prompt must be an array of token ids "
                                 "and strings, none of them empty");
  EXPECT_EQ(error("[1, 100]"),
            "prompt: prompt: token id 100 is out of vocabulary: the model has "
            "100 tokens");
  EXPECT_EQ(error(R"(["a", []])"),
            "prompt[1]: prompt[1] must be a string, an object with a text, or "
            "an array of token ids, not empty");
}

TEST(ParametersTest, BestOfExcludesStreams) {
  const auto error = [](const std::string &more) {
    return errorOf<CompletionParameters>(R"({"prompt": "x", "best_of": )" +
                                         more + "}");
  };
  EXPECT_EQ(error("3"), "no error");
  EXPECT_EQ(error(R"(1, "stream": true)"), "no error");
  EXPECT_EQ(error(R"(2, "stream": true)"),
            "best_of: best_of excludes stream and echo");
  EXPECT_EQ(error(R"(2, "echo": true)"),
            "best_of: best_of excludes stream and echo");
}

TEST(ParametersTest, RerankHasTwoForms) {
  const auto read = [](const std::string &more) {
    return parse<RerankParameters>(R"({"query": "a", )" + more + "}");
  };
  EXPECT_EQ(read(R"("documents": ["b"])").hasTexts, false);
  const RerankParameters texts = read(
      R"("texts": ["b", "c"], "raw_scores": false, "return_text": true,
         "truncate": true, "truncation_direction": "Right")");
  EXPECT_TRUE(texts.hasTexts && texts.returnDocuments);
  EXPECT_EQ(texts.documents, (std::vector<std::string>{"b", "c"}));
  const auto error = [](const std::string &more) {
    return errorOf<RerankParameters>(R"({"query": "a")" + more + "}");
  };
  EXPECT_EQ(error(""), "documents: documents is missing");
  EXPECT_EQ(error(R"(, "texts": ["b"], "documents": ["b"])"),
            "texts: texts excludes documents");
  EXPECT_EQ(error(R"(, "texts": ["b"], "raw_scores": true)"),
            "raw_scores: raw_scores is not supported; only false is accepted");
}

TEST(ParametersTest, ErrorsNameTheParameter) {
  EXPECT_EQ(errorOf("{}"), "messages: messages is missing");
  EXPECT_EQ(errorOf(chat(R"("colour": 1)")),
            "colour: unknown parameter colour");
  EXPECT_EQ(errorOf(chat(R"("temperature": 3)")),
            "temperature: temperature must be a number from 0 to 2, not \"3\"");
  EXPECT_EQ(errorOf(chat(R"("n": 1.5)")),
            "n: n must be an integer from 1 to 128, not \"1.5\"");
  EXPECT_EQ(
      errorOf(chat(R"("n": 1e400)")),
      ": the body has a number that is too large, which ends at column 60");
  EXPECT_EQ(errorOf(chat(R"("stop": [""])")),
            "stop: stop must be strings of 1 to 1024 characters, not 0");
  EXPECT_EQ(errorOf(chat(R"("stop_token_ids": [100])")),
            "stop_token_ids: stop_token_ids: token id 100 is out of "
            "vocabulary: the model has 100 tokens");
  EXPECT_EQ(errorOf(chat(R"("logit_bias": {"100": 1})")),
            "logit_bias: logit_bias: token id 100 is out of vocabulary: the "
            "model has 100 tokens");
  EXPECT_EQ(errorOf(chat(R"("logit_bias": {"x": 1})")),
            "logit_bias: logit_bias must be an object with a number for each "
            "token id, not for \"x\"");
  EXPECT_EQ(errorOf(chat(R"("logit_bias": {"1": 101})")),
            "logit_bias: logit_bias must be a number from -100 to 100, not "
            "\"101\"");
  EXPECT_EQ(errorOf(chat(R"("reasoning_format": "xml")")),
            "reasoning_format: reasoning_format must be one of none, auto, "
            "deepseek, not \"xml\"");
  EXPECT_EQ(errorOf(R"({"messages": [{"role": "user", "content": "\ud83d"}]})"),
            ": the body is not JSON: \\ud83d at column 44 is one half of a "
            "surrogate pair");
  EXPECT_EQ(errorOf(R"({"a": "\ude00\n"})"),
            ": the body is not JSON: \\ude00 at column 8 is one half of a "
            "surrogate pair");
  EXPECT_EQ(errorOf(chat(R"("stream_options": {"include_usage": null})")),
            "stream_options: stream_options needs stream");
  EXPECT_EQ(errorOf(chat(R"("top_logprobs": 2)")),
            "top_logprobs: top_logprobs needs logprobs");
  EXPECT_EQ(errorOf(chat(R"("cache_salt": "")")),
            "cache_salt: cache_salt must not be empty");
  EXPECT_EQ(errorOf(chat(R"("cache_salt": ")" + std::string(1025, 'a') + '"')),
            "cache_salt: cache_salt must be at most 1024 bytes long, not 1025");
  EXPECT_EQ(errorOf(chat(R"("cache_salt": ")" + std::string(1024, 'a') + '"')),
            "no error");
  EXPECT_EQ(errorOf(R"({"messages": [{"content": "x"}]})"),
            "messages[0]: messages[0] must be an object with a role");
  EXPECT_EQ(errorOf<CompletionParameters>(R"({"prompt": []})").substr(0, 30),
            "prompt: prompt must be a strin");
  EXPECT_EQ(errorOf<CompletionParameters>(R"({"prompt": [1, -1]})"),
            "prompt: prompt: token id -1 is out of vocabulary: the model has "
            "100 tokens");
  EXPECT_NO_THROW(parse(chat(R"("colour": 1)"), true));
}

/// "[element, element, ...]".
std::string listOf(size_t count, const std::string &element) {
  std::string list = "[" + element;
  for (size_t i = 1; i < count; ++i)
    list += "," + element;
  return list + "]";
}

TEST(ParametersTest, ErrorsOfAListNameTheElement) {
  const auto input = [](const std::string &list) {
    return errorOf<EmbeddingParameters>("{\"input\": " + list + "}");
  };
  const std::string needed = " must be a string, an object with a text, or an "
                             "array of token ids, not empty";
  EXPECT_EQ(input(R"(["a", "b", true])"), "input[2]: input[2]" + needed);
  EXPECT_EQ(input("[[1], []]"), "input[1]: input[1]" + needed);
  EXPECT_EQ(input("[[1], [2], [3, 100]]"),
            "input[2]: input[2]: token id 100 is out of vocabulary: the model "
            "has 100 tokens");
  EXPECT_EQ(errorOf<RerankParameters>(
                R"({"query": "q", "documents": ["a", {"title": "b"}]})"),
            "documents[1]: documents[1] must be a text, or an object with a "
            "text");
}

TEST(ParametersTest, TakesManyInputs) {
  const auto body = [](const std::string &name, size_t count) {
    return "{\"query\": \"q\", \"" + name + "\": " + listOf(count, "\"a\"") +
           "}";
  };
  EXPECT_EQ(
      parse<EmbeddingParameters>("{\"input\": " + listOf(2048, "[1]") + "}")
          .prompts.size(),
      2048U);
  EXPECT_EQ(errorOf<CompletionParameters>(
                "{\"prompt\": " + listOf(2049, "\"a\"") + "}"),
            "prompt: prompt must be at most 2048 inputs, not 2049");
  EXPECT_EQ(parse<RerankParameters>(body("documents", 2048)).documents.size(),
            2048U);
  EXPECT_EQ(errorOf<RerankParameters>(body("documents", 2049)),
            "documents: documents must be at most 2048 documents, not 2049");
  EXPECT_EQ(parse(chat(R"("n": 128)")).choices, 128);
}

TEST(ParametersTest, RefusesBodiesThatAreNoObject) {
  for (const char *body : {"", "[]", "3", "{", "{\"a\": 1, \"a\": 2}", "\xff"})
    EXPECT_NE(errorOf(body), "no error") << body;
  const std::string deep =
      chat("\"metadata\": " + std::string(70, '[') + std::string(70, ']'));
  EXPECT_NE(errorOf(deep), "no error");
}

// The table's bounds, names and rules.
TEST(ParametersTest, SchemaSaysWhatHolds) {
  const auto schema = ChatParameters::List::schema(
      {.vocabSize = 4096,
       .models = {"a"},
       .thinks = false,
       .defaults = describeSampling({.temperature = 0.6f})});
  // Programs build their settings from these.
  int samplers = 0;
  for (const auto &[name, property] : schema["properties"].items()) {
    if (property.value("x-group", "") != "sampling")
      continue;
    ++samplers;
    EXPECT_FALSE(property["description"].get<std::string>().empty()) << name;
    if (property["default"].is_array())
      continue;
    EXPECT_TRUE(property["default"].is_number()) << name;
    EXPECT_TRUE(property["anyOf"][0]["minimum"].is_number()) << name;
    EXPECT_TRUE(property["anyOf"][0]["maximum"].is_number()) << name;
  }
  EXPECT_GT(samplers, 20);
  EXPECT_EQ(schema["properties"]["temperature"]["default"], 0.6);
  EXPECT_EQ(schema["required"], nlohmann::json::parse(R"(["messages"])"));
  EXPECT_EQ(schema["additionalProperties"], false);
  EXPECT_EQ(schema["allOf"].size(), 4U);
  const auto &properties = schema["properties"];
  EXPECT_EQ(properties["model"]["enum"].dump(), R"(["a","",null])");
  EXPECT_EQ(properties["verbosity"]["enum"].dump(),
            R"(["low","medium","high",null])");
  EXPECT_EQ(properties["thinking_budget"]["anyOf"][0]["const"], -1);
  const std::regex ids(
      properties["logit_bias"]["anyOf"][0]["propertyNames"]["pattern"]
          .get<std::string>());
  for (int i = 0; i < 12000; ++i)
    EXPECT_EQ(std::regex_match(std::to_string(i), ids), i < 4096) << i;
  EXPECT_FALSE(std::regex_match("01", ids));
  EXPECT_EQ(
      ChatParameters::List::schema(
          {.vocabSize = 9, .ignoreUnknown = true})["additionalProperties"],
      true);
}

TEST(ParametersTest, SchemaHasEveryParameter) {
  const auto properties =
      ChatParameters::List::schema({.vocabSize = 100})["properties"];
  for (const ParameterTable *table :
       {&ModelParameters::table, &SamplingParameters::table,
        &StopParameters::table, &TokenParameters::table,
        &StreamParameters::table, &RequestParameters::table,
        &ReasoningParameters::table, &ChatParameters::table})
    for (const Parameter &row : table->rows)
      EXPECT_TRUE(properties.contains(row.name)) << row.name;
}

} // namespace
