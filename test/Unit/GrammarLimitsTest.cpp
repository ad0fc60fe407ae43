//===- GrammarLimitsTest.cpp - Bounds and rights of schemas ---------------===//

#include "GrammarTexts.h"

#include "qwen/Support/Error.h"

#include <gtest/gtest.h>

#include <functional>
#include <sys/resource.h>
#include <sys/time.h>

using namespace qwen;
using namespace qwen::test;

namespace {

constexpr GrammarKind kSchema = GrammarKind::JsonSchema;

/// Texts of each number from 0 on, with commas.
std::string listed(int count, const std::function<std::string(int)> &text) {
  std::string all;
  for (int i = 0; i < count; ++i)
    all += (i ? ", " : "") + text(i);
  return all;
}

double processorSeconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval &time) {
    return static_cast<double>(time.tv_sec) +
           static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

int64_t mostMegabytes() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss >> 10;
}

std::string patterns(int count, const std::string &more = "") {
  return R"({"type": "string", "allOf": [)" +
         listed(count,
                [](int i) {
                  return R"({"pattern": ".*)" +
                         std::string(1, static_cast<char>('A' + i % 26)) +
                         R"(.*"})";
                }) +
         "]" + more + "}";
}

} // namespace

/// A grammar that took seconds and gigabytes, and the word that its error has;
/// none if it may be made.
struct Hostile {
  GrammarKind kind;
  std::string text, error;
};

TEST_F(GrammarTest, BoundsTimeAndMemory) {
  const auto names = [](int count, const std::string &pattern) {
    return R"({"type": "object", "patternProperties": {)" +
           listed(count,
                  [&](int i) {
                    return "\"" + pattern + std::to_string(i) + "_\": {}";
                  }) +
           "}}";
  };
  const auto choices = [](int count, const std::string &key) {
    return "{\"" + key + R"(": [)" +
           listed(count,
                  [](int i) {
                    return R"({"type": "object", "properties": {"k)" +
                           std::to_string(i) + R"(": {"pattern": "a*b*"}}})";
                  }) +
           "]}";
  };
  const auto allOf = [](const std::string &schema, int count) {
    return R"({"allOf": [)" + listed(count, [&](int) { return schema; }) + "]}";
  };
  const double before = processorSeconds();
  for (const auto &[kind, text, error] : std::vector<Hostile>{
           {kSchema, R"({"type": "integer", "multipleOf": 15485863})",
            "multipleOf"},
           {kSchema, R"({"type": "number", "multipleOf": 0.0000154})", ""},
           {kSchema, R"({"type": "number", "multipleOf": 1.5485863})",
            "multipleOf"},
           {kSchema, R"({"multipleOf": 0})", "multipleOf"},
           {kSchema, R"({"type": "integer", "allOf": [{"multipleOf": 4999},
                         {"multipleOf": 5003}]})",
            "multipleOf"},
           {kSchema,
            R"({"type": "integer", "multipleOf": 4999, "$ref": "#/$defs/a",
                "$defs": {"a": {"multipleOf": 5003}}})",
            "multipleOf"},
           {kSchema,
            R"({"allOf": [{"properties": {"a": {"multipleOf": 4999}}},
                          {"properties": {"a": {"multipleOf": 5003}}}]})",
            "multipleOf"},
           {kSchema,
            R"({"type": "integer", "multipleOf": 9973, "minimum": 123456789,
                "maximum": 987654321987})",
            ""},
           {kSchema, patterns(20), "pattern"},
           {kSchema, patterns(7), "pattern"},
           {kSchema, patterns(3, R"(, "minLength": 3000, "maxLength": 4000)"),
            "pattern"},
           {kSchema, R"({"type": "array", "items": )" + patterns(24) + "}",
            "pattern"},
           {kSchema, names(300, "k"), "parts"},
           {kSchema, names(60, "^k"), ""},
           {kSchema, choices(1500, "oneOf"), ""},
           {kSchema, allOf(choices(40, "anyOf"), 4), "parts"},
           {kSchema,
            allOf(R"({"enum": [)" +
                      listed(2000, [](int i) { return std::to_string(i); }) +
                      "]}",
                  2),
            "parts"},
           {GrammarKind::Lark,
            R"(start: %json {"type": "integer", "multipleOf": 15485863})",
            "multipleOf"},
           {GrammarKind::Lark,
            R"(start: %json // a note
               {"type": "integer", "multipleOf": 15485863})",
            "%json"},
           {GrammarKind::Lark,
            "start: A\nA: " +
                [] {
                  std::string all = "/.*a.*/";
                  for (char c = 'b'; c <= 'x'; ++c)
                    all += std::string(" & /.*") + c + ".*/";
                  return all;
                }(),
            "&"},
           {GrammarKind::Lark, "start: A\nA: /(.*a.{30}){9}/ & ~/(.*b.{30})*/",
            ""},
           // Whether a part is empty takes a walk over all of its states.
           {GrammarKind::Lark,
            "start: A\nA: /y|x.*a.{18}b/ & ~/x.*a(.{9}){2}b/", "states"},
           {GrammarKind::Regex, "(.*a.{40}){20}b", ""},
           {GrammarKind::Regex, "(x+x+)+y{1000}", ""}}) {
    const double start = processorSeconds();
    const std::string found = errorOf(kind, text);
    // Here 0.3 s at most; the machine may be slower, or emulated.
    EXPECT_LT(processorSeconds() - start, 10) << text.substr(0, 100);
    if (!error.empty()) {
      EXPECT_NE(found.find(error), std::string::npos)
          << text.substr(0, 100) << ": " << found;
      EXPECT_NE(found, "no error") << text.substr(0, 100);
    }
  }
  EXPECT_LT(processorSeconds() - before, 40);
  EXPECT_LT(mostMegabytes(), 1000);
}

