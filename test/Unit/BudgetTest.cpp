//===- BudgetTest.cpp - Formats within a budget ---------------------------===//
//
// Plans models/stories with a window of text.
//
//===----------------------------------------------------------------------===//

#include "calibration/BudgetPlan.h"
#include "calibration/LoadedPrograms.h"

#include "Stories.h"
#include "TempDir.h"

#include "qwen/Support/MemoryFile.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <numeric>
#include <set>

using namespace qwen;
using namespace qwen::test;

/// Tokens that need no tokenizer.
static CalibrationText windows() {
  CalibrationText text = {{}, 64, "0123"};
  for (int32_t i = 0; i < 2 * 64; ++i)
    text.ids.push_back((37 * i * i + 11 * i) % 4000 + 5);
  return text;
}

/// Calls `take` with models/stories in the first format of a budget.
static std::string
planStories(const std::function<MatrixFormats(const PlanInput &)> &take) {
  return planFormats(kStories, {.maxTokens = 64, .maxRows = 1}, {},
                     kBudgetFormats[0], take);
}

static double sumOfLosses(const Sensitivities &losses, size_t format) {
  return std::accumulate(losses.losses.begin(), losses.losses.end(), 0.0,
                         [&](double sum, const auto &entry) {
                           return sum + entry.second[format];
                         });
}

TEST(Budget, LossesFallWithBits) {
  planStories([](const PlanInput &input) {
    const auto measure = [&](unsigned threads) {
      return measureSensitivities(input.model, windows(), kBudgetFormats,
                                  {.threads = threads});
    };
    const Sensitivities losses = measure(1), others = measure(3);
    EXPECT_EQ(losses.losses.size(), input.model.formats.size());
    EXPECT_EQ(losses.withoutGradient, "");
    EXPECT_GT(losses.activations, 0);
    EXPECT_EQ(losses.activations, others.activations);
    for (const auto &entry : losses.losses) {
      EXPECT_EQ(entry.second, others.losses.lookup(entry.first()));
      // From 4 to 6 bits, and from 6 to 8.
      EXPECT_GT(entry.second[0], 4 * entry.second[4]) << entry.first().str();
      EXPECT_GT(entry.second[4], 4 * entry.second[5]) << entry.first().str();
    }
    return input.model.formats;
  });
}

// Experts have no backward pass.
TEST(Budget, ErrorsOfOutputsStandForLosses) {
  const std::filesystem::path experts =
      std::filesystem::path(QWEN_SOURCE_DIR) /
      "test/Inputs/checkpoints/qwen3-moe-bf16";
  planFormats(
      experts, {.maxTokens = 64, .maxRows = 1}, {}, kBudgetFormats[0],
      [](const PlanInput &input) {
        CalibrationText text = windows();
        for (int32_t &id : text.ids)
          id %=
              static_cast<int32_t>(modelFact(input.model.module, "vocab_size"));
        const Sensitivities losses = measureSensitivities(
            input.model, text, kBudgetFormats, {.threads = 2});
        EXPECT_EQ(losses.withoutGradient, "qwen.route");
        EXPECT_EQ(losses.losses.size(), input.model.formats.size());
        for (const auto &entry : losses.losses) {
          EXPECT_LT(entry.second[0], 0.1) << entry.first().str();
          EXPECT_GT(entry.second[0], entry.second[3]) << entry.first().str();
          EXPECT_GT(entry.second[3], 0) << entry.first().str();
        }
        EXPECT_DOUBLE_EQ(
            input.tokenPart("model.layers.0.mlp.experts.up_proj.weight"),
            3.0 / 7);
        EXPECT_EQ(input.tokenPart("model.embed_tokens.weight"), 0);
        EXPECT_EQ(input.tokenPart("lm_head.weight"), 1);
        const BudgetPlan plan =
            planBudget(input, losses, {"", BudgetKind::BitsPerWeight, 60});
        EXPECT_EQ(plan.uniform, WeightFormat::Q8_0);
        EXPECT_EQ(
            messageOf([&] {
              planBudget(input, losses, {"kl=1", BudgetKind::Divergence, 1});
            }),
            "--budget kl=1 needs gradients, but qwen.route has no backward "
            "pass; bytes, as in 300MB or 4.6bpw, need none");
        return plan.formats;
      });
}

