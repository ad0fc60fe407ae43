//===- MessagesTest.cpp - Requests of the Messages API --------------------===//

#include "RequestBodies.h"
#include "StoriesTokenizer.h"

#include "model/Turns.h"
#include "server/protocols/messages/Messages.h"

#include <fstream>

using namespace qwen;
using namespace qwen::server;
using namespace qwen::test;
using nlohmann::ordered_json;

namespace {

/// A body with this conversation and more members.
std::string asked(const std::string &messages, const std::string &more = "") {
  return R"({"max_tokens": 9, "messages": [)" + messages + "]" +
         (more.empty() ? "" : ", " + more) + "}";
}

const std::string kHi = R"({"role": "user", "content": "Hi"})";

/// The messages that the chat template gets, as text.
std::string turnsOf(const std::string &body) {
  return parse<MessagesParameters>(body).conversation({}).messages.dump();
}

std::string refusal(const std::string &body) {
  return errorOf<MessagesParameters>(body);
}

TEST(MessagesTest, ReadsBlocks) {
  EXPECT_EQ(turnsOf(asked(kHi)), R"([{"role":"user","content":"Hi"}])");
  EXPECT_EQ(
      turnsOf(asked(
          R"({"role": "user", "content": [
                {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}},
                {"type": "text", "text": "b"}]},
             {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "x"},
                {"type": "redacted_thinking", "data": "x"},
                {"type": "text", "text": "c"},
                {"type": "tool_use", "id": "1", "name": "f", "input": {"b": 1, "a": 2}},
                {"type": "tool_use", "id": "2", "name": "g", "input": "broken"}]},
             {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "1", "content": "d"},
                {"type": "tool_result", "tool_use_id": "1", "is_error": true,
                 "content": [{"type": "text", "text": "e"}, {"type": "text", "text": "f"}]},
                {"type": "tool_result", "tool_use_id": "unknown"},
                {"type": "text", "text": "g"}]})")),
      R"([{"role":"user","content":"ab"},)"
      R"({"role":"assistant","content":"c","reasoning_content":"Hm.","tool_calls":[)"
      R"({"type":"function","id":"1","function":{"name":"f","arguments":{"b":1,"a":2}}},)"
      R"({"type":"function","id":"2","function":{"name":"g","arguments":{}}}]},)"
      R"({"role":"tool","content":"d","tool_call_id":"1"},)"
      R"({"role":"tool","content":"Error: ef","tool_call_id":"1"},)"
      R"({"role":"tool","content":"","tool_call_id":"unknown"},)"
      R"({"role":"user","content":"g"}])");
  // Texts of other kinds.
  EXPECT_EQ(turnsOf(asked(
                R"({"role": "user", "content": [
                {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a"}},
                {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "b"}]}},
                {"type": "search_result", "title": "t", "source": "s", "content": [{"type": "text", "text": "c"}]},
                {"type": "of the next release"}]})")),
            R"([{"role":"user","content":"abc"}])");
  // A message of nothing stays a turn.
  EXPECT_EQ(turnsOf(asked(R"({"role": "user", "content": []},
      {"role": "assistant", "content": [{"type": "thinking", "thinking": "a"}]})")),
            R"([{"role":"user","content":""},)"
            R"({"role":"assistant","content":"","reasoning_content":"a"}])");
}

TEST(MessagesTest, SystemTextsAreMessages) {
  const char *const expected = R"([{"role":"system","content":"a"},)"
                               R"({"role":"system","content":"b"},)"
                               R"({"role":"user","content":"Hi"},)"
                               R"({"role":"system","content":"c"}])";
  const auto bodyOf = [](const std::string &system, const std::string &inner) {
    return asked(kHi + R"(, {"role": "system", "content": [)" + inner + "]}",
                 R"("system": [)" + system + "]");
  };
  const std::string a = R"({"type": "text", "text": "a"})",
                    b = R"({"type": "text", "text": "b"})",
                    c = R"({"type": "text", "text": "c"})";
  EXPECT_EQ(turnsOf(bodyOf(a + "," + b, c)), expected);
  // A line that changes with each request.
  const std::string billing =
      R"({"type": "text", "text": "x-anthropic-billing-header: cch=1;"},)";
  EXPECT_EQ(turnsOf(bodyOf(billing + a + "," + b, billing + c)), expected);
  EXPECT_EQ(
      turnsOf(asked(kHi, R"("system": "x-anthropic-billing-header: 2\na")")),
      R"([{"role":"system","content":"a"},{"role":"user","content":"Hi"}])");
  EXPECT_EQ(turnsOf(asked(kHi, R"("system": "x-anthropic-billing-header: 2")")),
            R"([{"role":"user","content":"Hi"}])");
  EXPECT_EQ(
      turnsOf(asked(
          R"({"role": "user", "content": "x-anthropic-billing-header: 1"})")),
      R"([{"role":"user","content":"x-anthropic-billing-header: 1"}])");
}

