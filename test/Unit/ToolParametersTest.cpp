//===- ToolParametersTest.cpp - Tools and texts to fill between ----------===//

#include "RequestBodies.h"

#include "server/http/Message.h"
#include "server/protocols/Fill.h"
#include "server/protocols/openai/Completions.h"

using namespace qwen;
using namespace qwen::server;
using namespace qwen::test;

namespace {

TEST(ParametersTest, ReadsTools) {
  const auto tools = [](const std::string &more) {
    return chat(
        R"("tools": [{"type": "function", "function": {"name": "f"}}])" + more);
  };
  const auto callsOf = [](const ChatParameters &parameters) {
    return server::callsOf(parameters.conversation(), findCallFormat("hermes"));
  };
  const auto rulesOf = [&](const std::string &more) {
    return callsOf(parse(tools(more))).rules;
  };
  EXPECT_FALSE(rulesOf(""));
  EXPECT_FALSE(
      rulesOf(R"(, "tool_choice": "auto", "parallel_tool_calls": true)"));
  EXPECT_EQ(callsOf(parse(tools(R"(, "tool_choice": "none")"))).format,
            nullptr);
  EXPECT_EQ(
      callsOf(parse(chat(R"("tools": [], "tool_choice": "none")"))).format,
      nullptr);
  const std::string named =
      R"(, "tool_choice": {"type": "function", "function": {"name": "f"}})";
  const auto expectRules = [&](const std::string &more, const char *parameter,
                               bool isRequired, bool isSingle) {
    const auto rules = rulesOf(more);
    ASSERT_TRUE(rules) << more;
    EXPECT_EQ(rules->parameter, parameter);
    EXPECT_EQ(rules->isRequired, isRequired) << more;
    EXPECT_EQ(rules->isSingle, isSingle) << more;
  };
  expectRules(R"(, "tool_choice": "required")", "tool_choice", true, false);
  expectRules(R"(, "tool_choice": "required", "parallel_tool_calls": false)",
              "tool_choice", true, true);
  expectRules(named, "tool_choice", true, true);
  expectRules(R"(, "parallel_tool_calls": false)", "parallel_tool_calls", false,
              true);
  const std::string strict = chat(R"("tools": [
      {"type": "function", "function": {"name": "f", "strict": null}},
      {"type": "function", "function": {"name": "g", "strict": true}}])");
  EXPECT_EQ(callsOf(parse(strict)).rules->parameter,
            "tools[1].function.strict");
  EXPECT_EQ(errorOf(chat(R"("tools": [], "tool_choice": "required")")),
            "tool_choice: tool_choice needs tools");
  EXPECT_EQ(errorOf(chat(R"("tool_choice": "required")")),
            "tool_choice: tool_choice needs tools");
  const ChatParameters other = parse(tools(
      R"(, "tool_choice": {"type": "function", "function": {"name": "g"}})"));
  EXPECT_THROW(callsOf(other), ApiError);
  const std::string needed = "tool_choice: tool_choice must be none, auto, "
                             "required, {\"type\": \"function\", "
                             "\"function\": {\"name\": ...}}, or {\"type\": "
                             "\"allowed_tools\", ...}";
  for (const char *choice : {R"("any")", R"({"type": "function"})"})
    EXPECT_EQ(errorOf(tools(R"(, "tool_choice": )" + std::string(choice))),
              needed);
  EXPECT_EQ(errorOf(tools(R"(, "parallel_tool_calls": 1)")),
            "parallel_tool_calls: parallel_tool_calls must be a boolean");
  // Without a library of grammars, these are not promised.
  for (const auto &[body, error] :
       {std::pair{tools(R"(, "tool_choice": "required")"),
                  "tool_choice required"},
        {tools(named), "tool_choice with a name"},
        {tools(R"(, "parallel_tool_calls": false)"),
         "parallel_tool_calls false"},
        {strict, "tools[1].function.strict true"}}) {
    ParameterLimits limits = {.vocabSize = 100, .hasGrammars = false};
    ChatParameters parameters;
    try {
      ChatParameters::List::parse(body, limits, parameters);
      ADD_FAILURE() << body;
    } catch (const ApiError &found) {
      EXPECT_EQ(found.what(),
                error + std::string(" needs llguidance, which this server was "
                                    "built without"));
    }
    limits.ignoreUnknown = true;
    ChatParameters ignoring;
    ChatParameters::List::parse(body, limits, ignoring);
    EXPECT_FALSE(callsOf(ignoring).rules) << body;
  }
  EXPECT_EQ(errorOf(chat(R"("tools": [{}])")),
            "tools: tools[0] must be {\"type\": \"function\", \"function\": "
            "{...}}");
  // A client that ignores what is not supported gets what is.
  EXPECT_EQ(parse(tools(named), true).tools.size(), 1U);
  EXPECT_TRUE(parse(chat(R"("tools": [{}])"), true).tools.empty());
  ChatParameters parameters;
  try {
    ChatParameters::List::parse(
        tools(""), {.vocabSize = 100, .noTools = "no tools here"}, parameters);
    ADD_FAILURE();
  } catch (const ApiError &error) {
    EXPECT_STREQ(error.what(), "no tools here");
  }
}

