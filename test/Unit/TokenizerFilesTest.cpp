//===- TokenizerFilesTest.cpp - Small tokenizers made here ----------------===//

#include "TokenizerFiles.h"
#include "Sampled.h"
#include "text/MarkedText.h"
#include "text/Retrieval.h"
#include "text/Unicode.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

using namespace qwen;
using namespace qwen::test;
using nlohmann::json;

TEST_F(TokenizerFilesTest, NoFilesAreNoTokenizer) {
  EXPECT_FALSE(readTokenizerFiles(dir).has_value());
}

TEST_F(TokenizerFilesTest, ReadsPairs) {
  const std::vector<int32_t> expected = {257, 256, 'b', 'c'};
  writePair();
  EXPECT_EQ(encode("abcabbc"), (std::vector<int32_t>{257, 256, 'b', 'c'}));
  merges = "a b\r\nab c\r\n\r\n";
  writePair();
  EXPECT_EQ(encode("abcabbc"), expected);
  merges = "a b\nab c";
  writePair();
  EXPECT_EQ(encode("abcabbc"), expected);
}

TEST_F(TokenizerFilesTest, ReadsWholeFiles) {
  json file = wholeFile();
  write("tokenizer.json", file.dump());
  EXPECT_EQ(encode("<s>abc<tag>"), (std::vector<int32_t>{258, 257, 259}));
  EXPECT_EQ(encode("<s><tag>", false),
            (std::vector<int32_t>{'<', 's', '>', 259}));
  file["model"]["merges"] =
      json::array({json::array({"a", "b"}), json::array({"ab", "c"})});
  file["normalizer"] = nullptr;
  write("tokenizer.json", file.dump());
  EXPECT_EQ(encode("abc"), (std::vector<int32_t>{257}));
  // e and its accent, not normalized, byte by byte: no merges.
  EXPECT_EQ(encode("e\u0301"), (std::vector<int32_t>{'e', 0xcc, 0x81}));
}

TEST_F(TokenizerFilesTest, RepeatedMergesAreWarnedOf) {
  merges = "a b\nb c\na b\nab c\n";
  vocab["bc"] = 258;
  writePair();
  ASSERT_EQ(buildTokenizer(*readTokenizerFiles(dir)).warnings.size(), 1u);
  EXPECT_EQ(encode("abc"), (std::vector<int32_t>{'a', 258}));
}

TEST_F(TokenizerFilesTest, AddedTokensHonourTheirFlags) {
  writePair();
  write("tokenizer_config.json", R"({"added_tokens_decoder": {
    "258": {"content": "<l>", "lstrip": true},
    "259": {"content": "<r>", "rstrip": true},
    "260": {"content": "one", "single_word": true},
    "261": {"content": "<l><r>"},
    "262": {"content": "\u00e9u", "normalized": true}}})");
  EXPECT_EQ(encode("a \n<l> a"), (std::vector<int32_t>{'a', 258, ' ', 'a'}));
  EXPECT_EQ(encode("a <r> \u2003a"),
            (std::vector<int32_t>{'a', ' ', 259, 'a'}));
  EXPECT_EQ(encode("one,one"), (std::vector<int32_t>{260, ',', 260}));
  EXPECT_EQ(encode("ones").size(), 4u);
  EXPECT_EQ(encode("\u00e9one").size(), 5u);
  EXPECT_EQ(encode("<l><r>"), (std::vector<int32_t>{261}));
  EXPECT_EQ(encode("ae\u0301u"), (std::vector<int32_t>{'a', 262}));
}