TEST(Budget, PlansFitAndLoseLeast) {
  std::string text;
  uint64_t bytes = 0;
  text = planStories([&](const PlanInput &input) {
    const Sensitivities losses = measureSensitivities(
        input.model, windows(), kBudgetFormats, {.threads = 2});
    const Budget budget = {"4.6MB", BudgetKind::FileBytes, 4.6e6};
    const BudgetPlan plan = planBudget(input, losses, budget);
    bytes = plan.size.fileBytes;
    EXPECT_LE(bytes, 4600000u);
    EXPECT_GT(bytes, 4500000u);
    EXPECT_FALSE(plan.isUniform);
    EXPECT_EQ(plan.uniform, WeightFormat::NL4);
    EXPECT_LT(plan.loss, plan.uniformLoss);
    EXPECT_DOUBLE_EQ(plan.uniformLoss,
                     sumOfLosses(losses, 2) + losses.activations);
    // What it loses is possible in no fewer bytes.
    const Budget loss = {"kl", BudgetKind::Divergence, plan.loss};
    const BudgetPlan again = planBudget(input, losses, loss);
    EXPECT_LE(again.loss, plan.loss);
    EXPECT_LE(again.size.fileBytes, bytes);
    EXPECT_GT(again.size.fileBytes, bytes - 20000);
    // A token reads the weights and a position of keys and values.
    const Budget speed = {"", BudgetKind::TokensPerSecond, 10,
                          10.0 * double(plan.size.tokenBytes)};
    EXPECT_NEAR(planBudget(input, losses, speed).loss, plan.loss,
                0.02 * plan.loss);
    return plan.formats;
  });
  // The file that the plan makes.
  TempDir dir;
  dir.write("plan.json", text);
  MemoryFile file;
  nlohmann::json plan = nlohmann::json::parse(text);
  for (auto &matrix : plan["matrices"]) {
    EXPECT_EQ(matrix["quantizer"], "gptq");
    // Without a text.
    matrix["quantizer"] = "rtn";
  }
  dir.write("plan.json", plan.dump());
  compileModel(kStories, file,
               {.plan = dir.path() / "plan.json",
                .rotate = Rotate::On,
                .maxTokens = 64,
                .maxRows = 1});
  // But for the part of the manifest about the text.
  EXPECT_NEAR(double(file.contents().size()), double(bytes), 512);
  std::set<std::string> formats;
  for (const auto &matrix : plan["matrices"])
    formats.insert(matrix["format"]);
  EXPECT_GT(formats.size(), 1u);
}

TEST(Budget, TellsTheLeast) {
  planStories([](const PlanInput &input) {
    const auto errorOf = [&](const Budget &budget) {
      return messageOf([&] { requireBudget(input, budget); });
    };
    EXPECT_EQ(errorOf({"4GB", BudgetKind::FileBytes, 4e9}), "");
    const std::string least = errorOf({"2bpw", BudgetKind::BitsPerWeight, 2});
    EXPECT_TRUE(least.starts_with(
        "--budget 2bpw is beyond the smallest file that the formats allow, "
        "which has "))
        << least;
    EXPECT_TRUE(least.ends_with("bpw"));
    // That is enough.
    const double bits = std::stod(least.substr(least.find("has ") + 4));
    EXPECT_EQ(errorOf({"", BudgetKind::BitsPerWeight, bits}), "");
    EXPECT_NE(errorOf({"", BudgetKind::BitsPerWeight, bits - 0.002}), "");
    EXPECT_EQ(
        messageOf([&] {
          planBudget(input, {}, {"kl=0", BudgetKind::Divergence, -1});
        }),
        "--budget kl=0 is below the least divergence that the formats allow, "
        "which is about kl=0.000000");
    return input.model.formats;
  });
}
