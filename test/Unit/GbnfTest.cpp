//===- GbnfTest.cpp - Grammars of llama.cpp -------------------------------===//

#include "grammar/Gbnf.h"

#include "GrammarTexts.h"

using namespace qwen;
using namespace qwen::test;

static std::string gbnfError(const std::string &gbnf) {
  try {
    larkOfGbnf(gbnf);
  } catch (const Error &error) {
    return error.what();
  }
  return "no error";
}

namespace {

class GbnfTest : public GrammarTest {
protected:
  static void expect(const std::string &gbnf,
                     const std::vector<std::string> &accepted,
                     const std::vector<std::string> &refused) {
    const std::string lark = larkOfGbnf(gbnf);
    const auto compiled = compiler().compile({GrammarKind::Lark, lark});
    for (const std::string &text : accepted)
      EXPECT_TRUE(accepts(*compiled, text)) << lark << " refuses " << text;
    for (const std::string &text : refused)
      EXPECT_FALSE(accepts(*compiled, text)) << lark << " accepts " << text;
  }
};

TEST_F(GbnfTest, KeepsRulesThatDoNotContainThemselves) {
  expect("# a move\nroot ::= move (\",\" move)* # the end\n"
         "move ::= [a-h] [1-8] |\n  \"O-O\"\n  | \"x\" move-more?\n"
         "move-more ::= \"+\"{2} \"!\"{1,} \"?\"{0,2}",
         {"a1", "h8,O-O", "x", "x,x++!!??"},
         {"", "a9", "a1,", "O-", "x+!", "x++", "x++!???"});
  // What a scanner would cut too early.
  expect(R"(root ::= [a-z]+ "end")", {"fooend", "endend", "enend"},
         {"end", "foo", "fooen"});
  expect("root ::= \"\" | [^a\\n] . [\\x41-C\\]\\\\/-]",
         {"", "b\nA", "xx-", "\xe6\x9d\xb1 /", "xx]", "xx\\"},
         {"a a", "\n A", "xxD"});
  expect(R"(root ::= "a\"\\\n\t\u6771\U0001F600" ("x" | ) "/")",
         {"a\"\\\n\t\xe6\x9d\xb1\xf0\x9f\x98\x80x/",
          "a\"\\\n\t\xe6\x9d\xb1\xf0\x9f\x98\x80/"},
         {"a"});
  expect("root ::= a\r\na ::= (\n\"x\"\n|\n\"y\"\n)+", {"x", "xyy"}, {"", "z"});
}

TEST_F(GbnfTest, KeepsRulesThatContainThemselves) {
  // As llama.cpp's json.gbnf.
  const std::string json = R"(
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws     ::= | " " | "\n" [ \t]{0,20})";
  expect(json,
         {"{}", R"({"a": [1, -2.5e3, {"b": "\u6771\""}], "c": true})",
          "{\n  \"a\": null }"},
         {"[]", "{", R"({"a"})", R"({"a": 01})", R"({"a": [1,]})"});
  expect("root ::= \"(\" root \")\" | item{2}\nitem ::= \"a\" | \"b\"",
         {"ab", "((aa))"}, {"a", "(ab", "()"});
  // Left recursion, and a repetition of a rule that contains itself.
  expect("root ::= sum\nsum ::= sum \"+\" [0-9]+ | [0-9]+", {"1", "12+3+4"},
         {"+1", "1+"});
  expect("root ::= tree{2,3}\ntree ::= \"<\" tree* \">\"",
         {"<><>", "<<><>><><>"}, {"<>", "<><><><>"});
}

TEST(GbnfErrorsTest, NameThePlace) {
  for (const auto &[gbnf, error] : {
           std::pair{"a ::= \"x\"", "the GBNF has no rule \"root\""},
           {"root ::= b", "the GBNF has no rule \"b\""},
           {"root ::= \"a\"\nroot ::= \"b\"",
            "line 2 of the GBNF: the rule \"root\" is there twice"},
           {"root ::= <think>", "line 1 of the GBNF: a token, such as <think>, "
                                "is not converted; write its text"},
           {"root ::= \"a\" !<[7]>",
            "line 1 of the GBNF: a token, such as <think>, is not converted; "
            "write its text"},
           {"root ::= (\"a\"", "line 1 of the GBNF: a ) is missing"},
           {"root ::= \"a", "line 1 of the GBNF: the grammar ends within a "
                            "text or a class"},
           {"root ::= [z-a]", "line 1 of the GBNF: a range of characters ends "
                              "before its start"},
           {"root ::= []", "line 1 of the GBNF: [] has no character"},
           {"root ::= \"\\q\"",
            "line 1 of the GBNF: no escape begins with \\q"},
           {"root ::= \"\\ud800\"",
            "line 1 of the GBNF: an escape needs 4 digits of a character"},
           {"root ::= \"a\"{3,2}", "line 1 of the GBNF: a repetition must be "
                                   "{M}, {M,} or {M,N} with M up to N"},
           {"root ::= \"a\"{999999}",
            "line 1 of the GBNF: a number of repetitions from 0 to 100000 is "
            "needed"},
           {"root : \"a\"", "line 1 of the GBNF: ::= is needed behind the name "
                            "of a rule"},
           {"root ::= \"a\")", "line 1 of the GBNF: the rule does not end at "
                               "\")\""},
           {"root ::= $", "line 1 of the GBNF: the name of a rule is needed, "
                          "not \"$\""},
       })
    EXPECT_EQ(gbnfError(gbnf), error) << gbnf;
  EXPECT_NE(gbnfError("root ::= " + std::string(101, '(')).find("100 deep"),
            std::string::npos);
  EXPECT_NE(gbnfError("root ::= \"a\"" + std::string(20, '*')).find("in a row"),
            std::string::npos);
}

} // namespace
