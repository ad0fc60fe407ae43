//===- ManifestTest.cpp - The parser of the manifest ----------------------===//

#include "artifact/Manifest.h"
#include "HandmadeArtifact.h"
#include "TempDir.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <set>

using namespace qwen;
using namespace qwen::test;
using nlohmann::json;

TEST(ManifestTest, ChecksEveryField) {
  const auto check = [](const char *pointer, const json &value,
                        const std::string &error) {
    json manifest = json::parse(handmadeManifest());
    manifest[json::json_pointer(pointer)] = value;
    EXPECT_EQ(messageOf([&] { parseManifest(manifest.dump(), "f", 64); }),
              "f: in its manifest, " + error);
  };
  const std::string dimension = " when an integer from 1 to 2147483648 is "
                                "needed";
  const std::string ids = " when an integer from 1 to 2147483647 is needed";
  check("/model", 3, "model is 3 when an object is needed");
  check("/model/name", 1, "model.name is 1 when a string is needed");
  check("/programs/0/model/vocab_size", 0,
        "programs[0].model.vocab_size is 0" + ids);
  check("/programs/0/model/vocab_size", uint64_t{1} << 63,
        "programs[0].model.vocab_size is 9223372036854775808" + ids);
  const std::string rows = " when an integer from 32 to 16777216 is needed";
  check("/programs/0/model/hidden_size", -1,
        "programs[0].model.hidden_size is -1" + rows);
  check("/programs/0/model/hidden_size", 1.5,
        "programs[0].model.hidden_size is 1.5" + rows);
  check("/programs/0/model/hidden_size", 48,
        "programs[0].model.hidden_size is 48 when a multiple of 32 is needed");
  check("/programs/0/model/intermediate_size", "x",
        "programs[0].model.intermediate_size is \"x\"" + rows);
  check("/model/tokenizer_vocab", 41,
        "model.tokenizer_vocab is 41 when an integer from 1 to 40 is needed");
  check("/programs/0/model/layers", 1 << 20,
        "programs[0].model.layers is 1048576 when an integer from 1 to 65536 "
        "is needed");
  check(
      "/programs/0/model/kv_heads", 3,
      "programs[0].model.kv_heads is 3 when an integer from 1 to 2 is needed");
  check("/programs/0/model/heads", 3,
        "programs[0].model.heads is 3 when a number whose product with "
        "head_dim 16 is a "
        "multiple of 32 is needed");
  check("/programs/0/model/head_dim", 20,
        "programs[0].model.head_dim is 20 when a multiple of 8 is needed");
  check("/programs/0/model/head_dim", 264,
        "programs[0].model.head_dim is 264 when an integer from 16 to 256 is "
        "needed");
  check("/programs/0/model/max_context", 0,
        "programs[0].model.max_context is 0 when an integer from 1 to "
        "1073741824 is needed");
  check("/model/context", 101,
        "model.context is 101 when an integer from 1 to 100 is needed");
  check("/model/output", "words",
        "model.output is \"words\" when \"logits\", \"scores\", \"drafts\" or "
        "\"none\" is "
        "needed");
  check("/model/pooling", 1, "model.pooling is 1 when a string is needed");
  check("/programs/0/model/tied", 1,
        "programs[0].model.tied is 1 when true or false is needed");
  check("/programs/0/model/rms_norm_eps", -1,
        "programs[0].model.rms_norm_eps is -1 when a number from 1e-30 to 1.0 "
        "is needed");
  check("/targets", json::array(),
        "targets is an array when at least one target is needed");
  check("/targets/0/arch", "vax",
        "targets[0].arch is \"vax\" when \"x86-64\" or \"aarch64\" is needed");
  const bool x86 = hostArch() == Arch::X86_64;
  const std::string arch(archName(hostArch()));
  const std::string feature =
      " when a CPU feature of " + arch + " that this version knows is needed";
  check("/targets/0/features/0", "mmx",
        "targets[0].features[0] is \"mmx\"" + feature);
  check("/targets/0/features/0", x86 ? "sve" : "avx2",
        std::string("targets[0].features[0] is \"") + (x86 ? "sve" : "avx2") +
            "\"" + feature);
  check("/targets/0/name", "", "targets[0].name is \"\" when a name is needed");
  const json target = json::parse(handmadeManifest())["targets"][0];
  check("/targets/1", target,
        "targets[1].name is \"test\" when another name than that of the "
        "targets before is needed");
  json other = target;
  other["name"] = "other";
  other["arch"] = x86 ? "aarch64" : "x86-64";
  other["features"] = json::array();
  check("/targets/1", other,
        std::string("targets[1].arch is ") +
            (x86 ? "\"aarch64\"" : "\"x86-64\"") + " when \"" + arch +
            "\" is needed");
  check("/tensors/0/format", "q5",
        "tensors[0].format is \"q5\" when " + weightFormatList() +
            " is needed");
  check("/programs/0/caches/0/format", "f8",
        "programs[0].caches[0].format is \"f8\" when " + kvFormatList() +
            " is needed");
  check("/kv/page_tokens", 32,
        "kv.page_tokens is 32 when an integer from 64 to 64 is needed");
  check("/kv/page_bytes", 8191,
        "kv.page_bytes is 8191 when an integer from 8192 to 8192 is needed");
  check("/kv/token_bytes", 64,
        "kv.token_bytes is 64 when an integer from 128 to 128 is needed");
  check("/numerics_version", 2,
        "numerics_version is 2 when an integer from 1 to 1 is needed");
  check("/programs/0/caches/0/kind", "full",
        "programs[0].caches[0].kind is \"full\" when \"paged\" or \"fixed\" is "
        "needed");
  check("/programs/0/caches/0/layer_bytes", 0,
        "programs[0].caches[0].layer_bytes is 0 when an integer from 1 to "
        "70368744177664 is needed");
  check("/programs/0/caches/0/layers", json::array(),
        "programs[0].caches[0].layers is an array when at least one layer is "
        "needed");
  check("/programs/0/caches/0/layers/1", 0,
        "programs[0].caches[0].layers[1] is 0 when a number above 0 is needed");
  check("/programs/0/caches/1",
        {{"name", "state"},
         {"kind", "fixed"},
         {"layer_bytes", 32},
         {"layers", {0}}},
        "programs[0].caches[1].layer_bytes is 32 when a multiple of 64 is "
        "needed");
  check("/programs", json::array(),
        "programs is an array when at least one program is needed");
  check("/programs/1", json::parse(handmadeManifest())["programs"][0],
        "programs[1].name is \"forward\" when another name than that of the "
        "programs before is needed");
  check("/programs/0/limits/step_back", 1025,
        "programs[0].limits.step_back is 1025 when an integer from 0 to 1024 "
        "is needed");
  check("/programs/0/limits/step_back", 2,
        "programs[0].limits.step_back is 2 when 0, or state_rows beside it "
        "(compile the model again), is needed");
  check("/programs/0/limits/rows", 9,
        "programs[0].limits.rows is 9 when an integer from 1 to 8 is needed");
  check("/programs/0/arena_bytes", -5,
        "programs[0].arena_bytes is -5 when an integer from 0 to "
        "70368744177664 is needed");
  const std::string logits = "programs is an array when logits of 40 values "
                             "as an output of \"forward\" is needed";
  check("/programs/0/outputs", json::array(), logits);
  check("/programs/0/outputs/0/width", 41, logits);
  check("/programs/0/outputs/0/stride", 39,
        "programs[0].outputs[0].stride is 39 when an integer from 40 to 48 is "
        "needed");
  const auto count = [](int64_t most) -> json {
    return {{"name", "merged"}, {"most", most}};
  };
  check("/programs/0/limits/counts", json(6, count(1)),
        "programs[0].limits.counts is an array when up to 5 counts is needed");
  check("/programs/0/limits/counts", json(1, count(0)),
        "programs[0].limits.counts[0].most is 0 when an integer from 1 to "
        "1048576 is needed");
  // The arena has as many rows as the limit of the count.
  const auto counted = [](int64_t of, int64_t offset) -> json {
    return {{"name", "rows"},
            {"width", 16},
            {"stride", 16},
            {"offset", offset},
            {"count", of}};
  };
  check("/programs/0/outputs/1", counted(kTokensOfCall, 516),
        "programs[0].outputs[1].offset is 516 when an integer from 0 to "
        "512 is needed");
  check("/programs/0/outputs/1", counted(kWantedTokens, 900),
        "programs[0].outputs[1].offset is 900 when an integer from 0 to "
        "896 is needed");
  for (int64_t absent : {kHiddenTokens, kFirstOwnCount, kMostCounts - 1})
    check("/programs/0/outputs/1", counted(absent, 0),
          "programs[0].outputs[1].count is " + std::to_string(absent) +
              " when the index of a count that the program has is needed");
  check("/programs/0/outputs/1", counted(kMostCounts, 0),
        "programs[0].outputs[1].count is 8 when an integer from 0 to 7 is "
        "needed");
  check("/programs/0/ops/1", nullptr,
        "programs[0].ops[1] is null when a string is needed");
  check("/programs/0/kernels/0/0/0", 1,
        "programs[0].kernels[0][0][0] is 1 when an integer from 0 to 0 is "
        "needed");
  check("/programs/0/kernels", json::array(),
        "programs[0].kernels is an array when one element for each of the 1 "
        "targets is needed");
  check("/programs/0/kernels/0", json::array({json::array()}),
        "programs[0].kernels[0] is an array when one element for each of the "
        "2 ops is needed");
  check("/programs/0/work/0/calls/0/macs", -1,
        "programs[0].work[0].calls[0].macs is -1 when an integer from 0 to "
        "70368744177664 is needed");
  check("/programs/0/work/1/calls/0/kernel", 2,
        "programs[0].work[1].calls is an array when the calls of 2 kernels is "
        "needed");
  check("/programs/0/work/1/kind", 5,
        "programs[0].work[1].kind is 5 when a string is needed");
  check("/programs/0/work/1/kind", "sum",
        "programs[0].work[1].kind is \"sum\" when a kind of op that this "
        "version knows is needed");
  check("/programs/0/work", json::array(),
        "programs[0].work is an array when one element for each of the 2 ops "
        "is needed");
  check("/tensors/0/bytes", 65,
        "tensors[0].bytes is 65 when an integer from 0 to 64 is needed");
  check("/tensors/0/offset", 8,
        "tensors[0].offset is 8 when a multiple of 64 is needed");
  check("/tensors/0/shape/0", 0, "tensors[0].shape[0] is 0" + dimension);
  check("/tensors/0/experts", 1025,
        "tensors[0].experts is 1025 when an integer from 1 to 1024 is needed");
  const json experts = {{"count", 8},
                        {"active", 9},
                        {"width", 32},
                        {"shared_width", 0},
                        {"normalized", true}};
  check("/programs/0/model/experts", experts,
        "programs[0].model.experts.active is 9 when an integer from 1 to 8 is "
        "needed");
  check("/images", 3, "images is 3 when an array is needed");
  check("/images", json::array({{{"name", "draft"}, {"bytes", -1}}}),
        "images[0].bytes is -1 when an integer from 0 to 70368744177664 is "
        "needed");
  check("/generation/eos_token_id", 3,
        "generation.eos_token_id is 3 when an array is needed");
  check("/generation/eos_token_id/0", 40,
        "generation.eos_token_id[0] is 40 when an integer from 0 to 39 is "
        "needed");
  check("/generation/top_p", 1.5,
        "generation.top_p is 1.5 when a number from 0.0 to 1.0 is needed");
  check("/quantization/tokens", -1,
        "quantization.tokens is -1 when an integer from 0 to 1099511627776 is "
        "needed");
  check("/quantization/distilled/steps", 0,
        "quantization.distilled.steps is 0 when an integer from 1 to "
        "1099511627776 is needed");
}

