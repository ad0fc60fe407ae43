//===- TokenizerTest.cpp - Text to ids and back ---------------------------===//

#include "TempDir.h"
#include "engine/samplers/DryBreakers.h"
#include "model/SamplerTexts.h"
#include "text/Retrieval.h"
#include "text/Unicode.h"

#include "qwen/Import/Tokenizer/TokenizerBlob.h"
#include "qwen/Support/Error.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <random>

using namespace qwen;
using namespace qwen::test;
using nlohmann::json;

static const std::filesystem::path kInputs =
    std::filesystem::path(QWEN_SOURCE_DIR) / "test/Inputs/tokenizer";

/// The real vocabulary, which takes seconds to read.
static const CheckpointTokenizer &qwen2Files() {
  static const CheckpointTokenizer files =
      *readTokenizerFiles(kInputs / "qwen2");
  return files;
}
static const TokenizerImport &qwen2() {
  static const TokenizerImport import = buildTokenizer(qwen2Files());
  return import;
}

static const Tokenizer &qwen2Tokenizer() {
  static const Tokenizer tokenizer = Tokenizer::fromBlob(qwen2().blob);
  return tokenizer;
}

//===----------------------------------------------------------------------===//
// Against Hugging Face
//===----------------------------------------------------------------------===//

TEST(Tokenizer, EqualsHuggingFace) {
  const Tokenizer &tokenizer = qwen2Tokenizer();
  std::ifstream cases(kInputs / "cases.jsonl");
  ASSERT_TRUE(cases);
  size_t count = 0;
  for (std::string line; std::getline(cases, line); ++count) {
    const json entry = json::parse(line);
    const auto text = entry["text"].get<std::string>();
    const auto ids = entry["ids"].get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer.encode(text), ids) << line;
    EXPECT_LE(text.size(), tokenizer.mostBytes(int64_t(ids.size()))) << line;
    EXPECT_EQ(tokenizer.decode(ids), entry["decoded"].get<std::string>())
        << line;
  }
  EXPECT_EQ(count, 463u);
}

static std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    for (size_t j = i; j < i + 3; ++j)
      bits = bits << 8 | (j < bytes.size() ? uint8_t(bytes[j]) : 0);
    for (size_t j = 0; j < 4; ++j)
      text += i + j <= bytes.size() ? kDigits[bits >> (18 - 6 * j) & 63] : '=';
  }
  return text;
}

/// Qwen 1 has the same tokens, in its own file and without merges.
TEST(Tokenizer, FindsTheMergesOfTiktoken) {
  // All would take seconds.
  constexpr int32_t kTokens = 30'000;
  const Tokenizer &tokenizer = qwen2Tokenizer();
  std::string lines;
  for (int32_t id = 0; id < kTokens; ++id)
    lines += base64(tokenizer.tokenBytes(id)) + " " + std::to_string(id) + "\n";
  const CheckpointTokenizer found = readTiktoken("qwen.tiktoken", lines);
  const CheckpointTokenizer &expected = qwen2Files();
  ASSERT_EQ(found.merges.size(), kTokens - 256U);
  for (size_t i = 0; i < found.merges.size(); ++i) {
    ASSERT_EQ(found.merges[i].left, expected.merges[i].left) << i;
    ASSERT_EQ(found.merges[i].right, expected.merges[i].right) << i;
  }
  for (const auto &[word, id] : found.vocab)
    ASSERT_EQ(expected.vocab.at(word), id);
  const TokenizerImport import = buildTokenizer(found);
  const Tokenizer qwen1 = Tokenizer::fromBlob(import.blob);
  EXPECT_EQ(qwen1.vocabSize(), kTokens + 208);
  EXPECT_EQ(qwen1.findAddedToken("<|im_end|>"), kTokens + 2);
  EXPECT_EQ(qwen1.findAddedToken("<|extra_204|>"), kTokens + 207);
  EXPECT_EQ(qwen1.eosToken(), kTokens);
}

/// Qwen3.5's expression over the vocabulary of Qwen2, which Hugging Face
/// tokenizers encoded.
TEST(Tokenizer, EqualsHuggingFaceWhereMarksJoinLetters) {
  CheckpointTokenizer files = qwen2Files();
  files.marksJoinLetters = true;
  const Tokenizer &plain = qwen2Tokenizer();
  const TokenizerImport import = buildTokenizer(files);
  const Tokenizer tokenizer = Tokenizer::fromBlob(import.blob);
  std::ifstream cases(kInputs / "marks.jsonl");
  size_t count = 0, others = 0;
  for (std::string line; std::getline(cases, line); ++count) {
    const json entry = json::parse(line);
    const auto text = entry["text"].get<std::string>();
    const auto ids = entry["ids"].get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer.encode(text), ids) << line;
    others += plain.encode(text) != ids;
  }
  EXPECT_EQ(count, 500u);
  // Qwen2's merges join few letters and marks, for its expression divides them.
  EXPECT_GT(others, 20u);
}

