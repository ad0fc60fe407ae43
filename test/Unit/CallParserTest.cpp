//===- CallParserTest.cpp - Calls of tools in answers --------------------===//
//
// Each fault of calls that people meet in public is a test here
// (docs/decisions/0027-tools.md).
//
//===----------------------------------------------------------------------===//

#include "text/CallParser.h"

#include "text/JsonScanner.h"
#include "text/SchemaTypes.h"
#include "text/Unicode.h"

#include <gtest/gtest.h>

#include <utility>

using namespace qwen;
using nlohmann::ordered_json;

namespace {

const Tools &tools() {
  static const Tools all = {{"look", ordered_json::parse(R"({
         "type": "object",
         "properties": {
           "where": {"type": "string"},
           "count": {"type": "integer"},
           "share": {"type": "number"},
           "deep": {"type": "boolean"},
           "list": {"type": "array"},
           "map": {"type": "object"},
           "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
           "note": {"type": ["string", "null"]},
           "kind": {"enum": ["a", "b"]},
           "choice": {"enum": ["1", 2, "auto", true, "true", null, [1]]},
           "fixed": {"anyOf": [{"const": "5"}, {"type": "integer"}]},
           "open": {"description": "Any value"},
           "shape": {"properties": {"a": {}}},
           "items": {"items": {"type": "integer"}},
           "least": {"minimum": 1},
           "either": {"type": ["string", "object"]},
           "boolOrNull": {"type": ["boolean", "null"]},
           "mixed": {"type": ["string", "integer"]},
           "point": {"$ref": "#/$defs/point"},
           "any": {}
         },
         "$defs": {"point": {"oneOf": [{"$ref": "#/$defs/point"},
                                       {"type": "array"}]}}})")},
                            {"now"}};
  return all;
}

CallOptions options(std::string_view format) {
  return {findCallFormat(format), std::make_shared<Tools>(tools())};
}

/// What a parser makes of an answer:
/// "T:text|R:reasoning|b:name|a:arguments|e:", events of one kind in a row
/// joined, and "*" for a broken call.
struct Answer {
  explicit Answer(std::string_view format) : parser(options(format)) {}

  void add(std::string_view piece, bool isReasoning = false) {
    AnswerEvents events;
    parser.push(isReasoning ? AnswerEventKind::Reasoning
                            : AnswerEventKind::Text,
                isReasoning, piece, events);
    log(events);
  }
  std::string finish(bool isReasoning = false) {
    AnswerEvents events;
    parser.finish(isReasoning, events);
    log(events);
    return text + (parser.isBroken() ? "*" : "");
  }
  void log(const AnswerEvents &events) {
    for (const AnswerEvent &event : events) {
      const char letter = "TRbaeSE"[static_cast<size_t>(event.kind)];
      if (std::exchange(last, letter) != letter)
        text += std::string(text.empty() ? "" : "|") + letter + ":";
      text += event.text;
    }
  }

