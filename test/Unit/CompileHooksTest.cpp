//===- CompileHooksTest.cpp - Hooks of a compile, under AddressSanitizer --===//
//
// The steps of a compile are compiled with AddressSanitizer, over libraries
// without it: those take minutes to compile with it.
//
//===----------------------------------------------------------------------===//

#include "qwen/Compiler/Compiler.h"
#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Support/Error.h"
#include "qwen/Support/MemoryFile.h"

#include <gtest/gtest.h>

#include <iterator>
#include <memory>

using namespace qwen;

static const std::filesystem::path kStories =
    std::filesystem::path(QWEN_SOURCE_DIR) / "models/stories";

/// Layers of attention in a model.
static int64_t layersOf(const QuantizeInput &input) {
  mlir::ModuleOp module = input.module;
  int64_t count = 0;
  module.walk([&](AttentionOp) { ++count; });
  return count;
}

TEST(CompileHooks, OutliveTheChoiceOfLayers) {
  int64_t before = 0, after = 0;
  CompileHooks hooks;
  hooks.chooseLayers = [&](const QuantizeInput &input) {
    EXPECT_TRUE(input.tokenizer);
    before = layersOf(input);
    return Pruning{"shortgpt", {1, 3}};
  };
  // The first hook behind the choice. An error ends the compile before it
  // generates code.
  hooks.scaleChannels = [&](const QuantizeInput &input) -> Quantization {
    after = layersOf(input);
    throw Error("this is enough");
  };
  MemoryFile file;
  EXPECT_THROW(
      compileModel(kStories, file, {.maxTokens = 16, .maxRows = 1}, hooks),
      Error);
  EXPECT_EQ(before, 6);
  EXPECT_EQ(after, 4);
}
