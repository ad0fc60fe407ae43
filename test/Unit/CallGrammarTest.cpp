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

/// The same, each byte of a text beside marks as a token.
static std::vector<int32_t> idsByByte(const std::string &text) {
  std::vector<int32_t> ids;
  for (const int32_t id : idsOf(text))
    if (id == tokenOf(kOpen) || id == tokenOf(kClose))
      ids.push_back(id);
    else
      for (const char byte : storiesTokenizer().tokenBytes(id))
        ids.push_back(byteToken(byte));
  return ids;
}

using Parts = std::vector<std::string>;

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

//===----------------------------------------------------------------------===//
// Texts with a grammar
//===----------------------------------------------------------------------===//

/// A tool whose text has a grammar, beside one without.
static Tools textTools(const TextGrammar &grammar) {
  Tool tool = toolOf("patch", R"({"type": "object", "properties": {"input":
      {"type": "string"}}, "required": ["input"]})");
  tool.grammar = grammar;
  return {tool, toolOf("look", R"({"type": "object", "properties": {"input":
      {"type": "string"}}, "required": ["input"]})")};
}

static std::string errorOfText(std::string_view format,
                               const TextGrammar &grammar) {
  try {
    makeToolGrammar(compiler(),
                    {.format = findCallFormat(format),
                     .tools = std::make_shared<Tools>(textTools(grammar)),
                     .rules = CallRules{.isRequired = true}},
                    {tokenOf(kOpen), tokenOf(kClose)});
  } catch (const Error &error) {
    return error.what();
  }
  return "no error";
}

/// A call of a tool with a text, in a format.
static std::string textCall(std::string_view format, const std::string &name,
                            const std::string &text) {
  return format == "hermes"
             ? hermes(name, "{\"input\": " + ordered_json(text).dump() + "}")
             : xml(name, {"input", text});
}

/// Expects that calls with some texts may come, divided as the tokenizer does
/// and by bytes, and that others may not.
static void expectTexts(const TextGrammar &textGrammar,
                        const std::vector<std::string> &accepted,
                        const std::vector<std::string> &refused) {
  const CallOptions calls = {
      .tools = std::make_shared<Tools>(textTools(textGrammar)),
      .rules = CallRules{}};
  for (const std::string_view format : {"hermes", "xml"}) {
    CallOptions options = calls;
    options.format = findCallFormat(format);
    const auto grammar =
        makeToolGrammar(compiler(), options, {tokenOf(kOpen), tokenOf(kClose)});
    const auto may = [&](const std::string &name, const std::string &text) {
      const std::string call = textCall(format, name, text);
      const std::string twice = "I do. " + call + "\n" + call;
      const bool whole = accepts(*grammar, idsOf(twice));
      EXPECT_EQ(accepts(*grammar, idsByByte(twice)), whole) << twice;
      return whole;
    };
    for (const std::string &text : accepted)
      EXPECT_TRUE(may("patch", text)) << format << " refuses " << text;
    for (const std::string &text : refused) {
      EXPECT_FALSE(may("patch", text)) << format << " accepts " << text;
      EXPECT_TRUE(may("look", text)) << "the grammar is that of another tool";
    }
  }
}

// The grammar that Codex sends for patches.
constexpr const char *kPatches = R"(start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?

hunk: add_hunk | delete_hunk | update_hunk
add_hunk: "*** Add File: " filename LF add_line+
delete_hunk: "*** Delete File: " filename LF
update_hunk: "*** Update File: " filename LF change_move? change?

filename: /(.+)/
add_line: "+" /(.*)/ LF -> line

change_move: "*** Move to: " filename LF
change: (change_context | change_line)+ eof_line?
change_context: ("@@" | "@@ " /(.+)/) LF
change_line: ("+" | "-" | " ") /(.*)/ LF
eof_line: "*** End of File" LF

%import common.LF
)";

TEST_F(CallGrammarTest, KeepsTextsOfTools) {
  const std::string head = "*** Begin Patch\n", end = "*** End Patch";
  expectTexts({.parameter = "input", .definition = kPatches},
              {head + "*** Add File: a.py\n+print(\"\\\\n東\")\n+\t\n" + end,
               head + "*** Update File: a\n*** Move to: b\n@@ f\n-x\n+y\n \n" +
                   end + "\n",
               head + "*** Delete File: \"\\\"\n*** Delete File: </x>\n" + end},
              {"", head + end, "print(1)", head + "*** Add File: a\nx\n" + end,
               head + "*** Add File: a\n+x\n", head + "*** Add File: \n" + end,
               head + "*** Delete File: a\n" + end + "\n\n",
               "*** Begin Patch *** Delete File: a " + end});
  expectTexts({.parameter = "input",
               .isRegex = true,
               .definition = R"([^a]{2}\n?|"\\\\")"},
              {"bc", "東\n", "\n\n", "\"\\", "\n\n\n", "<\n"},
              {"", "b", "ab", "bcd", "\"\\\\"});
  // Expressions that would go on behind the text, and joined ones.
  expectTexts({.parameter = "input",
               .definition = "start: A | B\nA: /(?s:.)*/ & /[^x]*/\n"
                             "B: ~/(?s:.*)y(?s:.*)/ & /x.*/"},
              {"", "\n", "a\n\"</p>\n\n", "x\"", "\n</parameter"},
              {"xy", "x\n", "ax"});
  // A text that has a rule in itself, and white space that does not count.
  expectTexts({.parameter = "input",
               .definition = "start: \"(\" start? \")\"\n%ignore /[ \\n]/"},
              {"()", "((\n( ) )\n)"}, {"(", "())", "()("});
}