// Such a token is found as NFC makes it, as in Hugging Face tokenizers, and
// decoded as it is.
TEST_F(TokenizerFilesTest, FindsAddedTokensThatAreNotNormalized) {
  writePair();
  write("tokenizer_config.json", R"({"added_tokens_decoder": {
    "258": {"content": "e\u0301", "normalized": true},
    "259": {"content": "u\u0301", "normalized": false},
    "260": {"content": "e\u0301a", "special": true, "normalized": true}}})");
  for (const char *accent : {"e\u0301", "\u00e9"}) {
    const std::string text = std::string("a") + accent;
    EXPECT_EQ(encode((text + "b").c_str()),
              (std::vector<int32_t>{'a', 258, 'b'}));
    EXPECT_EQ(encode((text + "a").c_str()), (std::vector<int32_t>{'a', 260}));
  }
  EXPECT_EQ(encode("u\u0301"), std::vector<int32_t>{259});
  EXPECT_EQ(encode("\u00fa").size(), 2u);
  const TokenizerImport import = buildTokenizer(*readTokenizerFiles(dir));
  EXPECT_EQ(Tokenizer::fromBlob(import.blob).decode(std::vector<int32_t>{258}),
            "e\u0301");
}

// A part of a text that NFC changes has no place in the text any more, so the
// template must have written all of it.
TEST_F(TokenizerFilesTest, NormalizedTextKeepsItsOrigin) {
  writePair();
  write("tokenizer_config.json", R"({"added_tokens_decoder": {
    "258": {"content": "\u00e9u", "normalized": true, "special": true}}})");
  const TokenizerImport import = buildTokenizer(*readTokenizerFiles(dir));
  const Tokenizer tokenizer = Tokenizer::fromBlob(import.blob);
  const auto hasToken = [&](std::initializer_list<const char *> parts) {
    MarkedText text;
    Origin origin = Origin::Template;
    for (const char *part : parts) {
      text.append(part, origin);
      origin = origin == Origin::Input ? Origin::Template : Origin::Input;
    }
    return std::ranges::count(tokenizer.encode(text), 258) > 0;
  };
  EXPECT_TRUE(hasToken({"a\u00e9u", "a"}));
  EXPECT_TRUE(hasToken({"ae\u0301u"}));
  EXPECT_FALSE(hasToken({"a", "\u00e9u"}));
  EXPECT_FALSE(hasToken({"a", "e\u0301u"}));
  // The accent of a message composes with the letter of the template.
  EXPECT_FALSE(hasToken({"ae", "\u0301", "u"}));
  EXPECT_FALSE(hasToken({"a", "e", "\u0301u"}));
  // After NFC the text of a message lies where that of the template was.
  EXPECT_FALSE(hasToken({"e\u0301e\u0301e\u0301", "\u00e9u"}));
}

TEST_F(TokenizerFilesTest, ReadsAddedTokensWithoutFlags) {
  writePair();
  write("added_tokens.json", R"({"<tag>": 258, "<s>": 259})");
  write("special_tokens_map.json",
        R"({"eos_token": {"content": "<s>"}, "bos_token": "none"})");
  const TokenizerImport import = buildTokenizer(*readTokenizerFiles(dir));
  const Tokenizer tokenizer = Tokenizer::fromBlob(import.blob);
  EXPECT_FALSE(tokenizer.isSpecial(258));
  EXPECT_TRUE(tokenizer.isSpecial(259));
  EXPECT_EQ(import.eosToken, 259u);
  EXPECT_EQ(tokenizer.eosToken(), 259);
  ASSERT_EQ(import.warnings.size(), 1u);
  EXPECT_NE(import.warnings[0].find("bos_token"), std::string::npos);
}

