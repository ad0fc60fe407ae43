//===- GgufTokenizerTest.cpp - Tokenizers in GGUF files -------------------===//

#include "GgufBytes.h"
#include "TempDir.h"

#include "qwen/ABI/TokenizerFormat.h"

#include <gtest/gtest.h>

using namespace qwen;
using namespace qwen::test;
using nlohmann::json;

namespace {
/// Keys of a tokenizer, to be changed.
struct TokenizerKeys {
  std::string model = "gpt2";
  std::string rule = "qwen2";
  std::vector<std::string> tokens = {"a",       "b",      "ab",    "<|im_end|>",
                                     "<think>", "[PAD5]", "[PAD6]"};
  std::vector<int32_t> kinds = {1, 1, 1, 3, 4, 5, 5};
  std::vector<std::string> merges = {"a b"};
  std::string chat = "{{ messages }}";
  /// The id that ends an answer.
  uint32_t named = 3;

  GgufFile make() const {
    std::string types;
    for (int32_t kind : kinds)
      types += raw(kind);
    GgufBytes file;
    file.keys = {
        string("tokenizer.ggml.model", model),
        string("tokenizer.ggml.pre", rule),
        strings("tokenizer.ggml.tokens", tokens),
        array("tokenizer.ggml.token_type", GgufType::I32, kinds.size(), types),
        strings("tokenizer.ggml.merges", merges),
        u32("tokenizer.ggml.eos_token_id", named),
        key("tokenizer.ggml.add_bos_token", GgufType::Bool, raw(uint8_t{1})),
        key("tokenizer.ggml.add_eos_token", GgufType::Bool, raw(uint8_t{1})),
        string("tokenizer.chat_template", chat)};
    bytes = file.make();
    return parse(bytes);
  }
  std::string error() const {
    return messageOf([&] { readGgufTokenizer(make(), "f"); });
  }

  mutable std::string bytes;
};
} // namespace

TEST(GgufTokenizer, Reads) {
  const TokenizerKeys keys;
  const CheckpointTokenizer found = *readGgufTokenizer(keys.make(), "f");
  EXPECT_EQ(found.vocab.size(), 3u);
  EXPECT_EQ(found.vocab.at("ab"), 2u);
  ASSERT_EQ(found.merges.size(), 1u);
  EXPECT_EQ(found.merges[0].right, "b");
  ASSERT_EQ(found.added.size(), 2u);
  EXPECT_EQ(found.added.at(3).text, "<|im_end|>");
  EXPECT_EQ(found.added.at(3).flags, 1u);
  EXPECT_EQ(found.added.at(4).flags, 0u);
  EXPECT_TRUE(found.normalizesNfc);
  EXPECT_EQ(found.eosToken, "<|im_end|>");
  EXPECT_EQ(found.appendedToken, "<|im_end|>");
  EXPECT_EQ(found.bosToken, std::nullopt);
  EXPECT_EQ(found.chatTemplate, "{{ messages }}");
  EXPECT_EQ(found.warnings,
            std::vector<std::string>{"f: tokenizer.ggml.add_bos_token is "
                                     "ignored: no token is put around a text"});
  EXPECT_FALSE(readGgufTokenizer(parse(GgufBytes{}.make()), "f").has_value());
}

