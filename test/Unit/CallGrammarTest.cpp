//===- CallGrammarTest.cpp - Grammars of calls of tools -------------------===//

#include "GrammarTexts.h"

#include "grammar/ToolGrammar.h"

#include "qwen/Support/Error.h"

#include <gtest/gtest.h>

using namespace qwen;
using namespace qwen::test;
using nlohmann::ordered_json;

/// Tokens of the stories in place of the marks.
static const char *const kOpen = "<|im_start|>", *const kClose = "<|im_end|>";

/// The tokens of a text with the marks of calls.
static std::vector<int32_t> idsOf(std::string text) {
  for (const auto &[mark, token] :
       {std::pair{kCallOpen, kOpen}, {kCallClose, kClose}})
    for (size_t at = 0; (at = text.find(mark, at)) != std::string::npos;)
      text.replace(at, mark.size(), token);
  return storiesTokenizer().encode(text, /*allowSpecial=*/true);
}

static Tool toolOf(const std::string &name, const std::string &parameters) {
  return {name, ordered_json::parse(parameters)};
}

static const Tools &tools() {
  static const Tools all = {toolOf("look", R"({"type": "object", "properties": {
        "where": {"type": "string"}, "count": {"$ref": "#/$defs/count"},
        "kind": {"enum": ["a", "b\"", null]}},
        "required": ["where", "count"], "additionalProperties": false,
        "$defs": {"count": {"type": "integer", "minimum": 1}}})"),
                            {"now"}};
  return all;
}

namespace {
class CallGrammarTest : public GrammarTest {
protected:
  static std::unique_ptr<Grammar>
  grammarOf(std::string_view format, const CallRules &rules,
            const Tools &of = tools(), const std::set<size_t> &loose = {}) {
    return compiler().compile(
        {GrammarKind::Calls,
         callGrammar(*findCallFormat(format), of, rules,
                     {tokenOf(kOpen), tokenOf(kClose)}, loose)});
  }
  static void expect(const Grammar &grammar,
                     const std::vector<std::string> &accepted,
                     const std::vector<std::string> &refused) {
    for (const std::string &text : accepted)
      EXPECT_TRUE(accepts(grammar, idsOf(text))) << "refuses " << text;
    for (const std::string &text : refused)
      EXPECT_FALSE(accepts(grammar, idsOf(text))) << "accepts " << text;
  }
  /// What parameters of one tool are called, in both senses.
  static std::string errorOf(std::string_view format,
                             const std::string &parameters) {
    try {
      grammarOf(format, {.isRequired = true}, {toolOf("f", parameters)});
    } catch (const Error &error) {
      return error.what();
    }
    return "no error";
  }
};
} // namespace

static std::string hermes(const std::string &name,
                          const std::string &arguments) {
  return "<tool_call>\n{\"name\": \"" + name +
         "\", \"arguments\": " + arguments + "}\n</tool_call>";
}

/// `parameters` are names and values in turn.
static std::string xml(const std::string &name,
                       const std::vector<std::string> &parameters) {
  std::string text = "<tool_call>\n<function=" + name + ">\n";
  for (size_t i = 0; i < parameters.size(); i += 2)
    text += "<parameter=" + parameters[i] + ">\n" + parameters[i + 1] +
            "\n</parameter>\n";
  return text + "</function>\n</tool_call>";
}

TEST_F(CallGrammarTest, RequiresCalls) {
  const std::string call = hermes("now", "{}"), lines = call + "\n" + call;
  for (const bool isSingle : {false, true}) {
    const auto grammar =
        grammarOf("hermes", {.isRequired = true, .isSingle = isSingle});
    expect(*grammar, {call}, {"", "Yes", "Yes" + call, call + "Yes"});
    EXPECT_EQ(accepts(*grammar, idsOf(call + call)), !isSingle);
    EXPECT_EQ(accepts(*grammar, idsOf(lines)), !isSingle);
  }
}

TEST_F(CallGrammarTest, AllowsTextBesideCalls) {
  const std::string call = xml("now", {}), lines = call + "\n" + call;
  for (const bool isSingle : {false, true}) {
    const auto grammar = grammarOf("xml", {.isSingle = isSingle});
    expect(*grammar,
           {"", "Yes", call, "I look: {<tool>}\n" + call + "\nDone",
            "a <tool_call"},
           {call.substr(0, call.size() - 1) + "x", "a" + xml("then", {})});
    EXPECT_EQ(accepts(*grammar, idsOf(lines)), !isSingle);
    // The mark as text.
    EXPECT_FALSE(accepts(*grammar, storiesTokenizer().encode("a <tool_call>")));
  }
}

