//===- TwoTextModelsTest.cpp - Two text models in one module --------------===//
//
// A checkpoint with models/stories and, under the prefix "draft.", a second
// model: its layers in reverse order. Both are programs of one module, and
// their logits have the bits of ReferenceModel.
//
//===----------------------------------------------------------------------===//

#include "PrefixedCheckpoint.h"
#include "Stories.h"

#include "calibration/LoadedPrograms.h"

#include "engine/Engine.h"
#include "qwen/Compiler/Compiler.h"
#include "qwen/Dialect/QwenDialect.h"

#include "mlir/IR/Builders.h"

#include <gtest/gtest.h>

#include <algorithm>

using namespace qwen;
using namespace qwen::test;

/// The tensor of the layer that has the place of `name` in reverse order.
static std::string reversed(const std::string &name) {
  for (int64_t layer = 0; layer < kStoriesLayers; ++layer) {
    const std::string path = ModelScope().layer(layer);
    if (name.starts_with(path))
      return ModelScope().layer(kStoriesLayers - 1 - layer) +
             name.substr(path.size());
  }
  return name;
}

TEST(TwoTextModels, BothAreProgramsOfOneModule) {
  const TempDir dir;
  writeTwice(kStories, dir, reversed);
  mlir::MLIRContext context;
  loadDialects(context);
  const ImportedModel model =
      importCheckpoint(dir.path(), context, kTwoTextModels);
  EXPECT_TRUE(model.unusedTensors.empty());
  mlir::ModuleOp module = *model.module;
  const auto programs = programsOf(module);
  ASSERT_EQ(programs.size(), 2u);
  for (mlir::func::FuncOp program : programs) {
    EXPECT_EQ(program->getAttr(kModelAttr), programs[0]->getAttr(kModelAttr));
    setLimit(program, kAllName, 16);
    setLimit(program, kWantedName, 16);
  }
  const LoadedPrograms loaded(compileProgram(module), 64);
  MemoryFile image;
  packImage(module, model.checkpoint->weights(), image);
  const Mapping weights = mapImage(image);
  const std::vector<ProgramInfo> &infos = loaded.manifest.programs;
  EXPECT_EQ(infos[0].caches[0].layers,
            (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(infos[1].name, "draft");
  EXPECT_EQ(infos[1].caches[0].layers,
            (std::vector<int64_t>{6, 7, 8, 9, 10, 11}));
  for (size_t i = 0; i < infos[0].ops.size(); ++i)
    EXPECT_EQ(infos[1].ops[i], "draft." + infos[0].ops[i]);

  ThreadPool pool(2);
  Engine engine(loaded.manifest, weights.data(), loaded.entries, pool,
                {.sequences = 1});
  const SequenceId sequence = engine.state().open();
  const ReferenceModel reference = readStories();
  ReferenceModel draft = reference;
  std::ranges::reverse(draft.layers);
  ReferenceSequence expected(reference), drafted(draft);
  std::vector<Token> batch;
  for (int32_t position = 0; position < 11; ++position)
    batch.push_back({17 * position + 9, sequence, position, true});
  engine.forward(batch, [&](size_t i, std::span<float> row) {
    EXPECT_EQ(Values(row.begin(), row.end()),
              reference.logits(expected.next(batch[i].id)));
  });
  engine.call("draft", batch);
  for (size_t i = 0; i < batch.size(); ++i) {
    const std::span<const float> row = engine.row("draft", "logits", i);
    EXPECT_EQ(Values(row.begin(), row.end()),
              draft.logits(drafted.next(batch[i].id)));
  }
}
