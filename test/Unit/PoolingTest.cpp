//===- PoolingTest.cpp - How folders make embeddings ----------------------===//

#include "qwen/Import/Checkpoint/Pooling.h"

#include "TempDir.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <map>

using namespace qwen;
using namespace qwen::test;
using nlohmann::json;

/// The pooling of a folder with these files, and its error.
static std::string poolingOf(const std::map<std::string, json> &files) {
  TempDir dir;
  for (const auto &[name, content] : files) {
    std::filesystem::create_directories((dir.path() / name).parent_path());
    dir.write(name, content.dump());
  }
  std::string pooling;
  const std::string error =
      messageOf([&] { pooling = readPooling(dir.path()); });
  return error.empty() ? pooling : error.substr(dir.string().size());
}

TEST(Pooling, ReadsTheFilesOfSentenceTransformers) {
  const std::string config = "1_Pooling/config.json";
  EXPECT_EQ(poolingOf({}), "last");
  EXPECT_EQ(poolingOf({{config,
                        {{"word_embedding_dimension", 64},
                         {"pooling_mode_mean_tokens", false},
                         {"pooling_mode_lasttoken", true},
                         {"include_prompt", true}}}}),
            "last");
  EXPECT_EQ(poolingOf({{config, {{"pooling_mode_cls_token", true}}}}), "cls");
  EXPECT_EQ(poolingOf({{config,
                        {{"pooling_mode_lasttoken", true},
                         {"pooling_mode_mean_sqrt_len_tokens", true}}}}),
            "last and mean_sqrt_len");
  EXPECT_EQ(poolingOf({{config, {{"pooling_mode_mean_tokens", false}}}}),
            "none");
  EXPECT_EQ(poolingOf({{config, {{"pooling_mode", "lasttoken"}}}}), "last");
  EXPECT_EQ(poolingOf({{config, {{"pooling_mode", {"mean", "lasttoken"}}}}}),
            "mean and last");
  EXPECT_EQ(poolingOf({{config, {{"pooling_mode_max_tokens", 1}}}}),
            "/1_Pooling/config.json: pooling_mode_max_tokens is 1 when true or "
            "false is needed");

  // modules.json has the folder of the pooling and the later modules.
  json modules = json::parse(R"([
    {"path": "", "type": "sentence_transformers.models.Transformer"},
    {"path": "pool", "type": "sentence_transformers.models.Pooling"},
    {"path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}
  ])");
  const json mean = {{"pooling_mode_mean_tokens", true}};
  EXPECT_EQ(poolingOf({{"modules.json", modules}}), "last");
  EXPECT_EQ(poolingOf({{"modules.json", modules}, {"pool/config.json", mean}}),
            "mean");
  modules[2]["type"] = "sentence_transformers.models.Dense";
  EXPECT_EQ(poolingOf({{"modules.json", modules}}), "last and Dense");
  modules[1]["path"] = "../other";
  EXPECT_EQ(poolingOf({{"modules.json", modules}}),
            "/modules.json: [1].path is \"../other\" when the name of a folder "
            "beside it is needed");
  modules.erase(1);
  modules.erase(1);
  EXPECT_EQ(poolingOf({{"modules.json", modules}}), "none");
}