TEST_F(CallGrammarTest, KeepsArgumentsAsJson) {
  expect(*grammarOf("hermes", {.isRequired = true}),
         {hermes("look", R"({"where": "</x>東", "count": 2})"),
          hermes("look", R"({"where":"","count":1,"kind":"b\""})"),
          hermes("look", R"({"where": "x", "count": 1, "kind": null})"),
          hermes("now", R"({"any": [1]})")},
         {hermes("look", "{}"), hermes("look", R"({"where": "x"})"),
          hermes("look", R"({"where": "x", "count": 0})"),
          hermes("look", R"({"where": "x", "count": 1, "more": 1})"),
          hermes("then", "{}"), hermes("now", "[]"), hermes("now", "null"),
          hermes("now", R"({"a": 1, "a": 2})"),
          hermes("now", "[123456789012345678901]")});
  expect(*grammarOf("hermes", {.isRequired = true}, tools(), {0}),
         {hermes("look", "{}"), hermes("look", R"({"other": 0})")},
         {hermes("look", "1")});
  // Rules around numbers with many digits, of two tools.
  const auto toolWith = [](const char *name, const std::string &number) {
    return toolOf(name, R"({"properties": {"id": {"const": )" + number +
                            R"(}}, "required": ["id"]})");
  };
  expect(*grammarOf("hermes", {.isRequired = true},
                    {toolWith("f", "9007199254740993"),
                     toolWith("g", "9007199254740995")}),
         {hermes("f", R"({"id": 9007199254740993, "x": 1})"),
          hermes("g", R"({"id":9007199254740995})")},
         {hermes("f", R"({"id": 9007199254740995})"),
          hermes("f", R"({"id": 9007199254740992})"), hermes("g", "{}"),
          hermes("g", R"({"id": 9007199254740995, "id": 1})")});
}

TEST_F(CallGrammarTest, KeepsArgumentsAsTags) {
  expect(*grammarOf("xml", {.isRequired = true}),
         {xml("look", {"where", "a\n\"b\"</x>", "count", "2"}),
          xml("look", {"where", "", "count", "12", "kind", "b\""}),
          xml("look",
              {"where", "\n<parameter=x>\n", "count", "1", "kind", "null"}),
          xml("now", {})},
         {xml("look", {}), xml("look", {"where", "x"}),
          xml("look", {"where", "x", "count", "0"}),
          xml("look", {"where", "x", "count", "two"}),
          xml("look", {"count", "1", "where", "x"}),
          xml("look", {"where", "x", "count", "1", "kind", "c"}),
          xml("look", {"where", "x\n</parameter>", "count", "1"}),
          // The reader would end the value there.
          xml("look", {"where", "x\n<parameter=kind>\nb", "count", "1"}),
          xml("now", {"x", "1"}), xml("then", {})});
  expect(*grammarOf("xml", {.isRequired = true}, tools(), {0, 1}),
         {xml("look", {}), xml("look", {"kind", "c", "where", "x"}),
          xml("now", {"x", "1"})},
         {xml("look", {"x", "1"}), xml("now", {"x y", "1"})});
}

