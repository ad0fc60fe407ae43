//===- BudgetTest.cpp - Formats within a budget ---------------------------===//
//
// Plans tiny checkpoints, most with losses that are made up: measuring them and
// generating code take seconds.
//
//===----------------------------------------------------------------------===//

#include "calibration/BudgetPlan.h"
#include "calibration/LoadedPrograms.h"
#include "calibration/MeasuredClasses.h"

#include "OpWithoutGradient.h"
#include "OverflowingGradients.h"
#include "TempDir.h"

#include "qwen/Support/MemoryFile.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

using namespace qwen;
using namespace qwen::test;

static const std::string kFloats =
    QWEN_SOURCE_DIR "/test/Inputs/checkpoints/qwen2-tied-f32";

/// Tokens that need no tokenizer.
static CalibrationText windows(int64_t count, uint32_t seed = 1) {
  CalibrationText text = {{}, 64, "0123"};
  std::mt19937 random(seed);
  for (int64_t i = 0; i < count * text.window; ++i)
    text.ids.push_back(static_cast<int32_t>(random() % 300));
  return text;
}

/// Little code.
static const CompileOptions kFew = {.maxTokens = 64, .maxRows = 1};

/// Calls `take` with a checkpoint in the first format of a budget.
static std::string
planFloats(const std::function<MatrixFormats(const PlanInput &)> &take,
           const std::string &checkpoint = kFloats) {
  return planFormats(checkpoint, kFew, {}, kBudgetFormats[0], take);
}

/// The most bytes that the part of a manifest about the text takes.
static constexpr uint64_t kManifestSlack = 512;

/// The bytes of a file by a plan, whose integers are rounded.
static uint64_t compiledBytes(const std::string &checkpoint,
                              CompileOptions options, const std::string &plan) {
  TempDir dir;
  dir.write("plan.json", plan);
  options.plan = dir.path() / "plan.json";
  MemoryFile file;
  compileModel(checkpoint, file, options,
               {.quantize = [](const QuantizeInput &input) -> Quantization {
                 for (const auto &[name, format] : input.formats)
                   input.replace(name, quantize(Quantizer::Rounding,
                                                input.source(name), format));
                 return {};
               }});
  return file.contents().size();
}

/// All matrices in a format.
static MatrixFormats uniformOf(const PlanInput &input, WeightFormat format) {
  MatrixFormats formats = input.model.formats;
  for (auto &entry : formats)
    entry.second = format;
  return formats;
}

/// Losses that fall with bits as measured ones do. Values of some matrices lose
/// more.
static Sensitivities madeUpLosses(const PlanInput &input) {
  Sensitivities result;
  result.activations = 1e-3;
  double part = 1;
  for (const auto &entry : input.model.formats) {
    std::vector<double> &losses = result.losses[entry.first];
    part = part > 20 ? 1 : 1.7 * part;
    for (double byFormat : {1.3, 1.1, 1.0, 0.3, 0.06, 0.004})
      losses.push_back(
          1e-6 * part * byFormat *
          double(input.model.source(entry.first)->shape().values()));
  }
  return result;
}

static double sumOfLosses(const Sensitivities &losses, size_t format) {
  return std::accumulate(losses.losses.begin(), losses.losses.end(), 0.0,
                         [&](double sum, const auto &entry) {
                           return sum + entry.second[format];
                         });
}

/// The formats whose losses differ by the same number of bits.
static constexpr WeightFormat kFormatSteps[] = {
    WeightFormat::NL4, WeightFormat::Q6_K, WeightFormat::Q8_0};

static void expectFalling(const Sensitivities &losses) {
  for (const auto &entry : losses.losses)
    for (size_t i : {1, 2})
      EXPECT_GT(entry.second[i - 1], 4 * entry.second[i])
          << entry.first().str();
}

