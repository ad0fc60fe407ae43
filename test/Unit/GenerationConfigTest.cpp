//===- GenerationConfigTest.cpp - Readers of generation_config.json -------===//

#include "qwen/Import/Checkpoint/Config.h"

#include "PublishedConfigs.h"
#include "TempDir.h"

#include <gtest/gtest.h>

using namespace qwen;
using namespace qwen::test;
using nlohmann::json;

/// Reads `generation` beside `config`.
static GenerationConfig readGeneration(const json &generation,
                                       const json &config = qwen2()) {
  TempDir dir;
  dir.write("config.json", config.dump());
  dir.write("generation_config.json", generation.dump());
  ModelConfig model = readModelConfig(dir.path());
  return readGenerationConfig(dir.path(), model);
}

/// The notes about `generation` beside `config`.
static std::vector<std::string> notesOf(const json &generation,
                                        const json &config = qwen2()) {
  TempDir dir;
  dir.write("config.json", config.dump());
  dir.write("generation_config.json", generation.dump());
  ModelConfig model = readModelConfig(dir.path());
  readGenerationConfig(dir.path(), model);
  return model.notes;
}

TEST(GenerationConfig, ReadsPublishedKeys) {
  const GenerationConfig found = readGeneration(json::parse(R"({
    "bos_token_id": 151641, "pad_token_id": 151642, "do_sample": true,
    "eos_token_id": [151645, 151643], "repetition_penalty": 1.1,
    "temperature": 0.7, "top_p": 0.8, "top_k": 20, "min_p": 0.05,
    "transformers_version": "4.37.0"})"));
  EXPECT_TRUE(found.doSample);
  EXPECT_EQ(found.temperature, 0.7);
  EXPECT_EQ(found.topK, 20);
  EXPECT_EQ(found.topP, 0.8);
  EXPECT_EQ(found.minP, 0.05);
  EXPECT_EQ(found.repetitionPenalty, 1.1);
  EXPECT_EQ(found.eosTokenIds, (std::vector<int32_t>{151645, 151643}));
  EXPECT_EQ(found.bosTokenId, 151641);
}

TEST(GenerationConfig, TakesDefaults) {
  TempDir dir;
  json config = qwen2();
  config["bos_token_id"] = 7;
  config["eos_token_id"] = {5, 6};
  dir.write("config.json", config.dump());
  ModelConfig model = readModelConfig(dir.path());
  const GenerationConfig found = readGenerationConfig(dir.path(), model);
  EXPECT_FALSE(found.doSample);
  EXPECT_EQ(found.temperature, 1.0);
  EXPECT_EQ(found.topK, 50);
  EXPECT_EQ(found.topP, 1.0);
  EXPECT_EQ(found.minP, 0.0);
  EXPECT_EQ(found.repetitionPenalty, 1.0);
  EXPECT_EQ(found.eosTokenIds, (std::vector<int32_t>{5, 6}));
  EXPECT_EQ(found.bosTokenId, 7);

  // The file has precedence over config.json, and null disables top_k.
  const GenerationConfig other = readGeneration(
      {{"eos_token_id", 9}, {"top_k", nullptr}, {"top_p", nullptr}}, config);
  EXPECT_EQ(other.eosTokenIds, std::vector<int32_t>{9});
  EXPECT_EQ(other.topK, 0);
  EXPECT_EQ(other.topP, 1.0);

  config.erase("eos_token_id");
  config.erase("bos_token_id");
  const GenerationConfig none = readGeneration(json::object(), config);
  EXPECT_TRUE(none.eosTokenIds.empty());
  EXPECT_EQ(none.bosTokenId, std::nullopt);
}