TEST_F(CallGrammarTest, WritesTagsOfManySchemas) {
  const auto expectValues = [](const std::string &schema,
                               const std::vector<std::string> &accepted,
                               const std::vector<std::string> &refused) {
    const auto grammar =
        grammarOf("xml", {.isRequired = true},
                  {toolOf("f", R"({"properties": {"a": )" + schema +
                                   R"(}, "required": ["a"], "$defs": {
                         "word": {"type": "string", "title": "Word"},
                         "id": {"type": "integer", "enum": [9007199254740993, 7]},
                         "ids": {"items": {"$ref": "#/$defs/id"}},
                         "kind": {"enum": ["x", "y"], "type": "string"}}})")});
    for (const std::string &text : accepted)
      EXPECT_TRUE(accepts(*grammar, idsOf(xml("f", {"a", text}))))
          << schema << " refuses " << text;
    for (const std::string &text : refused)
      EXPECT_FALSE(accepts(*grammar, idsOf(xml("f", {"a", text}))))
          << schema << " accepts " << text;
  };
  expectValues("{}", {"", "1", "a\nb"}, {});
  expectValues("true", {"a"}, {});
  expectValues(R"({"$ref": "#/$defs/word", "description": "A word"})", {"a"},
               {});
  expectValues(R"({"allOf": [{"$ref": "#/$defs/kind"}]})", {"x", "y"},
               {"z", "\"x\""});
  expectValues(R"({"type": "string", "minLength": 2, "maxLength": 3})",
               {"ab", "東京都"}, {"", "a", "abcd"});
  expectValues(R"({"anyOf": [{"$ref": "#/$defs/kind"}, {"type": "null"}]})",
               {"x", "null"}, {"z", ""});
  expectValues(R"({"anyOf": [{"type": "string", "maxLength": 2},
                             {"type": "null"}]})",
               {"ab", "null"}, {"abc"});
  // The reader takes JSON of an allowed type for a value of that type.
  expectValues(R"({"type": ["string", "integer"]})", {"a", "1"}, {});
  expectValues(R"({"anyOf": [{"const": "auto"},
                             {"type": "integer", "minimum": 5}]})",
               {"auto", "7"}, {"3", "other"});
  expectValues(R"({"enum": ["1", 1, true]})", {"1", "true"}, {"2"});
  expectValues(R"({"type": "null"})", {"null"}, {"", "1"});
  expectValues(R"({"type": "array", "items": {"$ref": "#/$defs/kind"}})",
               {R"(["x", "y"])", "[]"}, {R"(["z"])", "x", "[\n]"});
  // Numbers keep digits that a double does not.
  expectValues(R"({"$ref": "#/$defs/id"})", {"9007199254740993", "7"},
               {"9007199254740992"});
  expectValues(R"({"enum": ["a", 9007199254740993]})", {"9007199254740993"},
               {"9007199254740992"});
  expectValues(R"({"type": "array", "items": {"$ref": "#/$defs/ids/items"}})",
               {"[9007199254740993, 7]"}, {"[9007199254740992]"});
}

TEST_F(CallGrammarTest, RefusesKeywordsByName) {
  const auto property = [](const std::string &schema) {
    return R"({"type": "object", "properties": {"a": )" + schema + "}}";
  };
  for (const auto &[format, parameters, error] :
       std::vector<std::array<std::string, 3>>{
           {"hermes", property(R"({"not": {}})"), "not"},
           {"hermes", R"({"type": "string"})", "type must be object"},
           {"hermes", R"({"x-guidance": {}})", "x-guidance"},
           {"xml", property(R"({"type": "integer", "not": {}})"), "not"},
           {"xml", property(R"({"type": "string", "pattern": "a"})"),
            "pattern of the parameter a"},
           {"xml", property(R"({"type": "string", "format": "date"})"),
            "format of the parameter a"},
           {"xml", property(R"({"type": "string", "maxLength": "a"})"),
            "maxLength"},
           {"xml", property(R"({"anyOf": [{"type": "string"},
                                {"type": "integer", "minimum": 1}]})"),
            "minimum of the parameter a"},
           {"xml", property(R"({"oneOf": [{"type": "string"}]})"), "oneOf"},
           {"xml", property("false"), "false of the parameter a"},
           {"xml", property(R"({"anyOf": [{"$ref": "#/properties/a"}]})"),
            "anyOf"},
           {"xml", property(R"({"enum": ["</parameter>"]})"), "enum"},
           {"xml", property(R"({"type": "array", "items": {"$ref": "#"}})"),
            "the parameter a: $ref \"#\""},
           {"xml", R"({"minProperties": 1})", "minProperties"},
           {"xml", R"({"required": ["b"]})", "required \"b\""},
           {"xml", R"({"properties": {"a>": {}}})", "the name a>"},
           {"xml", R"({"type": "array"})",
            "type must be object, not \"array\""}}) {
    const std::string found = errorOf(format, parameters);
    EXPECT_NE(found, "no error") << parameters;
    EXPECT_NE(found.find(error), std::string::npos)
        << parameters << ": " << found;
  }
}

// What a grammar allows, the reader makes a call of.
TEST_F(CallGrammarTest, IsReadBack) {
  for (const auto &[format, text] :
       {std::pair{"hermes", hermes("look", R"({"where": "a\n", "count": 3})")},
        {"xml", xml("look", {"where", "a\n", "count", "3"})}}) {
    const auto grammar = grammarOf(format, {.isRequired = true});
    EXPECT_TRUE(accepts(*grammar, idsOf(text)));
    CallParser parser({findCallFormat(format), std::make_shared<Tools>(tools()),
                       CallRules{.isRequired = true}});
    AnswerEvents events;
    parser.push(AnswerEventKind::Text, false, text, events);
    parser.finish(false, events);
    EXPECT_EQ(parser.calls(), 1);
    EXPECT_FALSE(parser.isBroken());
    std::string arguments;
    for (const AnswerEvent &event : events)
      if (event.kind == AnswerEventKind::ToolCallArguments)
        arguments += event.text;
    EXPECT_EQ(ordered_json::parse(arguments).dump(),
              R"({"where":"a\n","count":3})");
  }
}

