//===- ResponsesTest.cpp - Requests of /v1/responses ----------------------===//

#include "server/protocols/responses/Responses.h"
#include "RequestBodies.h"
#include "server/protocols/responses/CustomText.h"
#include "server/protocols/responses/Sealed.h"

#include "qwen/Support/Base64.h"

using namespace qwen;
using namespace qwen::server;
using namespace qwen::test;
using nlohmann::ordered_json;
using responses::ResponseParameters;

namespace {

using Lines = std::vector<std::string>;

ResponseParameters read(const std::string &body, Notes *notes = nullptr) {
  ResponseParameters parameters;
  ResponseParameters::List::parse(body, {.vocabSize = 100}, parameters, notes);
  return parameters;
}

Lines notesOfRequest(const std::string &body) {
  Notes notes;
  read(body, &notes);
  return notes.take();
}

std::string errorOfBody(const std::string &body) {
  return errorOf<ResponseParameters>(body);
}

ordered_json messagesOfBody(const std::string &body) {
  return read(body).conversation().messages;
}

/// The body with these items.
std::string items(const std::string &list) {
  return R"({"input": [)" + list + "]}";
}

//===----------------------------------------------------------------------===//
// Input
//===----------------------------------------------------------------------===//

TEST(ResponsesTest, ConversationIsTheSameAsChats) {
  const auto asked = read(R"({
    "instructions": "Be brief.",
    "input": [
      {"role": "developer", "content": [{"type": "input_text", "text": "No lists."}]},
      {"type": "message", "role": "user", "content": [
        {"type": "input_text", "text": "Where"}, {"type": "input_text", "text": " is it?"}]},
      {"type": "reasoning", "id": "rs_1", "summary": [], "content": [
        {"type": "reasoning_text", "text": "Look."}]},
      {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
       "content": [{"type": "output_text", "text": "I look.", "annotations": []}]},
      {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "look",
       "arguments": "{\"where\": \"here\", \"deep\": 1.50}", "status": "completed"},
      {"type": "function_call", "call_id": "c2", "name": "find", "namespace": "maps",
       "arguments": "{}"},
      {"type": "custom_tool_call", "call_id": "c3", "name": "patch", "input": "a\nb"},
      {"type": "function_call_output", "call_id": "c1", "output": "nothing"},
      {"type": "function_call_output", "call_id": "c2", "output": [
        {"type": "input_text", "text": "some"}, {"type": "input_text", "text": "thing"}]},
      {"type": "custom_tool_call_output", "call_id": "c3", "output": "done"},
      {"role": "developer", "content": "Now answer."},
      {"role": "assistant", "content": "There."},
      {"role": "assistant", "content": "Or here."},
      {"role": "user", "content": "Thanks"}],
    "tools": [
      {"type": "function", "name": "look", "description": "Look", "strict": false,
       "parameters": {"type": "object", "properties": {"where": {"type": "string"}}}},
      {"type": "namespace", "name": "maps", "description": "Maps", "tools": [
        {"type": "function", "name": "find", "parameters": {"type": "object"}}]}]})");
  const auto chat = parse(R"({
    "messages": [
      {"role": "system", "content": "Be brief."},
      {"role": "developer", "content": "No lists."},
      {"role": "user", "content": "Where is it?"},
      {"role": "assistant", "content": "I look.", "reasoning_content": "Look.", "tool_calls": [
        {"type": "function", "id": "c1", "function": {
          "name": "look", "arguments": "{\"where\": \"here\", \"deep\": 1.50}"}},
        {"type": "function", "id": "c2", "function": {"name": "maps__find", "arguments": "{}"}},
        {"type": "function", "id": "c3", "function": {
          "name": "patch", "arguments": {"input": "a\nb"}}}]},
      {"role": "tool", "content": "nothing", "tool_call_id": "c1"},
      {"role": "tool", "content": "something", "tool_call_id": "c2"},
      {"role": "tool", "content": "done", "tool_call_id": "c3"},
      {"role": "developer", "content": "Now answer."},
      {"role": "assistant", "content": "There."},
      {"role": "assistant", "content": "Or here."},
      {"role": "user", "content": "Thanks"}],
    "tools": [
      {"type": "function", "function": {"name": "look", "description": "Look",
       "parameters": {"type": "object", "properties": {"where": {"type": "string"}}}}},
      {"type": "function", "function": {"name": "maps__find", "description": "Maps",
       "parameters": {"type": "object"}}}]})");
  const Conversation left = asked.conversation(), right = chat.conversation();
  // Members of an object may come in another order, which no template sees.
  const auto sorted = [](const ordered_json &value) {
    return nlohmann::json::parse(value.dump());
  };
  EXPECT_EQ(sorted(left.messages), sorted(right.messages));
  EXPECT_EQ(left.tools.dump(), right.tools.dump());
}

