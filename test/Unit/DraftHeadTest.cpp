//===- DraftHeadTest.cpp - A draft head of a rotated model ----------------===//
//
// A head over models/stories that reads the residual stream of `forward`: a
// layer, the norm and the head. Rotated, it gives the answers of ReferenceModel
// in f32, and in q8_0 and by gptq is as near to them as a plain model.
//
//===----------------------------------------------------------------------===//

#include "Stories.h"

#include "calibration/Calibration.h"
#include "calibration/LoadedPrograms.h"
#include "calibration/ProgramBuilder.h"
#include "calibration/Sublayers.h"

#include "engine/Engine.h"
#include "qwen/Compiler/Compiler.h"
#include "qwen/Compiler/FormatPlan.h"
#include "qwen/Import/Models/Import.h"
#include "qwen/Numerics/Kernels.h"
#include "qwen/Transforms/Passes.h"

#include "mlir/Pass/PassManager.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

using namespace qwen;
using namespace qwen::test;

namespace {
constexpr int64_t kHeadTokens = 6;

int32_t idAt(int64_t position) {
  return static_cast<int32_t>(131 * position % 4000 + 5);
}

/// What both programs give for each token.
struct Answers {
  std::vector<Values> logits, drafts, rows;
};

/// Adds the last layer again as the program `draft`, over the stream that
/// `forward` leaves, with the norm and the head behind it. It also returns the
/// stream behind its layer.
void addDraft(mlir::ModuleOp module, mlir::func::FuncOp forward) {
  const std::vector<Sublayer> sublayers = divide(forward).sublayers;
  auto wanted = *forward.getOps<WantedTokensOp>().begin();
  auto head = *forward.getOps<LmHeadOp>().begin();
  mlir::Operation *end = forward.front().getTerminator();
  end->insertOperands(1, wanted.getInput());
  mlir::Builder builder(forward);
  forward.setType(builder.getFunctionType(forward.getArgumentTypes(),
                                          end->getOperandTypes()));
  forward.setResultAttr(1, kNameAttr, builder.getStringAttr("stream"));

  mlir::MLIRContext *context = module.getContext();
  ProgramBuilder draft(
      module, "draft", forward,
      {activationsType(context, kStoriesHidden), integersType(context)});
  draft.setLimits(kHeadTokens, kHeadTokens);
  draft.nameArgument(0, "stream", "forward");
  draft.map(forward.getArgument(1), draft.argument(1));
  draft.useCachesOf(kStoriesLayers);
  const auto last = static_cast<size_t>(2 * (kStoriesLayers - 1));
  draft.map(sublayers[last].input, draft.argument(0));
  const mlir::Value after = draft.copy(sublayers[last + 1].result);
  draft.finish({{"", draft.copy(head.getResult())}, {"after", after}});
}

class DraftHead : public testing::Test {
protected:
  DraftHead() { loadDialects(context); }

  /// Imports the model, with the head if `hasDraft`.
  ImportedModel import(bool hasDraft = true) {
    ImportedModel model = importCheckpoint(kStories, context);
    mlir::func::FuncOp forward = programsOf(*model.module).front();
    for (const char *count : {kAllName, kWantedName})
      setLimit(forward, count, kHeadTokens);
    if (hasDraft)
      addDraft(*model.module, forward);
    return model;
  }

  ImportedModel rotated(bool hasDraft = true) {
    ImportedModel model = import(hasDraft);
    mlir::PassManager manager(&context);
    manager.addPass(createRotate());
    EXPECT_TRUE(mlir::succeeded(manager.run(*model.module)));
    return model;
  }

  /// Compiles and runs all programs of `model`.
  Answers run(const ImportedModel &model, WeightFormat weights) {
    mlir::ModuleOp module = *model.module;
    const LoadedPrograms loaded(compileProgram(module, {.weights = weights}),
                                kHeadTokens);
    MemoryFile image;
    packImage(module, model.checkpoint->weights(), image);
    const Mapping mapping = mapImage(image);
    Engine engine(loaded.manifest, mapping.data(), loaded.entries, pool);
    const SequenceId sequence = engine.state().open();
    std::vector<Token> batch, rows;
    for (int64_t position = 0; position < kHeadTokens; ++position) {
      batch.push_back({idAt(position), sequence, position, true});
      rows.push_back({-1, sequence, position, true});
    }
    Answers answers;
    engine.forward(batch, [&](size_t, std::span<float> row) {
      answers.logits.emplace_back(row.begin(), row.end());
    });
    if (loaded.manifest.programs.size() == 1)
      return answers;
    engine.call("draft", rows);
    const auto take = [&](const char *name, std::vector<Values> &to) {
      for (size_t i = 0; i < rows.size(); ++i) {
        const std::span<const float> row = engine.row("draft", name, i);
        to.emplace_back(row.begin(), row.end());
      }
    };
    take("logits", answers.drafts);
    take("after", answers.rows);
    return answers;
  }

