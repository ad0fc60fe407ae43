//===- GrammarTest.cpp - Grammars, and answers that keep to them ----------===//

#include "grammar/Grammar.h"
#include "grammar/AnswerConstraint.h"

#include "GrammarTexts.h"

#include "qwen/Support/Error.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

using namespace qwen;
using namespace qwen::test;

namespace {

class GrammarTextsTest : public GrammarTest {
protected:
  static void expect(GrammarKind kind, const std::string &grammar,
                     const std::vector<std::string> &accepted,
                     const std::vector<std::string> &refused) {
    const auto compiled = compiler().compile({kind, grammar});
    for (const std::string &text : accepted)
      EXPECT_TRUE(accepts(*compiled, text)) << grammar << " refuses " << text;
    for (const std::string &text : refused)
      EXPECT_FALSE(accepts(*compiled, text)) << grammar << " accepts " << text;
  }
};

} // namespace

TEST(GrammarsTest, AreThereOnlyWithTheirLibrary) {
  if (hasGrammars())
    EXPECT_EQ(errorOf(GrammarKind::Regex, "a"), "no error");
  else
    EXPECT_THROW(compiler(), Error);
}

TEST(GrammarsTest, CopyLogitsOfAllowedTokens) {
  std::vector<float> logits(75);
  for (size_t id = 0; id < logits.size(); ++id)
    logits[id] = static_cast<float>(id) - 40;
  logits[3] = -INFINITY;
  // Of the last 11 tokens, no word says anything.
  const std::vector<uint32_t> words = {0x80000009, 0xffffffff};
  std::vector<float> masked(logits.size());
  copyAllowed(logits, words, masked);
  for (size_t id = 0; id < logits.size(); ++id) {
    const bool isAllowed = id == 0 || id == 3 || (id >= 31 && id < 64);
    EXPECT_EQ(masked[id], isAllowed ? logits[id] : -INFINITY) << id;
  }
}

TEST_F(GrammarTextsTest, KeepsSchemas) {
  const std::string schema = R"({
    "type": "object", "required": ["a"], "additionalProperties": false,
    "properties": {"a": {"type": "integer"}, "b": {"$ref": "#/$defs/names"}},
    "$defs": {"names": {"type": "array", "items": {"type": "string"}}}})";
  expect(GrammarKind::JsonSchema, schema,
         {R"({"a": 1})", R"({"a":-20})", R"({"a": 1, "b": []})",
          R"({"a":1,"b":["x", "\"東\n"]})"},
         {"", "{", "{}", R"({"a": "1"})", R"({"a": 1.5})", R"({"b": []})",
          R"({"a": 1, "b": [1]})", R"({"a": 1, "c": 2})", R"({"a": 1} )",
          // At most one space follows a comma or a colon, and no other space.
          R"({"a":  1})", R"({ "a": 1})", "{\"a\":\n1}", R"( {"a": 1})"});
  // The order of the schema is that of the document.
  expect(GrammarKind::JsonSchema,
         R"({"type": "object", "required": ["z", "a"], "properties":
             {"z": {"type": "null"}, "a": {"type": "boolean"}}})",
         {R"({"z": null, "a": true})"}, {R"({"a": true, "z": null})"});
  expect(GrammarKind::JsonSchema, "true", {"1", R"({"a": [null]})"}, {"a"});
  expect(GrammarKind::JsonSchema, R"({"type": "object"})", {"{}"}, {"[]"});
}

TEST_F(GrammarTextsTest, KeepsOtherForms) {
  expect(GrammarKind::Regex, R"(\d{2}/[a-c]+ "?)", {R"(12/abc ")", "12/a "},
         {"12/abc", "1/a ", "12/d ", R"(12/a "")"});
  const std::vector<std::string> choices = {"yes", "yes, \"really\"", "a\\b\n",
                                            "東"};
  expect(GrammarKind::Choice, nlohmann::json(choices).dump(), choices,
         {"", "ye", "yes,", "no", "a\\b", "yesyes"});
  expect(GrammarKind::Lark,
         "start: \"<\" item+ \">\"\nitem: \"a\" | \"(\" item \")\"",
         {"<a>", "<a((a))>"}, {"<>", "<a", "<a(>", "<b>"});
}