TEST(ManifestTest, ReadsWhatTheModelGives) {
  const auto parse = [](const json &model, int64_t width) {
    json manifest = json::parse(handmadeManifest());
    manifest["model"].update(model);
    manifest["programs"][0]["outputs"][0] = {
        {"name", "logits"},
        {"width", width},
        {"stride", (width + 15) / 16 * 16}};
    return parseManifest(manifest.dump(), "f", 64);
  };
  const ModelInfo logits = parse(json::object(), 40).model;
  EXPECT_EQ(logits.output.kind, OutputKind::Logits);
  EXPECT_EQ(logits.output.pooling, "last");
  EXPECT_EQ(logits.outputWidth(), 40);

  const Manifest scores = parse(
      {{"output", "scores"}, {"labels", {"no", "yes"}}, {"pooling", "rank"}},
      2);
  EXPECT_EQ(scores.model.outputWidth(), 2);
  EXPECT_EQ(scores.forward().logits()->stride, 16);
  EXPECT_EQ(scores.model.output.labels,
            (std::vector<std::string>{"no", "yes"}));
  EXPECT_EQ(scores.model.output.pooling, "rank");
  EXPECT_EQ(parse({{"output", "none"}}, 40).model.output.kind,
            OutputKind::None);

  const auto error = [&](const json &model, int64_t width) {
    return messageOf([&] { parse(model, width); });
  };
  EXPECT_EQ(error({{"output", "scores"}}, 2),
            "f: its manifest has no model.labels");
  for (const json &labels : {json::array({"yes"}), json::array({"yes", "yes"}),
                             json::array({"yes", "no", "no"})})
    EXPECT_EQ(error({{"output", "scores"}, {"labels", labels}}, 2),
              "f: in its manifest, model.labels is an array when an array of "
              "\"yes\" and \"no\" is needed");
  EXPECT_EQ(error({{"output", "scores"}, {"labels", {"yes", "no"}}}, 40),
            "f: in its manifest, programs is an array when logits of 2 values "
            "as an output of \"forward\" is needed");
}