TEST(MessagesTest, KeepsReasoningOfEarlierTurns) {
  const auto variables = [](const std::string &edits,
                            const std::string &more = "") {
    return parse<MessagesParameters>(
               asked(kHi, R"("context_management": {"edits": )" + edits + "}" +
                              more))
        .conversation({})
        .variables.dump();
  };
  EXPECT_EQ(variables("[]"), "{}");
  EXPECT_EQ(variables(R"([{"type": "clear_tool_uses_20250919", "keep": "all"},
                          {"type": "clear_thinking_20251015", "keep": "all"}])"),
            R"({"preserve_thinking":true})");
  EXPECT_EQ(variables(R"([{"type": "clear_thinking_20251015",
                           "keep": {"type": "thinking_turns", "value": 2}}])"),
            R"({"preserve_thinking":false})");
  EXPECT_EQ(variables(R"([{"type": "clear_thinking_20251015"}])",
                      R"(, "chat_template_kwargs": {"preserve_thinking": 1})"),
            R"({"preserve_thinking":1})");
  EXPECT_EQ(refusal(asked(kHi, R"("context_management": [])")),
            "context_management: context_management must be an object");
  EXPECT_EQ(refusal(asked(kHi, R"("context_management": {"edits": [{}]})")),
            "context_management.edits.type: context_management.edits.type must "
            "be a string");
}

TEST(MessagesTest, ErrorsNameTheBlock) {
  const auto content = [](const std::string &blocks) {
    return refusal(asked(R"({"role": "user", "content": [)" + blocks + "]}"));
  };
  const std::string image = R"({"type": "image", "source": {}})";
  const std::string text = " is of type \"image\", and the model reads text "
                           "only";
  EXPECT_EQ(content(R"({"type": "text", "text": "a"},)" + image),
            "messages[0].content[1]: messages[0].content[1]" + text);
  const std::string inner = "messages[0].content[0].content[0]";
  EXPECT_EQ(
      content(R"({"type": "tool_result", "tool_use_id": "1", "content": [)" +
              image + "]}"),
      inner + ": " + inner + text);
  EXPECT_EQ(content(R"({"type": "document", "source": {"type": "base64"}})"),
            "messages[0].content[0]: messages[0].content[0] is of type "
            "\"document\", and the model reads text only");
  EXPECT_EQ(content(R"({"type": "text"})"),
            "messages[0].content[0]: messages[0].content[0] must have a string "
            "as text");
  EXPECT_EQ(content(R"({"type": "tool_use", "name": "f"})"),
            "messages[0].content[0]: messages[0].content[0] must have a string "
            "as id");
  EXPECT_EQ(content("1"), "messages[0].content[0]: messages[0].content[0] must "
                          "be an object with a type");
  EXPECT_EQ(refusal(asked(R"({"role": "critic", "content": ""})")),
            "messages[0].role: messages[0].role must be user, assistant or "
            "system, not \"critic\"");
  EXPECT_EQ(refusal(asked(R"({"role": "user"})")),
            "messages[0].content: messages[0].content must be a string or an "
            "array of blocks");
  EXPECT_EQ(refusal(R"({"messages": [)" + kHi + "]}"),
            "max_tokens: max_tokens is missing");
  EXPECT_EQ(errorOf<CountParameters>(R"({"messages": [)" + kHi + "]}"),
            "no error");
}