  CallParser parser;
  std::string text;
  char last = 0;
};

/// The events of a text, which are the same however it is divided.
std::string parse(std::string_view format, std::string_view text) {
  Answer whole(format), bytes(format);
  whole.add(text);
  const std::string expected = whole.finish();
  for (size_t i = 0; i < text.size(); ++i)
    bytes.add(text.substr(i, 1));
  EXPECT_EQ(bytes.finish(), expected) << text;
  for (size_t cut = 1; cut < text.size(); ++cut) {
    Answer parts(format);
    parts.add(text.substr(0, cut));
    parts.add(text.substr(cut));
    EXPECT_EQ(parts.finish(), expected) << cut << " of " << text;
  }
  // Arguments of a whole call are JSON.
  for (size_t at = 0; (at = expected.find("|a:", at)) != std::string::npos;) {
    at += 3;
    const size_t end = expected.find("|e:", at);
    if (end != std::string::npos)
      EXPECT_TRUE(ordered_json::accept(expected.substr(at, end - at)))
          << expected;
  }
  return expected;
}

std::string hermes(std::string_view text) { return parse("hermes", text); }
std::string xml(std::string_view text) { return parse("xml", text); }

/// A call in XML with one parameter, and the JSON that becomes of its value.
std::string valueOf(const std::string &key, const std::string &value) {
  const std::string text =
      xml("<tool_call>\n<function=look>\n<parameter=" + key + ">\n" + value +
          "\n</parameter>\n</function>\n</tool_call>");
  const std::string begin = "b:look|a:{\"" + key + "\": ", end = "}|e:";
  EXPECT_TRUE(text.starts_with(begin) && text.ends_with(end)) << text;
  return text.substr(begin.size(), text.size() - begin.size() - end.size());
}

/// The same without cuts at all places.
std::string valueOfPieces(const std::string &value) {
  Answer answer("xml");
  answer.add("<tool_call><function=look><parameter=where>" + value +
             "</parameter></function></tool_call>");
  const std::string text = answer.finish();
  const std::string begin = "b:look|a:{\"where\": ", end = "}|e:";
  return text.substr(begin.size(), text.size() - begin.size() - end.size());
}

TEST(CallParser, ReadsHermes) {
  EXPECT_EQ(hermes("Sure.\n<tool_call>\n{\"name\": \"look\", \"arguments\": "
                   "{\"where\": \"\u6771\u4eac\"}}\n</tool_call>"),
            "T:Sure.|b:look|a:{\"where\": \"\u6771\u4eac\"}|e:");
  EXPECT_EQ(hermes("Sure.\n\n\n<tool_call>{\"name\": \"now\"}</tool_call>\n\n"),
            "T:Sure.|b:now|a:{}|e:");
  // Two calls in a row, without a newline, and text behind them.
  EXPECT_EQ(hermes("<tool_call>{\"name\":\"look\",\"arguments\":{\"a\":1}}"
                   "</tool_call><tool_call>{\"name\":\"now\",\"arguments\":{}}"
                   "</tool_call>\nDone.\n"),
            "b:look|a:{\"a\":1}|e:|b:now|a:{}|e:|T:Done.\n");
  // Arguments may miss, come first, be null, or be a string with JSON.
  EXPECT_EQ(hermes("<tool_call>{\"name\": \"now\"}</tool_call>"),
            "b:now|a:{}|e:");
  EXPECT_EQ(hermes("<tool_call>{\"arguments\": {\"a\": 1}, \"name\": \"now\"}"
                   "</tool_call>"),
            "b:now|a:{\"a\": 1}|e:");
  EXPECT_EQ(hermes("<tool_call>{\"name\": \"now\", \"arguments\": null}"
                   "</tool_call>"),
            "b:now|a:{}|e:");
  EXPECT_EQ(hermes("<tool_call>{\"name\": \"now\", \"arguments\": "
                   "\"{\\\"a\\\": \\\"b\\\"}\", \"id\": 3}</tool_call>"),
            "b:now|a:{\"a\": \"b\"}|e:");
  // A bracket less or more, and no closing mark.
  for (const std::string end : {"}", "}\n}", "} } "})
    for (const std::string mark : {"</tool_call>", ""})
      EXPECT_EQ(hermes("<tool_call>{\"name\": \"now\", \"arguments\": {}" +
                       end + mark + (mark.empty() ? "" : "\nDone.")),
                mark.empty() ? "b:now|a:{}|e:" : "b:now|a:{}|e:|T:Done.");
  EXPECT_EQ(hermes("<tool_call>{\"name\": \"now\", \"arguments\": {}}} x"),
            "b:now|a:{}|e:|T:} x");
  EXPECT_EQ(hermes("<tool_call>\n{\"name\": \"now\", \"arguments\": {}\n"
                   "</tool_call>"),
            "b:now|a:{}|e:");
  EXPECT_EQ(hermes("<tool_call>{\"name\": \"now\", \"arguments\": {}}"),
            "b:now|a:{}|e:");
  EXPECT_EQ(hermes("<tool_call>{\"name\": \"now\", \"arguments\": {}"),
            "b:now|a:{}|e:");
  // A model may call a tool that it does not have. The client says so.
  EXPECT_EQ(hermes("<tool_call>{\"name\": \"fly\", \"arguments\": {}}"
                   "</tool_call>"),
            "b:fly|a:{}|e:");
}

// Models know other names of the arguments from schemas and other formats.
TEST(CallParser, ReadsArgumentsElsewhere) {
  const auto with = [](const std::string &members,
                       const std::string &name = "look") {
    const std::string text = hermes("<tool_call>{\"name\": \"" + name + "\"" +
                                    members + "}</tool_call>");
    const std::string begin = "b:" + name + "|a:", end = "|e:";
    EXPECT_TRUE(text.starts_with(begin) && text.ends_with(end)) << text;
    return text.substr(begin.size(), text.size() - begin.size() - end.size());
  };
  for (const std::string key : {"parameters", "params", "args", "input"}) {
    const std::string member = ", \"" + key + "\": {\"where\": \"x\"}";
    EXPECT_EQ(with(member), R"({"where": "x"})");
    EXPECT_EQ(with(", \"arguments\": null" + member), R"({"where": "x"})");
    EXPECT_EQ(with(member + ", \"arguments\": null"), R"({"where": "x"})");
    EXPECT_EQ(with(member + ", \"arguments\": {\"count\": 1}"),
              R"({"count": 1})");
    EXPECT_EQ(with(", \"" + key + "\": \"{\\\"where\\\": 1}\""),
              R"({"where": 1})");
    EXPECT_EQ(hermes("<tool_call>{\"" + key +
                     "\": {\"a\": 1}, \"name\": \"now\"}</tool_call>"),
              "b:now|a:{\"a\": 1}|e:");
    EXPECT_EQ(
        hermes("<tool_call>{\"name\": \"now\"" + member + "\n</tool_call>"),
        "b:now|a:{\"where\": \"x\"}|e:");
  }
  EXPECT_EQ(with(R"(, "where": "x", "count": 2)"),
            R"({"where": "x", "count": 2})");
  EXPECT_EQ(with(R"(, "type": "function", "id": 1, "where": "x")"),
            R"({"where": "x"})");
  EXPECT_EQ(with(R"(, "a": 1, "a": [2])", "now"), R"({"a": [2]})");
  EXPECT_EQ(with(R"(, "input": "x")", "now"), R"({"input": "x"})");
  EXPECT_EQ(with(R"(, "arguments": {}, "where": "x")"), "{}");
  EXPECT_EQ(with(R"(, "id": "c")"), "{}");
  EXPECT_EQ(hermes("<tool_call>{\"where\": \"x\", \"name\": \"look\"}"),
            "b:look|a:{\"where\": \"x\"}|e:");
}

TEST(CallParser, TextKeepsItsLineBreaks) {
  const std::string call = "<tool_call>{\"name\": \"now\"}</tool_call>";
  const std::string read = "b:now|a:{}|e:";
  EXPECT_EQ(hermes("A\n" + call + "\nB\n"), "T:A|" + read + "|T:\nB\n");
  EXPECT_EQ(hermes("A\n\n" + call + "\n" + call + "\nB"),
            "T:A|" + read + "|" + read + "|T:\n\nB");
  EXPECT_EQ(hermes("A" + call + "\r\n \nB" + call + "C"),
            "T:A|" + read + "|T:\n\nB|" + read + "|T:C");
  EXPECT_EQ(hermes("\n" + call + "\nB"), read + "|T:B");
  EXPECT_EQ(hermes("A\n" + call + "\n\n"), "T:A|" + read);
}

TEST(CallParser, ReadsXml) {
  EXPECT_EQ(xml("<tool_call>\n<function=look>\n<parameter=where>\nhere\n"
                "</parameter>\n<parameter=count>\n3\n</parameter>\n"
                "</function>\n</tool_call>"),
            "b:look|a:{\"where\": \"here\", \"count\": 3}|e:");
  EXPECT_EQ(xml("<tool_call><function=now></function></tool_call>\n"
                "<tool_call>\n<function=now>\n</function>\n</tool_call>"),
            "b:now|a:{}|e:|b:now|a:{}|e:");
  // Models leave out tags that end something.
  EXPECT_EQ(xml("<tool_call>\n<function=look>\n<parameter=where>\nhere\n"
                "</parameter>\n</tool_call>x"),
            "b:look|a:{\"where\": \"here\"}|e:|T:x");
  EXPECT_EQ(xml("<tool_call>\n<function=look>\n<parameter=where>\nhere\n"
                "</function>\n</tool_call>"),
            "b:look|a:{\"where\": \"here\"}|e:");
  EXPECT_EQ(xml("<tool_call>\n<function=look>\n<parameter=where>here"
                "</parameter>\n</function>"),
            "b:look|a:{\"where\": \"here\"}|e:");
}

TEST(CallParser, TypesValuesByTheSchema) {
  EXPECT_EQ(valueOf("where", "5"), "\"5\"");
  EXPECT_EQ(valueOf("where", "null"), "\"null\"");
  EXPECT_EQ(valueOf("where", ""), "\"\"");
  EXPECT_EQ(valueOf("where", "a \"b\"\n\\c\t"), R"("a \"b\"\n\\c\t")");
  EXPECT_EQ(valueOf("count", " 12 "), "12");
  EXPECT_EQ(valueOf("count", "12345678901234567890123"),
            "12345678901234567890123");
  EXPECT_EQ(valueOf("count", "5.0"), "5.0");
  EXPECT_EQ(valueOf("count", "5.5"), "\"5.5\"");
  EXPECT_EQ(valueOf("count", "many"), "\"many\"");
  EXPECT_EQ(valueOf("share", "1e-3"), "1e-3");
  EXPECT_EQ(valueOf("deep", "true"), "true");
  EXPECT_EQ(valueOf("deep", "False"), "false");
  EXPECT_EQ(valueOf("deep", "1"), "\"1\"");
  EXPECT_EQ(valueOf("list", "[\"a\", true]"), "[\"a\", true]");
  EXPECT_EQ(valueOf("map", "{\n  \"a\": [1]\n}"), "{\n  \"a\": [1]\n}");
  EXPECT_EQ(valueOf("maybe", "7"), "7");
  EXPECT_EQ(valueOf("maybe", "null"), "null");
  EXPECT_EQ(valueOf("maybe", "None"), "null");
  EXPECT_EQ(valueOf("note", "null"), "null");
  EXPECT_EQ(valueOf("note", "nullable"), "\"nullable\"");
  EXPECT_EQ(valueOf("note", "5"), "\"5\"");
  EXPECT_EQ(valueOf("kind", "a"), "\"a\"");
  EXPECT_EQ(valueOf("mixed", "5"), "5");
  EXPECT_EQ(valueOf("mixed", "\"5\""), R"("\"5\"")");
  EXPECT_EQ(valueOf("mixed", "1.10"), "\"1.10\"");
  EXPECT_EQ(valueOf("point", "[1, 2]"), "[1, 2]");
  EXPECT_EQ(valueOf("any", "1.10"), "\"1.10\"");
  EXPECT_EQ(valueOf("other", "5"), "\"5\"");
  // Words in other letters, where no string is allowed.
  for (const std::string word : {"TRUE", "True", "true"})
    EXPECT_EQ(valueOf("boolOrNull", word), "true");
  for (const std::string word : {"NULL", "None", "Null"})
    EXPECT_EQ(valueOf("boolOrNull", word), "null");
  EXPECT_EQ(valueOf("maybe", "NULL"), "null");
  EXPECT_EQ(valueOf("note", "NULL"), "\"NULL\"");
  EXPECT_EQ(valueOf("note", "none"), "\"none\"");
  // Enums of several types: a text is the value that it names.
  EXPECT_EQ(valueOf("choice", "1"), "\"1\"");
  EXPECT_EQ(valueOf("choice", "2"), "2");
  EXPECT_EQ(valueOf("choice", "auto"), "\"auto\"");
  EXPECT_EQ(valueOf("choice", "true"), "true");
  EXPECT_EQ(valueOf("choice", "null"), "null");
  EXPECT_EQ(valueOf("choice", "[1]"), "[1]");
  EXPECT_EQ(valueOf("choice", "3"), "3");
  EXPECT_EQ(valueOf("fixed", "5"), "\"5\"");
  EXPECT_EQ(valueOf("fixed", "6"), "6");
  // Schemas without a type.
  EXPECT_EQ(valueOf("open", "{\"a\": 1}"), "{\"a\": 1}");
  EXPECT_EQ(valueOf("open", "[1]"), "[1]");
  EXPECT_EQ(valueOf("open", "007"), "\"007\"");
  EXPECT_EQ(valueOf("shape", "{\"a\": 1}"), "{\"a\": 1}");
  EXPECT_EQ(valueOf("items", "[1, 2]"), "[1, 2]");
  EXPECT_EQ(valueOf("least", "7"), "7");
  // Python's values, and values encoded twice.
  EXPECT_EQ(valueOf("map", "{'a': True, 'b': [None, 'it\\'s \"x\"',], }"),
            R"({"a": true, "b": [null, "it's \"x\""]})");
  EXPECT_EQ(valueOf("list", "('a', 1.5, -2)"), R"(["a", 1.5, -2])");
  EXPECT_EQ(valueOf("list", "['\\x41', \"b'\"]"), R"(["\u0041", "b'"])");
  EXPECT_EQ(valueOf("map", R"("{\"a\": [1]}")"), R"({"a": [1]})");
  EXPECT_EQ(valueOf("map", R"("{'a': 1}")"), R"({"a": 1})");
  EXPECT_EQ(valueOf("list", R"("[1]")"), "[1]");
  EXPECT_EQ(valueOf("count", R"("5")"), "5");
  EXPECT_EQ(valueOf("deep", R"("true")"), "true");
  for (const std::string text :
       {"{'a': x}", "{'a", "{'a': 1", "{a: 1}", "\"\\\"{}\\\"\"", "[1]", "'a'"})
    EXPECT_EQ(valueOf("map", text), ordered_json(text).dump());
  // Where a string is allowed, it stays one.
  EXPECT_EQ(valueOf("either", "{'a': 1}"), "\"{'a': 1}\"");
  EXPECT_EQ(valueOf("either", "{\"a\": 1}"), "{\"a\": 1}");
  EXPECT_EQ(valueOf("mixed", "TRUE"), "\"TRUE\"");
  EXPECT_EQ(propertyTypes(1, "a"), kStringType);
  EXPECT_EQ(propertyTypes({{"properties", {{"a", {{"$ref", "#/x"}}}}}}, "a"),
            kStringType);
}

TEST(CallParser, AValueMayQuoteTags) {
  for (const std::string value :
       {"a </parameter> b", "</parameters>", "\n\n", "</tool_call>",
        "x\n</function>\ny", "<parameter=b>\n</parameter>x", "</", "<",
        // A tag of a parameter that the tool does not have.
        "a\n</parameter>\n<parameter=x>\nb", "</parameter>\n<parameter=whe",
        "a\n<parameter=x>\nb", "a <parameter=count> b",
        // Whole calls, and the tag of one.
        "<tool_call>\n<function=look>\n<parameter=where>\nx\n</parameter>\n"
        "<parameter=count>\n1\n</parameter>\n</function>\n</tool_call>",
        "a\n<function=f>\n</function>\n</tool_call>\n<function=g>\n"
        "<parameter=count>\n</parameter>\n</function>\n</tool_call>b",
        "<function=f>\n<parameter=p>\n<function=g>\n<parameter=q>\n1\n"
        "</parameter>\n</function>\n</parameter>\n</function>",
        "<tool_call>\n{\"name\": \"now\"}\n</tool_call>",
        "Write <tool_call>\n<function=f> first", "<function=", "<function=f"})
    EXPECT_EQ(valueOf("where", value), ordered_json(value).dump());
  // The tag of a call that only the first of two values quotes.
  const auto call = [](const std::string &value) {
    return "<tool_call>\n<function=look>\n<parameter=where>\n" + value +
           "\n</parameter>\n</function>\n</tool_call>";
  };
  EXPECT_EQ(
      xml(call("a <function=f> b") + "\n" + call("c") + "\nDone."),
      "b:look|a:{\"where\": \"a <function=f> b\"}|e:|b:look|a:{\"where\": "
      "\"c\"}|e:|T:Done.");
  EXPECT_EQ(hermes("<tool_call>{\"name\": \"look\", \"arguments\": {\"where\": "
                   "\"</tool_call>}\"}}</tool_call>"),
            "b:look|a:{\"where\": \"</tool_call>}\"}|e:");
}

TEST(CallParser, AParameterMayLackItsEnd) {
  const auto read = [](const std::string &parameters) {
    return xml("<tool_call>\n<function=look>\n" + parameters +
               "</function>\n</tool_call>");
  };
  EXPECT_EQ(
      read("<parameter=where>\na\n\n<parameter=count>\n3\n</parameter>\n"),
      "b:look|a:{\"where\": \"a\\n\", \"count\": 3}|e:");
  EXPECT_EQ(read("<parameter=where>\n<parameter=count>\n3\n<parameter=deep>\n"
                 "true\n"),
            "b:look|a:{\"where\": \"\", \"count\": 3, \"deep\": true}|e:");
  // A parameter comes once.
  EXPECT_EQ(read("<parameter=where>\na\n<parameter=where>\nb\n</parameter>\n"),
            "b:look|a:{\"where\": \"a\\n<parameter=where>\\nb\"}|e:");
  // So do names of an object: of two values, the first one counts.
  for (const std::string twice : {"where", "count"}) {
    const auto of = [&](const std::string &value) {
      return "<parameter=" + twice + ">\n" + value + "\n</parameter>\n";
    };
    const std::string last = "<parameter=deep>\ntrue\n</parameter>\n";
    EXPECT_EQ(read(of("1") + of("2") + last), read(of("1") + last)) << twice;
    EXPECT_EQ(read(of("1") + last + of("2\n</function>")), read(of("1") + last))
        << twice;
  }
}

TEST(CallParser, ProseMayQuoteMarks) {
  for (const std::string text :
       {"Write <tool_call> first.", "<tool_call>", "<tool_call>\n{x",
        "A <tool_call>\n\n<function> b", "<tool_call>{\"names\": 1}",
        "</tool_call>", "<tool_call>{\"name\": 5}</tool_call>",
        "<tool_call><function=>", "<tool_call><function=a b>", "a < b\n\n",
        "<tool_", "\n\n{"}) {
    EXPECT_EQ(hermes(text), "T:" + text);
    EXPECT_EQ(xml(text), "T:" + text);
  }
  // A mark is known to be none at once.
  Answer answer("hermes");
  answer.add("Write <tool_call>");
  EXPECT_EQ(answer.text, "T:Write ");
  answer.add(" f");
  EXPECT_EQ(answer.text, "T:Write <tool_call> f");
}

TEST(CallParser, ACallMayLackItsMark) {
  EXPECT_EQ(xml("I look.\n<function=look>\n<parameter=where>\nhere\n"
                "</parameter>\n</function>\n</tool_call>"),
            "T:I look.|b:look|a:{\"where\": \"here\"}|e:");
  EXPECT_EQ(hermes("{\"name\": \"look\", \"arguments\": {\"where\": \"b\"}}\n"
                   "</tool_call>\n{\"name\": \"now\", \"arguments\": {}}"),
            "b:look|a:{\"where\": \"b\"}|e:|b:now|a:{}|e:");
  // Only at the start of a line, with the name of a tool, outside of fences.
  for (const std::string text :
       {"I <function=look>", "<function=fly>\n</function>",
        "```xml\n<function=look>\n</function>\n```",
        "~~~\n<function=look>\n~~~", " <function=look>"})
    EXPECT_EQ(xml(text), "T:" + text);
  for (const std::string text :
       {"{\"name\": \"Bob\", \"arguments\": {}}", "{\"name\": \"look\"}",
        "{\"name\": \"look\", \"age\": 5}", "{\"a\": 1}", "{}", "{",
        "```\n{\"name\": \"look\", \"arguments\": {}}\n```",
        "a {\"name\": \"look\", \"arguments\": {}}"})
    EXPECT_EQ(hermes(text), "T:" + text);
  // A fence that has ended, and with a mark within one.
  EXPECT_EQ(xml("```\nx\n```\n<function=now></function>"),
            "T:```\nx\n```|b:now|a:{}|e:");
  EXPECT_EQ(xml("```\n<tool_call><function=now></function></tool_call>"),
            "T:```|b:now|a:{}|e:");
}

TEST(CallParser, RepairsStringsOfJson) {
  const auto string = [](const std::string &text) {
    const std::string all = hermes("<tool_call>{\"name\": \"look\", "
                                   "\"arguments\": {\"where\": \"" +
                                   text + "\"}}</tool_call>");
    const std::string begin = "b:look|a:{\"where\": ";
    EXPECT_TRUE(all.starts_with(begin) && all.ends_with("}|e:")) << all;
    return ordered_json::parse(
               all.substr(begin.size(), all.size() - begin.size() - 4))
        .get<std::string>();
  };
  EXPECT_EQ(string("a\nb\tc"), "a\nb\tc");
  EXPECT_EQ(string("\\d+ \\' \\n \\\" \\\\"), "\\d+ ' \n \" \\");
  EXPECT_EQ(string("\\u00e9 \\ud83d\\ude00"), "\u00e9 \U0001F600");
  EXPECT_EQ(string("\\ud83d \\ude00 \\ud83d\\ud83d"),
            "\ufffd \ufffd \ufffd\ufffd");
  EXPECT_EQ(string("\\ud83d\\n"), "\ufffd\n");
  EXPECT_EQ(string("\\u12 x"), "\\u12 x");
}

// A client that ran a repaired call would run what the model has not asked for.
TEST(CallParser, ABrokenCallStaysBroken) {
  EXPECT_EQ(hermes("<tool_call>{\"name\": \"look\", \"arguments\": {\"a\": }}"
                   "</tool_call>x"),
            "b:look|a:{\"a\": |T:x*");
  EXPECT_EQ(hermes("<tool_call>{\"name\": \"look\", \"arguments\": {\"a\": [1;"
                   "}}</tool_call>"),
            "b:look|a:{\"a\": [1*");
  EXPECT_EQ(hermes("<tool_call>{\"name\": \"look\", \"arguments\": [1]}"
                   "</tool_call>"),
            "b:look|a:[1]*");
  EXPECT_EQ(hermes("<tool_call>{\"name\": \"look\", \"arguments\": \"x\"}"
                   "</tool_call>"),
            "b:look|a:\"x\"*");
  EXPECT_EQ(
      hermes("<tool_call>{\"name\": \"look\", \"arguments\": {\"a\": Tru"),
      "b:look|a:{\"a\": *");
  EXPECT_EQ(hermes("<tool_call>{\"name\": \"look\", \"argu"), "b:look*");
  // What is no object does not begin one, and nothing of the call leaks.
  for (const std::string value : {"5", "true", "[{}]", "\"[1]\""})
    EXPECT_EQ(hermes("<tool_call>{\"name\": \"look\", \"arguments\": " + value +
                     "}</tool_call>x"),
              "b:look|a:" + value + "|T:x*");
  for (const std::string rest :
       {"", ", \"where\": \"x\"", ", \"arguments\": \"{\\\"a\\\"",
        ", \"arguments\": nope}", ", \"parameters\": {\"a\": 1"})
    EXPECT_EQ(hermes("<tool_call>{\"name\": \"look\"" + rest), "b:look*");
  EXPECT_EQ(xml("<tool_call><function=look>junk</function></tool_call>"),
            "b:look*");
  EXPECT_EQ(xml("<tool_call><function=look>\n<parameter=where>\nher"),
            "b:look|a:{\"where\": \"her*");
  EXPECT_EQ(xml("<tool_call><function=look>\n<parameter=where>\nhere\n"
                "</parameter>\n"),
            "b:look|a:{\"where\": \"here\"*");
  const std::string deep(JsonScanner::kMostDepth + 1, '[');
  EXPECT_EQ(
      hermes("<tool_call>{\"name\": \"look\", \"arguments\": {\"a\": " + deep)
          .back(),
      '*');
}

// A model that repeats itself takes neither memory nor time without bounds.
TEST(CallParser, HoldsABoundedText) {
  const std::string spaces(2 * kMostHeld, ' ');
  for (const char *format : {"hermes", "xml"})
    for (const size_t size : {size_t{4096}, kMostHeld, spaces.size()}) {
      Answer text(format), call(format);
      text.add("<tool_call>");
      for (size_t at = 0; at < spaces.size(); at += size)
        text.add(spaces.substr(at, size));
      EXPECT_EQ(text.finish(), "T:<tool_call>" + spaces);
      call.add(std::string_view(format) == "hermes"
                   ? "<tool_call>{\"name\": \"f\""
                   : "<tool_call><function=f>");
      for (size_t at = 0; at < spaces.size(); at += size)
        call.add(spaces.substr(at, size));
      EXPECT_EQ(call.finish(), "b:f*");
    }
}

TEST(CallParser, StringsStreamAsTheyCome) {
  Answer xmlAnswer("xml"), hermesAnswer("hermes");
  xmlAnswer.add("<tool_call>\n<function=look>\n<parameter=note>\nA long");
  EXPECT_EQ(xmlAnswer.text, "b:look|a:{\"note\": \"A long");
  xmlAnswer.add(" \"text");
  EXPECT_EQ(xmlAnswer.text, "b:look|a:{\"note\": \"A long \\\"text");
  hermesAnswer.add(
      "<tool_call>{\"name\": \"look\", \"arguments\": {\"a\": \"A");
  EXPECT_EQ(hermesAnswer.text, "b:look|a:{\"a\": \"A");
  hermesAnswer.add(" b");
  EXPECT_EQ(hermesAnswer.text, "b:look|a:{\"a\": \"A b");
}

// A stream writes each event by itself.
TEST(CallParser, EventsHaveWholeCharacters) {
  const std::string text =
      "\u4e00\n\u4e8c<\u4e09\n\n\u56db<tool_call>\u4e94\n\U0001F600";
  for (const bool isReasoning : {false, true}) {
    CallParser parser(options("xml"));
    AnswerEvents events;
    parser.push(AnswerEventKind::Text, isReasoning, text, events);
    parser.finish(isReasoning, events);
    std::string joined;
    for (const AnswerEvent &event : events) {
      EXPECT_TRUE(isValidUtf8(event.text)) << event.text;
      joined += event.text;
    }
    EXPECT_EQ(joined, text);
  }
  std::string value;
  while (value.size() < 3 * kMostHeld)
    value += "\u4e00";
  EXPECT_EQ(valueOfPieces(value), "\"" + value + "\"");
}

// Two calls in one delta, as speculation makes them.
TEST(CallParser, OnePieceMayHaveAll) {
  AnswerEvents events;
  CallParser parser(options("hermes"));
  const std::string call =
      "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>";
  parser.push(AnswerEventKind::Text, false, call + call, events);
  ASSERT_EQ(events.size(), 6U);
  EXPECT_EQ(events[3].kind, AnswerEventKind::ToolCallBegin);
  EXPECT_EQ(parser.calls(), 2);
}

TEST(CallParser, ACallInTheReasoning) {
  const std::string call =
      "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
  const auto thought = [&](const std::string &text, bool isOpen,
                           const std::string &after) {
    std::string all;
    for (const size_t size : {size_t{1}, size_t{7}, text.size()}) {
      Answer answer("hermes");
      for (size_t at = 0; at < text.size(); at += size)
        answer.add(std::string_view(text).substr(at, size), true);
      if (!after.empty())
        answer.add(after);
      const std::string found = answer.finish(isOpen);
      EXPECT_TRUE(all.empty() || all == found) << found;
      all = found;
    }
    return all;
  };
  // The answer ends behind it.
  EXPECT_EQ(thought("Hm.\n" + call, true, ""), "R:Hm.|b:now|a:{}|e:");
  EXPECT_EQ(thought(call + "\n" + call + "\n", true, ""),
            "b:now|a:{}|e:|b:now|a:{}|e:");
  // It goes on.
  EXPECT_EQ(thought("Hm.\n" + call, false, ""), "R:Hm.\n" + call);
  EXPECT_EQ(thought(call + "\n", false, "Hi"), "R:" + call + "\n|T:Hi");
  EXPECT_EQ(thought("a\n" + call + "\n\nb", true, ""),
            "R:a\n" + call + "\n\nb");
  EXPECT_EQ(thought(call.substr(0, 40), true, ""), "R:" + call.substr(0, 40));
  EXPECT_EQ(thought("<tool_call> and\n{\"name\": \"now\", \"arguments\": {}}",
                    true, ""),
            "R:<tool_call> and\n{\"name\": \"now\", \"arguments\": {}}");
  EXPECT_EQ(thought(call + call.substr(0, 40), false, "Hi"),
            "R:" + call + call.substr(0, 40) + "|T:Hi");
  EXPECT_EQ(thought("a", false, call), "R:a|b:now|a:{}|e:");
}

} // namespace