TEST(ManifestTest, ReadsTheTokensOfDrafts) {
  const auto parse = [](const json &tokens, int64_t width,
                        const json &model = {{"output", "drafts"}}) {
    json manifest = json::parse(handmadeManifest());
    manifest["model"].update(model);
    manifest["programs"][0]["model"]["tokens"] = tokens;
    manifest["programs"][0]["outputs"][0]["width"] = width;
    manifest["programs"][0]["outputs"][0]["stride"] = (width + 15) / 16 * 16;
    return parseManifest(manifest.dump(), "f", 64);
  };
  const Manifest drafts = parse({2, 3, 36}, 3);
  EXPECT_EQ(drafts.model.output.kind, OutputKind::Drafts);
  EXPECT_EQ(drafts.model.outputWidth(), 3);
  EXPECT_EQ(drafts.tokenLogits(drafts.forward()), 3);
  EXPECT_EQ(drafts.forward().model.tokenOf(2), 36);
  const Manifest all = parseManifest(handmadeManifest(), "f", 64);
  EXPECT_EQ(all.tokenLogits(all.forward()), 37);
  EXPECT_EQ(all.forward().model.tokenOf(2), 2);
  EXPECT_EQ(all.draftHead(), nullptr);

  const auto error = [&](const auto &...of) {
    return messageOf([&] { parse(of...); });
  };
  EXPECT_EQ(
      error(json({2, 2}), 2),
      "f: in its manifest, programs[0].model.tokens[1] is 2 when an integer "
      "from 3 to 39 is needed");
  EXPECT_EQ(
      error(json({40}), 1),
      "f: in its manifest, programs[0].model.tokens[0] is 40 when an integer "
      "from 0 to 39 is needed");
  EXPECT_EQ(
      error(json::array(), 40),
      "f: in its manifest, programs[0].model.tokens is an array when at least "
      "one id is needed");
  EXPECT_EQ(error(json({2, 38}), 2),
            "f: in its manifest, programs is an array when ids below 37 as the "
            "tokens of \"forward\" is needed");
  EXPECT_EQ(error(json({2, 3}), 40),
            "f: in its manifest, programs is an array when logits of 2 values "
            "as an output of \"forward\" is needed");
  EXPECT_EQ(error(json({2}), 1, json({{"output", "none"}})),
            "f: in its manifest, model.output is \"none\" when \"drafts\" just "
            "where the first program has \"tokens\" is needed");
}

