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

TEST_F(GrammarTest, KeepsDigitsOfConstants) {
  for (
      const Texts &texts : std::vector<Texts>{
          {R"({"const": 9007199254740993})",
           {"9007199254740993"},
           {"9007199254740992", "90071992547409930"}},
          {R"({"type": "integer", "format": "int64",
                "enum": [9007199254740993, -9223372036854775808, 4]})",
           {"9007199254740993", "-9223372036854775808", "4"},
           {"9007199254740992", "5"}},
          {R"({"enum": [123456789012345678901234, 1e30, null, "a"]})",
           {"123456789012345678901234", "1000000000000000000000000000000",
            "null", R"("a")"},
           {"123456789012345678901235", "1", R"("b")"}},
          {R"({"type": "integer", "const": 1.5e19})",
           {"15000000000000000000"},
           {"9223372036854775807"}},
          // As classes of Python say it, with names of its own.
          {R"({"type": "object", "title": "A", "properties": {
                  "n": {"title": "N", "type": "integer"},
                  "id": {"$ref": "#/$defs/Id", "description": "d"},
                  "to": {"anyOf": [{"allOf": [{"$ref": "#/$defs/Id"}]},
                                   {"type": "null"}], "default": null},
                  "k": {"$ref": "#/$defs/K"}},
                "required": ["id"],
                "$defs": {"Id": {"type": "integer",
                                 "enum": [9007199254740993, 7]},
                          "K": {"type": "array",
                                "items": {"$ref": "#/$defs/L"}},
                          "L": {"enum": ["l"]}}})",
           {R"({"id": 7})", R"({"n": 1, "id": 9007199254740993})",
            R"({"id":7,"to":null,"k":["l", "l"]})",
            R"({"id": 7, "k": [], "x": {"id": 1}, "é": 1})"},
           {"{}", R"({"n": 1})", R"({"id": 9007199254740992})",
            R"({"id": 7, "to": 8})", R"({"id": 7, "n": 1})",
            R"({"id": 7, "k": ["m"]})", R"({"id": 7, "x": 1, "x": 2})",
            R"({"id": 7, "x": 1, "to": 8})", R"({"id" : 7})"}},
          {R"({"type": "object", "properties": {"a": {}, "b": {"const":
                  9007199254740993}, "c": {}, "d": {}}, "required": ["c"],
                "additionalProperties": false})",
           {R"({"c": 1})", R"({"a": 1, "c": 1})",
            R"({"b": 9007199254740993, "c": 1, "d": 1})",
            R"({"a": 1, "b": 9007199254740993, "c": 1, "d": 1})"},
           {"{}", R"({"c": 1, "x": 1})", R"({"b": 1, "c": 1})",
            R"({"c": 1, "b": 9007199254740993})"}},
          {R"({"type": "object", "additionalProperties": {"const":
                9007199254740993}})",
           {"{}", R"({"a": 9007199254740993, "b": 9007199254740993})"},
           {R"({"a": 9007199254740992})"}},
          {R"({"type": "array", "items": {"enum": [9007199254740993, null]},
                "minItems": 1, "maxItems": 3})",
           {"[null]", "[9007199254740993,null, 9007199254740993]"},
           {"[]", "[9007199254740992]", "[null, null, null, null]"}},
          {R"({"type": "array", "items": {"const": 9007199254740993},
                "maxItems": 1})",
           {"[]", "[9007199254740993]"},
           {"[9007199254740993, 9007199254740993]"}},
          {R"({"type": "object", "properties": {"v": {"const":
                  9007199254740993}, "next": {"anyOf": [{"$ref": "#"},
                  {"type": "null"}]}}, "required": ["v", "next"],
                "additionalProperties": false})",
           {R"({"v": 9007199254740993, "next": null})",
            R"({"v": 9007199254740993,"next": {"v":9007199254740993,"next":null}})"},
           {R"({"v": 9007199254740993, "next": {"v": 1, "next": null}})"}}}) {
    expectTexts(texts);
  }
}