TEST(ResponsesTest, EmptyInputIsAMessage) {
  EXPECT_EQ(messagesOfBody(R"({"input": ""})").dump(),
            R"([{"role":"user","content":""}])");
  EXPECT_EQ(messagesOfBody(R"({"input": "Hi", "instructions": "S"})").dump(),
            R"([{"role":"system","content":"S"},)"
            R"({"role":"user","content":"Hi"}])");
  for (const char *body : {R"({"input": []})", R"({})", R"({"input": null})"})
    EXPECT_EQ(messagesOfBody(body).dump(), R"([{"role":"user","content":""}])")
        << body;
}

TEST(ResponsesTest, PartsOfOneAnswerAreOneMessage) {
  // Text behind calls is a part of the same message, as chat has it.
  EXPECT_EQ(messagesOfBody(items(R"(
      {"role": "assistant", "content": "One."},
      {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
      {"role": "assistant", "content": " Two."},
      {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "R"}]},
      {"role": "user", "content": "U"})"))
                .dump(),
            R"([{"role":"assistant","content":"One. Two.","tool_calls":)"
            R"([{"type":"function","id":"c","function":{"name":"f",)"
            R"("arguments":{}}}]},)"
            R"({"role":"assistant","content":"","reasoning_content":"R"},)"
            R"({"role":"user","content":"U"}])");
  // A call that was cut must not block the agent.
  EXPECT_EQ(messagesOfBody(items(R"({"type": "function_call", "name": "f",
      "arguments": "{\"a\": "})"))[0]["tool_calls"][0]["function"]["arguments"],
            ordered_json::object());
}

TEST(ResponsesTest, SealedReasoningComesBack) {
  const std::string text = "I think, \"therefore\"\n\u6771";
  const std::string sealed = responses::seal(text);
  EXPECT_EQ(responses::unseal(sealed), text);
  EXPECT_EQ(responses::unseal(responses::seal("")), "");
  const auto reasoningOf = [](const std::string &content, Notes *notes) {
    const ordered_json message =
        read(items(R"({"type": "reasoning", "summary": [],
          "encrypted_content": ")" +
                   content + R"("}, {"role": "assistant", "content": "A"})"),
             notes)
            .conversation()
            .messages[0];
    return message.value("reasoning_content", "none");
  };
  Notes notes;
  EXPECT_EQ(reasoningOf(sealed, &notes), text);
  EXPECT_TRUE(notes.take().empty());
  // Damaged, of another server, and no base64.
  std::string damaged = sealed;
  damaged[damaged.size() - 6] ^= 1;
  for (const std::string &bad :
       {damaged, sealed.substr(0, sealed.size() - 4), sealed.substr(4),
        std::string("gAAAAABoISQ24OyVRYbk"), std::string("!"),
        toBase64("qwen-run 1\n"), std::string()}) {
    EXPECT_EQ(responses::unseal(bad), std::nullopt) << bad;
    EXPECT_EQ(reasoningOf(bad, &notes), "none");
    EXPECT_EQ(notes.take(),
              Lines{"input[].encrypted_content is left out: it is damaged, or "
                    "another server's"});
  }
}