TEST(ModelOutputTest, RefusesWhatTheModelLacks) {
  ModelOutput output;
  for (const auto require :
       {&ModelOutput::requireLogits, &ModelOutput::requireScores,
        &ModelOutput::requireEmbedding})
    EXPECT_EQ(messageOf([&] { (output.*require)("m"); }), "");
  output.pooling = "mean";
  EXPECT_EQ(messageOf([&] { output.requireEmbedding("m"); }),
            "m has no embedding of the last token: the pooling of its "
            "checkpoint is \"mean\" when \"last\" is needed");
  output.kind = OutputKind::None;
  const std::string none =
      "m has no logits: its checkpoint has no lm_head and does not tie it to "
      "the embedding; it embeds texts only (qwen-run embed, /v1/embeddings)";
  EXPECT_EQ(messageOf([&] { output.requireLogits("m"); }), none);
  EXPECT_EQ(messageOf([&] { output.requireScores("m"); }), none);
  EXPECT_EQ(messageOf([&] { output.requireDrafts("m"); }), none);
  output.kind = OutputKind::Drafts;
  output.tokens = {3, 5};
  const std::string drafts =
      "m has logits of 2 tokens only: it drafts for other models "
      "(--speculate); compile it without --draft-vocabulary for all logits";
  EXPECT_EQ(messageOf([&] { output.requireDrafts("m"); }), "");
  EXPECT_EQ(messageOf([&] { output.requireLogits("m"); }), drafts);
  EXPECT_EQ(messageOf([&] { output.requireScores("m"); }), drafts);
  output.kind = OutputKind::Scores;
  EXPECT_EQ(messageOf([&] { output.requireScores("m"); }), "");
  EXPECT_EQ(messageOf([&] { output.requireLogits("m"); }),
            "m has no logits: its checkpoint has a head of scores in place of "
            "an lm_head; it reranks documents only (qwen-run rerank, "
            "/v1/rerank)");
}

