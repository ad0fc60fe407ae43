//===- GrammarNumbersTest.cpp - Numbers of schemas past a double ----------===//

#include "GrammarTexts.h"

#include <gtest/gtest.h>

using namespace qwen;
using namespace qwen::test;

static std::unique_ptr<Grammar> grammarOf(const std::string &schema) {
  return compiler().compile({GrammarKind::JsonSchema, schema});
}

static std::string errorOf(const std::string &schema) {
  return errorOf(GrammarKind::JsonSchema, schema);
}

namespace {
/// A schema, and texts that it has or does not have.
struct Texts {
  std::string schema;
  std::vector<std::string> accepted, refused;
};
} // namespace

static void expectTexts(const Texts &texts) {
  const auto grammar = grammarOf(texts.schema);
  for (const std::string &text : texts.accepted)
    EXPECT_TRUE(accepts(*grammar, text)) << texts.schema << " refuses " << text;
  for (const std::string &text : texts.refused)
    EXPECT_FALSE(accepts(*grammar, text))
        << texts.schema << " accepts " << text;
}

static std::string replaced(std::string text, const std::string &by) {
  for (size_t at = 0; (at = text.find('#', at)) != std::string::npos;
       at += by.size())
    text.replace(at, 1, by);
  return text;
}

TEST_F(GrammarTest, MovesBoundsInwards) {
  for (const auto &[bounds, accepted, refused] : std::vector<Texts>{
           {R"("maximum": 9007199254740995)",
            {"9007199254740991"},
            {"9007199254740996"}},
           {R"("minimum": -9007199254740995)", {}, {"-9007199254740996"}},
           {R"("minimum": -9223372036854775808,
               "maximum": 9223372036854775807)",
            {"9007199254740993", "-9223372036854774784"},
            {}},
           {R"("minimum": 5000000000000000000)",
            {"5000000000000000001"},
            {"4999999999999999999"}},
           // The double and 1 are the same double.
           {R"("exclusiveMinimum": 9007199254740992)",
            {"9007199254740994"},
            {"9007199254740992"}},
           {R"("exclusiveMaximum": 1e18)",
            {"999999999999999872"},
            {"1000000000000000000"}},
           {R"("exclusiveMaximum": -9007199254740993)",
            {"-9007199254740994"},
            {"-9007199254740993", "-9007199254740992"}},
           {R"("exclusiveMaximum": 9223372036854775808)",
            {"9223372036854774784"},
            {"9223372036854775808"}},
           {R"("minimum": 9007199254740992, "exclusiveMinimum": true)",
            {"9007199254740994"},
            {"9007199254740992"}},
           {R"("minimum": 9007199254740992, "exclusiveMinimum": false)",
            {"9007199254740992"},
            {"9007199254740991"}},
           {R"("minimum": 9007199254740996,
               "exclusiveMinimum": 9007199254740992)",
            {"9007199254740996"},
            {"9007199254740994"}},
           {R"("exclusiveMaximum": 9007199254740991)",
            {"9007199254740990"},
            {"9007199254740991"}}})
    expectTexts({R"({"type": "integer", )" + bounds + "}", accepted, refused});
  expectTexts({R"({"type": "number", "exclusiveMaximum": 9007199254740992})",
               {"9007199254740990.5"},
               {"9007199254740992"}});
}

TEST_F(GrammarTest, RefusesNumbersByKeywordAndPlace) {
  for (const auto &[keyword, rest] :
       std::vector<std::pair<std::string, std::string>>{
           {"minimum", "1e25"},
           {"exclusiveMaximum", "-1e25"},
           {"minimum", R"(9007199254740993, "maximum": 9007199254740993)"},
           {"multipleOf", "9007199254740993"},
           {"multipleOf", "12345678901234567890123"},
           {"minLength", "9007199254740993"},
           {"minItems", "12345678901234567890"},
           {"const", R"([9007199254740993])"},
           {"enum", R"([1, {"a": 12345678901234567890}])"},
           {"const", R"(9007199254740993, "minimum": 0)"}})
    for (const char *place : {"", "/properties/a", "/$defs/b/items"}) {
      const std::string schema = "{\"" + keyword + "\": " + rest + "}";
      std::string whole = schema;
      if (place == std::string("/properties/a"))
        whole = R"({"type": "object", "properties": {"a": )" + schema + "}}";
      else if (*place)
        whole = R"({"$ref": "#/$defs/b", "$defs": {"b": {"type": "array",
                    "items": )" +
                schema + "}}}";
      const std::string found = errorOf(whole);
      EXPECT_EQ(found.find(keyword), 0U) << whole << ": " << found;
      EXPECT_NE(found.find(place), std::string::npos) << found;
    }
  // A count that no answer reaches bounds nothing.
  expectTexts({R"({"type": "string", "maxLength": 9007199254740993})",
               {R"("a")"},
               {"1"}});
}

// References may lead to places that are no schema of their own accord.
TEST_F(GrammarTest, FollowsReferencesAnywhere) {
  for (const auto &[reference, place] :
       std::vector<std::pair<std::string, std::string>>{
           {"#/x", R"("x": #)"},
           {"#/%78", R"("x": #)"},
           {"json-schema:///#/x", R"("x": #)"},
           {"#/components/schemas/A", R"("components": {"schemas": {"A": #}})"},
           {"#/x/1", R"("x": [{}, #])"},
           {"http://a/b", R"("$defs": {"u": {"not": {"$id": "http://a/b",
                             "allOf": [#]}}})"},
           {"#c", R"("$defs": {"u": {"$anchor": "c", "anyOf": [#]}})"}})
    for (const auto &[schema, error] :
         {std::pair{R"({"const": 9007199254740993})", "const 9007199254740993"},
          {R"({"type": "integer", "multipleOf": 15485863})", "multipleOf"}}) {
      const std::string found = errorOf(R"({"$ref": ")" + reference + R"(", )" +
                                        replaced(place, schema) + "}");
      EXPECT_EQ(found.find(error), 0U) << reference << ": " << found;
    }
  expectTexts({R"({"$ref": "#/x", "x": {"type": "string", "format": "f"}})",
               {R"("a")"},
               {"1"}});
}