TEST_F(GrammarTest, AllowsWhatItAccepts) {
  const auto grammar = compiler().compile(
      {GrammarKind::JsonSchema,
       R"({"type": "object", "required": ["name"], "properties":
           {"name": {"enum": ["Tim", "Tom", "a\"b"]}, "age": {"minimum": 0}},
           "additionalProperties": false})"});
  const std::vector<int32_t> ids =
      storiesTokenizer().encode(R"({"name": "Tim", "age": 12})");
  for (size_t size = 0; size < ids.size(); size += 7) {
    const auto before = grammar->start();
    for (const int32_t id : std::span(ids).first(size))
      before->accept(id);
    const auto allowed = before->allowed();
    size_t count = 0;
    for (int32_t id = 0; id < storiesTokenizer().vocabSize(); ++id) {
      const auto state = grammar->start();
      for (const int32_t each : std::span(ids).first(size))
        state->accept(each);
      bool isAccepted = true;
      try {
        state->accept(id);
      } catch (const Error &) {
        isAccepted = false;
      }
      EXPECT_EQ(allows(allowed, id), isAccepted) << size << " " << id;
      count += isAccepted;
    }
    EXPECT_GT(count, 0U);
  }
}

TEST_F(GrammarTest, ForbidsTokensThatAreMarks) {
  const auto grammar = compiler().compile({GrammarKind::Regex, "(?s:.*)"});
  const auto state = grammar->start();
  const auto allowed = state->allowed();
  for (const AddedToken &token : storiesTokenizer().addedTokens())
    EXPECT_EQ(allows(allowed, static_cast<int32_t>(token.id)),
              static_cast<int32_t>(token.id) == endToken());
  EXPECT_TRUE(allows(allowed, storiesTokenizer().encode("a")[0]));
}

/// What a schema says, a document that it forbids, and one that it allows.
struct Constraint {
  std::string keyword, schema, wrong, right;
};

TEST_F(GrammarTest, KeepsKeywordsOrRefusesThemByName) {
  const std::vector<Constraint> constraints = {
      {"not", R"({"not": {"type": "string"}})", R"("a")", "1"},
      {"uniqueItems", R"({"type": "array", "uniqueItems": true})", "[1, 1]",
       "[1]"},
      {"if", R"({"if": {"type": "string"}, "then": {"maxLength": 1}})",
       R"("ab")", R"("a")"},
      {"dependentRequired", R"({"dependentRequired": {"a": ["b"]}})",
       R"({"a": 1})", "{}"},
      {"propertyNames", R"({"propertyNames": {"maxLength": 1}})",
       R"({"ab": 1})", R"({"a": 1})"},
      {"unevaluatedProperties", R"({"unevaluatedProperties": false})",
       R"({"a": 1})", "{}"},
      {"contains", R"({"type": "array", "contains": {"const": 1}})", "[2]",
       "[2, 1]"},
      {"allOf", R"({"allOf": [{"minimum": 3}, {"maximum": 4}]})", "5", "4"},
      {"pattern", R"({"type": "string", "pattern": "^a+$", "minLength": 2})",
       R"("a")", R"("aa")"},
      {"minProperties", R"({"type": "object", "minProperties": 1})", "{}",
       R"({"a": 1})"},
      {"multipleOf", R"({"type": "integer", "multipleOf": 3})", "4", "6"},
      {"maxItems", R"({"type": "array", "maxItems": 1})", "[1, 2]", "[1]"},
      {"maxLength", R"({"type": "string", "maxLength": 2})", R"("abc")",
       R"("東京")"},
      {"oneOf", R"({"oneOf": [{"type": "integer"}, {"minimum": 2}]})", "3",
       "1"},
  };
  size_t kept = 0;
  for (const auto &[keyword, schema, wrong, right] : constraints) {
    std::unique_ptr<Grammar> grammar;
    try {
      grammar = compiler().compile({GrammarKind::JsonSchema, schema});
    } catch (const Error &error) {
      EXPECT_NE(std::string(error.what()).find(keyword), std::string::npos)
          << keyword << ": " << error.what();
      continue;
    }
    ++kept;
    EXPECT_FALSE(accepts(*grammar, wrong)) << schema << " accepts " << wrong;
    EXPECT_TRUE(accepts(*grammar, right)) << schema << " refuses " << right;
  }
  EXPECT_GE(kept, 6U);
}