TEST(GenerationConfig, RefusesTypesAndRanges) {
  TempDir dir;
  dir.write("config.json", qwen2().dump());
  ModelConfig model = readModelConfig(dir.path());
  const std::string path = dir.string() + "/generation_config.json";
  const auto error = [&](const std::string &text) {
    dir.write("generation_config.json", text);
    return messageOf([&] { readGenerationConfig(dir.path(), model); });
  };
  EXPECT_EQ(error("{"), path + " is not JSON: it ends too early, at column 2");
  EXPECT_EQ(error("3"), path + " has 3 when a JSON object is needed");
  const char *const cases[][3] = {
      {"do_sample", "1", "true or false"},
      {"temperature", "-0.5", "a number from 0.0 to 1000000.0"},
      {"temperature", "\"hot\"", "a number from 0.0 to 1000000.0"},
      {"top_k", "-1", "an integer from 0 to 2147483647"},
      {"top_k", "20.5", "an integer from 0 to 2147483647"},
      {"top_p", "1.5", "a number from 0.0 to 1.0"},
      {"min_p", "-0.1", "a number from 0.0 to 1.0"},
      {"repetition_penalty", "0", "a number from 1e-06 to 1000000.0"}};
  for (const auto &[key, value, needed] : cases)
    EXPECT_EQ(error(std::string("{\"") + key + "\": " + value + "}"),
              path + ": " + key + " is " + value + " when " + needed +
                  " is needed");
  for (const char *value : {"\"<|im_end|>\"", "1.5", "[[1]]"})
    EXPECT_NE(error(std::string("{\"eos_token_id\": ") + value + "}")
                  .find("when an integer from"),
              std::string::npos);
}

TEST(GenerationConfig, IgnoresTokensBeyondTheVocabulary) {
  const json generation = {{"eos_token_id", {1, 151936, 5}},
                           {"bos_token_id", -1}};
  const GenerationConfig found = readGeneration(generation);
  EXPECT_EQ(found.eosTokenIds, (std::vector<int32_t>{1, 5}));
  // That of config.json.
  EXPECT_EQ(found.bosTokenId, 151643);
  EXPECT_EQ(notesOf(generation),
            std::vector<std::string>{"not used, tokens beyond the vocabulary: "
                                     "bos_token_id -1, eos_token_id[1] "
                                     "151936"});
  json config = qwen2();
  config["eos_token_id"] = 1 << 20;
  EXPECT_TRUE(readGeneration(json::object(), config).eosTokenIds.empty());
  EXPECT_EQ(notesOf(json::object(), config),
            std::vector<std::string>{
                "not used, tokens beyond the vocabulary: eos_token_id "
                "1048576"});
}

/// The text of a Qwen2.5-VL has both in its class in transformers.
TEST(GenerationConfig, TakesDefaultsOfTheClass) {
  json config = qwen2();
  config["architectures"] = {"Qwen2_5_VLForConditionalGeneration"};
  config["model_type"] = "qwen2_5_vl";
  config.erase("eos_token_id");
  config.erase("bos_token_id");
  GenerationConfig found = readGeneration(json::object(), config);
  EXPECT_EQ(found.eosTokenIds, std::vector<int32_t>{151645});
  EXPECT_EQ(found.bosTokenId, 151643);
  config["vocab_size"] = 320;
  found = readGeneration(json::object(), config);
  EXPECT_TRUE(found.eosTokenIds.empty());
  EXPECT_TRUE(notesOf(json::object(), config).empty());
}

TEST(GenerationConfig, TellsKeysThatAreNotTaken) {
  EXPECT_EQ(notesOf({{"typical_p", 0.9},
                     {"top_h", 0.4},
                     {"repetiton_penalty", 1.1},
                     {"num_beams", 4},
                     {"bad_words_ids", {{1}}},
                     {"a\n", 1}}),
            std::vector<std::string>{
                "not used, keys of generation_config.json: a\\n, "
                "bad_words_ids, num_beams, repetiton_penalty, "
                "top_h, typical_p"});
  // Values that have no effect, limits of length, and how a library computes.
  EXPECT_TRUE(notesOf({{"typical_p", 1.0},
                       {"num_beams", 1},
                       {"length_penalty", 1.0},
                       {"min_length", 0},
                       {"no_repeat_ngram_size", 0},
                       {"early_stopping", false},
                       {"renormalize_logits", false},
                       {"top_k", 20},
                       {"do_sample", true},
                       {"pad_token_id", 151643},
                       {"max_new_tokens", 2048},
                       {"max_window_size", 24000},
                       {"chat_format", "chatml"},
                       {"assistant_early_exit", 3},
                       {"output_scores", true},
                       {"transformers_version", "4.51.0"}})
                  .empty());
}
