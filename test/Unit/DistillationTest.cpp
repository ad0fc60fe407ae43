//===- DistillationTest.cpp - Scales that learn ---------------------------===//
//
// Calibrates and distills tiny checkpoints.
//
//===----------------------------------------------------------------------===//

#include "calibration/Distillation.h"

#include "OpWithoutGradient.h"
#include "TempDir.h"

#include "qwen/Gradients/Gradients.h"
#include "qwen/Import/Models/Import.h"
#include "qwen/Support/Error.h"
#include "qwen/Support/MemoryFile.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

using namespace qwen;

static const std::string kFolder = QWEN_SOURCE_DIR "/test/Inputs/checkpoints/";

namespace {
constexpr int64_t kDistillWindow = 32;

CalibrationText textOf(int64_t windows) {
  CalibrationText text = {{}, kDistillWindow, "0123"};
  for (int64_t i = 0; i < windows * kDistillWindow; ++i)
    text.ids.push_back(static_cast<int32_t>((37 * i * i + 11 * i) % 250));
  return text;
}

/// Ends a compile whose result is not needed.
struct EnoughSteps {};

/// Calls `take` with a model of `format` and floats, before its calibration.
template <typename Take>
void withInput(const std::string &name, WeightFormat format, const Take &take) {
  MemoryFile file;
  try {
    compileModel(kFolder + name, file,
                 {.weights = format, .quantizer = Quantizer::Gptq},
                 {.quantize = [&](const QuantizeInput &input) -> Quantization {
                   take(input);
                   throw EnoughSteps();
                 }});
  } catch (const EnoughSteps &) {
  }
}

/// The integers and numbers of all matrices.
std::string bytesOf(const QuantizeInput &input) {
  std::string bytes;
  for (const auto &[name, format] : input.formats) {
    const WeightSourcePtr source = input.source(name);
    std::vector<char> panel(
        static_cast<size_t>(panelBytes(format, source->shape().k())));
    for (int64_t i = 0; i < source->shape().outputs(); ++i)
      if (source->kept(format, i, 1) != 0) {
        source->keep(format, i, 1, 0,
                     reinterpret_cast<uint8_t *>(panel.data()));
        bytes.append(panel.begin(), panel.end());
      }
  }
  return bytes;
}

/// The values of all norms, biases and other vectors.
std::vector<float> vectorsOf(const QuantizeInput &input) {
  std::vector<float> values;
  mlir::ModuleOp module = input.module;
  for (WeightOp weight : module.getOps<WeightOp>()) {
    const WeightSourcePtr source = weight.open(input.weights);
    if (source->shape().sizes.size() != 1)
      continue;
    values.resize(values.size() +
                  static_cast<size_t>(source->shape().values()));
    source->read(0, source->shape().outputs(),
                 values.data() + values.size() - source->shape().values());
  }
  return values;
}

/// What a distillation says and leaves.
struct Outcome {
  DistillResult result = {};
  std::vector<std::string> notes;
  std::string before, after;
  std::vector<float> vectorsBefore, vectorsAfter;
};

Outcome distilled(const std::string &name, WeightFormat format, int64_t steps,
                  const CalibrationOptions &given = {},
                  const CalibrationText &text = textOf(16)) {
  Outcome outcome;
  withInput(name, format, [&](const QuantizeInput &input) {
    CalibrationOptions options = given;
    Distillation distillation(input, text, steps, options);
    options.lastRows = [&](std::span<const float> rows) {
      distillation.keepTeacher(rows);
    };
    calibrate(input, text, options);
    outcome.before = bytesOf(input);
    outcome.vectorsBefore = vectorsOf(input);
    options.note = [&](const std::string &line) {
      outcome.notes.push_back(line);
    };
    outcome.result = distillation.run();
    outcome.after = bytesOf(input);
    outcome.vectorsAfter = vectorsOf(input);
  });
  return outcome;
}

/// The loss before and after, as the line has them.
std::pair<double, double> lossesOf(const std::string &line) {
  const auto after = [&](const char *words) {
    return std::stod(line.substr(line.find(words) + std::strlen(words)));
  };
  return {after("in place of "), after("KL of held-out tokens ")};
}
} // namespace

class DistillationOf : public testing::TestWithParam<WeightFormat> {};