TEST_F(CallGrammarTest, RefusesTextsWithWrongGrammars) {
  for (const std::string_view format : {"hermes", "xml"}) {
    EXPECT_EQ(
        errorOfText(format, {.parameter = "input", .definition = "start: A"}),
        "the grammar of \"patch\": at 1(8): unknown name: \"A\"");
    EXPECT_EQ(
        errorOfText(
            format,
            {.parameter = "input", .isRegex = true, .definition = "(a"}),
        "the grammar of \"patch\": at 1(8): invalid regex \"(a\" (in regex): "
        "regex parse error: unclosed group");
    EXPECT_EQ(errorOfText(format,
                          {.parameter = "input", .definition = "start: <[3]>"}),
              "the grammar of \"patch\": tokens and max_tokens have no meaning "
              "in the text of a tool");
    EXPECT_EQ(errorOfText(format, {.parameter = "input",
                                   .definition = "start: A\nA: /a/ & /b/"}),
              "the grammar of \"patch\": a part of the grammar has no text: "
              "multipleOf "
              "within a range, patternProperties whose names are all in "
              "properties, or a terminal");
  }
}

// The reader ends a value there, so that no text with it may come.
TEST_F(CallGrammarTest, EndsTextsWithTags) {
  const Tools all = textTools(
      {.parameter = "input", .definition = "start: \"a\\n</parameter>b\""});
  const auto grammar = makeToolGrammar(compiler(),
                                       {.format = findCallFormat("xml"),
                                        .tools = std::make_shared<Tools>(all),
                                        .rules = CallRules{.isRequired = true}},
                                       {tokenOf(kOpen), tokenOf(kClose)});
  const auto state = grammar->start();
  for (const int32_t id : idsOf("<tool_call>\n<function=patch>\n"
                                "<parameter=input>\na\n</parameter"))
    state->accept(id);
  EXPECT_THROW(state->allowed(), Error);
}

// The walk over all tokens finds what each of them finds alone.
TEST_F(CallGrammarTest, AllowsWhatTextsMayGoOnWith) {
  const CallOptions calls = {
      .tools = std::make_shared<Tools>(textTools(
          {.parameter = "input",
           .definition =
               "start: (/[a-z \"\\\\]+/ | \"\\n<\" /[a-z]+/)+ \"\\n\"?"})),
      .rules = CallRules{.isRequired = true}};
  for (const auto &[format, starts] :
       {std::pair{"hermes",
                  Parts{"\n{\"name\": \"patch\", \"arguments\": {\"input\":",
                        " \"", "a\\", "\"b \\", "n<", "a\\u00", "0"}},
        {"xml", Parts{"\n<function=patch>\n<parameter=input>", "\n", "a", "\n",
                      "<x\n</", "parameter>"}}}) {
    CallOptions options = calls;
    options.format = findCallFormat(format);
    const auto grammar =
        makeToolGrammar(compiler(), options, {tokenOf(kOpen), tokenOf(kClose)});
    std::vector<int32_t> before = {tokenOf(kOpen)};
    for (const std::string &start : starts) {
      for (const char byte : start)
        before.push_back(byteToken(byte));
      const auto begun = [&] {
        auto state = grammar->start();
        for (const int32_t id : before)
          state->accept(id);
        return state;
      };
      const auto state = begun();
      const std::span<const uint32_t> allowed = state->allowed();
      for (int32_t id = 0; id < storiesTokenizer().vocabSize(); ++id) {
        const std::string_view bytes = storiesTokenizer().tokenBytes(id);
        if (bytes.find_first_of("\"\\\n<") == bytes.npos && id % 64 != 0)
          continue;
        bool may = true;
        try {
          begun()->accept(id);
        } catch (const Error &) {
          may = false;
        }
        EXPECT_EQ(allows(allowed, id), may)
            << format << " " << start << " " << bytes;
      }
    }
  }
}

// An escape comes only where what it stands for may come.
TEST_F(CallGrammarTest, BeginsNoEscapesThatCannotGoOn) {
  const auto grammar = makeToolGrammar(
      compiler(),
      {.format = findCallFormat("hermes"),
       .tools = std::make_shared<Tools>(textTools(
           {.parameter = "input", .definition = "start: \"a\" /[\\n\\x1b]/"})),
       .rules = CallRules{.isRequired = true}},
      {tokenOf(kOpen), tokenOf(kClose)});
  const auto state = grammar->start();
  for (const int32_t id : idsOf(
           "<tool_call>\n{\"name\": \"patch\", \"arguments\": {\"input\": \""))
    state->accept(id);
  for (const auto &[others, next] : {std::pair{"\\\"b", 'a'},
                                     {"\"n", '\\'},
                                     {"\"\\r", 'u'},
                                     {"1", '0'},
                                     {"1", '0'},
                                     {"2", '1'},
                                     {"a9", 'b'},
                                     {"\\a", '"'}}) {
    const std::span<const uint32_t> allowed = state->allowed();
    for (const char *other = others; *other; ++other)
      EXPECT_FALSE(allows(allowed, byteToken(*other))) << *other;
    ASSERT_TRUE(allows(allowed, byteToken(next))) << next;
    state->accept(byteToken(next));
  }
}
