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
  return readGenerationConfig(dir.path(), readModelConfig(dir.path()));
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
  const ModelConfig model = readModelConfig(dir.path());
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
  const ModelConfig model = readModelConfig(dir.path());
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
      {"repetition_penalty", "0", "a number from 1e-06 to 1000000.0"},
      {"bos_token_id", "151936", "an integer from 0 to 151935"},
      {"eos_token_id", "\"<|im_end|>\"", "an integer from 0 to 151935"}};
  for (const auto &[key, value, needed] : cases)
    EXPECT_EQ(error(std::string("{\"") + key + "\": " + value + "}"),
              path + ": " + key + " is " + value + " when " + needed +
                  " is needed");
  EXPECT_EQ(error(R"({"eos_token_id": [1, 151936]})"),
            path + ": eos_token_id[1] is 151936 when an integer from 0 to "
                   "151935 is needed");
}
