//===- SupportTest.cpp - Errors, text and JSON ----------------------------===//

#include "qwen/Support/Error.h"
#include "qwen/Support/Json.h"
#include "qwen/Support/JsonValue.h"
#include "qwen/Support/Pattern.h"
#include "qwen/Support/Text.h"

#include <gtest/gtest.h>

#include <map>

using namespace qwen;

TEST(Text, PrintableChangesNoTerminal) {
  EXPECT_EQ(printable("caf\u00e9 \u4f60 \U0001f600 \\"),
            "caf\u00e9 \u4f60 \U0001f600 \\");
  EXPECT_EQ(printable(std::string("\0\n\r\t\x1b[31m\x7f", 10)),
            "\\u0000\\n\\r\\t\\u001b[31m\\u007f");
  EXPECT_EQ(printable("\u0080\u009b\u00a0"), "\\u0080\\u009b\u00a0");
  EXPECT_EQ(printable("\u061c\u200e\u200f\u2028\u2029\u202a\u202e\u2066\u2069"),
            "\\u061c\\u200e\\u200f\\u2028\\u2029\\u202a\\u202e\\u2066\\u2069");
  EXPECT_EQ(printable("a\xff\xe4\xbd"), "a\ufffd\ufffd");
}

TEST(Text, IsTrimmed) {
  EXPECT_EQ(trimmed(" \ta b\n ", " \t\n"), "a b");
  EXPECT_EQ(trimmed(" a\n ", " "), "a\n");
  EXPECT_EQ(trimmed(" \t ", " \t"), "");
  EXPECT_EQ(trimmed("", " "), "");
}

TEST(Text, QuotesAreCut) {
  EXPECT_EQ(quote("a\"\\\x9b"), "\"a\\\"\\\\\ufffd\"");
  EXPECT_EQ(quote(std::string(300, 'x')),
            '"' + std::string(200, 'x') + "...\"");
}

TEST(Error, IsOneShortLine) {
  EXPECT_STREQ(Error("a\n\x1b]0;b").what(), "a\\n\\u001b]0;b");
  EXPECT_EQ(std::string(Error(std::string(5000, 'x')).what()),
            std::string(4000, 'x') + "...");
}

/// The message of checkJson, or "".
static std::string jsonError(std::string_view text) {
  try {
    checkJson(text, "f", {.depth = 3, .elements = 2, .keys = 2});
  } catch (const Error &error) {
    return error.what();
  }
  return "";
}

TEST(Json, KeepsItsLimits) {
  for (const char *good :
       {"1", "[]", R"({"a": {"b": [1, 2]}, "b": [[], {}]})", R"([{"": -1.5}])"})
    EXPECT_EQ(jsonError(good), "") << good;
  for (const auto &[bad, where] : std::map<std::string, std::string>{
           {"", ": it is empty"},
           {"{", ": it ends too early, at column 2"},
           {"[1,\n", ": it ends too early, at line 2, column 1"},
           {"[\"a", ": it ends too early, at column 4"},
           {"[1,]", " at column 4"},
           {"1 2", " at column 3"},
           {"{\n  \"a\": 1,\r\n  b", " at line 3, column 3"},
           {"[\"\u00e9\u20ac\", x]", " at column 8"},
           {"\"\xff\"", " at column 2"},
           {R"(["\\ud83d", ])", " at column 13"}})
    EXPECT_EQ(jsonError(bad), "f is not JSON" + where) << bad;
  EXPECT_EQ(jsonError("1e999"),
            "f has a number that is too large, which ends at column 5");
  // A high half without a low one, with another high one, and a low half.
  for (const auto &[text, found] : std::map<std::string, std::string>{
           {R"(["x\ud800y"])", "\\ud800 at column 4"},
           {R"(["\ud83d\ud83d"])", "\\ud83d at column 3"},
           {R"({"\uD83D\n": 1})", "\\uD83D at column 3"},
           {R"(["\ud83d\ude00\ude00"])", "\\ude00 at column 15"}})
    EXPECT_EQ(jsonError(text),
              "f is not JSON: " + found + " is one half of a surrogate pair");
  EXPECT_EQ(jsonError(R"(["\ud83d\ude00"])"), "");
  EXPECT_EQ(jsonError("[[[[]]]]"),
            "f has arrays and objects nested more than 3 deep");
  EXPECT_EQ(jsonError("[1, 2, 3]"), "f has more than 2 elements");
  EXPECT_EQ(jsonError(R"({"a": [{}, [1, null, ""]]})"),
            "f has more than 2 elements in \"a\"");
  EXPECT_EQ(jsonError(R"({"a": 1, "b": {"1": 1, "2": 2, "3": 3}})"),
            "f has more than 2 keys in \"b\"");
  EXPECT_EQ(jsonError(R"([1, {"a": {"b\n": 1, "b\n": 2}}])"),
            "f has \"b\\n\" twice in \"a\"");
}

TEST(Error, FieldsAreParts) {
  const Error error(part::file("f\n") + ": " + part::tensor("t") + " has " +
                    part::found(3) + " values, not " + part::found(4) +
                    " when " + part::needed("more") + " are needed");
  EXPECT_STREQ(error.what(),
               "f\\n: tensor \"t\" has 3 values, not 4 when more are needed");
  EXPECT_EQ(error.fields().file, "f\\n");
  EXPECT_EQ(error.fields().subject, "t");
  // The first one counts.
  EXPECT_EQ(error.fields().found, "3");
  EXPECT_EQ(error.fields().needed, "more");
  EXPECT_EQ(Error("a line").fields().needed, "");
  EXPECT_TRUE(std::is_nothrow_copy_constructible_v<Error>);
}