TEST(Budget, LossesFallWithBits) {
  planFloats([](const PlanInput &input) {
    const auto measure = [&](unsigned threads) {
      return measureSensitivities(input.model, windows(2), kFormatSteps,
                                  {.threads = threads});
    };
    const Sensitivities losses = measure(1), others = measure(3);
    EXPECT_EQ(losses.losses.size(), input.model.formats.size());
    EXPECT_EQ(losses.withoutGradient, "");
    EXPECT_GT(losses.activations, 0);
    EXPECT_EQ(losses.activations, others.activations);
    expectFalling(losses);
    for (const auto &entry : losses.losses)
      EXPECT_EQ(entry.second, others.losses.lookup(entry.first()));
    return input.model.formats;
  });
}

// What the last layer's attention and all before it lose is estimated.
TEST(Budget, LossesWithoutFiniteGradientsAreEstimated) {
  planFloats(
      [](const PlanInput &given) {
        QuantizeInput input = given.model;
        const auto measure = [&] {
          return measureSensitivities(input, windows(2), kFormatSteps,
                                      {.threads = 2});
        };
        const Sensitivities exact = measure();
        EXPECT_EQ(exact.notFinite, "");
        const std::string layer = "model.layers.2.self_attn.";
        overflowGradients(input, layer + "v_proj.weight",
                          layer + "o_proj.weight");
        const Sensitivities losses = measure();
        EXPECT_EQ(losses.withoutGradient, "");
        EXPECT_EQ(losses.notFinite, "layers.2.self_attn.residual");
        EXPECT_EQ(losses.losses.size(), input.formats.size());
        expectFalling(losses);
        for (const auto &entry : losses.losses) {
          const double before = exact.losses.lookup(entry.first())[0];
          const bool isBehind = entry.first().contains(".2.mlp") ||
                                entry.first().starts_with("lm_head");
          // Others have the costs of other layers, or of all matrices.
          const double most = isBehind ? 1.01 : 30;
          EXPECT_LT(entry.second[0], most * before) << entry.first().str();
          EXPECT_GT(entry.second[0], before / most) << entry.first().str();
        }
        EXPECT_GT(losses.activations, 0.3 * exact.activations);
        EXPECT_LT(losses.activations, 3 * exact.activations);
        // Nothing behind is quantized.
        overflowGradients(input, "model.layers.2.mlp.up_proj.weight",
                          "model.layers.2.mlp.down_proj.weight");
        input.formats.erase("lm_head.weight");
        const Sensitivities others = measure();
        EXPECT_EQ(others.withoutGradient,
                  "the gradient of layers.2.mlp.residual is not finite");
        EXPECT_EQ(others.notFinite, "");
        EXPECT_EQ(others.activations, 0);
        expectFalling(others);
        return given.model.formats;
      },
      QWEN_SOURCE_DIR "/test/Inputs/checkpoints/qwen3-untied-f32");
}

// The same experts with gradients and without.
TEST(Budget, ErrorsOfOutputsStandForLosses) {
  planFloats(
      [](const PlanInput &input) {
        const CalibrationText text = windows(2);
        const Sensitivities exact = measureSensitivities(
            input.model, text, kFormatSteps, {.threads = 2});
        EXPECT_EQ(exact.withoutGradient, "");
        EXPECT_GT(exact.activations, 0);
        EXPECT_EQ(exact.losses.size(), input.model.formats.size());
        expectFalling(exact);
        addOpWithoutGradient(input.model.module);
        const Sensitivities losses = measureSensitivities(
            input.model, text, kBudgetFormats, {.threads = 2});
        EXPECT_EQ(losses.withoutGradient, "qwen.map has no backward pass");
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
        EXPECT_EQ(messageOf([&] {
                    planBudget(input, losses,
                               {"kl=1", BudgetKind::Divergence, 1});
                  }),
                  "--budget kl=1 needs gradients, but qwen.map has no backward "
                  "pass; bytes, as in 300MB or 4.6bpw, need none");
        return plan.formats;
      },
      QWEN_SOURCE_DIR "/test/Inputs/checkpoints/qwen3-moe-bf16");
}