TEST_F(TokenizerFilesTest, FindsChatTemplates) {
  writePair();
  EXPECT_EQ(buildTokenizer(*readTokenizerFiles(dir)).chatTemplate, "");
  write("chat_template.json", R"({"chat_template": "zero"})");
  for (const char *config : {"{}", R"({"chat_template": null})"}) {
    write("tokenizer_config.json", config);
    EXPECT_EQ(buildTokenizer(*readTokenizerFiles(dir)).chatTemplate, "zero");
    EXPECT_EQ(buildTokenizer(*readTokenizerFiles(dir)).chatTemplateFile,
              dir / "chat_template.json");
  }
  write("tokenizer_config.json", R"({"chat_template": "one"})");
  EXPECT_EQ(buildTokenizer(*readTokenizerFiles(dir)).chatTemplate, "one");
  write("tokenizer_config.json", R"({"chat_template": [
    {"name": "tool_use", "template": "no"},
    {"name": "default", "template": "two"}]})");
  EXPECT_EQ(buildTokenizer(*readTokenizerFiles(dir)).chatTemplate, "two");
  EXPECT_EQ(buildTokenizer(*readTokenizerFiles(dir)).chatTemplateFile,
            dir / "tokenizer_config.json");
  write("chat_template.jinja", "three\n");
  EXPECT_EQ(buildTokenizer(*readTokenizerFiles(dir)).chatTemplate, "three\n");
  EXPECT_EQ(buildTokenizer(*readTokenizerFiles(dir)).chatTemplateFile,
            dir / "chat_template.jinja");
  write("chat_template.jinja", "");
  EXPECT_EQ(buildTokenizer(*readTokenizerFiles(dir)).chatTemplate, "");
  std::filesystem::remove(dir / "chat_template.jinja");
  std::filesystem::remove(dir / "chat_template.json");
}

TEST_F(TokenizerFilesTest, WarnsOfChatTemplatesItCannotRead) {
  writePair();
  const auto warnings = [&](const char *value) {
    write("tokenizer_config.json",
          std::string(R"({"chat_template": )") + value + "}");
    const TokenizerImport import = buildTokenizer(*readTokenizerFiles(dir));
    EXPECT_EQ(import.chatTemplate.empty(),
              !exists(dir / "chat_template.jinja"));
    return import.warnings;
  };
  const auto found = [&](const char *what) {
    return std::vector<std::string>{
        dir.string() + "/tokenizer_config.json: chat_template is " + what +
        " where a string, or a list with one named default, is needed; "
        "qwen-run chat will refuse the model, generate will not"};
  };
  EXPECT_EQ(warnings(R"([{"name": "rag", "template": "x"}])"),
            found("an array"));
  EXPECT_EQ(warnings(R"([{"name": "default"}])"), found("an array"));
  EXPECT_EQ(warnings("[]"), found("an array"));
  EXPECT_EQ(warnings("[1]"), found("an array"));
  EXPECT_EQ(warnings("7"), found("7"));
  EXPECT_TRUE(warnings("null").empty());
  // The file replaces it.
  write("chat_template.jinja", "x");
  EXPECT_TRUE(warnings("7").empty());
}

TEST_F(TokenizerFilesTest, RefusesBadVocabularies) {
  const json good = vocab;
  const auto expect = [&](const std::string &part) {
    writePair();
    expectError(part);
    expectError("vocab.json");
    vocab = good;
  };
  vocab["x1"] = -3;
  expect(R"(token "x1" has id -3 where a number from 0)");
  vocab["x1"] = 1ull << 40;
  expect("has id 1099511627776 where");
  vocab["x1"] = 1.5;
  expect("has id 1.5 where");
  vocab["x1"] = "7";
  expect(R"(has id "7" where)");
  vocab["x1"] = 259;
  expect("no token has id 258");
  vocab["x1"] = 256;
  expect(R"(tokens "ab" and "x1" both have id 256)");
  vocab["x\u4f60"] = 258;
  expect("has U+4F60, which is not of the byte-level alphabet");
  vocab["a b"] = 258;
  expect("has U+0020, which");
  vocab = json::object();
  expect("has no tokens");
  vocab = json::array({1});
  expect("vocab.json has an array when a JSON object");
  write("vocab.json", "{\"a\":\n ");
  expectError("vocab.json is not JSON: it ends too early, at line 2, column 2");
  write("vocab.json", "{\"a\xff\": 1}");
  expectError("vocab.json is not JSON at column 4");
  write("vocab.json", R"({"a": 1, "a": 2})");
  expectError(R"(vocab.json has "a" twice)");
}