TEST(ResponsesTest, WhatTheServerCannotReadIsNoted) {
  EXPECT_EQ(notesOfRequest(R"({"next_field": 1, "include": ["later"], "input": [
      {"role": "user", "content": "Hi", "later": 1},
      {"type": "web_search_call", "id": "ws_1", "status": "completed"},
      {"type": "later_item"},
      {"type": "function_call_output", "call_id": "c", "output": [
        {"type": "input_image", "image_url": "data:"}]}],
      "reasoning": {"effort": "low", "later": 1},
      "text": {"verbosity": "low", "later": 1}, "client_metadata": {}, "store": true})"),
            (Lines{"unknown parameter next_field has no effect",
                   "unknown parameter input[].later has no effect",
                   "input[] of type \"web_search_call\" is left out",
                   "input[] of type \"later_item\" is left out",
                   "input[].output[] of type \"input_image\" is left out: the "
                   "model reads text only",
                   "unknown parameter reasoning.later has no effect",
                   "unknown parameter text.later has no effect",
                   "include of \"later\" has no effect"}));
}

TEST(ResponsesTest, WhatNeedsStoredAnswersIsRefused) {
  for (const char *name : {"previous_response_id", "conversation", "prompt"}) {
    const std::string parameter = name;
    EXPECT_EQ(errorOfBody("{\"" + parameter + R"(": "x", "input": "Hi"})"),
              parameter + ": " + parameter +
                  " is not supported; only null is accepted");
    EXPECT_EQ(errorOfBody("{\"" + parameter + R"(": null})"), "no error");
  }
  EXPECT_EQ(errorOfBody(R"({"background": true})"),
            "background: background is not supported; only false is accepted");
  for (const char *body : {R"({"background": false})", R"({"store": true})",
                           R"({"store": false})", R"({"store": "whatever"})"})
    EXPECT_EQ(errorOfBody(body), "no error") << body;
  const std::string reference =
      "input[0]: input[0] must be a whole item: the server keeps none that it "
      "could refer to";
  EXPECT_EQ(errorOfBody(items(R"({"type": "item_reference", "id": "x"})")),
            reference);
  EXPECT_EQ(errorOfBody(items(R"({"id": "x"})")), reference);
}

TEST(ResponsesTest, WrongInputIsRefused) {
  EXPECT_EQ(errorOfBody(R"({"input": 1})"),
            "input: input must be a string or an array of items");
  EXPECT_EQ(errorOfBody(R"({"input": [1]})"),
            "input[0]: input[0] must be an object");
  EXPECT_EQ(errorOfBody(items(R"({"role": "pope", "content": "x"})")),
            "input[0].role: input[0].role must be one of user, system, "
            "developer, assistant, not \"pope\"");
  EXPECT_EQ(errorOfBody(items(R"({"role": "user", "content": [
              {"type": "input_image", "image_url": "data:"}]})")),
            "input[0].content[0]: input[0].content[0] is of type "
            "\"input_image\"; the model reads text only");
  EXPECT_EQ(errorOfBody(items(R"({"role": "user"})")),
            "input[0].content: input[0].content must be a string or an array "
            "of parts");
  EXPECT_EQ(errorOfBody(items(R"({"type": "function_call"})")),
            "input[0].name: input[0].name must be a string");
  EXPECT_EQ(errorOfBody(R"({"text": {"format": {"type": "x"}}})"),
            "text.format.type: text.format.type must be one of text, "
            "json_object, json_schema");
  EXPECT_EQ(errorOfBody(R"({"n": 2})"),
            "n: n is not supported; only 1 is accepted");
}

TEST(ResponsesTest, FormatIsAGrammar) {
  const auto asked = read(R"({"text": {"format": {
      "type": "json_schema", "name": "city", "schema": {"type": "object"}}}})");
  ASSERT_EQ(asked.grammars.size(), 1U);
  EXPECT_EQ(asked.grammars[0].parameter, "text.format.schema");
  EXPECT_EQ(asked.repeated["text"]["format"]["name"], "city");
  EXPECT_TRUE(
      read(R"({"text": {"format": {"type": "text"}}})").grammars.empty());
}

TEST(ResponsesTest, EffortIsTheSameAsChats) {
  for (const std::string &word : {std::string("none"), std::string("low")})
    EXPECT_EQ(read(R"({"reasoning": {"effort": ")" + word + "\"}}")
                  .conversation()
                  .variables,
              parse(chat(R"("reasoning_effort": ")" + word + "\""))
                  .conversation()
                  .variables);
}

