//===- Quantize.cpp - Formats of weights and activations ------------------===//

#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Support/Text.h"
#include "qwen/Transforms/Passes.h"

#include "llvm/ADT/DenseMap.h"
#include <re2/re2.h>

using namespace mlir;
using namespace qwen;

namespace qwen {
#define GEN_PASS_DEF_QUANTIZE
#include "qwen/Transforms/Passes.h.inc"
} // namespace qwen

namespace {
/// A rule of `tensor-weights`: the format of the matrices with these names.
struct Rule {
  std::unique_ptr<RE2> names;
  /// None keeps the format of the checkpoint.
  std::optional<WeightFormat> format;
  /// Whether it matched a matrix.
  bool isUsed = false;
};

struct Quantize final : qwen::impl::QuantizeBase<Quantize> {
  using QuantizeBase::QuantizeBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    module->setAttr(kKvFormatAttr, KvFormatAttr::get(&getContext(), kv));
    if (failed(setFormats()))
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
  InFlightDiagnostic emitRuleError(StringRef rule) {
    InFlightDiagnostic error = getOperation().emitError();
    error << "--tensor-weights '" << printable(rule) << "' ";
    return error;
  }

  FailureOr<Rule> parseRule(StringRef text) {
    if (!text.contains('='))
      return emitRuleError(text)
             << "has no format when 'REGEX=FORMAT' is needed";
    const auto [regex, name] = text.rsplit('=');
    const auto format = parseWeightFormat(name);
    if (!format && name != kKeepFormat)
      return emitRuleError(text)
             << "names format '" << printable(name) << "' when " << kKeepFormat
             << ", " << weightFormatList() << " is needed";
    Rule rule = {std::make_unique<RE2>(std::string_view(regex), RE2::Quiet),
                 format};
    if (!rule.names->ok())
      return emitRuleError(text) << "is not a regular expression: "
                                 << printable(rule.names->error());
    return rule;
  }

  /// Gives each weight its format. A matrix has the format of the last rule
  /// that matches its name, or `weights`, unless it is exact.
  LogicalResult setFormats() {
    SmallVector<Rule> rules;
    for (StringRef text : tensorWeights) {
      FailureOr<Rule> rule = parseRule(text);
      if (failed(rule))
        return failure();
      rules.push_back(std::move(*rule));
    }
    for (WeightOp weight : getOperation().getOps<WeightOp>()) {
      WeightFormat format = WeightFormat::F32;
      if (cast<ShapedType>(weight.getType()).getRank() == 2) {
        format = weights;
        for (Rule &rule : rules)
          if (RE2::PartialMatch(std::string_view(weight.getSymName()),
                                *rule.names)) {
            format = rule.format.value_or(weight.getKeptFormat());
            rule.isUsed = true;
          }
        if (weight.getExact())
          format = weight.getKeptFormat();
      }
      weight.setFormatAttr(FormatAttr::get(&getContext(), format));
    }
    for (const auto &[text, rule] : llvm::zip_equal(tensorWeights, rules))
      if (!rule.isUsed)
        return emitRuleError(text)
               << "matches no matrix of the checkpoint; qwen-opt CHECKPOINT "
                  "--emit=graph prints their names";
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
    // Experts quantize their own rows.
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
