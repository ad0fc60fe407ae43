//===- ToolParametersTest.cpp - Tools and texts to fill between ----------===//

#include "RequestBodies.h"

#include "server/protocols/Completions.h"
#include "server/protocols/Fill.h"

using namespace qwen;
using namespace qwen::server;
using namespace qwen::test;

namespace {

TEST(ParametersTest, ReadsTools) {
  const auto tools = [](const std::string &more) {
    return chat(
        R"("tools": [{"type": "function", "function": {"name": "f"}}])" + more);
  };
  EXPECT_FALSE(parse(tools("")).callsNone);
  EXPECT_FALSE(
      parse(tools(R"(, "tool_choice": "auto", "parallel_tool_calls": true)"))
          .callsNone);
  EXPECT_TRUE(parse(tools(R"(, "tool_choice": "none")")).callsNone);
  EXPECT_TRUE(parse(chat(R"("tools": [], "tool_choice": "none")")).callsNone);
  const std::string grammar = " needs a grammar, which is not supported yet; ";
  EXPECT_EQ(errorOf(tools(R"(, "tool_choice": "required")")),
            "tool_choice: tool_choice required" + grammar +
                "accepted are none and auto");
  const std::string named =
      R"(, "tool_choice": {"type": "function", "function": {"name": "f"}})";
  EXPECT_EQ(errorOf(tools(named)), "tool_choice: tool_choice with a name" +
                                       grammar + "accepted are none and auto");
  EXPECT_EQ(errorOf(tools(R"(, "tool_choice": "any")")),
            "tool_choice: tool_choice must be none or auto");
  EXPECT_EQ(errorOf(tools(R"(, "parallel_tool_calls": false)")),
            "parallel_tool_calls: parallel_tool_calls false" + grammar +
                "accepted is true");
  EXPECT_EQ(errorOf(tools(R"(, "parallel_tool_calls": 1)")),
            "parallel_tool_calls: parallel_tool_calls must be a boolean");
  EXPECT_EQ(errorOf(chat(R"("tools": [{"type": "function", "function":
                            {"name": "f", "strict": true}}])")),
            "tools[0].function.strict: tools[0].function.strict true" +
                grammar + "accepted is false");
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
  for (const char *arguments :
       {"", R"(, "arguments": "")", R"(, "arguments": null)"})
    EXPECT_EQ(parse(message(R"({"function": {"name": "f")" +
                            std::string(arguments) + "}}"))
                  .messages[0]["tool_calls"][0]["function"]["arguments"]
                  .dump(),
              "{}");
  const std::string at = "messages[0].tool_calls[0]";
  EXPECT_EQ(errorOf(message("1")),
            at + ": " + at + " must have a function with a name and arguments");
  EXPECT_EQ(errorOf(message(R"({"function": {"name": "f", "arguments": 5}})")),
            at + ".function.arguments: " + at +
                ".function.arguments must be an object, or a string with one");
  EXPECT_EQ(
      errorOf(message(R"({"function": {"name": "f", "arguments": "[1]"}})")),
      at + ".function.arguments: " + at +
          ".function.arguments has an array when a JSON object is needed");
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
  EXPECT_EQ(errorOf<FillParameters>(R"({"input_extra": [{"text": "t"}]})"),
            "input_extra: input_extra[0] must be {\"filename\": ..., "
            "\"text\": ...}");
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