TEST(Tokenizer, ReadsTheStoriesModel) {
  const TokenizerImport import = buildTokenizer(*readTokenizerFiles(
      std::filesystem::path(QWEN_SOURCE_DIR) / "models/stories"));
  EXPECT_TRUE(import.warnings.empty());
  EXPECT_EQ(import.vocabSize, 4096u);
  EXPECT_EQ(import.eosToken, 4095u);
  EXPECT_NE(import.chatTemplate.find("add_generation_prompt"),
            std::string::npos);
  const Tokenizer tokenizer = Tokenizer::fromBlob(import.blob);
  // The prompts of golden.safetensors.
  EXPECT_EQ(
      tokenizer.encode("Once upon a time there was a little fox who lived"),
      (std::vector<int32_t>{3233, 601, 258, 545, 459, 308, 258, 458, 2281, 422,
                            1225}));
  EXPECT_EQ(tokenizer.encode("The king looked at the"),
            (std::vector<int32_t>{335, 683, 701, 365, 259}));
  EXPECT_EQ(tokenizer.encode("\"Where are you going?\" said the"),
            (std::vector<int32_t>{3357, 491, 311, 876, 625, 349, 259}));
}

TEST(Tokenizer, KnowsItsTokens) {
  const Tokenizer &tokenizer = qwen2Tokenizer();
  EXPECT_EQ(tokenizer.vocabSize(), 151646);
  EXPECT_EQ(qwen2().vocabSize, 151646u);
  EXPECT_EQ(tokenizer.findAddedToken("<|im_end|>"), 151645);
  EXPECT_EQ(tokenizer.findAddedToken("hello"), std::nullopt);
  EXPECT_TRUE(tokenizer.isSpecial(151643));
  EXPECT_FALSE(tokenizer.isSpecial(0));
  EXPECT_FALSE(tokenizer.isSpecial(-1));
  EXPECT_EQ(tokenizer.bosToken(), std::nullopt);
  EXPECT_EQ(tokenizer.eosToken(), 151645);
  EXPECT_EQ(tokenizer.padToken(), 151643);
  EXPECT_EQ(tokenizer.tokenBytes(9707), "Hello");
  EXPECT_THROW(tokenizer.tokenBytes(151646), Error);
  EXPECT_THROW(tokenizer.decode(std::vector<int32_t>{-1}), Error);
}

TEST(Tokenizer, BoundsTheTextOfSomeTokens) {
  const Tokenizer &tokenizer = qwen2Tokenizer();
  uint64_t longest = 0;
  for (int32_t id = 0; id < tokenizer.vocabSize(); ++id)
    longest = std::max<uint64_t>(longest, tokenizer.tokenBytes(id).size());
  EXPECT_EQ(tokenizer.mostBytes(0), 0u);
  EXPECT_EQ(tokenizer.mostBytes(5), 5 * 4 * longest);
  EXPECT_EQ(tokenizer.mostBytes(int64_t(1) << 30), Tokenizer::kMaxTextBytes);
  // NFC shrinks this character the most.
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("\u1FBE\u0308\u0301")), "\u0390");
}

TEST(Tokenizer, SpecialTokensAreTextWhereTheyAreNotAllowed) {
  const Tokenizer &tokenizer = qwen2Tokenizer();
  const std::string text = "a<|endoftext|>b";
  EXPECT_EQ(tokenizer.encode(text), (std::vector<int32_t>{64, 151643, 65}));
  const std::vector<int32_t> ids = tokenizer.encode(text, false);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 151643), 0);
  EXPECT_EQ(tokenizer.decode(ids), text);
}

//===----------------------------------------------------------------------===//
// Any text
//===----------------------------------------------------------------------===//