//===----------------------------------------------------------------------===//
// Bytes without a token
//===----------------------------------------------------------------------===//

/// The tokenizers and texts of test/Inputs/make_missing_bytes.py.
TEST_F(TokenizerFilesTest, TreatsMissingBytesAsHuggingFace) {
  std::ifstream lines(QWEN_SOURCE_DIR
                      "/test/Inputs/tokenizer/missing_bytes.jsonl");
  size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const json entry = json::parse(line);
    json file = wholeFile();
    file["model"] = entry["model"];
    file["added_tokens"] = json::array();
    write("tokenizer.json", file.dump());
    const TokenizerImport import = buildTokenizer(*readTokenizerFiles(dir));
    const Tokenizer tokenizer = Tokenizer::fromBlob(import.blob);
    ASSERT_EQ(import.warnings.size(), 1u);
    for (const json &of : entry["cases"]) {
      const auto text = of["text"].get<std::string>();
      const auto ids = of["ids"].get<std::vector<int32_t>>();
      EXPECT_EQ(tokenizer.encode(text), ids) << count << ": " << text;
      EXPECT_EQ(toValidUtf8(tokenizer.decode(ids)),
                of["decoded"].get<std::string>())
          << count << ": " << text;
      EXPECT_LE(text.size(), tokenizer.mostBytes(int64_t(ids.size())))
          << count << ": " << text;
    }
  }
  EXPECT_EQ(count, 20u);
}

TEST_F(TokenizerFilesTest, RefusesVocabulariesWithoutBytes) {
  vocab = {{"hello", 0}, {"world", 1}};
  merges = "";
  writePair();
  expectError("has no token for any byte: not a byte-level vocabulary");
}

TEST_F(TokenizerFilesTest, TellsWhatBecomesOfMissingBytes) {
  vocab.erase("Z");
  vocab["ZZ"] = 'Z';
  vocab.erase("Q");
  vocab["QQ"] = 'Q';
  json file = wholeFile();
  const auto warnings = [&] {
    write("tokenizer.json", file.dump());
    return buildTokenizer(*readTokenizerFiles(dir)).warnings;
  };
  const std::string what = dir.string() +
                           "/tokenizer.json: no token for 2 of 256 bytes (81 "
                           "is the first)";
  EXPECT_EQ(warnings(),
            std::vector<std::string>{what + ": in a text they are skipped, as "
                                            "Hugging Face tokenizers does it"});
  EXPECT_EQ(encode("aZbQZc"), std::vector<int32_t>{257});
  EXPECT_TRUE(encode("ZQ").empty());
  file["model"]["unk_token"] = "QQ";
  EXPECT_EQ(warnings(), std::vector<std::string>{
                            what + ": in a text they are the token \"QQ\""});
  EXPECT_EQ(encode("abZQ"), (std::vector<int32_t>{256, 'Q', 'Q'}));
  file["model"]["fuse_unk"] = true;
  warnings();
  EXPECT_EQ(encode("abZQ"), (std::vector<int32_t>{256, 'Q'}));
  // It must be of the vocabulary: an added token is not.
  file["model"]["unk_token"] = "<s>";
  write("tokenizer.json", file.dump());
  expectError("no token for 2 of 256 bytes (81 is the first) when unk_token "
              "\"<s>\", which they would become, is not in the vocabulary "
              "either; with null they are skipped");
  file["model"]["unk_token"] = 5;
  write("tokenizer.json", file.dump());
  expectError("unk_token is 5 where a token is needed");
}