TEST(MessagesTest, ReadsToolsAndChoices) {
  const std::string tools =
      R"("tools": [
        {"type": "web_search_20250305", "name": "web_search"},
        {"name": "f", "description": "d", "input_schema": {"type": "object"},
         "cache_control": {"type": "ephemeral"}, "defer_loading": false},
        {"type": "custom", "name": "g", "input_schema": {}, "strict": true}])";
  const auto rulesOf = [&](const std::string &choice) {
    const auto parameters = parse<MessagesParameters>(
        asked(kHi, tools + R"(, "tool_choice": )" + choice));
    return callsOf(parameters.conversation({}), findCallFormat("hermes")).rules;
  };
  EXPECT_EQ(
      parse<MessagesParameters>(asked(kHi, tools)).tools.dump(),
      R"([{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"}}},)"
      R"({"type":"function","function":{"name":"g","parameters":{},"strict":true}}])");
  EXPECT_EQ(rulesOf(R"({"type": "auto"})")->parameter, "tools[1].strict");
  EXPECT_TRUE(rulesOf(R"({"type": "any"})")->isRequired);
  EXPECT_TRUE(rulesOf(R"({"type": "tool", "name": "f"})")->isSingle);
  EXPECT_FALSE(rulesOf(R"({"type": "none"})"));
  const auto single =
      rulesOf(R"({"type": "auto", "disable_parallel_tool_use": true})");
  EXPECT_TRUE(single->isSingle && !single->isRequired);
  EXPECT_EQ(single->parameter, "tool_choice.disable_parallel_tool_use");
  // Only tools that an answer may call count.
  EXPECT_EQ(refusal(asked(kHi, R"("tools": [{"type": "web_search_20250305"}],
                                  "tool_choice": {"type": "any"})")),
            "tool_choice: tool_choice needs tools");
  EXPECT_EQ(refusal(asked(kHi, R"("tools": [{"name": "f"}])")),
            "tools[0].input_schema: tools[0].input_schema must be a JSON "
            "schema");
  EXPECT_EQ(refusal(asked(kHi, R"("tools": [{"input_schema": {}}])")),
            "tools[0].name: tools[0].name must be a string, neither empty nor "
            "too long");
  EXPECT_EQ(refusal(asked(kHi, R"("tool_choice": {"type": "some"})")),
            "tool_choice.type: tool_choice.type must be auto, any, tool or "
            "none");
}

TEST(MessagesTest, ReadsThinkingAndOutput) {
  const auto read = [](const std::string &more) {
    auto parameters = parse<MessagesParameters>(asked(kHi, more));
    parameters.bindAnswer();
    return parameters;
  };
  const auto variables = [&](const std::string &more) {
    return read(more).conversation(false).variables.dump();
  };
  EXPECT_EQ(variables(""), R"({"enable_thinking":false})");
  EXPECT_EQ(
      parse<MessagesParameters>(asked(kHi)).conversation({}).variables.dump(),
      "{}");
  for (const char *type : {"enabled", "adaptive", "between_tools"})
    EXPECT_EQ(
        variables(R"("thinking": {"type": ")" + std::string(type) + R"("})"),
        R"({"enable_thinking":true})");
  EXPECT_EQ(variables(R"("thinking": {"type": "disabled"})"),
            R"({"enable_thinking":false})");
  EXPECT_EQ(variables(R"("output_config": {"effort": "low"})"),
            R"({"enable_thinking":false,"reasoning_effort":"low"})");
  EXPECT_EQ(variables(R"("chat_template_kwargs": {"preserve_thinking": true})"),
            R"({"enable_thinking":false,"preserve_thinking":true})");
  EXPECT_EQ(read(R"("thinking": {"type": "enabled", "budget_tokens": 1024})")
                .thinkingBudget,
            1024);
  EXPECT_FALSE(
      read(R"("thinking": {"type": "disabled", "budget_tokens": 1024})")
          .thinkingBudget);
  const std::string format =
      R"({"type": "json_schema", "schema": {"type": "object"}})";
  for (const auto &[more, name] :
       {std::pair("\"output_config\": {\"format\": " + format + "}",
                  "output_config.format.schema"),
        std::pair("\"output_format\": " + format, "output_format.schema")}) {
    ASSERT_EQ(read(more).grammars.size(), 1u);
    EXPECT_EQ(read(more).grammars[0].parameter, name);
  }
}