TEST(ResponsesTest, SchemaSaysWhatIsRead) {
  const ordered_json schema =
      ResponseParameters::List::schema({.vocabSize = 9});
  EXPECT_EQ(schema["additionalProperties"], true);
  const ordered_json properties = schema["properties"];
  for (const Parameter &row : ResponseParameters::table.rows)
    EXPECT_TRUE(properties.contains(row.name)) << row.name;
  const auto kindsOf = [&](const ordered_json &items) {
    Lines kinds;
    for (const auto &kind : items["anyOf"])
      kinds.push_back(kind["properties"]["type"].dump());
    return kinds;
  };
  EXPECT_EQ(
      kindsOf(properties["input"]["anyOf"][0]["anyOf"][1]["items"]).size(), 7U);
  EXPECT_EQ(kindsOf(properties["tools"]["anyOf"][0]["items"]),
            (Lines{R"({"const":"function"})", R"({"const":"custom"})",
                   R"({"const":"namespace"})",
                   R"({"type":"string","not":{"enum":["function","custom",)"
                   R"("namespace"]}})"}));
  const ordered_json without =
      ResponseParameters::List::schema({.vocabSize = 9, .noTools = "no tools"});
  EXPECT_EQ(kindsOf(without["properties"]["tools"]["anyOf"][0]["items"]).size(),
            2U);
}

//===----------------------------------------------------------------------===//
// Tools
//===----------------------------------------------------------------------===//

constexpr const char *kTools = R"("tools": [
  {"type": "function", "name": "shell", "strict": true, "parameters": {"type": "object"}},
  {"type": "custom", "name": "apply_patch", "description": "Change files",
   "format": {"type": "grammar", "syntax": "lark", "definition": "start: /x+/"}},
  {"type": "namespace", "name": "mcp__maps", "tools": [
    {"type": "function", "name": "find"}, {"type": "custom", "name": "draw"}]},
  {"type": "web_search"}, {"type": "image_generation"}, {"type": "local_shell"},
  {"type": "file_search", "vector_store_ids": []}, {"type": "later_tool"}])";

std::string withTools(const std::string &more) {
  return std::string("{") + kTools + more + "}";
}

Lines functionsOf(const Conversation &conversation) {
  Lines names;
  for (const auto &tool : conversation.tools)
    names.push_back(tool["function"]["name"]);
  return names;
}

TEST(ResponsesTest, ToolsAreFunctions) {
  Notes notes;
  const auto asked = read(withTools(""), &notes);
  const Conversation conversation = asked.conversation();
  EXPECT_EQ(
      functionsOf(conversation),
      (Lines{"shell", "apply_patch", "mcp__maps__find", "mcp__maps__draw"}));
  EXPECT_EQ(conversation.tools[0]["function"]["strict"], true);
  const auto &patch = conversation.tools[1]["function"];
  EXPECT_EQ(patch["description"], "Change files");
  EXPECT_EQ(patch["parameters"]["properties"]["input"]["description"],
            "A text of this grammar (lark):\nstart: /x+/");
  EXPECT_EQ(patch["parameters"]["required"][0], "input");
  ASSERT_EQ(conversation.grammars.size(), 1U);
  const TextGrammar &grammar = conversation.grammars.at("apply_patch");
  EXPECT_EQ(grammar.parameter, "input");
  EXPECT_FALSE(grammar.isRegex);
  EXPECT_EQ(grammar.definition, "start: /x+/");
  Lines expected;
  for (const char *type : {"web_search", "image_generation", "local_shell",
                           "file_search", "later_tool"})
    expected.push_back("tools[] of type \"" + std::string(type) +
                       "\" is left out: the server runs no tools");
  EXPECT_EQ(notes.take(), expected);
  // The answer names them as the request does.
  const auto draw = asked.nameOf("mcp__maps__draw");
  EXPECT_EQ(draw.name, "draw");
  EXPECT_EQ(draw.space, "mcp__maps");
  EXPECT_TRUE(draw.isCustom);
  EXPECT_EQ(asked.nameOf("shell").space, "");
  EXPECT_EQ(asked.nameOf("other__one").name, "other__one");
  EXPECT_EQ(asked.tools.size(), 8U);
}