TEST_P(DistillationOf, LowersTheLossOfTokensThatItDoesNotSee) {
  const Outcome outcome = distilled("qwen2-tied-f32", GetParam(), 32);
  const auto [before, after] = lossesOf(outcome.result.line);
  EXPECT_LT(after, before) << outcome.result.line;
  EXPECT_GT(outcome.result.kept.steps, 0);
  EXPECT_EQ(outcome.before.size(), outcome.after.size());
  EXPECT_TRUE(outcome.before != outcome.after);
  EXPECT_NE(outcome.vectorsBefore, outcome.vectorsAfter);
  ASSERT_EQ(outcome.notes.size(), 1u);
  EXPECT_TRUE(outcome.notes[0].starts_with(
      "distillation: 32 steps of 32 tokens take about "))
      << outcome.notes[0];
}

// A scale alone, with a zero point, and with a minimum and sub-blocks.
INSTANTIATE_TEST_SUITE_P(Formats, DistillationOf,
                         testing::Values(WeightFormat::Q4_0,
                                         WeightFormat::Q4_Z_32,
                                         WeightFormat::Q4_K),
                         [](const auto &info) {
                           return std::string(weightFormatName(info.param));
                         });

TEST(Distillation, WindowsThatChoseNoIntegersAreHeldOut) {
  const auto run = [](int32_t change, int64_t windows) {
    CalibrationText text = textOf(16);
    for (int64_t i = 0; i < windows * kDistillWindow; ++i)
      text.rest.push_back((static_cast<int32_t>(5 * i * i) + change) % 250);
    return distilled("qwen2-tied-f32", WeightFormat::Q4_0, 8, {}, text);
  };
  const Outcome one = run(1, 2), other = run(2, 2), tooFew = run(1, 1),
                none = run(0, 0);
  EXPECT_TRUE(one.before == other.before);
  EXPECT_NE(lossesOf(one.result.line).first, lossesOf(other.result.line).first);
  EXPECT_TRUE(tooFew.before == none.before && tooFew.after == none.after);
}

TEST(Distillation, TheRestOfATextIsHeldOutIfItIsLongEnough) {
  using Numbers = std::vector<int64_t>;
  const auto divided = [](int64_t chosen, int64_t others, int64_t more) {
    CalibrationText text = textOf(chosen);
    text.rest.resize(static_cast<size_t>(others * kDistillWindow));
    return holdOut(text, more);
  };
  EXPECT_EQ(divided(16, 2, 0).heldOut, (Numbers{16, 17}));
  EXPECT_EQ(divided(16, 2, 0).learned.size(), 16u);
  EXPECT_EQ(divided(16, 9, 0).heldOut, (Numbers{16, 17}));
  EXPECT_EQ(divided(16, 9, 4).heldOut, (Numbers{18, 21}));
  EXPECT_EQ(divided(16, 9, 4).learned.size(), 20u);
  EXPECT_EQ(divided(16, 1, 4).heldOut, (Numbers{7, 15}));
  EXPECT_EQ(divided(16, 1, 4).learned.size(), 14u);
  EXPECT_TRUE(divided(7, 7, 7).heldOut.empty());
  EXPECT_EQ(divided(7, 7, 7).learned.size(), 7u);
}

TEST(Distillation, StepsBeyondTheCalibrationReadOtherWindows) {
  constexpr int64_t kSteps = 40, kOthers = kSteps - 16 + 2;
  const auto run = [](int32_t change) {
    CalibrationText text = textOf(16);
    for (int64_t i = 0; i < kOthers * kDistillWindow; ++i) {
      // Two windows, evenly spread, are held out.
      const bool isHeld = i / kDistillWindow % (kOthers / 2) == kOthers / 2 - 1;
      text.rest.push_back(
          (static_cast<int32_t>(5 * i * i) + (isHeld ? 0 : change)) % 250);
    }
    return distilled("qwen2-tied-f32", WeightFormat::Q4_0, kSteps, {}, text);
  };
  const Outcome one = run(1), other = run(2);
  EXPECT_EQ(lossesOf(one.result.line).first, lossesOf(other.result.line).first);
  ASSERT_GT(one.result.kept.steps, 16);
  EXPECT_TRUE(one.after != other.after);
}

