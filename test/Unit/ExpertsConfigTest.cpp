//===- ExpertsConfigTest.cpp - Configurations of models with experts ------===//

#include "qwen/Import/Checkpoint/Config.h"

#include "PublishedConfigs.h"
#include "TempDir.h"

#include <gtest/gtest.h>

using namespace qwen;
using namespace qwen::test;
using nlohmann::json;

/// A small Qwen3-MoE.
static json qwen3Moe() {
  json config = qwen3();
  config.update({{"architectures", {"Qwen3MoeForCausalLM"}},
                 {"model_type", "qwen3_moe"},
                 {"num_experts", 8},
                 {"num_experts_per_tok", 2},
                 {"moe_intermediate_size", 64},
                 {"num_hidden_layers", 6}});
  config.erase("layer_types");
  return config;
}

static std::string layersWithExperts(const json &config) {
  const ModelConfig model = readConfig(config);
  std::string layers;
  for (int64_t layer = 0; layer < model.layers; ++layer)
    layers += model.expertsOf(layer) ? "e" : "d";
  return layers;
}

TEST(ExpertsConfig, ReadsSizes) {
  json config = qwen3Moe();
  ExpertsShape needed = {8, 2, 64};
  ASSERT_TRUE(readConfig(config).experts);
  EXPECT_EQ(*readConfig(config).experts, needed);
  // The name of transformers 5.
  config["num_local_experts"] = 8;
  EXPECT_EQ(*readConfig(config).experts, needed);
  config.erase("num_experts");
  EXPECT_EQ(*readConfig(config).experts, needed);
  config["norm_topk_prob"] = needed.normalized = true;
  EXPECT_EQ(*readConfig(config).experts, needed);
  EXPECT_FALSE(readConfig(qwen3()).experts);
}

TEST(ExpertsConfig, ReadsWhichLayersHaveThem) {
  json config = qwen3Moe();
  EXPECT_EQ(layersWithExperts(config), "eeeeee");
  config["decoder_sparse_step"] = 2;
  EXPECT_EQ(layersWithExperts(config), "dedede");
  config["mlp_only_layers"] = {1, 4, 9};
  EXPECT_EQ(layersWithExperts(config), "dddede");
  config["decoder_sparse_step"] = 7;
  EXPECT_EQ(layersWithExperts(config), "dddddd");
}

TEST(ExpertsConfig, ReadsASharedExpertAndLayersOfExpertsAlone) {
  json config = qwen35();
  config["architectures"] = {"Qwen3_5MoeForConditionalGeneration"};
  json &text = config["text_config"];
  text.update({{"model_type", "qwen3_5_moe_text"},
               {"num_experts", 8},
               {"num_experts_per_tok", 2},
               {"moe_intermediate_size", 64},
               {"shared_expert_intermediate_size", 96}});
  text.erase("intermediate_size");
  const ExpertsShape needed = {8, 2, 64, 96, /*normalized=*/true};
  EXPECT_EQ(*readConfig(config).experts, needed);
  EXPECT_EQ(readConfig(config).intermediateSize, 64);
  text["norm_topk_prob"] = false;
  EXPECT_EQ(configError(config), "text_config.norm_topk_prob false is not "
                                 "supported; supported is true");
}

TEST(ExpertsConfig, RefusesOtherSizes) {
  const auto errorWith = [](const char *key, const json &value) {
    json config = qwen3Moe();
    config[key] = value;
    return configError(config);
  };
  EXPECT_EQ(errorWith("num_experts", 0),
            "num_experts is 0 when an integer from 1 to 1024 is needed");
  EXPECT_EQ(errorWith("num_local_experts", 7),
            "num_local_experts is 7 when 8, as in num_experts, is needed");
  EXPECT_EQ(errorWith("num_experts_per_tok", 9),
            "num_experts_per_tok is 9 when an integer from 1 to 8 is needed");
  EXPECT_EQ(errorWith("moe_intermediate_size", 48),
            "moe_intermediate_size is 48 when a multiple of 32 is needed");
  EXPECT_EQ(errorWith("decoder_sparse_step", 0),
            "decoder_sparse_step is 0 when an integer from 1 to 65536 is "
            "needed");
  EXPECT_EQ(errorWith("mlp_only_layers", {-1}),
            "mlp_only_layers[0] is -1 when an integer from 0 to 65536 is "
            "needed");
  EXPECT_EQ(errorWith("norm_topk_prob", 1),
            "norm_topk_prob is 1 when true or false is needed");
}