TEST(ParametersTest, ReadsAllowedTools) {
  const auto body = [](const std::string &allowed) {
    return chat(R"("tools": [{"type": "function", "function": {"name": "f"}},
                             {"type": "function", "function": {"name": "g"}}],
        "tool_choice": {"type": "allowed_tools", "allowed_tools": )" +
                allowed + "}");
  };
  const std::string tool = R"([{"type": "function", "function": {"name": ")";
  for (const auto &[mode, kind] : {std::pair{"auto", ToolChoice::Auto},
                                   {"required", ToolChoice::Required}}) {
    const Conversation conversation =
        parse(body(R"({"mode": ")" + std::string(mode) + R"(", "tools": )" +
                   tool + R"(g"}}]})"))
            .conversation();
    EXPECT_EQ(conversation.choice.kind, kind);
    ASSERT_EQ(conversation.tools.size(), 1U);
    EXPECT_EQ(conversation.tools[0]["function"]["name"], "g");
  }
  EXPECT_THROW(parse(body(R"({"mode": "auto", "tools": )" + tool + R"(h"}}]})"))
                   .conversation(),
               ApiError);
  const std::string name = "tool_choice: tool_choice.allowed_tools";
  EXPECT_EQ(errorOf(body("[]")),
            name + " must be an object with mode and tools");
  EXPECT_EQ(errorOf(body(R"({"mode": "all", "tools": []})")),
            name + ".mode must be auto or required");
  EXPECT_EQ(errorOf(body(R"({"mode": "auto", "tools": []})")),
            name + ".tools must be an array of {\"type\": \"function\", "
                   "\"function\": {\"name\": ...}}, not empty");
}

TEST(ParametersTest, ReadsFunctions) {
  const std::string functions =
      R"("functions": [{"name": "f", "parameters": {"type": "object"}}])";
  const Conversation conversation =
      parse(chat(functions + R"(, "function_call": {"name": "f"})"))
          .conversation();
  EXPECT_EQ(conversation.tools.dump(),
            R"([{"type":"function","function":{"name":"f",)"
            R"("parameters":{"type":"object"}}}])");
  EXPECT_EQ(conversation.choice.kind, ToolChoice::Named);
  EXPECT_EQ(conversation.names.choice, "function_call");
  EXPECT_TRUE(parse(chat(functions)).hasFunctions);
  EXPECT_FALSE(parse(chat(R"("functions": [])")).hasFunctions);
  EXPECT_EQ(
      parse(R"({"messages": [
                {"role": "assistant", "content": null,
                 "function_call": {"name": "f", "arguments": "{\"a\": 1}"}},
                {"role": "function", "name": "f", "content": "5"}]})")
          .messages.dump(),
      R"([{"role":"assistant","content":"","tool_calls":[)"
      R"({"type":"function","function":{"name":"f","arguments":{"a":1}}}]},)"
      R"({"role":"tool","content":"5","name":"f"}])");
  EXPECT_EQ(errorOf(chat(functions + R"(, "tools": [])")),
            "functions: functions excludes tools and tool_choice");
  EXPECT_EQ(errorOf(chat(R"("function_call": {"name": "f"})")),
            "function_call: function_call needs functions");
  EXPECT_EQ(errorOf(chat(functions + R"(, "function_call": "required")")),
            "function_call: function_call must be none, auto, or {\"name\": "
            "...}");
  EXPECT_EQ(errorOf(R"({"messages": [{"role": "assistant",
                                      "function_call": {"name": 1}}]})"),
            "messages[0].function_call: messages[0].function_call must have a "
            "function with a name and arguments");
}