TEST(ResponsesTest, ChoicesNameTools) {
  const auto choiceOf = [](const std::string &choice) {
    const Conversation conversation =
        read(withTools(", \"tool_choice\": " + choice)).conversation();
    return std::to_string(conversation.choice.kind) + " " +
           conversation.choice.name;
  };
  EXPECT_EQ(choiceOf("\"none\""), "0 ");
  EXPECT_EQ(choiceOf("\"auto\""), "1 ");
  EXPECT_EQ(choiceOf("\"required\""), "2 ");
  EXPECT_EQ(choiceOf(R"({"type": "function", "name": "shell"})"), "3 shell");
  EXPECT_EQ(choiceOf(R"({"type": "custom", "name": "apply_patch"})"),
            "3 apply_patch");
  for (const char *choice :
       {R"({"type": "function", "name": "find"})",
        R"({"type": "function", "name": "mcp__maps__find"})",
        R"({"type": "function", "name": "find", "namespace": "mcp__maps"})"})
    EXPECT_EQ(choiceOf(choice), "3 mcp__maps__find") << choice;
  const Conversation some = read(withTools(R"(, "tool_choice": {
      "type": "allowed_tools", "mode": "required",
      "tools": [{"type": "function", "name": "shell"},
                {"type": "custom", "name": "draw"}]})"))
                                .conversation();
  EXPECT_EQ(functionsOf(some), (Lines{"shell", "mcp__maps__draw"}));
  EXPECT_EQ(some.choice.kind, ToolChoice::Required);
}

TEST(ResponsesTest, HostedToolsAreRefusedOnlyWhereTheyAreChosen) {
  EXPECT_EQ(
      errorOfBody(withTools(R"(, "tool_choice": {"type": "web_search"})")),
      "tool_choice: tool_choice names a tool of type \"web_search\", "
      "which this server does not run");
  EXPECT_EQ(errorOfBody(withTools(R"(, "tool_choice": {
              "type": "allowed_tools", "mode": "auto",
              "tools": [{"type": "image_generation"}]})")),
            "tool_choice.tools[0]: tool_choice.tools[0] names a tool of type "
            "\"image_generation\", which this server does not run");
  EXPECT_EQ(errorOfBody(R"({"tools": [{"type": "web_search"}]})"), "no error");
  EXPECT_EQ(errorOfBody(R"({"tools": [{"type": "web_search"}],
              "tool_choice": "required"})"),
            "tool_choice: tool_choice needs tools that the client runs");
}

// A grammar is a promise of its tool, as a strict schema is.
TEST(ResponsesTest, GrammarsOfTextsArePromises) {
  const auto promiseOf = [](const std::string &tools, bool hasGrammars) {
    Notes notes;
    ResponseParameters asked;
    ResponseParameters::List::parse(
        R"({"tools": [)" + tools + "]}",
        {.vocabSize = 9, .hasGrammars = hasGrammars}, asked, &notes);
    const auto rules =
        callsOf(asked.conversation(), findCallFormat("xml")).rules;
    const Lines lines = notes.take();
    return (rules ? rules->parameter : "no promise") +
           (lines.empty() ? "" : ", " + lines[0]);
  };
  const std::string function = R"({"type": "function", "name": "f"}, )",
                    start = R"({"type": "custom", "name": "g", "format": )";
  const std::string regex =
      R"({"type": "grammar", "syntax": "regex", "definition": "a+"}})";
  EXPECT_EQ(promiseOf(function + start + regex, true), "tools[1].format");
  EXPECT_EQ(promiseOf(function + start + regex, false),
            "no promise, tools[].format is described and not kept: this server "
            "was built without llguidance");
  EXPECT_EQ(promiseOf(start + R"({"type": "text"}})", true), "no promise");
}