namespace {
/// A place for a schema, and documents with its value there.
struct Place {
  const char *schema, *document;
};
} // namespace

// Behind all keywords, a number stays what it is or the schema is refused.
TEST_F(GrammarTest, NeverRoundsConstants) {
  constexpr Place kPlaces[] = {
      {"#", "#"},
      {R"({"type": "object", "properties": {"a": #}, "required": ["a"]})",
       R"({"a": #})"},
      {R"({"type": "object", "additionalProperties": #})", R"({"a": #})"},
      {R"({"patternProperties": {"^a": #}})", R"({"a": #})"},
      {R"({"type": "object", "properties": {"a": #}, "maxProperties": 1,
           "required": ["a"]})",
       R"({"a": #})"},
      {R"({"type": "array", "items": #})", "[#]"},
      {R"({"prefixItems": [#]})", "[#]"},
      {R"({"type": "array", "items": [#], "additionalItems": #})", "[#, #]"},
      {R"({"anyOf": [#, {"type": "null"}]})", "#"},
      {R"({"anyOf": [#], "type": ["object", "array", "integer"]})", "#"},
      {R"({"oneOf": [#, {"type": "null"}]})", "#"},
      {R"({"allOf": [#]})", "#"},
      {R"({"allOf": [#, {"minimum": 3}]})", "#"},
  };
  const std::string exact = "9007199254740993", rounded = "9007199254740992";
  size_t kept = 0;
  for (const char *constant :
       {R"({"const": 9007199254740993})",
        R"({"type": "integer", "enum": [9007199254740993, 5]})"})
    for (const Place &outer : kPlaces)
      for (const Place &inner : kPlaces) {
        const std::string schema = replaced(outer.schema,
                                            replaced(inner.schema, constant)),
                          document = replaced(outer.document, inner.document);
        const std::string error = errorOf(schema);
        if (error == "no error") {
          ++kept;
          expectTexts({schema,
                       {replaced(document, exact)},
                       {replaced(document, rounded)}});
          continue;
        }
        EXPECT_NE(error.find(exact), std::string::npos) << schema << error;
        EXPECT_NE(error.find(", at \"/"), std::string::npos) << schema << error;
      }
  EXPECT_GT(kept, 60U);
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
  // One that leads nowhere else needs no definition of another.
  expectTexts({R"({"type": "array", "items": {"anyOf": [{"const":
                   9007199254740993}, {"$ref": "#/$defs/a"}]},
                   "$defs": {"a": {"type": "null"},
                             "b": {"const": 9007199254740995}}})",
               {"[null, 9007199254740993]"},
               {"[9007199254740995]"}});
}

TEST_F(GrammarTest, BoundsRulesAroundConstants) {
  // Each reference leads to a schema around the next one.
  std::string definitions = R"("$defs": {"d0": {"const": 9007199254740993})";
  for (int i = 1; i < 300; ++i)
    definitions += R"(, "d)" + std::to_string(i) +
                   R"(": {"type": "array", "items": {"$ref": "#/$defs/d)" +
                   std::to_string(i - 1) + "\"}}";
  EXPECT_NE(errorOf(R"({"$ref": "#/$defs/d299", )" + definitions + "}}")
                .find("$ref is not kept"),
            std::string::npos);
  // Many properties, and many copies of a definition.
  std::string properties, numbers = "0";
  for (int i = 0; i < 1000; ++i) {
    properties += (i ? R"(, "p)" : R"("p)") + std::to_string(i) +
                  R"(": {"$ref": "#/$defs/d"})";
    numbers += "," + std::to_string(i + 1000000);
  }
  const auto many = [&](const std::string &definition) {
    return R"({"type": "object", "properties": {"a": {"const":
               9007199254740993}, )" +
           properties + R"(}, "$defs": {"d": )" + definition + "}}";
  };
  EXPECT_EQ(errorOf(many(R"({"type": "null"})")), "no error");
  const std::string found = errorOf(many(R"({"enum": [)" + numbers + "]}"));
  EXPECT_NE(found.find("bytes"), std::string::npos) << found;
}