// A keyword that is not kept takes away itself, or what is left of its
// parameter, and nothing of the other parameters.
TEST_F(CallGrammarTest, LoosensToolsThatAreNotStrict) {
  const auto grammarOfTool = [](std::string_view format,
                                const std::string &parameters, bool isStrict) {
    Tool tool = toolOf("f", parameters);
    tool.isStrict = isStrict;
    return makeToolGrammar(compiler(),
                           {.format = findCallFormat(format),
                            .tools = std::make_shared<Tools>(Tools{tool}),
                            .rules = CallRules{.isRequired = true}},
                           {tokenOf(kOpen), tokenOf(kClose)});
  };
  const auto withFirst = [](const std::string &first, const std::string &more) {
    return R"({"type": "object", "required": ["a", "b"], "properties": {
        "a": )" +
           first + R"(, "b": {"type": "integer", "minimum": 5}})" + more + "}";
  };
  for (const auto &[first, more] :
       std::vector<std::pair<std::string, std::string>>{
           {R"({"type": "integer", "not": {"const": 7}})", ""},
           {R"({"type": "integer", "multipleOf": 15485863})", ""},
           {R"({"type": "integer"})", R"(, "if": {}, "then": {})"},
           {R"({"type": "integer"})", R"(, "propertyNames": {"maxLength": 3})"},
           {R"({"type": "integer"})",
            R"(, "minProperties": 2, "dependentRequired": {"a": ["b"]})"},
           {R"({"type": "integer"})",
            R"(, "additionalProperties": {"not": {}})"}}) {
    const std::string parameters = withFirst(first, more);
    const auto hermesGrammar = grammarOfTool("hermes", parameters, false);
    expect(*hermesGrammar, {hermes("f", R"({"a": 7, "b": 6})")},
           {hermes("f", R"({"a": 7, "b": 4})"), hermes("f", R"({"a": 7})"),
            hermes("f", R"({"a": "x", "b": 6})")});
    const auto xmlGrammar = grammarOfTool("xml", parameters, false);
    expect(*xmlGrammar, {xml("f", {"a", "7", "b", "6"})},
           {xml("f", {"a", "7", "b", "4"}), xml("f", {"a", "7"})});
    EXPECT_THROW(grammarOfTool("hermes", parameters, true), Error);
  }
  // A parameter of which nothing is kept may be anything.
  const auto other = grammarOfTool(
      "hermes", withFirst(R"({"oneOf": [{"$ref": "other:x"}]})", ""), false);
  expect(*other, {hermes("f", R"({"a": [null], "b": 6})")},
         {hermes("f", R"({"a": [null], "b": 4})")});
}

// Hostile schemas end.
TEST_F(CallGrammarTest, BoundsHostileSchemas) {
  std::string many;
  for (int i = 0; i < 5000; ++i)
    many += "\"p" + std::to_string(i) + "\": {}, ";
  EXPECT_NE(errorOf("hermes", R"({"properties": {)" + many + R"("z": {}}})")
                .find("objects when at most"),
            std::string::npos);
  std::string chain =
      R"({"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": {)";
  for (int i = 0; i < 1000; ++i)
    chain += "\"d" + std::to_string(i) +
             R"(": {"anyOf": [{"$ref": "#/$defs/d)" + std::to_string(i + 1) +
             R"("}, {"type": "null"}]}, )";
  chain += R"("d1000": {"type": "string"}}})";
  EXPECT_NE(errorOf("xml", chain).find("anyOf"), std::string::npos);
  // References in a row, and through properties.
  for (const char *of :
       {R"({"$ref": "#/$defs/d)", R"({"items": {"$ref": "#/$defs/d)"}) {
    const std::string end = of[2] == 'i' ? "}}" : "}";
    chain = R"({"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": {)";
    for (int i = 0; i < 1000; ++i)
      chain += "\"d" + std::to_string(i) + "\": " + of + std::to_string(i + 1) +
               "\"" + end + ", ";
    chain += R"("d1000": {}}})";
    EXPECT_NE(errorOf("hermes", chain).find("$ref"), std::string::npos);
  }
}
