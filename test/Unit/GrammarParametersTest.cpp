//===- GrammarParametersTest.cpp - What an answer may be like -------------===//

#include "RequestBodies.h"

#include "server/protocols/Fill.h"
#include "server/protocols/openai/Completions.h"

using namespace qwen;
using namespace qwen::server;
using namespace qwen::test;

namespace {

struct Read {
  std::string body, parameter;
  GrammarKind kind;
  std::string text;
};

TEST(GrammarParametersTest, ReadsAllForms) {
  const std::string object = R"({"type":"object"})";
  for (const auto &[body, parameter, kind, text] : std::vector<Read>{
           {R"("response_format": {"type": "json_object"})", "response_format",
            GrammarKind::JsonSchema, R"({"type": "object"})"},
           {R"("response_format": {"type": "json_object",
                                   "schema": {"z": 1, "a": 2}})",
            "response_format.schema", GrammarKind::JsonSchema,
            R"({"z":1,"a":2})"},
           {R"("response_format": {"type": "json_schema", "json_schema":
               {"name": "n", "strict": true, "schema": {"type": "object"}}})",
            "response_format.json_schema.schema", GrammarKind::JsonSchema,
            object},
           {R"("structured_outputs": {"json": {"type": "object"},
                                      "json_object": false, "regex": null})",
            "structured_outputs.json", GrammarKind::JsonSchema, object},
           {R"("structured_outputs": {"json": "{\"type\": \"object\"}"})",
            "structured_outputs.json", GrammarKind::JsonSchema, object},
           {R"("structured_outputs": {"json_object": true})",
            "structured_outputs.json_object", GrammarKind::JsonSchema,
            R"({"type": "object"})"},
           {R"("structured_outputs": {"regex": "a+"})",
            "structured_outputs.regex", GrammarKind::Regex, "a+"},
           {R"("structured_outputs": {"choice": ["a", "b"]})",
            "structured_outputs.choice", GrammarKind::Choice, R"(["a","b"])"},
           {R"("structured_outputs": {"grammar": "start: \"a\""})",
            "structured_outputs.grammar", GrammarKind::Lark, R"(start: "a")"},
           {R"("guided_json": {"type": "object"})", "guided_json",
            GrammarKind::JsonSchema, object},
           {R"("guided_regex": "a+")", "guided_regex", GrammarKind::Regex,
            "a+"},
           {R"("guided_choice": ["a"])", "guided_choice", GrammarKind::Choice,
            R"(["a"])"},
           {R"("guided_grammar": "start: \"a\"")", "guided_grammar",
            GrammarKind::Lark, R"(start: "a")"},
           {R"("json_schema": true)", "json_schema", GrammarKind::JsonSchema,
            "true"},
           {R"("grammar": "start: \"a\"")", "grammar", GrammarKind::Lark,
            R"(start: "a")"},
           {R"("grammar": "root ::= \"a\"")", "grammar", GrammarKind::Lark,
            "start: T0\nT0: \"a\"\n"}}) {
    const auto check = [&](const std::vector<NamedGrammar> &grammars) {
      ASSERT_EQ(grammars.size(), 1U) << body;
      EXPECT_EQ(grammars[0].parameter, parameter);
      EXPECT_EQ(grammars[0].source.kind, kind) << body;
      EXPECT_EQ(grammars[0].source.text, text);
    };
    check(parse(chat(body)).grammars);
    check(parse<CompletionParameters>(R"({"prompt": "x", )" + body + "}")
              .grammars);
    check(parse<FillParameters>("{" + body + "}").grammars);
  }
  for (const char *body :
       {R"("response_format": {"type": "text"})", R"("response_format": null)",
        R"("structured_outputs": {})"})
    EXPECT_TRUE(parse(chat(body)).grammars.empty()) << body;
  EXPECT_EQ(parse(chat(R"("grammar": "start: \"a\"", "guided_regex": "a")"))
                .grammars.size(),
            2U);
}

TEST(GrammarParametersTest, RefusesOthersByName) {
  for (const auto &[body, error] :
       std::vector<std::pair<std::string, std::string>>{
           {R"("response_format": "json")",
            "response_format: response_format must be an object"},
           {R"("response_format": {"type": "xml"})",
            "response_format.type: response_format.type must be one of text, "
            "json_object, json_schema"},
           {R"("response_format": {"type": "text", "colour": 1})",
            "response_format.colour: unknown parameter response_format.colour"},
           {R"("response_format": {"type": "json_schema"})",
            "response_format.json_schema.schema: "
            "response_format.json_schema.schema is missing"},
           {R"("response_format": {"type": "json_schema", "json_schema":
                                   {"schema": {}, "colour": 1}})",
            "response_format.json_schema.colour: unknown parameter "
            "response_format.json_schema.colour"},
           {R"("structured_outputs": {"regex": "a", "json": {}})",
            "structured_outputs.regex: structured_outputs.regex excludes "
            "structured_outputs.json"},
           {R"("structured_outputs": {"structural_tag": "a"})",
            "structured_outputs.structural_tag: unknown parameter "
            "structured_outputs.structural_tag"},
           {R"("guided_json": "{")",
            "guided_json: guided_json is not JSON: it ends "
            "too early, at column 2"},
           {R"("guided_json": 1)", "guided_json: guided_json must be a JSON "
                                   "schema, or a string with one"},
           {R"("guided_regex": "")", "guided_regex: guided_regex must be a "
                                     "string that is not empty"},
           {R"("guided_choice": ["a", ""])",
            "guided_choice: guided_choice must be an array of strings, none of "
            "them empty"},
           {R"("structured_outputs": {"choice": []})",
            "structured_outputs.choice: structured_outputs.choice must be an "
            "array of strings, none of them empty"},
           {R"("grammar": "root ::= $")",
            "grammar: grammar is refused: line 1 of the GBNF: the name of a "
            "rule is needed, not \"$\""}})
    EXPECT_EQ(errorOf(chat(body)), error);
}

TEST(GrammarParametersTest, NeedALibrary) {
  const auto read = [](const std::string &body, bool ignoreUnknown) {
    ChatParameters parameters;
    ChatParameters::List::parse(chat(body),
                                {.vocabSize = 100,
                                 .hasGrammars = false,
                                 .ignoreUnknown = ignoreUnknown},
                                parameters);
    return parameters.grammars.size();
  };
  for (const std::string name :
       {R"("response_format": {"type": "json_object"})",
        R"("structured_outputs": {"regex": "a"})", R"("guided_regex": "a")"}) {
    EXPECT_EQ(read(name, true), 0U);
    try {
      read(name, false);
      ADD_FAILURE();
    } catch (const ApiError &error) {
      EXPECT_NE(std::string(error.what())
                    .find(" needs llguidance, which this server was built "
                          "without"),
                std::string::npos);
    }
  }
  EXPECT_EQ(read(R"("response_format": {"type": "text"})", false), 0U);
}

} // namespace
