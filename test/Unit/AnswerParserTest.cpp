//===- AnswerParserTest.cpp - Sections and ends of answers ----------------===//

#include "text/AnswerParser.h"
#include "text/Unicode.h"

#include "StoriesTokenizer.h"

#include <gtest/gtest.h>

using namespace qwen;
using test::storiesTokenizer;

namespace {
using Ids = std::vector<int32_t>;

Ids operator+(Ids left, const Ids &right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

Ids idsOf(std::string_view text) { return storiesTokenizer().encode(text); }

/// A token for each byte.
Ids bytesAsIds(std::string_view text) {
  static const std::vector<int32_t> byByte = [] {
    std::vector<int32_t> ids(256, -1);
    for (int32_t id = 0; id < storiesTokenizer().vocabSize(); ++id)
      if (const std::string_view bytes = storiesTokenizer().tokenBytes(id);
          bytes.size() == 1)
        ids[static_cast<uint8_t>(bytes[0])] = id;
    return ids;
  }();
  Ids ids;
  for (char byte : text)
    ids.push_back(byByte[static_cast<uint8_t>(byte)]);
  return ids;
}

// The marks of the first are texts, those of the second are tokens.
constexpr std::string_view kTemplate = "<think></think>";
const std::vector<AnswerSection> kTokenRows = {
    {"<|im_start|>", "<|endoftext|>", "\n\n"}};

const AnswerFormat &textFormat() {
  static const AnswerFormat format(storiesTokenizer(), kTemplate);
  return format;
}
const AnswerFormat &tokenFormat() {
  static const AnswerFormat format(storiesTokenizer(), "", kTokenRows);
  return format;
}

/// The events, those of one kind in a row joined: "T:text|R:reasoning|E:".
class Log {
public:
  void add(const AnswerEvents &events) {
    for (const AnswerEvent &event : events) {
      const char letter = "TRbaeSE"[static_cast<size_t>(event.kind)];
      if (std::exchange(last, letter) != letter)
        text += std::string(text.empty() ? "" : "|") + letter + ":";
      text += event.text;
      for (const AnswerToken &token : event.tokens)
        ids.push_back(token.id);
    }
  }
  std::string text;
  /// Of all events.
  Ids ids;

private:
  char last = 0;
};

std::string parse(const AnswerFormat &format, const Ids &ids,
                  const std::string &prompt = "p",
                  const AnswerOptions &options = {}) {
  AnswerParser parser(storiesTokenizer(), &format, idsOf(prompt), options);
  Log log;
  for (int32_t id : ids)
    log.add(parser.push(id));
  log.add(parser.finish());
  EXPECT_EQ(log.ids, ids);
  return log.text;
}

std::string parse(const AnswerFormat &format, const std::string &text,
                  const std::string &prompt = "p",
                  const AnswerOptions &options = {}) {
  return parse(format, idsOf(text), prompt, options);
}

TEST(AnswerParser, DoesNotDependOnTokens) {
  const std::string text =
      "<think>\n\nWhy \u00e9\U0001F600?\n<tool_call>\n</think>\n\n A "
      "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": [1]}}\n"
      "</tool_call>\n<tool_call>\n{\"name\": \"g\", \"arguments\": {}}"
      "</tool_call>\n, </think> <tool_cal b\xff<sto<stop>c";
  const std::string expected =
      "R:Why \u00e9\U0001F600?\n<tool_call>|T: A |b:f|a:{\"x\": [1]}|e:|b:g|"
      "a:{}|e:|T:\n, </think> <tool_cal b\uFFFD<sto|S:<stop>|E:";
  const auto piece = [&](size_t begin, size_t end) {
    const std::string part = text.substr(begin, end - begin);
    return isValidUtf8(part) ? idsOf(part) : bytesAsIds(part);
  };
  const AnswerOptions options = {.stops = {"none", "<stop>"},
                                 .calls = {findCallFormat("hermes")}};
  for (size_t cut = 0; cut <= text.size(); ++cut)
    EXPECT_EQ(parse(textFormat(), piece(0, cut) + piece(cut, text.size()), "p",
                    options),
              expected)
        << cut;
  for (size_t size = 1; size < 9; ++size) {
    Ids ids;
    for (size_t begin = 0; begin < text.size(); begin += size)
      ids = ids + piece(begin, std::min(begin + size, text.size()));
    EXPECT_EQ(parse(textFormat(), ids, "p", options), expected) << size;
  }
  EXPECT_EQ(parse(textFormat(), bytesAsIds(text), "p", options), expected);
}