TEST(Distillation, ThreadsAndKillsChangeNoBit) {
  constexpr int64_t kSteps = 16;
  const auto run = [&](const CalibrationOptions &options) {
    return distilled("qwen3-untied-f32", WeightFormat::Q4_0, kSteps, options);
  };
  const Outcome expected = run({.threads = 1});
  const test::TempDir dir;
  struct Killed {};
  size_t runs = 0;
  for (bool isDone = false; !isDone && runs < 20; ++runs) {
    size_t calls = 0;
    CalibrationOptions options = {.folder = dir.path() / "saved", .threads = 3};
    // Not while it calibrates.
    constexpr uint64_t kAll = kDistillWindow * (4 * kSteps + 3 * 2);
    options.progress = [&](uint64_t, uint64_t total) {
      if (total == kAll && ++calls == 12)
        throw Killed();
    };
    try {
      const Outcome outcome = run(options);
      EXPECT_TRUE(outcome.after == expected.after);
      EXPECT_EQ(outcome.vectorsAfter, expected.vectorsAfter);
      EXPECT_EQ(outcome.result.kept.steps, expected.result.kept.steps);
      isDone = true;
    } catch (const Killed &) {
    }
  }
  EXPECT_EQ(runs, 2u);
}

TEST(Distillation, AFullDiskIsAnError) {
  const test::TempDir dir;
  std::filesystem::create_symlink("/dev/full",
                                  dir.path() / "scales.qwencal.tmp");
  EXPECT_EQ(test::messageOf([&] {
              distilled("qwen2-tied-f32", WeightFormat::Q4_0, 8,
                        {.folder = dir.path(), .threads = 2});
            }),
            "cannot write " + (dir.path() / "scales.qwencal").string() +
                ": No space left on device");
}

TEST(Distillation, RefusesWhatItCannotDo) {
  withInput("qwen2-tied-f32", WeightFormat::Q4_0,
            [](const QuantizeInput &input) {
              const CalibrationText text = textOf(15);
              const CalibrationOptions options;
              try {
                const Distillation distillation(input, text, 8, options);
                FAIL();
              } catch (const Error &error) {
                EXPECT_STREQ(
                    error.what(),
                    "the calibration text has 15 windows of 32 tokens when "
                    "--distill needs at least 16, of which 2 are held out; a "
                    "longer text has more");
              }
            });
  withInput("qwen3_5-text-f32", WeightFormat::Q4_0,
            [](const QuantizeInput &input) {
              test::addOpWithoutGradient(input.module);
              const CalibrationText text = textOf(16);
              const CalibrationOptions options;
              try {
                const Distillation distillation(input, text, 8, options);
                FAIL();
              } catch (const Error &error) {
                EXPECT_STREQ(error.what(),
                             "--distill needs a backward pass of qwen.map, "
                             "which there is not: compile the model without "
                             "it");
              }
            });
}

namespace {
/// A model that learns and the text that it runs, without int8 rows.
struct Learner {
  Learner(const QuantizeInput &input, std::span<const int32_t> ids)
      : chain(divide(programsOf(input.module).front())),
        student(input.module, input.weights, chain, kDistillWindow, 2,
                /*quantizes=*/false),
        ids(ids) {}

  /// The log-likelihood of one token behind each.
  double loss() {
    student.runForward(ids, true);
    double sum = 0;
    student.forLogits([&](int64_t first, int64_t width,
                          std::span<const float> logits) {
      for (size_t i = 0; i < logits.size(); i += static_cast<size_t>(width)) {
        double powers = 0;
        for (int64_t j = 0; j < width; ++j)
          powers += std::exp(double{logits[i + static_cast<size_t>(j)]});
        sum += logits[i + tokenBehind(first)] - std::log(powers);
        ++first;
      }
    });
    return sum;
  }

  static size_t tokenBehind(int64_t token) {
    return static_cast<size_t>(7 * token % 200);
  }

  const SublayerChain chain;
  Student student;
  const std::span<const int32_t> ids;
};
} // namespace

class StudentOf : public testing::TestWithParam<const char *> {};