TEST(JsonValue, TellsWhatNobodyRead) {
  const auto value = nlohmann::json::parse(
      R"({"a": {"b": 1, "c": 2}, "d": {"e": 3}, "f": [{"g": 4, "h": 5}, {"g": 6}], "i": [7]})");
  JsonReads read;
  const JsonSource source = JsonSource::ofFile("f", &read);
  const JsonValue root(value, source);
  root.at("a").at("b");
  // Nobody looks for a key of d, nor for h.
  root.at("d");
  for (const JsonValue &element : root.at("f").elements())
    element.at("g");
  std::vector<std::string> names;
  for (const auto &[key, unread] : root.unread())
    names.push_back(unread.name());
  EXPECT_EQ(names, (std::vector<std::string>{"a.c", "f[0].h", "i"}));
}

TEST(JsonValue, GivesMembersInTheOrderOfTheText) {
  // "p.b" is the name of two objects.
  const std::string text =
      R"({"o": {"z": 1, "a": {"n": 0}, "m": 3}, "p": {"b": {"y": 1, "x": 2}}, "p.b": {"x": 1, "w": 2}})";
  EXPECT_EQ(keysInOrder(text, "o"), (std::vector<std::string>{"z", "a", "m"}));
  EXPECT_EQ(keysInOrder(text, "p.b"),
            (std::vector<std::string>{"y", "x", "x", "w"}));
  EXPECT_EQ(keysInOrder(text, "o.a"), std::vector<std::string>{"n"});
  EXPECT_TRUE(keysInOrder(text, "nothing").empty());
  const auto value = nlohmann::json::parse(text);
  JsonReads read;
  JsonSource source = JsonSource::ofFile("f", &read);
  const auto namesOf = [](const JsonValue &object) {
    std::vector<std::string> names;
    for (const auto &[key, member] : object.members())
      names.push_back(member.name());
    return names;
  };
  const JsonValue root(value, source);
  EXPECT_EQ(namesOf(root.at("o")),
            (std::vector<std::string>{"o.a", "o.m", "o.z"}));
  source.keysOf = [&](const std::string &path) {
    return keysInOrder(text, path);
  };
  EXPECT_EQ(namesOf(root.at("o")),
            (std::vector<std::string>{"o.z", "o.a", "o.m"}));
  EXPECT_EQ(namesOf(root.at("p").at("b")),
            (std::vector<std::string>{"p.b.y", "p.b.x"}));
  EXPECT_EQ(root.at("o").what().line(), "f: o");
  // Members count as read.
  for (const auto &[key, unread] : root.unread())
    EXPECT_EQ(key, "p.b");
}

TEST(Pattern, Matches) {
  const Pattern layer("model\\.layers\\.1\\.", "f: rules");
  EXPECT_TRUE(layer.matchesStart("model.layers.1.mlp"));
  EXPECT_FALSE(layer.matchesStart("a.model.layers.1.mlp"));
  EXPECT_TRUE(layer.matchesPart("a.model.layers.1.mlp"));
  EXPECT_FALSE(layer.matchesWhole("model.layers.1.mlp"));
  EXPECT_TRUE(Pattern(".*_proj", "f").matchesWhole("up_proj"));
  // In time linear in the name.
  EXPECT_FALSE(Pattern("((.*)*)*x", "f").matchesStart(std::string(10000, 'a')));
}

TEST(Pattern, NamesWhatItDoesNotRead) {
  const auto error = [](const char *text) -> std::string {
    try {
      const Pattern pattern(text, "f: rules");
    } catch (const Error &error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(error("(?=a)b"),
            "f: rules has the regular expression \"(?=a)b\", which RE2 does "
            "not read (invalid perl operator: (?=); look-around and "
            "back-references are not supported");
  EXPECT_NE(error("([a").find("missing ]"), std::string::npos);
}

TEST(JsonValue, IsOfItsKindAndInItsRange) {
  const auto value = nlohmann::json::parse(
      R"({"a": [{"n": 18446744073709551615}], "s": "\u001b", "z": null})");
  const JsonSource source = {"f: in it, ", "f: it"};
  const JsonValue root(value, source);
  const auto error = [](const auto &read) -> std::string {
    try {
      read();
    } catch (const Error &error) {
      return error.what();
    }
    return "";
  };
  // UINT64_MAX must not be read as -1.
  EXPECT_EQ(error([&] { root.at("a").elements()[0].at("n").integer(-1, 9); }),
            "f: in it, a[0].n is 18446744073709551615 when an integer from -1 "
            "to 9 is needed");
  EXPECT_EQ(error([&] { root.at("a").string(); }),
            "f: in it, a is an array when a string is needed");
  EXPECT_EQ(error([&] { root.at("s").boolean(); }),
            R"(f: in it, s is "\u001b" when true or false is needed)");
  EXPECT_EQ(root.at("s").string(), "\x1b");
  EXPECT_EQ(error([&] { root.at("a").elements()[0].at("m"); }),
            "f: it has no a[0].m");
  EXPECT_TRUE(root.find("z"));
  EXPECT_FALSE(root.findValue("z"));
}
