//===- JsonTextTest.cpp - What of JSON a grammar cannot count -------------===//

#include "GrammarTexts.h"

#include "grammar/JsonText.h"

#include <gtest/gtest.h>

using namespace qwen;
using namespace qwen::test;

using Fit = JsonText::Fit;

static Fit fitOf(std::string_view text) { return JsonText().push(text); }

TEST(JsonTextTest, HasNamesOnce) {
  for (const char *text :
       {R"({"a": 1, "b": {"a": 2}, "c": [{"a": 1}, {"a": 1}], "": "a"})",
        R"({"a": "a", "A": "\"a\": 1, \"a\": 2"})", R"(["a", "a"])",
        R"({"a\n": 1, "an": 2, "a\\n": 3})", "{\"\\u0001\": 1, \"\\u007f\": 2}",
        R"({"a": {}, "b": [], "c": {"d": {}}})"})
    EXPECT_EQ(fitOf(text), Fit::Yes) << text;
  for (const char *text :
       {R"({"a": 1, "a")", R"({"b": {"a": 1, "b": 2}, "b")",
        R"([1, {"x": [{}], "x")", R"({"a\n": 1, "a\u000a")", R"({"\u0061")",
        R"({"\u00e9")", R"({"\u1)", R"({"\u004)",
        R"({"a": [1, {"c": 0}], "b": {"c": 1, "c")"})
    EXPECT_EQ(fitOf(text), Fit::SameName) << text;
}

TEST(JsonTextTest, BoundsDigits) {
  const auto digits = [](size_t count) { return std::string(count, '1'); };
  for (const std::string &text :
       {digits(20), "-" + digits(20),
        "[" + digits(20) + ", " + digits(20) + "]",
        digits(20) + "." + digits(17) + "e-" + digits(3),
        "\"" + digits(99) + "\"", "{\"" + digits(99) + "\": 1}"})
    EXPECT_EQ(fitOf(text), Fit::Yes) << text;
  for (const std::string &text :
       {digits(21), "-" + digits(21), "{\"a\": [" + digits(21),
        "1." + digits(18), "1.5E+" + digits(4), "1e" + digits(4)})
    EXPECT_EQ(fitOf(text), Fit::LongNumber) << text;
}

TEST_F(GrammarTest, HasNamesOnce) {
  for (const char *schema :
       {"true", R"({"type": "object"})", R"({"properties": {"b": {}}})"}) {
    const auto grammar = compiler().compile({GrammarKind::JsonSchema, schema});
    EXPECT_TRUE(accepts(*grammar, R"({"b": 1, "a": {"b": 2}})"));
    EXPECT_TRUE(accepts(*grammar, R"({"b": "b", "ab": "a"})"));
    EXPECT_FALSE(accepts(*grammar, R"({"b": 1, "b": 2})"));
    EXPECT_FALSE(accepts(*grammar, R"({"b": {"a": 1, "a": 2}})"));
    EXPECT_FALSE(accepts(*grammar, R"({"b": 1, "\u0062": 2})"));
  }
  const auto patterns =
      compiler().compile({GrammarKind::JsonSchema,
                          R"({"patternProperties": {"^a": {"type": "null"}},
                              "additionalProperties": false})"});
  EXPECT_TRUE(accepts(*patterns, R"({"a": null, "aa": null})"));
  EXPECT_FALSE(accepts(*patterns, R"({"a": null, "a": null})"));
}

TEST_F(GrammarTest, BoundsDigitsOfFreeNumbers) {
  const std::string twenty = "12345678901234567890";
  const auto of = [](const std::string &schema) {
    return compiler().compile({GrammarKind::JsonSchema, schema});
  };
  const auto integer = of(R"({"type": "integer"})");
  EXPECT_TRUE(accepts(*integer, "18446744073709551615"));
  EXPECT_FALSE(accepts(*integer, twenty + "1"));
  const auto number = of(R"({"type": "number"})");
  EXPECT_TRUE(accepts(*number, "0.12345678901234567"));
  EXPECT_TRUE(accepts(*number, "-1.5e-300"));
  EXPECT_FALSE(accepts(*number, "0.123456789012345678"));
  EXPECT_FALSE(accepts(*number, "1e1000"));
  EXPECT_FALSE(accepts(*number, twenty + "1.5"));
  // Also where any value may come.
  const auto any = of("true");
  EXPECT_TRUE(accepts(*any, "[" + twenty + ", 1]"));
  EXPECT_FALSE(accepts(*any, "[" + twenty + "1]"));
  EXPECT_TRUE(accepts(*any, "\"" + twenty + twenty + "\""));
  // What the schema asks for.
  EXPECT_TRUE(
      accepts(*of(R"({"const": 1e30})"), "1000000000000000000000000000000"));
  EXPECT_TRUE(accepts(*of(R"({"enum": [0.000000000000000000015625, 2]})"),
                      "0.000000000000000000015625"));
  EXPECT_TRUE(accepts(*of(R"({"type": "number", "exclusiveMinimum": 0,
              "maximum": 0.0000000000000000001})"),
                      "0.00000000000000000002"));
}