TEST_F(GrammarTest, TakesAwayWhatForbidsNothing) {
  for (const char *keyword :
       {R"("format": "colour")", R"("format": "uuid4")", R"("format": "json")",
        R"("propertyNames": true)", R"("propertyNames": {})",
        R"("propertyNames": {"type": "string"})", R"("uniqueItems": false)",
        R"("unevaluatedProperties": {})", R"("dependentRequired": {})",
        R"("maximum": 18446744073709551615)", R"("minimum": -1e300)"}) {
    const auto grammar = compiler().compile(
        {kSchema, std::string("{\"anyOf\": [{") + keyword + "}]}"});
    for (const char *document : {R"("a")", R"({"b": [1, 1]})", "[1, 1]", "17"})
      EXPECT_TRUE(accepts(*grammar, document)) << keyword << " " << document;
  }
  // Formats that are known hold, and names of keywords are names.
  const auto grammar = compiler().compile(
      {kSchema, R"({"type": "object", "additionalProperties": false,
          "properties": {"format": {"type": "string", "format": "date"},
                         "uniqueItems": {"const": {"format": "x"}}}})"});
  EXPECT_TRUE(accepts(*grammar, R"({"format": "2026-01-31"})"));
  EXPECT_FALSE(accepts(*grammar, R"({"format": "soon"})"));
  EXPECT_TRUE(accepts(*grammar, R"({"uniqueItems": {"format": "x"}})"));
}

// A name comes once, so names must not be used up.
TEST_F(GrammarTest, KeepsPatternsOfEndlessNames) {
  for (const char *pattern :
       {"^x-", "^[a-z]+$", "a|b", R"(^\\$[a-z]*$)", "^a{2,}$"})
    EXPECT_EQ(errorOf(kSchema, std::string(R"({"patternProperties": {")") +
                                   pattern + R"(": {}},
                  "additionalProperties": false})"),
              "no error")
        << pattern;
  for (const char *pattern : {"^a$", "^[ab]$", "^(x|y+)$", R"(^a\\+$)",
                              "^a$|^b+$", R"(x\\b)", "^[a-f]{8}$"})
    EXPECT_NE(errorOf(kSchema, std::string(R"({"patternProperties": {")") +
                                   pattern + "\": {}}}")
                  .find("patternProperties"),
              std::string::npos)
        << pattern;
}