TEST(AnswerParser, MarksAreTokensOrText) {
  EXPECT_TRUE(textFormat().reasons());
  const AnswerFormat none(storiesTokenizer(), "<think> without an end");
  EXPECT_FALSE(none.reasons());
  EXPECT_EQ(parse(none, "<think>a</think>b"), "T:<think>a</think>b|E:");
  // A text is no mark where the vocabulary has a token.
  EXPECT_EQ(parse(tokenFormat(), bytesAsIds("<|im_start|>a")),
            "T:<|im_start|>a|E:");
  EXPECT_EQ(parse(tokenFormat(), "<|im_start|>\na\nb\n<|endoftext|>\n\nc\n"),
            "R:a\nb|T:c\n|E:");
  EXPECT_EQ(parse(tokenFormat(), "<|im_start|>a\n"), "R:a|E:");
  // Only the first token begins the reasoning, and only the first text.
  EXPECT_EQ(parse(tokenFormat(), "\na<|im_start|>b"), "T:\nab|E:");
  EXPECT_EQ(parse(textFormat(), "a <think>b"), "T:a <think>b|E:");
  EXPECT_EQ(parse(textFormat(), "<thin"), "T:<thin|E:");
  EXPECT_EQ(parse(textFormat(), "<think>a</think>b<think>c"),
            "R:a|T:b<think>c|E:");
}

TEST(AnswerParser, WhiteSpaceMayComeBeforeTheReasoning) {
  for (const char *space : {" ", "\n", "\r\n\t "}) {
    EXPECT_EQ(parse(tokenFormat(),
                    bytesAsIds(space) + idsOf("<|im_start|>a<|endoftext|>b")),
              "R:a|T:b|E:");
    for (const Ids &ids : {bytesAsIds(std::string(space) + "<think>a</think>b"),
                           idsOf(std::string(space) + "<think>a</think>b")}) {
      EXPECT_EQ(parse(textFormat(), ids), "R:a|T:b|E:");
      EXPECT_EQ(parse(textFormat(), ids, "p", {.splitReasoning = false}),
                "T:" + std::string(space) + "<think>a</think>b|E:");
    }
    EXPECT_EQ(parse(textFormat(), space), "T:" + std::string(space) + "|E:");
    EXPECT_EQ(parse(tokenFormat(), space), "T:" + std::string(space) + "|E:");
  }
  // A model that repeats white space is not held back without an end.
  const std::string spaces(65, ' ');
  EXPECT_EQ(parse(textFormat(), bytesAsIds(spaces + "<think>a")),
            "T:" + spaces + "<think>a|E:");
  EXPECT_EQ(parse(textFormat(), spaces + "<think>a"),
            "T:" + spaces + "<think>a|E:");
}

TEST(AnswerParser, APromptMayBeginTheReasoning) {
  EXPECT_EQ(parse(tokenFormat(), "a<|endoftext|>b", "p<|im_start|>\n"),
            "R:a|T:b|E:");
  EXPECT_EQ(parse(tokenFormat(), "a", "<|im_start|>\n<|endoftext|>\n"),
            "T:a|E:");
  EXPECT_EQ(parse(tokenFormat(), "a", "<|im_start|>x<|im_end|>y"), "T:a|E:");
  EXPECT_EQ(parse(textFormat(), "\na</think>b", "<|im_start|>x\n<think>\n"),
            "R:a|T:b|E:");
  EXPECT_EQ(parse(textFormat(), "a", "<think>\n\n</think>\n\n"), "T:a|E:");
  EXPECT_EQ(parse(textFormat(), "a", "<think>x<|im_end|>y"), "T:a|E:");
}

TEST(AnswerParser, ReasoningMayStayText) {
  const AnswerOptions options = {.skipSpecial = false, .splitReasoning = false};
  const auto expectText = [&](const AnswerFormat &format,
                              const std::string &text, const Ids &ids) {
    EXPECT_EQ(parse(format, ids, "p", options), "T:" + text + "|E:");
    AnswerParser parser(storiesTokenizer(), &format, {}, options);
    for (int32_t id : ids)
      parser.push(id);
    EXPECT_EQ(parser.reasoningTokens(), 1) << text;
    EXPECT_FALSE(parser.isReasoning());
  };
  const std::string tokens = "<|im_start|>a<|endoftext|>\n\nb";
  expectText(tokenFormat(), tokens, idsOf(tokens));
  const std::string text = "<think>a</think>\n\nb";
  expectText(textFormat(), text, bytesAsIds(text));
}

