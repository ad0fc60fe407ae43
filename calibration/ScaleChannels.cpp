//===- ScaleChannels.cpp - Scales folded into a model (AWQ) ---------------===//

#include "calibration/Calibration.h"

#include "calibration/TextRun.h"
#include "engine/CpuCount.h"
#include "qwen/Quantizers/ChannelScales.h"
#include "qwen/Weights/Sources.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"

#include <numeric>

using namespace qwen;

/// The run has this many tokens, and the search measures errors on the rows of
/// some of them.
static constexpr int64_t kScaleTokens = 4096, kScaleRows = 256;

namespace {
/// What makes rows, so that its outputs can be divided by scales.
struct Producer {
  /// A vector or a matrix, and a bias.
  std::vector<mlir::FlatSymbolRefAttr> weights;
  /// The scale of each column of the rows.
  std::vector<int32_t> scaleOf;
  /// What a rotation folds in between these rows and the products.
  Turn turn = {};
};

/// One run of scaleChannels().
class ChannelScaling {
public:
  ChannelScaling(const QuantizeInput &input, std::span<const int32_t> ids,
                 int64_t window, unsigned threads)
      : input(input), threads(threads),
        pool(usableThreads(static_cast<int>(threads))),
        stream(input.module, input.weights, ids, window, pool),
        stride(std::max<int64_t>(1, std::ssize(ids) / kScaleRows)) {
    const auto uses = mlir::SymbolTable::getSymbolUses(
        &mlir::ModuleOp(input.module).getBodyRegion());
    for (const mlir::SymbolTable::SymbolUse &use : *uses)
      ++readers[use.getSymbolRef().getRootReference().getValue()];
  }

  void run(const ProgressFn &progress);

private:
  std::optional<Producer> producerOf(const ProductInput &products) const;
  std::optional<Producer> normOf(RmsNormOp op) const;
  std::optional<Producer> upOf(SwiGluOp op) const;
  std::optional<Producer> valuesOf(AttentionOp op) const;
  std::optional<Producer> productOf(mlir::Value rows) const;
  void runSublayer(const Sublayer &sublayer);
  void scale(const ProductInput &products, const Producer &producer,
             std::span<const float> rows) const;

  const QuantizeInput &input;
  const unsigned threads;
  ThreadPool pool;
  TextRun stream;
  /// One token of so many gives its rows.
  const int64_t stride;
  /// The number of ops that read a weight.
  llvm::StringMap<unsigned> readers;
};
} // namespace

/// Whether `op` multiplies by the same matrices for all tokens.
static bool isOfAllTokens(ForwardOp op) {
  return llvm::none_of(op.getWeightUses(), [](const WeightUse &use) {
    return use.experts.has_value();
  });
}

static std::vector<int32_t> ownScales(int64_t count) {
  std::vector<int32_t> scales(static_cast<size_t>(count));
  std::iota(scales.begin(), scales.end(), 0);
  return scales;
}

std::optional<Producer> ChannelScaling::normOf(RmsNormOp op) const {
  if (op.getHeadDim() || input.rotated)
    return std::nullopt;
  return Producer{{op.getWeightAttr()}, ownScales(widthOf(op.getResult()))};
}

/// The product, and its bias, whose result is `rows` and that nothing else
/// reads.
std::optional<Producer> ChannelScaling::productOf(mlir::Value rows) const {
  auto bias = rows.getDefiningOp<AddBiasOp>();
  auto writer = (bias ? bias.getInput() : rows).getDefiningOp<ForwardOp>();
  if (!writer || !rows.hasOneUse() || !writer->hasOneUse() ||
      !isOfAllTokens(writer))
    return std::nullopt;
  const auto summands = writer.getSummands();
  if (!summands || !summands->empty())
    return std::nullopt;
  Producer made = {{matricesOf(writer)[0]}, {}};
  if (!input.formats.contains(made.weights[0].getValue()))
    return std::nullopt;
  if (bias)
    made.weights.push_back(bias.getBiasAttr());
  return made;
}

std::optional<Producer> ChannelScaling::upOf(SwiGluOp op) const {
  std::optional<Producer> made = productOf(op.getUp());
  if (!made)
    return std::nullopt;
  made->scaleOf = ownScales(widthOf(op.getResult()));
  made->turn.hadamard = input.rotated;
  return made;
}