TEST(MessagesTest, TakesWhatAgentsSend) {
  EXPECT_EQ(refusal(asked(kHi, R"("metadata": {"user_id": "x"},
      "context_management": {"edits": []}, "cache_control": {"type": "ephemeral"},
      "service_tier": "auto", "stop_sequences": ["a"], "temperature": 1,
      "output_config": {"task_budget": 1}, "of_the_next_release": {}, "n": 1,
      "thinking": {"type": "adaptive", "display": "omitted"})")),
            "no error");
  EXPECT_EQ(refusal(asked(kHi, R"("n": 2)")),
            "n: n is not supported; only 1 is accepted");
  // The answer continues a text, and nothing else.
  const auto continues = [](const std::string &content) {
    return parse<MessagesParameters>(
               asked(kHi + R"(, {"role": "assistant", "content": )" + content +
                     "}"))
        .conversation({})
        .continueFinalMessage;
  };
  EXPECT_TRUE(continues(R"("The answer is (")"));
  EXPECT_FALSE(continues(R"(" ")"));
  EXPECT_FALSE(continues(R"([{"type": "text", "text": "a"},
      {"type": "tool_use", "id": "1", "name": "f", "input": {}}])"));
}

//===----------------------------------------------------------------------===//
// The same conversation in each API
//===----------------------------------------------------------------------===//

/// A conversation of an agent: each turn of the model has reasoning and two
/// calls, and developers speak in between.
ordered_json chatOf(int turns) {
  ordered_json list = ordered_json::array();
  list.push_back({{"role", "system"}, {"content", "Be brief."}});
  list.push_back({{"role", "user"}, {"content", "What is there?"}});
  for (int i = 0; i < turns; ++i) {
    const std::string number = std::to_string(i);
    ordered_json calls = ordered_json::array();
    for (const char *id : {"a", "b"})
      calls.push_back(
          {{"id", id + number},
           {"type", "function"},
           {"function",
            {{"name", "look"},
             {"arguments", R"({"where": "x", "at": )" + number + "}"}}}});
    list.push_back({{"role", "assistant"},
                    {"content", "I look."},
                    {"reasoning_content", "Where? " + number},
                    {"tool_calls", calls}});
    for (const ordered_json &call : calls)
      list.push_back({{"role", "tool"},
                      {"tool_call_id", call["id"]},
                      {"content", "A ship."}});
    if (i % 3 == 1)
      list.push_back({{"role", "developer"}, {"content", "Hurry."}});
    if (i % 4 == 3)
      list.push_back({{"role", "user"}, {"content", "And then?"}});
  }
  return {{"messages", list},
          {"tools",
           {{{"type", "function"},
             {"function",
              {{"name", "look"},
               {"description", "Look"},
               {"parameters", {{"type", "object"}}}}}}}},
          {"enable_thinking", true}};
}

/// The same as a request of the Messages API, its content blocks of text where
/// that API has them.
ordered_json messagesBodyOf(const ordered_json &chat) {
  ordered_json list = ordered_json::array(), results = ordered_json::array();
  const auto flush = [&] {
    if (!results.empty())
      list.push_back({{"role", "user"}, {"content", results}});
    results.clear();
  };
  const auto text = [](const ordered_json &of) {
    return ordered_json{{"type", "text"}, {"text", of["content"]}};
  };
  for (const ordered_json &each : chat["messages"]) {
    if (each["role"] == "tool") {
      results.push_back({{"type", "tool_result"},
                         {"tool_use_id", each["tool_call_id"]},
                         {"content", ordered_json::array({text(each)})}});
      continue;
    }
    flush();
    ordered_json content = ordered_json::array();
    if (each.contains("reasoning_content"))
      content.push_back({{"type", "thinking"},
                         {"thinking", each["reasoning_content"]},
                         {"signature", "any"}});
    content.push_back(text(each));
    for (const ordered_json &call :
         each.value("tool_calls", ordered_json::array()))
      content.push_back(
          {{"type", "tool_use"},
           {"id", call["id"]},
           {"name", call["function"]["name"]},
           {"input", ordered_json::parse(
                         call["function"]["arguments"].get<std::string>())}});
    const auto &role = each["role"].get_ref<const std::string &>();
    list.push_back({{"role", role == "developer" ? "system" : role},
                    {"content", content}});
  }
  flush();
  const ordered_json system = ordered_json::array({list[0]["content"][0]});
  list.erase(0);
  const ordered_json &function = chat["tools"][0]["function"];
  return {{"max_tokens", 9},
          {"system", system},
          {"messages", list},
          {"tools",
           {{{"name", function["name"]},
             {"description", function["description"]},
             {"input_schema", function["parameters"]}}}},
          {"thinking", {{"type", "adaptive"}}}};
}

TEST(MessagesTest, AConversationHasTheTokensThatItHasInAChat) {
  for (const char *name : {"Qwen-Qwen3-0.6B", "Qwen3-Coder", "Qwen3.5-4B"}) {
    std::ifstream file(QWEN_SOURCE_DIR "/test/Inputs/tokenizer/templates/" +
                       std::string(name) + ".jinja");
    const ChatFormat format(
        std::string(std::istreambuf_iterator<char>(file), {}),
        storiesTokenizer());
    const TurnRules rules = turnRulesOf(format);
    const auto tokensOf = [&](const Conversation &conversation) {
      ordered_json variables = conversation.variables;
      variables["messages"] = turnsFor(rules, conversation.messages);
      variables["tools"] = conversation.tools;
      return format.encode(variables, {});
    };
    for (int turns : {0, 1, 12}) {
      const ordered_json chat = chatOf(turns);
      const auto expected = tokensOf(parse(chat.dump()).conversation());
      EXPECT_GT(expected.size(), 20u * static_cast<size_t>(turns));
      EXPECT_EQ(tokensOf(parse<MessagesParameters>(messagesBodyOf(chat).dump())
                             .conversation({})),
                expected)
          << name << turns;
    }
  }
}

} // namespace