TEST(ManifestTest, ReadsTheModelOfEachProgram) {
  json manifest = json::parse(handmadeManifest());
  json draft = manifest["programs"][0];
  draft["name"] = "draft";
  draft["model"]["architecture"] = "Draft";
  draft["model"]["layers"] = 7;
  draft["model"]["vocab_size"] = 30;
  draft["model"]["yarn"] = {{"factor", 2.0},
                            {"positions", 50},
                            {"fast", 16.0},
                            {"slow", 2.0},
                            {"scale", 1.5}};
  manifest["programs"].push_back(draft);
  const Manifest found = parseManifest(manifest.dump(), "f", 64);
  const ProgramModel &model = found.programs[1].model;
  EXPECT_EQ(model.architecture, "Draft");
  EXPECT_EQ(model.layers, 7);
  EXPECT_EQ(model.vocabSize, 30);
  EXPECT_EQ(model.yarn->positions, 50);
  EXPECT_EQ(model.ropeScale(), 1.5);
  // The model of the file is that of the first.
  EXPECT_EQ(found.model.architecture, "Qwen3ForCausalLM");
  EXPECT_EQ(found.model.layers, 1);
  EXPECT_EQ(found.model.vocabSize, 40);
  EXPECT_FALSE(found.model.yarn);

  manifest["programs"][1]["model"]["layers"] = 0;
  EXPECT_EQ(messageOf([&] { parseManifest(manifest.dump(), "f", 64); }),
            "f: in its manifest, programs[1].model.layers is 0 when an integer "
            "from 1 to 65536 is needed");
}