TEST(ResponsesTest, WrongToolsAreRefused) {
  EXPECT_EQ(errorOfBody(R"({"tools": [{"type": "custom", "name": "g", "format":
              {"type": "grammar", "syntax": "gbnf", "definition": "a"}}]})"),
            "tools[0].format.syntax: tools[0].format.syntax must be lark or "
            "regex");
  EXPECT_EQ(errorOfBody(R"({"tools": [{"type": "custom", "name": "g", "format":
              {"type": "grammar", "syntax": "lark"}}]})"),
            "tools[0].format.definition: tools[0].format.definition must be a "
            "string that is not empty");
  EXPECT_EQ(errorOfBody(R"({"tools": {}})"),
            "tools: tools must be an array of tools");
  EXPECT_EQ(errorOfBody(R"({"tools": [{}]})"),
            "tools[0]: tools[0] must be an object with a type");
  EXPECT_EQ(errorOfBody(R"({"tools": [{"type": "function"}]})"),
            "tools[0].name: tools[0].name must be a string of 1 to 128 "
            "characters");
  EXPECT_EQ(errorOfBody(R"({"tools": [{"type": "namespace", "tools": []}]})"),
            "tools[0].name: tools[0].name must be a string of 1 to 126 "
            "characters");
  EXPECT_EQ(errorOfBody(R"({"tools": [{"type": "function", "name": "f",
              "strict": 1}]})"),
            "tools[0].strict: tools[0].strict must be a boolean");
  // A prompt accepts names of functions up to this length.
  const std::string longest =
      R"({"type": "function", "name": ")" + std::string(128, 'n') + "\"}";
  EXPECT_EQ(read(R"({"tools": [{"type": "namespace", "name": ")" +
                 std::string(126, 's') + R"(", "tools": [)" + longest + "]}]}")
                .functions.size(),
            1U);
  EXPECT_EQ(errorOfBody(R"({"tools": [{"type": "namespace", "name": "n",
              "tools": [{"type": "function", "name": 1}]}]})"),
            "tools[0].tools[0].name: tools[0].tools[0].name must be a string");
  EXPECT_EQ(errorOfBody(R"({"tools": [{"type": "function", "name": "f",
              "parameters": 1}]})"),
            "tools[0].parameters: tools[0].parameters must be an object");
  EXPECT_EQ(errorOfBody(R"({"parallel_tool_calls": 1})"),
            "parallel_tool_calls: parallel_tool_calls must be a boolean");
}

//===----------------------------------------------------------------------===//
// Texts of custom tools
//===----------------------------------------------------------------------===//

TEST(ResponsesTest, CustomTextsDoNotDependOnPieces) {
  const std::string text = "*** Begin\n\"q\" \\ \t\u6771 \U0001F600 {}";
  for (const std::string &json :
       {ordered_json{{"input", text}}.dump(),
        ordered_json{{"input", text}}.dump(-1, ' ', true),
        " { \"input\" : " + ordered_json(text).dump() + ", \"x\": 1}"})
    for (size_t size = 1; size <= json.size(); ++size) {
      responses::CustomText custom;
      std::string joined;
      for (size_t at = 0; at < json.size(); at += size)
        joined += custom.push(std::string_view(json).substr(at, size));
      EXPECT_EQ(joined + custom.finish(), text) << json << " " << size;
    }
}

TEST(ResponsesTest, CustomTextsOfOtherFormsComeAtTheEnd) {
  const auto read = [](const std::string &json) {
    responses::CustomText custom;
    const std::string begin = custom.push(json);
    return begin + "|" + custom.finish();
  };
  EXPECT_EQ(read(R"({"patch": "a\n"})"), "|a\n");
  EXPECT_EQ(read(R"({"x": 1, "input": "a"})"), "|a");
  EXPECT_EQ(read(R"({"a": "b", "c": "d"})"), R"(|{"a": "b", "c": "d"})");
  EXPECT_EQ(read(R"({"input": 5})"), R"(|{"input": 5})");
  EXPECT_EQ(read(R"({"input": "a)"), "a|");
  EXPECT_EQ(read(R"({"inp)"), "|");
  EXPECT_EQ(read(""), "|");
}

} // namespace
