//===- PlanFormats.cpp - A plan that the caller chooses -------------------===//

#include "qwen/Compiler/PlanFormats.h"

#include "Compile.h"
#include "Importance.h"
#include "Summary.h"

#include "qwen/CodeGen/Artifact/ArtifactWriter.h"
#include "qwen/CodeGen/Lower/CacheList.h"
#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Import/Checkpoint/ModelScope.h"

#include <map>

using namespace qwen;

/// A manifest tells the quantizer, the tokens and the hash of the text, which
/// have these lengths.
static constexpr int64_t kTokensOfText = 10000;
static constexpr size_t kDigitsOfHash = 64;

namespace {
/// One run of planFormats().
class Planning {
public:
  Planning(const std::filesystem::path &checkpoint,
           const CompileOptions &options, const CompileHooks &hooks)
      : name(checkpointName(checkpoint)), imatrix(options.imatrix),
        compile(checkpoint, options, hooks) {
    compile.importTokenizer();
  }

  std::string run(const ChooseFormatsFn &choose) {
    compile.runSteps(StepId::Rotation);
    const QuantizeInput input = quantizeInput(compile.state());
    const ImportanceRows rows = importanceRows(input);
    PlanInput given = {
        input,
        parametersOf(compile.state().model),
        [this](std::string_view matrix) { return tokenPart(matrix); },
        {},
        [this](const MatrixFormats &formats) { return sizeOf(formats); }};
    if (!imatrix.empty())
      given.importance = [&](const std::string &matrix) {
        return rows.at(matrix);
      };
    MatrixFormats chosen = choose(given);
    FormatPlan plan = compile.state().plan;
    for (auto &[matrix, format] : chosen)
      plan.formats[matrix] = format;
    return planText(plan, compile.state().config());
  }

private:
  using ImportanceRows =
      std::map<std::string, std::shared_ptr<const std::vector<float>>>;
  /// The rows of the importance matrix of all matrices; none without it.
  ImportanceRows importanceRows(const QuantizeInput &input) const {
    ImportanceRows rows;
    if (imatrix.empty())
      return rows;
    Importance importance(imatrix, compile.state().config());
    for (const auto &[matrix, format] : input.formats)
      rows[matrix] = importance.of(matrix, input.source(matrix)->shape());
    importance.requireRows();
    return rows;
  }

  double tokenPart(std::string_view matrix) {
    const ModelState &state = compile.state();
    if (!state.config().tied && matrix == ModelScope().embedding())
      return 0;
    const auto symbol = mlir::FlatSymbolRefAttr::get(
        state.module().getContext(), llvm::StringRef(matrix));
    double part = 1;
    state.module()->walk([&](ForwardOp op) {
      for (const WeightUse &use : op.getWeightUses())
        if (use.experts && llvm::is_contained(use.segments, symbol))
          part = double(use.experts->active) / double(use.experts->count);
    });
    return part;
  }

  PlanSize sizeOf(const MatrixFormats &formats) {
    const std::lock_guard lock(compileMutex());
    const ModelState &state = compile.state();
    MatrixFormats all = state.plan.formats;
    for (const auto &[matrix, format] : formats)
      all[matrix] = format;
    const std::vector<TargetCode> codes = compile.run(Stage::Calls, all);
    Quantization record = state.record;
    record.quantizer = infoOf(Quantizer::Gptq).name;
    record.tokens = kTokensOfText;
    record.text.assign(kDigitsOfHash, '0');
    record.distilled = {kTokensOfText, kTokensOfText};
    const std::vector<CacheInfo> caches =
        cachesOf(programsOf(*codes.front().module).front());
    return {
        artifactBytes(codes, {name, compile.positions(), &compile.checkpoint(),
                              &state.tokenizer, record}),
        imageSize(*codes.front().module, "", state.config()).tokenBytes +
            static_cast<uint64_t>(bytesOf(caches, CacheKind::Paged) +
                                  2 * bytesOf(caches, CacheKind::Fixed))};
  }

  const std::string name;
  const std::filesystem::path imatrix;
  Compile compile;
};
} // namespace

std::string qwen::planFormats(const std::filesystem::path &checkpoint,
                              CompileOptions options, const CompileHooks &hooks,
                              WeightFormat start,
                              const ChooseFormatsFn &choose) try {
  options.weights = KeepIntegers{start};
  options.quantizer = options.quantizer.value_or(Quantizer::Gptq);
  std::unique_lock lock(compileMutex());
  Planning planning(checkpoint, options, hooks);
  lock.unlock();
  return planning.run(choose);
} catch (...) {
  throwError();
}
