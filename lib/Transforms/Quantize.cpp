//===- Quantize.cpp - Formats of weights and activations ------------------===//

#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Support/Text.h"
#include "qwen/Transforms/Passes.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringMap.h"

#include <set>

using namespace mlir;
using namespace qwen;

namespace qwen {
#define GEN_PASS_DEF_QUANTIZE
#include "qwen/Transforms/Passes.h.inc"
} // namespace qwen

namespace {
struct Quantize final : qwen::impl::QuantizeBase<Quantize> {
  using QuantizeBase::QuantizeBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (failed(setFormats()) || failed(setCacheFormats()))
      return signalPassFailure();
    const SymbolTable symbols(module);
    divideExperts(symbols);
    module.walk([&](ForwardOp op) {
      OpOperand *input = op.getProductInput();
      if (!input)
        return;
      auto matrix = symbols.lookup<WeightOp>(matricesOf(op)[0].getValue());
      if (matrix && isQuantized(matrix.getFormat()->getValue()))
        input->assign(quantized(input->get()));
    });
  }

private:
  /// Gives each weight its format.
  LogicalResult setFormats() {
    llvm::StringMap<WeightFormat> chosen;
    for (const auto &[name, format] : formats)
      chosen[name] = format;
    for (WeightOp weight : getOperation().getOps<WeightOp>()) {
      WeightFormat format = WeightFormat::F32;
      if (weight.isMatrix()) {
        const auto found = chosen.find(weight.getSymName());
        format = found == chosen.end() ? weights : found->second;
        if (weight.getExact())
          format = weight.getKeptFormat();
        if (found != chosen.end())
          chosen.erase(found);
      }
      weight.setFormatAttr(FormatAttr::get(&getContext(), format));
    }
    if (chosen.empty())
      return success();
    return getOperation().emitError()
           << "has no matrix '" << printable(chosen.begin()->first())
           << "', which has a format";
  }

  /// Gives the keys and values of each layer their format.
  LogicalResult setCacheFormats() {
    KvLayers chosen;
    for (const auto &[layer, format] : kvLayers)
      chosen[layer] = format;
    std::set<int64_t> found;
    getOperation().walk([&](ForwardOp op) {
      const std::optional<CacheUse> use = op.getCacheUse();
      if (!use || use->kind != CacheKind::Paged)
        return;
      found.insert(use->layer);
      const auto format = chosen.find(use->layer);
      op.setCacheFormat(KvFormatAttr::get(
          &getContext(), format == chosen.end() ? kv : format->second));
    });
    for (const auto &[layer, format] : chosen)
      if (!found.contains(layer))
        return getOperation().emitError()
               << "has no keys and values in layer " << layer
               << ", which has a format of them";
    return success();
  }

  /// An op reads matrices of one format. Where gate and up of experts have two,
  /// an op of its own computes the gates.
  void divideExperts(const SymbolTable &symbols) {
    const auto formatOf = [&](FlatSymbolRefAttr name) {
      return symbols.lookup<WeightOp>(name.getValue()).getFormat();
    };
    const auto locationOf = [&](FlatSymbolRefAttr name) {
      StringRef op = name.getValue();
      op.consume_back(".weight");
      return NameLoc::get(StringAttr::get(&getContext(), op));
    };
    getOperation().walk([&](ExpertsUpOp up) {
      const FlatSymbolRefAttr gate = up.getGateAttr();
      if (!gate || formatOf(gate) == formatOf(up.getUpAttr()))
        return;
      OpBuilder builder(up);
      ExpertsGateOp::Properties properties;
      properties.setGate(gate);
      up.getGatesMutable().assign(ExpertsGateOp::create(
          builder, locationOf(gate), TypeRange(up.getResult().getType()),
          ValueRange({up.getInput(), up.getOrder(), up.getFirst()}),
          properties));
      up.removeGateAttr();
      up->setLoc(locationOf(up.getUpAttr()));
    });
  }

  /// `activations` in blocks; quantized once for all users, right behind their
  /// source.
  Value quantized(Value activations) {
    if (isInBlocks(activations.getType()))
      return activations;
    // Experts quantize their own results.
    if (isExpertActivations(activations.getType())) {
      activations.setType(QuantizeOp::typeOf(activations.getType()));
      return activations;
    }
    Value &value = quantizedValues[activations];
    if (!value) {
      OpBuilder builder(&getContext());
      builder.setInsertionPointAfterValue(activations);
      value = QuantizeOp::create(builder, activations.getLoc(), activations);
    }
    return value;
  }

  llvm::DenseMap<Value, Value> quantizedValues;
};
} // namespace