TEST(Budget, PlansFitAndLoseLeast) {
  uint64_t bytes = 0;
  const std::string text = planFloats([&](const PlanInput &input) {
    const auto bytesOf = [&](WeightFormat format) {
      return double(input.sizeOf(uniformOf(input, format)).fileBytes);
    };
    // A little more than for one format of all matrices.
    const double nl4 = bytesOf(WeightFormat::NL4),
                 all = bytesOf(WeightFormat::Q8_0) - nl4;
    const Sensitivities losses = madeUpLosses(input);
    const Budget budget = {"", BudgetKind::FileBytes, nl4 + 0.1 * all};
    const BudgetPlan plan = planBudget(input, losses, budget);
    bytes = plan.size.fileBytes;
    EXPECT_LE(double(bytes), budget.value);
    EXPECT_GT(double(bytes), nl4);
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
    EXPECT_GT(double(again.size.fileBytes), double(bytes) - 0.05 * all);
    // A token reads the weights and a position of keys and values.
    const Budget speed = {"", BudgetKind::TokensPerSecond, 10,
                          10.0 * double(plan.size.tokenBytes)};
    EXPECT_NEAR(planBudget(input, losses, speed).loss, plan.loss,
                0.05 * plan.loss);
    return plan.formats;
  });
  // The file that the plan makes.
  EXPECT_NEAR(double(compiledBytes(kFloats, kFew, text)), double(bytes),
              kManifestSlack);
  const nlohmann::json written = nlohmann::json::parse(text);
  std::set<std::string> formats;
  for (const auto &matrix : written["matrices"]) {
    EXPECT_EQ(matrix["quantizer"], "gptq");
    formats.insert(matrix["format"]);
  }
  EXPECT_GT(formats.size(), 1u);
}