// Through all ops of the model, and both uses of a tied embedding.
TEST_P(StudentOf, GradientsOfScalesAndNormsAreDifferences) {
  withInput(GetParam(), WeightFormat::Q4_0, [](const QuantizeInput &input) {
    const CalibrationText text = textOf(2);
    std::map<std::string, std::shared_ptr<LearnedMatrix>> matrices;
    std::map<std::string, std::vector<float>> numbers, gradients;
    for (const auto &[name, format] : input.formats) {
      const WeightSourcePtr integers =
          quantize(Quantizer::Search, input.source(name), format);
      auto &matrix = matrices[name] =
          std::make_shared<LearnedMatrix>(integers, format, 1);
      numbers[name] = matrix->ownNumbers();
      gradients[name].resize(numbers[name].size());
      matrix->follow(numbers[name]);
      input.replace(name, matrix);
    }
    Learner learner(input, text.ids);
    std::map<std::string, std::shared_ptr<Owned>> norms;
    for (const Sublayer &sublayer : learner.chain.sublayers)
      for (mlir::Operation *op : opsOf(sublayer))
        if (auto norm = llvm::dyn_cast<RmsNormOp>(op)) {
          const std::string name = norm.getWeight().str();
          const WeightSourcePtr source = input.source(name);
          norms[name] = std::make_shared<Owned>(*source, Place::Memory);
          source->read(0, source->shape().outputs(), norms[name]->floats());
          input.replaceValues(name, norms[name]);
        }
    learner.loss();
    const auto add = [&](const std::string &name, int64_t output,
                         const float *slope) {
      matrices[name]->addGradient(output, slope,
                                  gradients[name].data() +
                                      output * matrices[name]->outputNumbers());
    };
    VectorGradients ofNorms;
    const std::vector<float> slopes = learner.student.runBackward(
        [&](int64_t first, int64_t width, std::span<const float> logits) {
          std::vector<float> slope(logits.size());
          for (size_t i = 0; i < logits.size(); i += static_cast<size_t>(width))
            gradients::logLikelihood(
                logits.subspan(i, static_cast<size_t>(width)),
                static_cast<int32_t>(Learner::tokenBehind(first++)),
                slope.data() + i);
          return slope;
        },
        [&](std::span<const float> rows, const ProductGradient &product) {
          const std::string name = product.weight.str();
          // A router keeps its floats.
          if (!matrices.contains(name))
            return;
          const int64_t k = matrices[name]->shape().k(),
                        outputs = product.outputs;
          std::vector<float> values(static_cast<size_t>(k));
          for (int64_t output = 0; output < outputs; ++output) {
            std::ranges::fill(values, 0.0f);
            for (int64_t token = 0; token < std::ssize(rows) / k; ++token)
              for (int64_t i = 0; i < k; ++i)
                values[static_cast<size_t>(i)] +=
                    product
                        .slopes[static_cast<size_t>(token * outputs + output)] *
                    rows[static_cast<size_t>(token * k + i)];
            add(name, product.expert * outputs + output, values.data());
          }
        },
        ofNorms);
    EmbeddingOp embedding = learner.chain.embedding;
    const std::string embedded = embedding.getWeight().str();
    const int64_t width = matrices[embedded]->shape().k();
    for (size_t i = 0; i < text.ids.size(); ++i)
      add(embedded, text.ids[i],
          slopes.data() + static_cast<int64_t>(i) * width);
    // All numbers of a weight along their gradient.
    const auto expectSlope = [&](const std::string &name, std::span<float> list,
                                 const std::vector<float> &gradient) {
      const std::vector<float> start(list.begin(), list.end());
      double square = 0;
      for (float value : gradient)
        square += double{value} * value;
      ASSERT_GT(square, 0) << name;
      const double step = 0.02 / square;
      double losses[2], moved = 0;
      for (int side : {0, 1}) {
        for (size_t i = 0; i < list.size(); ++i)
          list[i] = static_cast<float>(start[i] +
                                       (side ? step : -step) * gradient[i]);
        losses[side] = learner.loss();
        for (size_t i = 0; i < list.size(); ++i)
          moved += (side ? 1 : -1) * (double{list[i]} - start[i]) * gradient[i];
      }
      std::ranges::copy(start, list.begin());
      EXPECT_NEAR((losses[1] - losses[0]) / moved, 1, 0.02) << name;
    };
    for (auto &[name, list] : numbers)
      expectSlope(name, list, gradients[name]);
    ASSERT_FALSE(norms.empty());
    for (auto &[name, norm] : norms)
      expectSlope(name, {norm->floats(), ofNorms[name].size()}, ofNorms[name]);
  });
}

INSTANTIATE_TEST_SUITE_P(Models, StudentOf,
                         testing::Values("qwen2-tied-f32", "qwen3-moe-f32",
                                         "qwen3_5-text-f32"));