// Each protocol has names of its own for them.
TEST(ConversationTest, ErrorsNameTheParametersOfTheProtocol) {
  Conversation conversation = {
      .names = {"input", "tools", "tool_choice", "single", ".strict"}};
  conversation.tools = nlohmann::ordered_json::parse(
      R"([{"type": "function", "function": {"name": "f", "strict": true}}])");
  const auto parameter = [&] {
    return callsOf(conversation, findCallFormat("hermes")).rules->parameter;
  };
  EXPECT_EQ(parameter(), "tools[0].strict");
  conversation.choice.isParallel = false;
  EXPECT_EQ(parameter(), "single");
  conversation.choice.kind = ToolChoice::Required;
  EXPECT_EQ(parameter(), "tool_choice");
  conversation.choice = {.kind = ToolChoice::Named, .name = "g"};
  try {
    parameter();
    ADD_FAILURE();
  } catch (const ApiError &error) {
    EXPECT_EQ(error.parameter(), "tool_choice");
    EXPECT_STREQ(error.what(),
                 "tool_choice has the name \"g\", which no tool has");
  }
}

TEST(ParametersTest, ReadsCallsOfMessages) {
  const auto message = [](const std::string &calls) {
    return R"({"messages": [{"role": "assistant", "content": null,
               "tool_calls": [)" +
           calls + R"(]}, {"role": "tool", "tool_call_id": "c",
               "content": "5"}]})";
  };
  // The order of keys stays, of a string and of an object.
  for (const char *arguments :
       {R"({"z": 1, "a": [true]})", R"("{\"z\": 1, \"a\": [true]}")"}) {
    const auto messages =
        parse(message(R"({"id": "c", "type": "function", "index": 0,
                          "function": {"name": "f", "arguments": )" +
                      std::string(arguments) + "}}"))
            .messages;
    EXPECT_EQ(messages[0].dump(),
              R"({"role":"assistant","content":"","tool_calls":[{"type":)"
              R"("function","id":"c","function":{"name":"f","arguments":)"
              R"({"z":1,"a":[true]}}}]})");
    EXPECT_EQ(messages[1]["tool_call_id"], "c");
  }
  // Also of calls that are cut or broken, which an agent sends back.
  for (const std::string &arguments : std::vector<std::string>{
           "", R"(, "arguments": "{\"a\": )" + std::string(99, '[') + '"',
           R"(, "arguments": "")", R"(, "arguments": null)",
           R"(, "arguments": 5)", R"(, "arguments": [1])",
           R"(, "arguments": "[1]")", R"(, "arguments": "null")",
           R"(, "arguments": "\"{}\"")", R"(, "arguments": "{\"a\": \"b")",
           R"(, "arguments": "{\"a\": 1}}")", R"(, "arguments": "{'a': 1}")",
           R"(, "arguments": "{\"a\": 1, \"a\": 2}")",
           R"(, "arguments": "\n, \"argu")"})
    EXPECT_EQ(parse(message(R"({"function": {"name": "f")" + arguments + "}}"))
                  .messages[0]["tool_calls"][0]["function"]["arguments"]
                  .dump(),
              "{}");
  const std::string at = "messages[0].tool_calls[0]";
  EXPECT_EQ(errorOf(message("1")),
            at + ": " + at + " must have a function with a name and arguments");
  // Integers keep their digits.
  const std::string digits = "[18446744073709551616,-123456789012345678901234]";
  for (const std::string &arguments :
       {R"({"a": )" + digits + "}", R"("{\"a\": )" + digits + R"(}")"})
    EXPECT_NE(dump(parse(message(R"({"function": {"name": "f", "arguments": )" +
                                 arguments + "}}"))
                       .messages)
                  .find(digits),
              std::string::npos)
        << arguments;
  EXPECT_NE(dump(parse(chat(R"("tools": [{"type": "function", "function":
      {"name": "f", "parameters": {"properties": {"a": {"enum": )" +
                            digits + "}}}}}]"))
                     .tools)
                .find(digits),
            std::string::npos);
  // What clients add to the calls that they got.
  EXPECT_EQ(parse(message(R"({"id": "c", "index": 0, "extra_content": {},
                              "provider_specific_fields": null,
                              "cache_control": {"type": "ephemeral"},
                              "function": {"name": "f", "arguments": "{}",
                                           "parsed_arguments": {"a": 1},
                                           "provider_specific_fields": {}}})"))
                .messages[0]["tool_calls"][0]
                .dump(),
            R"({"type":"function","id":"c","function":{"name":"f",)"
            R"("arguments":{}}})");
  EXPECT_EQ(errorOf(message(R"({"colour": 1, "function": {"name": "f"}})")),
            at + ".colour: unknown parameter " + at + ".colour");
  EXPECT_EQ(
      errorOf(message(R"({"type": "custom", "function": {"name": "f"}})")),
      at + ".type: " + at + ".type must be function");
}

TEST(ParametersTest, ReadsTextsToFillBetween) {
  EXPECT_EQ(fillPrompt({1, 2, 3, {}}, std::vector<int32_t>{7, 8},
                       std::vector<int32_t>{9}),
            (std::vector<int32_t>{1, 7, 8, 2, 9, 3}));
  const FillParameters fill = parse<FillParameters>(
      R"({"input_prefix": "a", "input_suffix": "b", "prompt": "c",
          "input_extra": [{"filename": "f", "text": "t"}], "n_predict": 3})");
  EXPECT_EQ(fill.before + fill.behind + fill.begun, "abc");
  EXPECT_EQ(fill.files[0]["text"], "t");
  EXPECT_EQ(fill.maxTokens, 3);
  // As llama.vim and llama.vscode send it, and to warm the cache.
  const FillParameters sent = parse<FillParameters>(
      R"({"id_slot": 0, "input_prefix": "a", "input_suffix": "b",
          "input_extra": [{"text": "t"}, {"text": "u", "filename": ""}],
          "prompt": "c", "n_predict": 128, "stop": ["\n"], "n_indent": 4,
          "top_k": 40, "top_p": 0.9, "stream": false, "cache_prompt": true,
          "samplers": ["top_k", "top_p", "infill"], "t_max_prompt_ms": 500,
          "t_max_predict_ms": 1000, "response_fields": ["content", ""]})");
  EXPECT_EQ(*sent.sampling.samplers,
            (std::vector{SamplerKind::TopK, SamplerKind::TopP}));
  EXPECT_EQ(sent.fields, (std::vector<std::string>{"content", ""}));
  EXPECT_EQ(parse<FillParameters>(R"({"n_predict": 0, "samplers": []})")
                .sampling.samplers->size(),
            0u);
  EXPECT_EQ(errorOf(chat(R"("samplers": ["infill"])")).substr(0, 12),
            "samplers[0]:");
  for (const char *file :
       {R"({"filename": "f"})", R"({"text": 1})", R"({"text": "t", "x": 1})",
        R"({"text": "t", "filename": 1})"})
    EXPECT_EQ(errorOf<FillParameters>(R"({"input_extra": [)" +
                                      std::string(file) + "]}"),
              "input_extra: input_extra[0] must be {\"filename\": ..., "
              "\"text\": ...}");
  EXPECT_EQ(errorOf<FillParameters>(R"({"response_fields": [1]})"),
            "response_fields: response_fields must be an array of at most 64 "
            "strings");
  const auto suffix = [](const std::string &value) {
    return R"({"prompt": "a", "echo": true, "suffix": )" + value + "}";
  };
  EXPECT_EQ(errorOf<CompletionParameters>(suffix("1")),
            "suffix: suffix must be a string");
  EXPECT_EQ(errorOf<CompletionParameters>(suffix(R"("b")")),
            "suffix: suffix excludes echo");
  EXPECT_EQ(parse<CompletionParameters>(suffix(R"("")")).suffix, "");
  CompletionParameters parameters;
  const ParameterLimits limits = {.vocabSize = 100, .fills = false};
  CompletionParameters::List::parse(suffix(R"("")"), limits, parameters);
  try {
    CompletionParameters::List::parse(R"({"prompt": "a", "suffix": "b"})",
                                      limits, parameters);
    ADD_FAILURE();
  } catch (const ApiError &error) {
    EXPECT_STREQ(error.what(),
                 "suffix needs a model with the tokens <|fim_prefix|>, "
                 "<|fim_suffix|> and <|fim_middle|>");
  }
}

} // namespace