  mlir::MLIRContext context;
  ThreadPool pool{2};
};

/// What ReferenceModel gives.
const Answers &expectedAnswers() {
  static const Answers expected = [] {
    const ReferenceModel model = readStories();
    ReferenceModel layer = model;
    layer.layers = {model.layers.back()};
    ReferenceSequence sequence(model), drafted(layer);
    const auto logits = [&](const Values &row) {
      Values normed(row.size());
      numerics::rmsNormF32(row.data(), model.finalNorm.data(), kStoriesHidden,
                           model.eps, normed.data());
      return model.logits(normed);
    };
    Answers answers;
    for (int32_t position = 0; position < kHeadTokens; ++position) {
      Values x = model.embedding.output(idAt(position));
      for (size_t i = 0; i < kStoriesLayers; ++i)
        x = sequence.runLayer(i, x, position);
      answers.logits.push_back(logits(x));
      x = drafted.runLayer(0, x, position);
      answers.drafts.push_back(logits(x));
      answers.rows.push_back(x);
    }
    return answers;
  }();
  return expected;
}

/// The greatest difference, and the root mean square of all, as parts of the
/// range of the expected values of a token.
struct Difference {
  double greatest = 0, mean = 0;
};

Difference differenceOf(const std::vector<Values> &found,
                        const std::vector<Values> &expected) {
  Difference result;
  EXPECT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    const auto [least, most] = std::ranges::minmax(expected[i]);
    double squares = 0;
    for (size_t j = 0; j < found[i].size(); ++j) {
      const double part =
          std::fabs(found[i][j] - expected[i][j]) / (most - least);
      result.greatest = std::max(result.greatest, part);
      squares += part * part;
    }
    result.mean =
        std::max(result.mean,
                 std::sqrt(squares / static_cast<double>(expected[i].size())));
  }
  return result;
}

/// The differences of an answer's logits, drafts and rows.
std::array<Difference, 3> differencesOf(const Answers &found) {
  const Answers &expected = expectedAnswers();
  return {differenceOf(found.logits, expected.logits),
          differenceOf(found.drafts, expected.drafts),
          differenceOf(found.rows, expected.rows)};
}

/// A rotation moves the error of a format between values and keeps its length.
/// One without its inverse would leave nothing of the expected values.
void expectNotWorse(const Answers &found, const Answers &plain) {
  const std::array<Difference, 3> of = differencesOf(found),
                                  least = differencesOf(plain);
  for (size_t i = 0; i < of.size(); ++i)
    EXPECT_LE(of[i].mean, 1.5 * least[i].mean) << "value " << i;
}
} // namespace

TEST_F(DraftHead, HasTheBitsOfTheReferenceWithoutRotations) {
  const Answers found = run(import(), WeightFormat::F32);
  EXPECT_EQ(found.logits, expectedAnswers().logits);
  EXPECT_EQ(found.drafts, expectedAnswers().drafts);
  EXPECT_EQ(found.rows, expectedAnswers().rows);
}

TEST_F(DraftHead, IsRotatedInF32) {
  // The bound of golden.py.
  for (const Difference &difference :
       differencesOf(run(rotated(), WeightFormat::F32)))
    EXPECT_LE(difference.greatest, 1e-5);
}

TEST_F(DraftHead, IsRotatedInQ8) {
  const Answers found = run(rotated(), WeightFormat::Q8_0);
  expectNotWorse(found, run(import(), WeightFormat::Q8_0));
  // The head changes nothing of `forward`.
  EXPECT_EQ(found.logits,
            run(rotated(/*hasDraft=*/false), WeightFormat::Q8_0).logits);
}

TEST_F(DraftHead, IsRotatedAndCalibrated) {
  const ImportedModel model = rotated();
  MatrixFormats formats;
  MatrixQuantizers quantizers;
  for (WeightOp matrix : plannedMatrices(*model.module)) {
    formats.emplace(matrix.getSymName(), WeightFormat::Q4_0);
    quantizers.emplace(matrix.getSymName(), Quantizer::Gptq);
  }
  CalibrationText text = {{}, 64, "0123"};
  for (int32_t i = 0; i < 4 * 64; ++i)
    text.ids.push_back((37 * i * i + 11 * i) % 4000 + 5);
  const std::optional<TokenizerImport> tokenizer;
  calibrate({*model.module, model.checkpoint->weights(), formats, quantizers,
             /*rotated=*/true, tokenizer},
            text, {.threads = 2});
  expectNotWorse(run(model, WeightFormat::Q4_0),
                 run(import(), WeightFormat::Q4_0));
}