TEST_F(GrammarTest, RefusesWhatIsNoGrammar) {
  for (const auto &[kind, text, error] :
       std::vector<std::tuple<GrammarKind, std::string, std::string>>{
           {GrammarKind::JsonSchema, "false", "an object or true"},
           {GrammarKind::JsonSchema, R"({"type": "date"})", "date"},
           {GrammarKind::JsonSchema, R"({"x-guidance": {}})", "x-guidance"},
           {GrammarKind::JsonSchema, R"({"$ref": "http://127.0.0.1:9/s"})",
            "http://127.0.0.1:9/s"},
           {GrammarKind::JsonSchema, R"({"$ref": "file:///etc/passwd"})",
            "file:///etc/passwd"},
           {GrammarKind::JsonSchema, R"({"$ref": "#"})", ""},
           {GrammarKind::JsonSchema, R"({"enum": []})", ""},
           {GrammarKind::Regex, "(", "regex"},
           {GrammarKind::Regex, "a(?=b)", "look-around"},
           {GrammarKind::Regex, std::string("a\0b", 3), "code 0"},
           {GrammarKind::Lark, "start: item", "item"},
           {GrammarKind::Lark, "", ""},
           {GrammarKind::Lark, R"({"$ref":panic:)", "expecting rule"},
           {GrammarKind::Lark, std::string(5000, ':'),
            "5000 colons when at most 4096 are allowed"},
           {GrammarKind::Regex, std::string(GrammarLimits::kBytes + 1, 'a'),
            "1048577 bytes when at most 1048576 are allowed"}}) {
    const std::string found = errorOf(kind, text);
    EXPECT_NE(found, "no error") << text;
    EXPECT_NE(found.find(error), std::string::npos) << text << ": " << found;
    EXPECT_EQ(found.find('\n'), std::string::npos) << found;
  }
}

/// count texts, in which # stands for the number and @ for the next one.
static std::string repeated(int count, const std::string &text) {
  std::string all;
  for (int i = 0; i < count; ++i)
    for (const char c : text)
      if (c == '#' || c == '@')
        all += std::to_string(c == '#' ? i : i + 1);
      else
        all += c;
  return all;
}

// Each compiles, or is refused, and then has a mask at each token.
TEST_F(GrammarTest, BoundsHostileGrammars) {
  const std::string values =
      R"({"enum": [)" + repeated(50000, R"("value#", )") + "0]}";
  const std::string keys = R"({"type": "object", "properties": {)" +
                           repeated(1000, R"("key#": {}, )") + R"("z": {}}})";
  // References in a row: \u0023 is the # of JSON's pointers.
  const auto chain = [&](const std::string &of, int groups) {
    std::string text = R"({"$ref": "#/$defs/g0/d0", "$defs": {)";
    for (int group = 0; group < groups; ++group) {
      const std::string name = "g" + std::to_string(group);
      text += "\"" + name + "\": {" +
              repeated(1000, "\"d#\": {" + of + R"([{"$ref": "\u0023/$defs/)" +
                                 name + R"(/d@"}]}, )") +
              R"("d1000": {"$ref": "#/$defs/g)" + std::to_string(group + 1) +
              R"(/d0"}}, )";
    }
    return text + "\"g" + std::to_string(groups) +
           R"(": {"d0": {"type": "null"}}}})";
  };
  const std::string brackets = std::string(200000, '(');
  for (const auto &[kind, text] :
       std::vector<std::pair<GrammarKind, std::string>>{
           {GrammarKind::JsonSchema,
            R"({"type": "string", "maxLength": 1000000})"},
           {GrammarKind::JsonSchema, values},
           {GrammarKind::JsonSchema, keys},
           {GrammarKind::JsonSchema, chain(R"("allOf": )", 1)},
           {GrammarKind::JsonSchema, chain(R"("prefixItems": )", 1)},
           {GrammarKind::JsonSchema, chain(R"("anyOf": )", 10)},
           {GrammarKind::Lark,
            "start: r0\n" + repeated(4000, "r#: r@\n") + "r4000: \"a\"\n"},
           {GrammarKind::Lark,
            "start: T0\n" + repeated(4000, "T#: T@\n") + "T4000: \"a\"\n"},
           {GrammarKind::Lark, "start: r0\n" + repeated(20000, "r#: r@\n")},
           {GrammarKind::Lark, "start: " + brackets},
           {GrammarKind::Lark, "start: start start | \"a\""},
           {GrammarKind::Regex, brackets},
           {GrammarKind::Regex, "(.*a.{20}){8}b"},
           {GrammarKind::Regex, "((a{1,100}){1,100}){1,100}"}}) {
    std::unique_ptr<Grammar> grammar;
    try {
      grammar = compiler().compile({kind, text});
    } catch (const Error &) {
      continue;
    }
    const auto state = grammar->start();
    for (int i = 0; i < 30 && !state->isDone(); ++i) {
      try {
        const auto allowed = state->allowed();
        int32_t id = 0;
        while (!allows(allowed, id))
          ++id;
        state->accept(id);
      } catch (const Error &error) {
        EXPECT_EQ(std::string(error.what()).find("panic"), std::string::npos);
        break;
      }
    }
  }
}

