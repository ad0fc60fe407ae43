//===- Summary.cpp - The facts of a compiled model ------------------------===//

#include "Summary.h"

#include "qwen/ABI/Program.h"
#include "qwen/CodeGen/Lower/CacheList.h"
#include "qwen/CodeGen/Lower/Lower.h"
#include "qwen/Dialect/QwenDialect.h"

using namespace qwen;

static int64_t integer(mlir::func::FuncOp program, const char *attribute) {
  return program->getAttrOfType<mlir::IntegerAttr>(attribute).getInt();
}

/// The tensors and bytes of each format, by name.
static std::vector<FormatSummary> summarizeFormats(mlir::ModuleOp module) {
  std::map<std::string, FormatSummary> formats;
  for (PackedOp packed : module.getOps<PackedOp>()) {
    const auto layout = packed.getLayout();
    const std::string name(layout ? weightFormatName(layout->getFormat())
                                  : std::string_view("f32 vectors"));
    FormatSummary &format = formats.try_emplace(name, name, 0, 0).first->second;
    format.tensors += static_cast<int64_t>(packed.getSegments().size());
    format.bytes += static_cast<uint64_t>(packed.getByteSize());
  }
  std::vector<FormatSummary> result;
  result.reserve(formats.size());
  for (auto &[name, format] : formats)
    result.push_back(std::move(format));
  return result;
}

/// The work for the products of a module at stage "graph". Products of one
/// input share its moments and their factor. Each product runs four times, of
/// which one is backward, and has moments and a factor of its outputs.
static CalibrationWork workOf(mlir::ModuleOp module) {
  CalibrationWork work;
  llvm::DenseSet<mlir::Value> inputs;
  module.walk([&](LinearOp op) {
    const auto width = [](mlir::Value value) {
      const auto type = llvm::cast<mlir::RankedTensorType>(value.getType());
      return static_cast<uint64_t>(type.getShape().back());
    };
    const uint64_t k = width(op.getInput());
    for (mlir::Value result : op.getResults()) {
      const uint64_t n = width(result);
      work.token += 4 * k * n + n * n / 2;
      work.once += k * n / 2 * (k + n) + n * n * n / 3;
    }
    if (inputs.insert(op.getInput()).second) {
      work.token += k * k / 2;
      work.once += k * k * k / 3;
    }
  });
  return work;
}

CompileSummary qwen::summarize(const ImportedModel &model,
                               llvm::ArrayRef<TargetCode> codes,
                               const ArtifactSummary &written) {
  mlir::ModuleOp module = *codes.front().module;
  const ModelConfig &config = model.checkpoint->config();
  mlir::func::FuncOp forward = programsOf(module).front();
  const std::vector<CacheInfo> caches = cachesOf(forward);
  CompileSummary summary = {};
  summary.architecture = infoOf(config.architecture).name;
  for (const TargetCode &code : codes) {
    summary.targets.push_back(code.target.name);
    summary.kernels.push_back(calledKernels(*code.module));
  }
  summary.formats = summarizeFormats(module);
  summary.conversions = written.conversions;
  for (const auto *notes :
       {&config.notes, &model.checkpoint->tensors().notes()})
    llvm::append_range(summary.notes, *notes);
  summary.unusedTensors = model.unusedTensors;
  summary.fileBytes = written.fileBytes;
  summary.codeBytes = written.codeBytes;
  summary.weightBytes = written.weightBytes;
  summary.arenaBytes = static_cast<uint64_t>(integer(forward, kArenaBytesAttr));
  summary.maxTokens = limitOf(forward, kAllName).value_or(0);
  summary.maxRows = limitOf(forward, kWantedName).value_or(0);
  for (auto output : forward->getAttrOfType<mlir::ArrayAttr>(kOutputsAttr)
                         .getAsRange<mlir::DictionaryAttr>())
    if (output.getAs<mlir::StringAttr>("name") == llvm::StringRef(kLogitsName))
      summary.resultBytes =
          static_cast<uint64_t>(
              summary.maxRows *
              output.getAs<mlir::IntegerAttr>("stride").getInt()) *
          sizeof(float);
  summary.kv = describeKvFormats(caches);
  summary.positionBytes = bytesOf(caches, CacheKind::Paged);
  summary.sequenceBytes = bytesOf(caches, CacheKind::Fixed);
  summary.stepBackBytes = stepBackBytesOf(caches);
  if (!config.experts)
    summary.calibration = workOf(*model.module);
  return summary;
}
