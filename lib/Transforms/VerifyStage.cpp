//===- VerifyStage.cpp - What each stage promises -------------------------===//

#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Transforms/Passes.h"

using namespace mlir;
using namespace qwen;

namespace qwen {
#define GEN_PASS_DEF_VERIFYSTAGE
#include "qwen/Transforms/Passes.h.inc"
} // namespace qwen

namespace {
struct VerifyStage final : qwen::impl::VerifyStageBase<VerifyStage> {
  using VerifyStageBase::VerifyStageBase;
  void runOnOperation() override {}
};
} // namespace

std::string_view qwen::stageName(Stage stage) {
  switch (stage) {
  case Stage::Graph:
    return "graph";
  case Stage::Quantized:
    return "quantized";
  case Stage::Packed:
    return "packed";
  case Stage::Calls:
    return "calls";
  }
  __builtin_unreachable();
}

std::optional<Stage> qwen::parseStage(std::string_view name) {
  for (Stage stage :
       {Stage::Graph, Stage::Quantized, Stage::Packed, Stage::Calls})
    if (name == stageName(stage))
      return stage;
  return std::nullopt;
}