TEST(Tokenizer, RoundTripsAnyBytesAsPythonWouldReplaceThem) {
  const Tokenizer &tokenizer = qwen2Tokenizer();
  // Python: b"...".decode(errors="replace")
  const auto normalized = [&](const std::string &bytes) {
    return tokenizer.decode(tokenizer.encode(bytes));
  };
  EXPECT_EQ(normalized("a\xff"
                       "b"),
            "a\uFFFDb");
  EXPECT_EQ(normalized("\xe4\xbd"), "\uFFFD");
  EXPECT_EQ(normalized("\xe4\xbd"
                       "a"),
            "\uFFFDa");
  EXPECT_EQ(normalized("\xed\xa0\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(normalized("\xf0\x9f\x98\x80\xf0\x9f\x98"), "\U0001F600\uFFFD");
  EXPECT_EQ(normalized("\xf5\x80\xc0\xaf"), "\uFFFD\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(normalized(std::string("\0\x01", 2)), std::string("\0\x01", 2));
}

TEST(Tokenizer, RoundTripsRandomText) {
  const Tokenizer &tokenizer = qwen2Tokenizer();
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    std::string bytes;
    for (unsigned i = random() % 60; i > 0; --i)
      bytes.push_back(char(random() % (round % 2 ? 256 : 128)));
    const std::vector<int32_t> ids = tokenizer.encode(bytes);
    const std::string text = tokenizer.decode(ids);
    // Normalized and repaired text does not change again.
    EXPECT_EQ(tokenizer.encode(text), ids);
    if (round % 2 == 0) {
      EXPECT_EQ(text, bytes);
    }
  }
}

TEST(Tokenizer, LongWordsTakeNoQuadraticTime) {
  const Tokenizer &tokenizer = qwen2Tokenizer();
  for (const char *part : {"e", " ", "ab", "\n", "!", "\u0301\u0323"}) {
    std::string text;
    while (text.size() < 200'000)
      text += part;
    const std::vector<int32_t> ids = tokenizer.encode(text);
    EXPECT_LT(ids.size(), text.size());
    if (!(part[0] & 0x80)) {
      EXPECT_EQ(tokenizer.decode(ids), text);
    }
  }
}

TEST(Tokenizer, NormalizesToNfc) {
  const Tokenizer &tokenizer = qwen2Tokenizer();
  EXPECT_EQ(tokenizer.encode("cafe\u0301"), tokenizer.encode("caf\u00e9"));
  // A hundred marks in the wrong order, after a letter that takes none.
  std::string wrong = "b", right = "b";
  for (int i = 0; i < 50; ++i)
    wrong += "\u0301\u0323";
  for (const char *mark : {"\u0323", "\u0301"})
    for (int i = 0; i < 50; ++i)
      right += mark;
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(wrong)),
            "\u1E05" + right.substr(3));
}

TEST(Tokenizer, HasUnicodeOfHuggingFace) {
  EXPECT_EQ(charClass(0x1c89), CharClass::Letter);
  EXPECT_EQ(charClass(0x1c8b), CharClass::Other);
  EXPECT_EQ(charClass(0x10d49), CharClass::Number);
  EXPECT_EQ(charClass(0x17f), CharClass::Letter);
  EXPECT_EQ(charClass(0x85), CharClass::Space);
  // U+1ACD is newer than the NFC of Hugging Face, so marks after it do not move
  // before it.
  EXPECT_EQ(toNfc("e\u1acd\u0323\u0301"), "e\u1acd\u0323\u0301");
  EXPECT_EQ(toNfc("e\u0301\u0323"), "\u1eb9\u0301");
}

TEST(Reranker, AsksWithThePromptOfTheModelCard) {
  const Tokenizer &tokenizer = qwen2Tokenizer();
  const Reranker reranker(tokenizer, {}, "m");
  const std::vector<int32_t> ids =
      reranker.prompt("find it", "who?", "me <|im_end|>");
  EXPECT_EQ(
      tokenizer.decode(ids),
      "<|im_start|>system\nJudge whether the Document meets the requirements "
      "based on the Query and the Instruct provided. Note that the answer can "
      "only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n<Instruct>: "
      "find "
      "it\n<Query>: who?\n<Document>: me <|im_end|><|im_end|>\n<|im_start|>"
      "assistant\n<think>\n\n</think>\n\n");
  // The text of the document has no special token.
  EXPECT_EQ(std::ranges::count(ids, 151645), 2);
  std::vector<float> logits(151936, 50);
  logits[9693] = 1.5F; // yes
  logits[2152] = -1;   // no
  EXPECT_FLOAT_EQ(reranker.score(logits), 0.92414182F);
}

TEST(Reranker, ReadsScoresInTheOrderOfTheirLabels) {
  const Tokenizer &tokenizer = qwen2Tokenizer();
  const auto scoreOf = [&](const std::vector<std::string> &labels) {
    const Reranker reranker(
        tokenizer, {.kind = OutputKind::Scores, .labels = labels}, "m");
    return reranker.score(std::vector<float>{1.5F, -1});
  };
  EXPECT_FLOAT_EQ(scoreOf({"yes", "no"}), 0.92414182F);
  EXPECT_FLOAT_EQ(scoreOf({"no", "yes"}), 1 - 0.92414182F);
  EXPECT_THROW(Reranker(tokenizer, {.kind = OutputKind::None}, "m"), Error);
}

TEST(Tokenizer, StreamsWholeCharacters) {
  const std::string text = "a\u00e9\u4f60\U0001F600z";
  Utf8Stream stream;
  std::string joined;
  for (char byte : text) {
    const std::string part = stream.push({&byte, 1});
    EXPECT_TRUE(part.empty() || (part[0] & 0xc0) != 0x80) << part;
    joined += part;
  }
  EXPECT_EQ(joined, text);
  EXPECT_EQ(stream.finish(), "");
  EXPECT_EQ(stream.push("x\xf0\x9f"), "x");
  EXPECT_EQ(stream.finish(), "\uFFFD");
  EXPECT_EQ(stream.push("\xff\xe4\xbd"), "\uFFFD");
  EXPECT_EQ(stream.push("A"), "\uFFFD"
                              "A");
  EXPECT_EQ(stream.finish(), "");
}

TEST(Tokenizer, StreamsGiveTokensTheirPlace) {
  const auto places = [](const std::vector<std::string> &tokens) {
    Utf8Stream stream;
    std::vector<int64_t> offsets;
    offsets.reserve(tokens.size() + 1);
    for (const std::string &token : tokens) {
      offsets.push_back(stream.place(token));
      stream.push(token);
    }
    stream.finish();
    offsets.push_back(stream.count());
    return offsets;
  };
  using Offsets = std::vector<int64_t>;
  EXPECT_EQ(places({"ab", "\xc3\xa9", "c"}), (Offsets{0, 2, 3, 4}));
  // One character of three tokens, one of which has more.
  EXPECT_EQ(places({"a\xf0", "\x9f\x98", "\x80", "b"}),
            (Offsets{0, 1, 1, 2, 3}));
  EXPECT_EQ(places({"\xe2", "\x82", "\xac!", ""}), (Offsets{0, 0, 0, 2, 2}));
  // Each invalid part of UTF-8 counts as a replacement character.
  EXPECT_EQ(places({"\xc3", "\xc3", "\xa9", "\xff", "\xe2\x82", "a"}),
            (Offsets{0, 1, 1, 2, 3, 4, 5}));
  EXPECT_EQ(places({"\xe2\x82"}), (Offsets{0, 1}));
}

//===----------------------------------------------------------------------===//
// Texts of samplers
//===----------------------------------------------------------------------===//

TEST(SamplerTexts, BadWordsHaveTwoForms) {
  const Tokenizer &tokenizer = qwen2Tokenizer();
  const auto words = [&](const std::string &text) {
    SamplerOptions options;
    options.texts.badWords = {text};
    EXPECT_TRUE(hasTexts(options));
    resolveTexts(tokenizer, options);
    return options.badWords;
  };
  const std::vector<std::vector<int32_t>> both = {tokenizer.encode("hello"),
                                                  tokenizer.encode(" hello")};
  EXPECT_EQ(both[0].size(), 1u);
  EXPECT_EQ(words("hello"), both);
  EXPECT_EQ(words("  hello"), both);
  // With a space it has another number of tokens.
  EXPECT_EQ(tokenizer.encode("1").size() + 1, tokenizer.encode(" 1").size());
  EXPECT_EQ(words("1").size(), 1u);
  EXPECT_EQ(words("\n"), (decltype(both){tokenizer.encode("\n")}));
  EXPECT_THROW(words(""), Error);
  EXPECT_FALSE(hasTexts({}));
}

TEST(SamplerTexts, BreakersBeginInTokens) {
  const Tokenizer &tokenizer = qwen2Tokenizer();
  const auto idOf = [&](const char *text) {
    const std::vector<int32_t> ids = tokenizer.encode(text);
    EXPECT_EQ(ids.size(), 1u) << text;
    return ids[0];
  };
  SamplerOptions options = {.dryMultiplier = 1};
  EXPECT_TRUE(hasTexts(options));
  resolveTexts(tokenizer, options);
  for (const char *text : {"\n", ":", "\"", "*", ".\n", "**"})
    EXPECT_TRUE(options.dryBreakers->isWhole(idOf(text))) << text;
  EXPECT_FALSE(options.dryBreakers->isWhole(idOf("hello")));
  options.texts.dryBreakers = {"hello world"};
  resolveTexts(tokenizer, options);
  const auto rests = options.dryBreakers->restsAfter(idOf("hello"));
  ASSERT_EQ(rests.size(), 1u);
  EXPECT_EQ(rests[0], tokenizer.encode(" world"));
  // "h" may be the last letter of a token, and the first of the breaker.
  EXPECT_EQ(options.dryBreakers->restsAfter(idOf("h"))[0],
            tokenizer.encode("ello world"));
  EXPECT_TRUE(options.dryBreakers->restsAfter(idOf("world")).empty());
  options.texts.dryBreakers = std::vector<std::string>{};
  resolveTexts(tokenizer, options);
  EXPECT_FALSE(options.dryBreakers->isWhole(idOf("\n")));
}