TEST(AnswerParser, EndsReasoningWithItsBudget) {
  for (const auto &[format, open, close] :
       {std::tuple(&tokenFormat(), "<|im_start|>", "<|endoftext|>"),
        std::tuple(&textFormat(), "<think>", "</think>")}) {
    const auto draw = [&](const Ids &drawn, int64_t budget, int64_t &given,
                          int64_t &reasoned) {
      AnswerParser parser(storiesTokenizer(), format, {},
                          {.reasoningBudget = budget});
      Log log;
      given = 0;
      for (size_t i = 0; i < drawn.size();) {
        const std::optional<int32_t> next = parser.next();
        given += next ? 1 : 0;
        log.add(parser.push(next ? *next : drawn[i++]));
      }
      log.add(parser.finish());
      reasoned = parser.reasoningTokens();
      return log.text;
    };
    int64_t given = 0, reasoned = 0;
    const Ids letters = bytesAsIds("abc"), closing = idsOf(close);
    const auto most = std::ssize(closing + idsOf("\n\n"));
    EXPECT_EQ(draw(idsOf(open) + letters, 2, given, reasoned), "R:ab|T:c|E:");
    EXPECT_EQ(std::pair(given, reasoned), std::pair(most, int64_t{2}));
    EXPECT_EQ(draw(idsOf(open) + letters, 0, given, reasoned), "T:abc|E:");
    EXPECT_EQ(std::pair(given, reasoned), std::pair(most, int64_t{0}));
    EXPECT_EQ(
        draw(idsOf(open) + letters + closing + letters, 99, given, reasoned),
        "R:abc|T:abc|E:");
    EXPECT_EQ(std::pair(given, reasoned), std::pair(int64_t{0}, int64_t{3}));
  }
}

TEST(AnswerParser, ABudgetMayEndWithAMessage) {
  for (const auto &[format, open] : {std::pair(&tokenFormat(), "<|im_start|>"),
                                     std::pair(&textFormat(), "<think>")}) {
    const Ids message = bytesAsIds("Stop.");
    for (int64_t budget = std::ssize(message); budget < 9; ++budget) {
      AnswerParser parser(
          storiesTokenizer(), format, {},
          {.reasoningBudget = budget, .budgetMessage = message});
      Log log;
      const Ids drawn = idsOf(open) + bytesAsIds("abcdefghi");
      for (size_t i = 0; i < drawn.size();)
        log.add(parser.push(parser.next() ? *parser.next() : drawn[i++]));
      log.add(parser.finish());
      const std::string letters = "abcdefghi";
      const auto thought = static_cast<size_t>(budget) - message.size();
      EXPECT_EQ(log.text, "R:" + letters.substr(0, thought) +
                              "Stop.|T:" + letters.substr(thought) + "|E:");
      EXPECT_EQ(parser.reasoningTokens(), budget);
    }
  }
}

/// The texts of the events of each byte, split by "|".
std::string pieces(const AnswerOptions &options, std::string_view text) {
  AnswerParser parser(storiesTokenizer(), nullptr, {}, options);
  std::string joined;
  const auto add = [&](const AnswerEvents &events) {
    for (const AnswerEvent &event : events)
      if (event.kind == AnswerEventKind::Text)
        joined += event.text;
  };
  for (int32_t id : bytesAsIds(text)) {
    add(parser.push(id));
    joined += "|";
  }
  add(parser.finish());
  return joined;
}

TEST(AnswerParser, HoldsWhatMayStartAStopString) {
  const std::vector<std::string> stops = {"<end>", "\n\n"};
  EXPECT_EQ(pieces({.stops = stops}, "a<en<end>b"), "a||||<en||||||");
  EXPECT_EQ(pieces({.stops = stops}, "a<e"), "a|||<e");
  EXPECT_EQ(pieces({.stops = stops}, "a\nb\n\nc"), "a||\nb||||");
  EXPECT_EQ(pieces({.stops = stops, .includeStop = true}, "a<end>b"),
            "a|||||<end>||");
  // The one that ends first wins; of those, the longest.
  EXPECT_EQ(pieces({.stops = {"bcd", "abc"}}, "xabcd"), "x|||||");
  EXPECT_EQ(pieces({.stops = {"c", "abc"}}, "xabcd"), "x|||||");
  EXPECT_EQ(pieces({}, "\xc3\xa9\xe2\x82\xac"), "|\xc3\xa9|||\xe2\x82\xac|");
  EXPECT_EQ(pieces({}, "\xe2\x82"), "||\xef\xbf\xbd");
}

/// The events of a text, which are the same for the tokenizer's tokens and for
/// pieces of each size.
std::string parsePieces(const std::string &text, const AnswerOptions &options) {
  const std::string found = parse(textFormat(), text, "p", options);
  for (size_t size = 1; size <= 7; ++size) {
    Ids ids;
    for (size_t at = 0; at < text.size(); at += size)
      ids = ids + idsOf(text.substr(at, size));
    EXPECT_EQ(parse(textFormat(), ids, "p", options), found) << size;
  }
  return found;
}