TEST_F(TokenizerFilesTest, RefusesBadMerges) {
  const auto expect = [&](const char *text, const std::string &part) {
    merges = text;
    writePair();
    expectError("merges.txt: " + part);
  };
  expect("a b\nabc\n", R"(line 2 is "abc" where two tokens)");
  expect("a b c\n", R"(line 1 is "a b c" where two tokens)");
  expect(" a\n", R"(line 1 is " a" where two tokens)");
  expect("a \n", R"(line 1 is "a " where two tokens)");
  expect("a b\n#version: 0.2\n", R"(line 2 needs the token "#version:")");
  expect("b c\n", R"(line 1 needs the token "bc", which is not)");
  expect("xy a\n", R"(line 1 needs the token "xy", which is not)");
  std::filesystem::remove(dir / "merges.txt");
  expectError("merges.txt: is missing");
  std::filesystem::remove(dir / "vocab.json");
  write("merges.txt", "");
  expectError("vocab.json: is missing");
}

TEST_F(TokenizerFilesTest, RefusesBadAddedTokens) {
  writePair();
  const auto expect = [&](const char *added, const std::string &part) {
    write("tokenizer_config.json",
          std::string(R"({"added_tokens_decoder": )") + added + "}");
    expectError("tokenizer_config.json: ");
    expectError(part);
  };
  expect(R"({"-1": {"content": "x"}})", R"(key "-1" where an id is needed)");
  expect(R"({"99999999": {"content": "x"}})", "has id 99999999 where");
  expect(R"({"258": {"content": ""}})", "added token 258 has no text");
  expect(R"({"258": "x"})", R"(added token 258 is "x" where an object)");
  expect(R"({"258": {"content": "x", "lstrip": 1}})", "lstrip is 1 where");
  expect(R"({"258": {"content": "<x>"}, "259": {"content": "<x>"}})",
         R"(added token "<x>" with id 259 contradicts "<x>" with id 258)");
  expect("[1]", "added_tokens_decoder is an array where an object");
  write("tokenizer_config.json",
        R"({"added_tokens_decoder": {"260": {"content": "<x>"}}})");
  expectError("no token has id 258");
  write("tokenizer_config.json",
        R"({"added_tokens_decoder": {"256": {"content": "<x>"}}})");
  expectError("both have id 256");
  write("tokenizer_config.json",
        R"({"added_tokens_decoder": {"258": {"content": "ab"}}})");
  expectError(R"(token "ab" has id 256 and as an added one 258)");
  write("tokenizer_config.json", R"({"add_prefix_space": true})");
  expectError("has add_prefix_space true, which is not supported");
  write("tokenizer_config.json", R"({"eos_token": 5})");
  expectError("eos_token is 5 where a token is needed");
  write("tokenizer_config.json", R"({"additional_special_tokens": "x"})");
  expectError("additional_special_tokens is \"x\" where an array");
}

TEST_F(TokenizerFilesTest, ReadsOtherFormsOfTheSame) {
  json file = wholeFile();
  const auto encodes = [&] {
    write("tokenizer.json", file.dump());
    return encode("<s>abc<tag>e\u0301") ==
           std::vector<int32_t>{258, 257, 259, 0xc3, 0xa9};
  };
  EXPECT_TRUE(encodes());
  file["model"]["dropout"] = 0.0;
  file["model"]["byte_fallback"] = false;
  EXPECT_TRUE(encodes());
  const auto wrap = [&](const char *key, const char *steps) {
    file[key] = {{"type", "Sequence"}, {steps, {file[key]}}};
    return encodes();
  };
  for (int depth = 0; depth < 2; ++depth) {
    EXPECT_TRUE(wrap("normalizer", "normalizers"));
    EXPECT_TRUE(wrap("decoder", "decoders"));
    EXPECT_TRUE(wrap("pre_tokenizer", "pretokenizers"));
  }
  json &steps = file["pre_tokenizer"]["pretokenizers"][0]["pretokenizers"][0]
                    ["pretokenizers"];
  for (json &step : steps)
    step = {{"type", "Sequence"}, {"pretokenizers", {step}}};
  EXPECT_TRUE(encodes());
  file["normalizer"]["normalizers"] = json::array();
  EXPECT_FALSE(encodes());
  EXPECT_EQ(encode("e\u0301").size(), 3u);
}

TEST_F(TokenizerFilesTest, RefusesOtherKindsByName) {
  const auto expect = [&](const char *pointer, const json &value,
                          const std::string &part) {
    json file = wholeFile();
    file[json::json_pointer(pointer)] = value;
    write("tokenizer.json", file.dump());
    expectError("tokenizer.json: " + part);
  };
  expect("/model/type", "Unigram", R"(model type "Unigram" is not supported)");
  expect("/model/byte_fallback", true, "model has byte_fallback true");
  expect("/model/ignore_merges", true, "model has ignore_merges true");
  expect("/model/dropout", 0.1, "model has dropout 0.1");
  expect("/model/merges", 5, "model.merges is 5 where an array");
  expect("/model/merges/1", 5, "merge 1 is 5 where two tokens");
  expect("/model/merges/1", "abc", R"(merge 1 is "abc" where two tokens)");
  expect("/model/vocab", json(), "the vocabulary is null");
  expect("/normalizer/type", "NFKC", R"(normalizer "NFKC" is not supported)");
  expect("/decoder/type", "Metaspace", R"(decoder "Metaspace" is not)");
  expect("/normalizer",
         {{"type", "Sequence"},
          {"normalizers", {{{"type", "NFC"}}, {{"type", "Strip"}}}}},
         R"(normalizer "Sequence" is not supported)");
  expect("/decoder", {{"type", "Sequence"}, {"decoders", json::array()}},
         R"(decoder "Sequence" is not)");
  expect("/pre_tokenizer/type", "Metaspace",
         R"(pre_tokenizer "Metaspace" of "Split" "(?i:'s)");
  expect("/pre_tokenizer/pretokenizers/0/pattern/Regex", R"(\p{N}{1,3})",
         R"(pre_tokenizer "Sequence" of "Split" "\\p{N}{1,3}" "ByteLevel")");
  expect("/pre_tokenizer/pretokenizers/1/use_regex", true,
         R"(pre_tokenizer "Sequence")");
  expect("/added_tokens", 5, "added_tokens is 5 where an array");
  expect("/added_tokens/0/id", -1, R"(token "\"<s>\"" has id -1)");
}

TEST_F(TokenizerFilesTest, WarnsOfWhatIsIgnored) {
  json file = wholeFile();
  const std::string path = (dir / "tokenizer.json").string();
  const auto warnings = [&] {
    write("tokenizer.json", file.dump());
    return buildTokenizer(*readTokenizerFiles(dir)).warnings;
  };
  file["truncation"] = file["padding"] = nullptr;
  EXPECT_TRUE(warnings().empty());
  file["truncation"] = {{"max_length", 2}, {"strategy", "LongestFirst"}};
  EXPECT_EQ(warnings(),
            std::vector<std::string>{path + ": truncation is ignored: a text "
                                            "keeps its length"});
  EXPECT_EQ(encode("abcabb").size(), 3u);
  file["truncation"] = nullptr;
  file["padding"] = {{"strategy", {{"Fixed", 8}}}};
  EXPECT_EQ(warnings(),
            std::vector<std::string>{path + ": padding is ignored: a text "
                                            "keeps its length"});
  file["padding"] = nullptr;
  file["post_processor"] = {{"type", "Template\u009bProcessing"}};
  EXPECT_EQ(warnings(), std::vector<std::string>{
                            path + ": post_processor "
                                   "\"Template\\u009bProcessing\" is ignored: "
                                   "no token is put around a text"});
}

TEST_F(TokenizerFilesTest, ReadsTiktoken) {
  // "a", "b", "ab", "aba".
  write("qwen.tiktoken", "YQ== 0\nYg== 1\nYWI= 2\nYWJh 3\n");
  const CheckpointTokenizer found = *readTokenizerFiles(dir);
  ASSERT_EQ(found.merges.size(), 2U);
  EXPECT_EQ(found.merges[1].left, "ab");
  EXPECT_EQ(found.added.size(), 208U);
  EXPECT_EQ(found.added.at(4).text, "<|endoftext|>");
  EXPECT_EQ(found.chatTemplateFile, dir / "qwen.tiktoken");
  EXPECT_NE(found.chatTemplate.find("<|im_start|>assistant"),
            std::string::npos);
  const auto error = [&](const std::string &lines) {
    write("qwen.tiktoken", lines);
    return messageOf([&] { readTokenizerFiles(dir); });
  };
  const std::string file = dir.string() + "/qwen.tiktoken ";
  for (const char *line : {"YQ==", "YQ== 1", "YQ 0", "Y?== 0", "==== 0", " 0",
                           "YQ==  0", "YQ== 0 "})
    EXPECT_EQ(error(line), file + "line 1 is \"" + line +
                               "\" when a token of 1 to 256 bytes in base64 "
                               "and its id, 0, are needed");
  EXPECT_EQ(error("YQ== 0\nYQ== 1\n"), file + "line 2 repeats the token \"a\"");
  EXPECT_EQ(error("YQ== 0\nYg== 1\nYWJh 2\n"),
            file + "line 3: no tokens before \"aba\" merge to it");
}

TEST_F(TokenizerFilesTest, AppendsTheTokenOfThePostProcessor) {
  json file = wholeFile();
  const json text = {{"Sequence", {{"id", "A"}}}};
  const auto token = [](const char *id) {
    return json{{"SpecialToken", {{"id", id}}}};
  };
  const auto read = [&](const json &pieces) {
    file["post_processor"] = {
        {"type", "Sequence"},
        {"processors",
         {{{"type", "ByteLevel"}},
          {{"type", "TemplateProcessing"}, {"single", pieces}}}}};
    write("tokenizer.json", file.dump());
    return buildTokenizer(*readTokenizerFiles(dir));
  };
  const auto embedded = [&](const TokenizerImport &import) {
    return embeddingPrompt(Tokenizer::fromBlob(import.blob), "ab");
  };
  const TokenizerImport appends = read({text, token("<s>")});
  EXPECT_TRUE(appends.warnings.empty());
  EXPECT_EQ(embedded(appends), (std::vector<int32_t>{256, 258}));
  EXPECT_EQ(Tokenizer::fromBlob(appends.blob).encode("ab"),
            std::vector<int32_t>{256});
  for (const json &other :
       {json{token("<s>"), text}, json{text}, json{text, token("<none>")}}) {
    const TokenizerImport import = read(other);
    EXPECT_EQ(import.warnings.size(), 1U) << other;
    EXPECT_EQ(embedded(import), std::vector<int32_t>{256}) << other;
  }
}

TEST_F(TokenizerFilesTest, TakesTokensThatAreNamedOften) {
  json file = wholeFile();
  json &added = file["added_tokens"];
  for (int id = 260; id < 16'000; ++id)
    added.push_back({{"id", id}, {"content", "<" + std::to_string(id) + ">"}});
  for (int i = 0; i < (isSampled() ? 20'000 : 200'000); ++i)
    added.push_back(added[i % 2 ? 0 : 15'000]);
  write("tokenizer.json", file.dump());
  // Takes minutes if each token searches all tokens.
  EXPECT_EQ(buildTokenizer(*readTokenizerFiles(dir)).vocabSize, 16'000u);
}

TEST_F(TokenizerFilesTest, ReadsWhetherMarksJoinLetters) {
  json file = wholeFile();
  write("tokenizer.json", file.dump());
  EXPECT_FALSE(readTokenizerFiles(dir)->marksJoinLetters);
  file[json::json_pointer("/pre_tokenizer/pretokenizers/0/pattern/Regex")] =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  write("tokenizer.json", file.dump());
  EXPECT_TRUE(readTokenizerFiles(dir)->marksJoinLetters);
}