/// Heads of queries that read the same values share scales.
std::optional<Producer> ChannelScaling::valuesOf(AttentionOp op) const {
  const mlir::Value weighed = op.getWeighed();
  std::optional<Producer> made = weighed ? productOf(weighed) : std::nullopt;
  if (!made)
    return std::nullopt;
  const auto heads = static_cast<int64_t>(op.getHeads()),
             size = static_cast<int64_t>(op.getHeadDim()),
             shared = heads / static_cast<int64_t>(op.getKvHeads());
  for (int64_t head = 0; head < heads; ++head)
    for (int64_t i = 0; i < size; ++i)
      made->scaleOf.push_back(static_cast<int32_t>(head / shared * size + i));
  made->turn.columns = input.rotated ? size : 0;
  return made;
}

/// What makes the rows of `products`, if all readers of the rows are products
/// whose integers a quantizer chooses, or products in f32.
std::optional<Producer>
ChannelScaling::producerOf(const ProductInput &products) const {
  mlir::SymbolTable symbols(input.module);
  const auto isScalable = [&](const std::string &name) {
    return readers.lookup(name) == 1 &&
           (input.formats.contains(name) ||
            symbols.lookup<WeightOp>(name).getExact());
  };
  const auto isProduct = [](mlir::OpOperand &use) {
    ForwardOp product = qwen::productOf(use);
    return product && isOfAllTokens(product);
  };
  mlir::Operation *op = products.rows.getDefiningOp();
  if (!op || !llvm::all_of(products.rows.getUses(), isProduct) ||
      !llvm::all_of(products.weights, isScalable))
    return std::nullopt;
  std::optional<Producer> made;
  if (auto norm = llvm::dyn_cast<RmsNormOp>(op))
    made = normOf(norm);
  else if (auto gated = llvm::dyn_cast<SwiGluOp>(op))
    made = upOf(gated);
  else if (auto attention = llvm::dyn_cast<AttentionOp>(op))
    made = valuesOf(attention);
  if (made && llvm::any_of(made->weights, [&](mlir::FlatSymbolRefAttr weight) {
        return readers.lookup(weight.getValue()) != 1;
      }))
    return std::nullopt;
  return made;
}

void ChannelScaling::scale(const ProductInput &products,
                           const Producer &producer,
                           std::span<const float> rows) const {
  ScaledProducts search = {{}, rows, producer.scaleOf, producer.turn};
  for (const std::string &name : products.weights)
    if (const auto format = input.formats.find(name);
        format != input.formats.end())
      search.matrices.push_back({input.source(name), format->second});
  if (search.matrices.empty())
    return;
  const std::vector<float> scales = searchChannelScales(search, threads);
  if (scales.empty())
    return;
  const std::vector<float> columns = columnScales(producer.scaleOf, scales);
  for (const std::string &name : products.weights)
    input.replaceValues(name, makeScaled(input.source(name), {columns, {}}));
  for (mlir::FlatSymbolRefAttr weight : producer.weights) {
    const std::string name = weight.getValue().str();
    input.replaceValues(name, makeScaled(input.source(name), {{}, scales}));
  }
}

void ChannelScaling::runSublayer(const Sublayer &sublayer) {
  std::vector<std::optional<Producer>> producers;
  producers.reserve(sublayer.inputs.size());
  for (const ProductInput &products : sublayer.inputs)
    producers.push_back(producerOf(products));
  std::vector<std::vector<float>> rows(producers.size());
  std::vector<int64_t> seen(producers.size());
  stream.run(sublayer, [&](const ReadRows &read) {
    const size_t i = read.input;
    if (!producers[i])
      return;
    const int64_t k = widthOf(sublayer.inputs[i].rows);
    for (int64_t token = 0; token < std::ssize(read.tokens); ++token)
      if (seen[i]++ % stride == 0)
        rows[i].insert(rows[i].end(), read.rows.begin() + token * k,
                       read.rows.begin() + (token + 1) * k);
  });
  for (size_t i = 0; i < producers.size(); ++i)
    if (producers[i])
      scale(sublayer.inputs[i], *producers[i], rows[i]);
}

void ChannelScaling::run(const ProgressFn &progress) {
  const SublayerChain chain = divide(programsOf(input.module).front());
  stream.embed(chain.embedding);
  // Nothing scales the rows of the head, which hidden values are.
  const size_t count = chain.sublayers.size() - 1;
  for (size_t i = 0; i < count; ++i) {
    runSublayer(chain.sublayers[i]);
    if (progress)
      progress(i + 1, count);
  }
}

void qwen::scaleChannels(const QuantizeInput &input,
                         const CalibrationText &text, unsigned threads,
                         const ProgressFn &progress) {
  const int64_t windows = std::max<int64_t>(
      1, std::min(std::ssize(text.ids), kScaleTokens) / text.window);
  ChannelScaling(
      input,
      std::span(text.ids).first(static_cast<size_t>(windows * text.window)),
      text.window, threads)
      .run(progress);
}