TEST(AnswerParser, StopStringsEndTextAlone) {
  const auto with = [](const std::vector<std::string> &stops,
                       const std::string &text, bool splitReasoning = true) {
    return parsePieces(text, {.stops = stops,
                              .splitReasoning = splitReasoning,
                              .calls = {findCallFormat("hermes")}});
  };
  // Neither reasoning nor white space behind it.
  const std::string thought = "<think>\na\n\nb\n</think>\n\n \n\nHi\n\nc";
  EXPECT_EQ(with({"\n\n", "b"}, thought), "R:a\n\nb|T: \n\nHi|S:\n\n|E:");
  EXPECT_EQ(with({"\n\n", "b"}, thought, false),
            "T:<think>\na\n\nb\n</think>\n\n \n\nHi|S:\n\n|E:");
  EXPECT_EQ(with({"</think>"}, "<think>a</think>b"), "R:a|T:b|E:");
  EXPECT_EQ(with({"x"}, "<think>x"), "R:x|E:");
  // No mark of a call, no name and no arguments.
  const std::string call =
      "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>";
  const std::string read = "b:f|a:{\"x\": 1}|e:";
  EXPECT_EQ(with({"call", "\n", "{", "f", "1", "me"}, call), read + "|E:");
  EXPECT_EQ(with({"\n", "<"}, "I look.\n\n" + call + "\n"),
            "T:I look.|" + read + "|E:");
  EXPECT_EQ(with({"o"}, call + "\nDone"), read + "|T:D|S:o|E:");
  EXPECT_EQ(with({"a,b"}, "a," + call + "b"), "T:a,|" + read + "|T:b|E:");
  // A call behind a stop string is none.
  EXPECT_EQ(with({"END"}, "a END" + call), "T:a |S:END|E:");
  AnswerParser parser(storiesTokenizer(), nullptr, {},
                      {.stops = {"END"}, .calls = {findCallFormat("hermes")}});
  for (const int32_t id : idsOf("END" + call))
    parser.push(id);
  parser.finish();
  EXPECT_FALSE(parser.hasCalls());
  // What only looks like a call is text.
  EXPECT_EQ(with({"\n\n"}, "Write <tool_call>\n\nfirst"),
            "T:Write <tool_call>|S:\n\n|E:");
  EXPECT_EQ(with({"l>\n"}, "Write <tool_call>\n{x"),
            "T:Write <tool_cal|S:l>\n|E:");
  EXPECT_EQ(with({"\n"}, "a\n"), "T:a|S:\n|E:");
}

TEST(AnswerParser, StopTokensEndTextAlone) {
  const auto with = [](const Ids &stops, const Ids &ids) {
    AnswerParser parser(
        storiesTokenizer(), &tokenFormat(), {},
        {.stopTokens = stops, .calls = {findCallFormat("hermes")}});
    Log log;
    for (const int32_t id : ids) {
      log.add(parser.push(id));
      if (parser.hasStopToken())
        break;
    }
    log.add(parser.finish());
    return log.text + (parser.hasStopToken() ? "!" : "");
  };
  const Ids open = idsOf("<|im_start|>"), close = idsOf("<|endoftext|>");
  const Ids newline = bytesAsIds("\n");
  EXPECT_EQ(with(newline, bytesAsIds("a\nb")), "T:a|E:!");
  EXPECT_EQ(with(newline,
                 open + bytesAsIds("a\nb") + close + bytesAsIds("\n\nHi\nx")),
            "R:a\nb|T:Hi|E:!");
  const std::string call =
      "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n";
  EXPECT_EQ(with(newline + bytesAsIds("{"), bytesAsIds(call + "Hi\nx")),
            "b:f|a:{}|e:|T:Hi|E:!");
  // No text has a special token.
  EXPECT_EQ(
      with(idsOf("<|im_end|>"), open + bytesAsIds("a") + idsOf("<|im_end|>")),
      "R:a|E:!");
}

TEST(AnswerParser, EventsHaveTheirTokens) {
  const auto places = [](const AnswerEvents &events) {
    std::string joined;
    for (const AnswerEvent &event : events) {
      joined += "TRbaeSE"[static_cast<size_t>(event.kind)];
      for (const AnswerToken &token : event.tokens)
        joined += std::to_string(token.begin);
    }
    return joined;
  };
  AnswerParser parser(storiesTokenizer(), nullptr, {},
                      {.stops = {"<end>"}, .ends = {4095}});
  std::vector<std::string> all;
  for (int32_t id : bytesAsIds("\xc3\xa9<ex<end>y") + Ids{4095})
    all.push_back(places(parser.push(id)));
  all.push_back(places(parser.finish()));
  EXPECT_EQ(all, (std::vector<std::string>{"", "T00", "", "", "T123", "", "",
                                           "", "", "S", "", "", "E4444444"}));
  EXPECT_EQ(parser.stop(), "<end>");
}

} // namespace