TEST(Budget, TellsTheLeast) {
  planFloats([](const PlanInput &input) {
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

TEST(Budget, NoMixtureIsTakenThatPromisesMoreThanOneFormat) {
  planFloats([](const PlanInput &input) {
    // Of these losses, the search knows nothing better than the best format.
    Sensitivities losses;
    for (const auto &entry : input.model.formats)
      losses.losses[entry.first] = {5, 4, 1, 2, 2, 2};
    const BudgetPlan plan =
        planBudget(input, losses, {"", BudgetKind::FileBytes, 1e9});
    EXPECT_TRUE(plan.isUniform);
    EXPECT_EQ(plan.uniform, WeightFormat::NL4);
    EXPECT_EQ(plan.formats, uniformOf(input, WeightFormat::NL4));
    EXPECT_EQ(plan.loss, plan.uniformLoss);
    return plan.formats;
  });
}

TEST(Budget, ClassesAreNamedByWhatTheyArePartOf) {
  EXPECT_EQ(matrixClass("model.layers.11.self_attn.q_proj.weight"),
            "self_attn");
  EXPECT_EQ(matrixClass("model.layers.0.mlp.experts.up_proj.weight"),
            "mlp.experts");
  EXPECT_EQ(matrixClass("model.layers.0.mlp.shared_expert.up_proj.weight"),
            "mlp.shared_expert");
  EXPECT_EQ(matrixClass("model.embed_tokens.weight"), "embed_tokens");
  EXPECT_EQ(matrixClass("lm_head.weight"), "lm_head");
}

// Corrected losses predict the KL divergence on another text within 15%.
TEST(Budget, ATrialCorrectsLosses) {
  planFloats([](const PlanInput &input) {
    uint64_t done = 0, total = 1;
    const CalibrationOptions options = {
        .threads = 2, .progress = [&](uint64_t part, uint64_t all) {
          done = part;
          total = all;
        }};
    const CalibrationText text = windows(64), other = windows(64, 2);
    Sensitivities losses =
        measureSensitivities(input.model, text, kBudgetFormats, options);
    EXPECT_EQ(done, total);
    MatrixFormats plan = uniformOf(input, WeightFormat::NL4);
    plan.begin()->second = WeightFormat::Q6_K;
    const auto firstOf = [&] {
      const WeightSourcePtr source = input.model.source(plan.begin()->first);
      std::vector<float> row(static_cast<size_t>(source->shape().k()));
      source->read(0, 1, row.data());
      return row;
    };
    const std::vector<float> before = firstOf();
    const auto sumOf = [&] {
      double sum = losses.activations;
      for (const auto &[name, format] : plan)
        sum += losses.losses[name][format == WeightFormat::NL4 ? 2 : 4];
      return sum;
    };
    const double expected = sumOf();
    const PlanTrial trial =
        correctLosses(input.model, text, plan, kBudgetFormats, losses, options);
    EXPECT_EQ(trial.tokens, 8 * 64);
    EXPECT_DOUBLE_EQ(trial.expected, expected);
    EXPECT_NEAR(sumOf(), trial.measured, 1e-6 * trial.measured);
    EXPECT_EQ(trial.factors.size(), 3u);
    // The floats are back.
    EXPECT_EQ(firstOf(), before);
    Sensitivities others = losses;
    const PlanTrial again = correctLosses(input.model, other, plan,
                                          kBudgetFormats, others, options);
    EXPECT_NEAR(again.expected / again.measured, 1, 0.15);
    // A text of too few windows measures nothing.
    EXPECT_EQ(correctLosses(input.model, windows(7), plan, kBudgetFormats,
                            others, options)
                  .tokens,
              0);
    return plan;
  });
}

/// Plans a model by made-up losses, so that it loses a little less than in nl4.
static BudgetPlan planSome(const PlanInput &input) {
  const Sensitivities losses = madeUpLosses(input);
  const BudgetPlan plan =
      planBudget(input, losses,
                 {"", BudgetKind::Divergence,
                  0.8 * sumOfLosses(losses, 2) + losses.activations});
  EXPECT_FALSE(plan.isUniform);
  return plan;
}

/// The same for a compile with `options`, whose file the plan promises. Returns
/// the plan.
static nlohmann::json
planAndCompile(const std::string &checkpoint, const CompileOptions &options,
               const std::function<void(const PlanInput &)> &check) {
  uint64_t bytes = 0;
  const std::string text = planFormats(
      checkpoint, options, {}, kBudgetFormats[0], [&](const PlanInput &input) {
        check(input);
        const BudgetPlan plan = planSome(input);
        bytes = plan.size.fileBytes;
        return plan.formats;
      });
  const uint64_t compiled = compiledBytes(checkpoint, options, text);
  EXPECT_LE(compiled, bytes);
  EXPECT_GT(compiled + kManifestSlack, bytes);
  return nlohmann::json::parse(text);
}

/// The first values of a matrix.
static std::vector<float> firstRow(const PlanInput &input,
                                   const std::string &matrix) {
  const WeightSourcePtr source = input.model.source(matrix);
  std::vector<float> row(static_cast<size_t>(source->shape().k()));
  source->read(0, 1, row.data());
  return row;
}

static std::string inputCheckpoint(const std::string &name) {
  return QWEN_SOURCE_DIR "/test/Inputs/checkpoints/" + name;
}

TEST(Budget, WorksOnWhatAdaptersLeave) {
  const std::string checkpoint = inputCheckpoint("base-qwen2");
  const std::string matrix = "model.layers.0.self_attn.q_proj.weight";
  std::vector<float> plain, adapted;
  planFloats(
      [&](const PlanInput &input) {
        plain = firstRow(input, matrix);
        return input.model.formats;
      },
      checkpoint);
  CompileOptions options = kFew;
  options.adapters = {
      {QWEN_SOURCE_DIR "/test/Inputs/adapters/lora-qwen2-plain"}};
  planAndCompile(checkpoint, options, [&](const PlanInput &input) {
    adapted = firstRow(input, matrix);
  });
  EXPECT_EQ(plain.size(), adapted.size());
  EXPECT_NE(plain, adapted);
}

TEST(Budget, WorksOnTheLayersThatPruningLeaves) {
  CompileOptions options = kFew;
  options.pruning = {"layers", {1}};
  const nlohmann::json plan = planAndCompile(
      inputCheckpoint("qwen3-untied-f32"), options, [](const PlanInput &) {});
  EXPECT_EQ(plan["model"]["layers"], 2);
  // Seven matrices of each layer, the embedding and the head.
  EXPECT_EQ(plan["matrices"].size(), 2u * 7 + 2);
}

// The bytes are those of all targets' code, those of a token the best target's.
TEST(Budget, SeveralTargetsAreOneFile) {
  CompileOptions options = kFew;
  PlanSize one, all;
  options.target = "x86-64-v4";
  planFormats(kFloats, options, {}, kBudgetFormats[0],
              [&](const PlanInput &input) {
                one = input.sizeOf(input.model.formats);
                return input.model.formats;
              });
  options.target = "x86-64-v3,x86-64-v4";
  const std::string plan = planFormats(
      kFloats, options, {}, kBudgetFormats[0], [&](const PlanInput &input) {
        all = input.sizeOf(input.model.formats);
        return input.model.formats;
      });
  EXPECT_LE(compiledBytes(kFloats, options, plan), all.fileBytes);
  EXPECT_EQ(all.tokenBytes, one.tokenBytes);
  EXPECT_GT(all.fileBytes, one.fileBytes);
}

class BudgetOfIntegers : public testing::TestWithParam<const char *> {};

// Some matrices are integers: they keep them, and count as they are.
TEST_P(BudgetOfIntegers, KeepsThem) {
  std::set<std::string> floats;
  const nlohmann::json plan = planAndCompile(
      inputCheckpoint(GetParam()), kFew, [&](const PlanInput &input) {
        for (const auto &entry : input.model.formats)
          floats.insert(entry.first);
        const Sensitivities losses = measureSensitivities(
            input.model, windows(1), {kFormatSteps, 1}, {.threads = 2});
        EXPECT_EQ(losses.withoutGradient, "");
        EXPECT_EQ(losses.losses.size(), floats.size());
      });
  size_t kept = 0;
  for (const auto &[name, matrix] : plan["matrices"].items()) {
    EXPECT_EQ(matrix["quantizer"], floats.contains(name) ? "gptq" : "keep")
        << name;
    kept += matrix["quantizer"] == "keep";
  }
  EXPECT_GT(floats.size(), 0u);
  EXPECT_GT(kept, 0u);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, BudgetOfIntegers,
                         testing::Values("gptq-qwen3-int4-dynamic",
                                         "awq-qwen3-gemm-g64-partial"),
                         [](const auto &info) {
                           return std::string(info.param).substr(0, 4) == "gptq"
                                      ? "Gptq"
                                      : "Awq";
                         });

// Losses, a trial, and integers by the text in the formats of the plan.
TEST(Budget, ExpertsHaveFormatsApart) {
  const std::string checkpoint = inputCheckpoint("qwen2-moe-bf16");
  const CalibrationOptions calibration = {.threads = 2};
  const CalibrationText text = windows(8);
  uint64_t bytes = 0;
  std::map<std::string, double> factors;
  const std::string planned = planFormats(
      checkpoint, kFew, {}, kBudgetFormats[0], [&](const PlanInput &input) {
        Sensitivities losses = measureSensitivities(
            input.model, text, kBudgetFormats, calibration);
        const Budget budget = {
            "", BudgetKind::FileBytes,
            1.02 * double(input.sizeOf(uniformOf(input, WeightFormat::NL4))
                              .fileBytes)};
        BudgetPlan plan = planBudget(input, losses, budget);
        const PlanTrial trial =
            correctLosses(input.model, text, plan.formats, kBudgetFormats,
                          losses, calibration);
        EXPECT_EQ(trial.tokens, 64);
        EXPECT_GT(trial.measured, 0);
        factors = trial.factors;
        plan = planBudget(input, losses, budget);
        EXPECT_LE(double(plan.size.fileBytes), budget.value);
        bytes = plan.size.fileBytes;
        return plan.formats;
      });
  std::set<std::string> classes;
  for (const auto &entry : factors)
    classes.insert(entry.first);
  EXPECT_EQ(classes,
            (std::set<std::string>{"embed_tokens", "lm_head", "mlp.experts",
                                   "mlp.shared_expert", "self_attn"}));
  EXPECT_LE(compiledBytes(checkpoint, kFew, planned), bytes);
}