// What exceeds the bounds of a place of the text is refused, or no dead end.
TEST_F(GrammarTest, NeverReachesADeadEnd) {
  const auto many = [](int count, const std::string &text) {
    return listed(count, [&](int i) {
      std::string one = text;
      for (size_t at = 0; (at = one.find('#', at)) != std::string::npos;)
        one.replace(at, 1, std::to_string(i));
      return one;
    });
  };
  for (const auto &[kind, text] :
       std::vector<std::pair<GrammarKind, std::string>>{
           {kSchema, R"({"type": "object", "additionalProperties": false,
               "properties": {)" +
                         many(1000, R"("key#": {"type": "null"})") + "}}"},
           {kSchema,
            R"({"properties": {)" + many(1000, R"("key#": {})") + "}}"},
           {kSchema, R"({"anyOf": [)" +
                         many(1000, R"({"type": "object", "required": ["k#"],
                                        "properties": {"k#": {}}})") +
                         "]}"},
           {GrammarKind::Choice, "[" + many(10000, R"("choice #\n")") + "]"},
           {kSchema, R"({"type": "object", "properties": {"a": {"type":
               "integer", "multipleOf": 7, "minimum": 100, "maximum": 120}}})"},
           {kSchema, R"({"type": "number", "multipleOf": 0.25, "minimum": 0.3,
                         "maximum": 0.9})"}}) {
    const auto grammar = compiler().compile({kind, text});
    for (uint32_t seed = 0; seed < 5; ++seed) {
      const auto state = grammar->start();
      uint32_t random = seed;
      for (int i = 0; i < 60 && !state->isDone(); ++i) {
        random = random * 1664525 + 1013904223;
        const auto allowed = state->allowed();
        const auto size = static_cast<uint32_t>(storiesTokenizer().vocabSize());
        uint32_t id = (random >> 8) % size;
        while (!allows(allowed, static_cast<int32_t>(id)))
          id = (id + 1) % size;
        ASSERT_NO_THROW(state->accept(static_cast<int32_t>(id)))
            << text.substr(0, 100);
      }
    }
  }
  EXPECT_NE(errorOf(kSchema, R"({"properties": {"a": {"type": "integer",
                "multipleOf": 0.7, "minimum": 1, "maximum": 6}}})")
                .find("multipleOf"),
            std::string::npos);
}

TEST_F(GrammarTest, IsCancelled) {
  std::stop_source source;
  source.request_stop();
  try {
    compiler().compile({kSchema, "true"}, source.get_token());
    ADD_FAILURE();
  } catch (const Error &error) {
    EXPECT_EQ(error.kind(), ErrorKind::Cancelled);
  }
}

// Errors have no options and no texts of the library.
TEST_F(GrammarTest, SaysWhatWithoutTheLibrary) {
  for (const auto &[kind, text] :
       std::vector<std::pair<GrammarKind, std::string>>{
           {kSchema, R"({"oneOf": [{"type": "integer"}, {"minimum": 2}]})"},
           {kSchema, patterns(7)},
           {kSchema, R"({"minProperties": 2, "properties": {"a": {}}})"},
           {kSchema, R"({"enum": []})"},
           {GrammarKind::Lark, "start: A\nA: /(/"},
           {GrammarKind::Lark, "start: A\nA: /a/ & /b/"},
           {GrammarKind::Regex, std::string(200000, '(')}}) {
    const std::string found = errorOf(kind, text);
    EXPECT_NE(found, "no error") << text.substr(0, 100);
    for (const char *word : {"coerce_one_of", "option", "limits.", "lenient",
                             "fuel", "(And ", "panic", "<non-verbose"})
      EXPECT_EQ(found.find(word), std::string::npos) << found;
  }
}