TEST_F(GrammarTest, MayBeUsedByThreads) {
  const auto grammar = compiler().compile(
      {GrammarKind::JsonSchema, R"({"type": "array", "items": {}})"});
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int round = 0; round < 20; ++round)
        EXPECT_TRUE(accepts(
            *grammar, storiesTokenizer().encode(R"([{"a": [1, "x"]}, null])")));
    });
  for (std::thread &thread : threads)
    thread.join();
}

//===----------------------------------------------------------------------===//
// Behind the reasoning
//===----------------------------------------------------------------------===//

namespace {
/// Reasoning between two tokens of the vocabulary, and a newline behind it.
const std::vector<AnswerSection> kRows = {{"<|im_start|>", "<|im_end|>", "\n"}};

class ReasoningTest : public GrammarTest {
protected:
  void begin(std::span<const int32_t> prompt = {}, bool mayReason = true) {
    constraint.reset();
    parser.emplace(storiesTokenizer(), &format, prompt,
                   AnswerOptions{.mayReason = mayReason});
    grammar = compiler().compile({GrammarKind::Regex, "[ab]+"});
    constraint.emplace(grammar->start(), *parser, &format,
                       std::array{endToken()});
  }
  bool may(int32_t id) {
    const auto words = constraint->allowed();
    return words.empty() || allows(words, id);
  }
  void take(int32_t id) {
    EXPECT_TRUE(may(id));
    constraint->accept(id);
    parser->push(id);
  }

  const AnswerFormat format{storiesTokenizer(), "", kRows};
  const int32_t open = tokenOf("<|im_start|>"), close = tokenOf("<|im_end|>");
  const int32_t newline = storiesTokenizer().encode("\n")[0];
  const int32_t a = storiesTokenizer().encode("a")[0];
  const int32_t c = storiesTokenizer().encode("c")[0];
  std::optional<AnswerParser> parser;
  std::unique_ptr<Grammar> grammar;
  std::optional<AnswerConstraint> constraint;
};
} // namespace

TEST_F(ReasoningTest, GrammarBeginsBehindIt) {
  begin();
  EXPECT_TRUE(may(open) && may(a));
  EXPECT_FALSE(may(c) || may(close) || may(newline) || may(endToken()));
  take(open);
  for (const int32_t id : {c, newline, open, a})
    EXPECT_TRUE(may(id));
  // An answer has more than reasoning.
  EXPECT_FALSE(may(endToken()));
  take(c);
  take(close);
  // What a template writes there may come once.
  EXPECT_TRUE(may(newline) && may(a));
  EXPECT_FALSE(may(open) || may(c) || may(endToken()));
  take(newline);
  EXPECT_FALSE(may(newline) || may(open) || may(endToken()));
  take(a);
  EXPECT_FALSE(may(newline) || may(open) || may(c));
  EXPECT_TRUE(may(endToken()));
  take(endToken());
  EXPECT_TRUE(constraint->isDone());
}

TEST_F(ReasoningTest, GrammarBeginsWithoutIt) {
  begin();
  take(a);
  EXPECT_FALSE(may(open) || may(newline));
  begin(std::array{open});
  EXPECT_TRUE(may(c));
  EXPECT_FALSE(may(endToken()));
  take(close);
  EXPECT_FALSE(may(c) || may(open));
  take(a);
  EXPECT_FALSE(may(newline));
  EXPECT_THROW(constraint->accept(c), Error);
}

// Models open it again and draw up to the end of the answer.
TEST_F(ReasoningTest, IsNotOpenedAgain) {
  const auto expectGrammar = [&] {
    EXPECT_FALSE(may(open) || may(c) || may(close) || may(newline));
    take(a);
    EXPECT_FALSE(may(open));
    EXPECT_TRUE(may(endToken()));
  };
  // The prompt has closed it, or the request is not to think.
  for (const std::vector<int32_t> &prompt : {std::vector{open, close},
                                             {open, newline, close, newline},
                                             {close, a}}) {
    begin(prompt);
    expectGrammar();
  }
  begin({}, false);
  expectGrammar();
  // Where the prompt begins it nevertheless, it is free.
  begin(std::array{open, newline}, false);
  EXPECT_TRUE(may(c));
  take(close);
  EXPECT_FALSE(may(open));
  // An earlier turn says nothing of this answer.
  begin(std::array{open, close, a, endToken(), newline});
  EXPECT_TRUE(may(open));
}

TEST_F(ReasoningTest, NeedsMarksThatAreTokens) {
  const AnswerFormat text(storiesTokenizer(), "<think></think>");
  EXPECT_THROW(requireMarks(&text), Error);
  requireMarks(&format);
  requireMarks(nullptr);
}