TEST(ManifestTest, ReadsHowIntegersWereChosen) {
  json manifest = json::parse(handmadeManifest());
  const auto quantization = [&] {
    return parseManifest(manifest.dump(), "f", 64).quantization;
  };
  EXPECT_EQ(quantization().describe(),
            "gptq, rotated, 512 tokens of the text with SHA-256 ab, scales of "
            "8 steps of distillation over 256 tokens");
  manifest["quantization"].erase("distilled");
  EXPECT_EQ(quantization().describe(),
            "gptq, rotated, 512 tokens of the text with SHA-256 ab");
  manifest.erase("quantization");
  EXPECT_EQ(quantization(), Quantization());
  EXPECT_EQ(quantization().describe(), "rtn");
}

TEST(ManifestTest, NamesArePrintable) {
  json manifest = json::parse(handmadeManifest());
  manifest["model"]["name"] = "a\x1b";
  EXPECT_EQ(parseManifest(manifest.dump(), "f", 64).model.name, "a\\u001b");
}

TEST(ManifestTest, HasItsKeysAndNoOthers) {
  json whole = json::parse(handmadeManifest());
  whole["images"] = json::array({{{"name", "draft"}, {"bytes", 64}}});
  const auto errorWith = [](const json &manifest) {
    return messageOf([&] { parseManifest(manifest.dump(), "f", 64); });
  };
  // Each object that a manifest has, and the keys that it may lack.
  const std::pair<const char *, std::set<std::string>> objects[] = {
      {"", {"images", "quantization"}},
      {"/model", {}},
      {"/targets/0", {}},
      {"/kv", {}},
      {"/programs/0", {}},
      {"/programs/0/model", {}},
      {"/programs/0/limits", {}},
      {"/programs/0/caches/0", {}},
      {"/programs/0/inputs/0", {}},
      {"/programs/0/outputs/0", {}},
      {"/programs/0/work/0",
       {"weight_bytes", "active_bytes", "token_bytes", "calls"}},
      {"/programs/0/work/0/calls/0", {"macs"}},
      {"/images/0", {}},
      {"/tensors/0", {}},
      {"/tensors/0/segments/0", {}},
      {"/generation", {}},
      {"/quantization", {"distilled"}},
      {"/quantization/distilled", {}}};
  for (const auto &[pointer, optional] : objects) {
    const json::json_pointer at(pointer);
    // "targets[0]." of "/targets/0".
    std::string prefix;
    for (const char c : std::string(pointer).substr(*pointer ? 1 : 0))
      prefix += c == '/' ? '.' : c;
    for (size_t dot; (dot = prefix.find(".0")) != prefix.npos;)
      prefix.replace(dot, 2, "[0]");
    prefix += prefix.empty() ? "" : ".";
    json manifest = whole;
    manifest[at]["other"] = 1;
    EXPECT_EQ(errorWith(manifest),
              "f: in its manifest, " + prefix +
                  "other is no key of this version; run the model with the "
                  "version that compiled it, or compile it again");
    for (const auto &[key, value] : whole[at].items()) {
      manifest = whole;
      manifest[at].erase(key);
      const std::string error = errorWith(manifest);
      if (optional.contains(key))
        EXPECT_EQ(error, "") << pointer << " " << key;
      else
        EXPECT_TRUE(error.starts_with("f: its manifest has no " + prefix + key))
            << pointer << " " << key << ": " << error;
      manifest = whole;
      manifest[at][key] = nullptr;
      EXPECT_TRUE(errorWith(manifest).starts_with("f: in its manifest, " +
                                                  prefix + key + " is null "))
          << pointer << " " << key << ": " << errorWith(manifest);
    }
  }
  // Labels belong to scores.
  json labels = whole;
  labels["model"]["labels"] = {"yes", "no"};
  EXPECT_TRUE(errorWith(labels).starts_with(
      "f: in its manifest, model.labels is no key of this version"));
  EXPECT_EQ(messageOf([] { parseManifest("{", "f", 64); }),
            "f is damaged: its manifest is not JSON");
}