TEST(GgufTokenizer, MendsTypesOfTokensThatTheTemplateWrites) {
  TokenizerKeys keys;
  keys.tokens = {"a",
                 "b",
                 "<",
                 ">",
                 "<a",
                 "<|im_end|>",
                 "<|im_start|>",
                 "<think>",
                 "<a>",
                 "<|other|>",
                 "<\uff5cUser\uff5c>"};
  keys.kinds.assign(keys.tokens.size(), 1);
  keys.merges = {"< a", "<a >"};
  keys.chat = "<<|im_start|>a<think><a>{{ '<\uff5cUser\uff5c>' }}";
  keys.named = 5;
  GgufFile file = keys.make();
  const CheckpointTokenizer found = *readGgufTokenizer(file, "f");
  std::map<std::string, uint32_t> added;
  for (const auto &[id, token] : found.added) {
    EXPECT_EQ(keys.tokens[id], token.text);
    added.emplace(token.text, token.flags);
  }
  EXPECT_EQ(added, (std::map<std::string, uint32_t>{
                       {"<|im_start|>", AddedSpecial},
                       {"<|im_end|>", AddedSpecial},
                       {"<\uff5cUser\uff5c>", AddedSpecial},
                       {"<think>", 0}}));
  EXPECT_EQ(found.eosToken, "<|im_end|>");
  const std::string what =
      "f: tokens of ordinary text in tokenizer.ggml.token_type, which the chat "
      "template or a key names: ";
  ASSERT_EQ(found.warnings.size(), 3u);
  EXPECT_EQ(found.warnings[0],
            what + "\"<|im_end|>\", \"<|im_start|>\", "
                   "\"<\uff5cUser\uff5c>\"; they count as special");
  EXPECT_EQ(found.warnings[1],
            what + "\"<think>\"; they count as tokens of their own");

  // Without types, all tokens are ordinary text.
  file.arrays.erase("tokenizer.ggml.token_type");
  const CheckpointTokenizer same = *readGgufTokenizer(file, "f");
  EXPECT_EQ(same.warnings, found.warnings);
  EXPECT_EQ(same.addedIds, found.addedIds);
}

TEST(GgufTokenizer, WarnsOfTemplatesWithoutDefault) {
  GgufBytes file;
  file.keys = {string("tokenizer.ggml.model", "gpt2"),
               string("tokenizer.ggml.pre", "qwen2"),
               strings("tokenizer.ggml.tokens", {"a"}),
               array("tokenizer.ggml.token_type", GgufType::I32, 1, raw(1)),
               strings("tokenizer.ggml.merges", {}),
               string("tokenizer.chat_template.tool_use", "x"),
               strings("tokenizer.chat_templates", {"tool_use"})};
  const std::string bytes = file.make();
  const CheckpointTokenizer found = *readGgufTokenizer(parse(bytes), "f");
  EXPECT_TRUE(found.chatTemplate.empty());
  EXPECT_EQ(found.warnings,
            std::vector<std::string>{
                "f: tokenizer.chat_templates has no template named default; "
                "qwen-run chat will refuse the model, generate will not"});
}

TEST(GgufTokenizer, FilesMayHaveNone) {
  TokenizerKeys keys;
  keys.model = "no_vocab";
  EXPECT_FALSE(readGgufTokenizer(keys.make(), "f").has_value());
}

TEST(GgufTokenizer, Refuses) {
  const auto errorOf = [](auto change) {
    TokenizerKeys keys;
    change(keys);
    return keys.error();
  };
  EXPECT_EQ(errorOf([](auto &keys) { keys.model = "bert"; }),
            "f: tokenizer.ggml.model \"bert\" is not supported; supported are "
            "\"gpt2\" and \"no_vocab\"");
  EXPECT_EQ(errorOf([](auto &keys) { keys.rule = "llama3"; }),
            "f: tokenizer.ggml.pre \"llama3\" is not supported; supported "
            "are \"qwen2\", \"deepseek-r1-qwen\", \"qwen35\"");
  EXPECT_EQ(errorOf([](auto &keys) { keys.kinds.pop_back(); }),
            "f: tokenizer.ggml.token_type has 6 values for 7 tokens when as "
            "many, and at most 16777216, are needed");
  EXPECT_EQ(errorOf([](auto &keys) { keys.kinds[1] = 99; }),
            "f: token 1 \"b\" has type 99 when 1, 3, 4 or 5 is needed");
  EXPECT_EQ(errorOf([](auto &keys) { keys.tokens[1] = "a"; }),
            "f: token 1 \"a\" is also token 0");
  EXPECT_EQ(errorOf([](auto &keys) { keys.tokens[3] = "\xff"; }),
            "f: token 3 \"\ufffd\" is not UTF-8");
  EXPECT_EQ(errorOf([](auto &keys) { keys.merges[0] = "ab"; }),
            "f: merge 0 is \"ab\" where two tokens with a space between are "
            "needed");
  EXPECT_EQ(errorOf([](auto &keys) { keys.chat = "\xff"; }),
            "f: tokenizer.chat_template is not UTF-8");
}
