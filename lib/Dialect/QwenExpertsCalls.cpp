//===- QwenExpertsCalls.cpp - The calls of the driver by experts ----------===//

#include "CallOf.h"

using namespace mlir;
using namespace qwen;

DriverCall RouteOp::getDriverCall(const CallFacts &facts) {
  CallOf of(*this, facts);
  return of.call<fixed::Route>({.logits = floatPlaceOf(getLogits()),
                                .shared = optionalPlaceOf(getShared()),
                                .weights = floatPlaceOf(getWeights()),
                                .ids = floatPlaceOf(getIds()).at,
                                .order = floatPlaceOf(getOrder()).at,
                                .first = floatPlaceOf(getFirst()).at,
                                .normalized = Flag(getNormalized()),
                                .count = of.count(),
                                .op = of.id()},
                               {.experts = Experts(widthOf(getLogits())),
                                .chosen = Experts(widthOf(getIds()))});
}

/// What an instance fixes of the products of `op`, which give `width` values.
/// `activations` belong to choices, not to tokens.
template <typename Fixed, typename ExpertsOp>
static Fixed expertsFixed(ExpertsOp op, const CallFacts &facts,
                          Value activations, int64_t width, int64_t scratch) {
  const Value input = op.getInput();
  const KernelInfo &kernel = *cast<KernelAttr>((*op.getKernels())[0]).getInfo();
  Fixed fixed;
  fixed.experts = Experts(widthOf(op.getFirst()) - 1);
  fixed.chosen = Experts(choicesOfToken(activations));
  fixed.k = lengthOf(input);
  fixed.width = Length(width);
  fixed.stride = facts.strideOf(cast<FlatSymbolRefAttr>((*op.getPacked())[0]));
  fixed.panelBytes =
      Bytes(panelBytes(*weightFormat(kernel.format), widthOf(input)));
  fixed.scratch = Length(scratch);
  return fixed;
}

/// The call of experts_gate or experts_up.
template <typename ExpertsOp>
static DriverCall expertsUpCall(ExpertsOp op, Value gates,
                                const CallFacts &facts) {
  CallOf of(op, facts);
  const bool isQuantized = isInBlocks(op.getInput().getType());
  const ExpertsUpArguments arguments = {.in = blockPlaceOf(op.getInput()),
                                        .order = floatPlaceOf(op.getOrder()).at,
                                        .first = floatPlaceOf(op.getFirst()).at,
                                        .weight = of.part(0),
                                        .gates = optionalPlaceOf(gates),
                                        .out = blockPlaceOf(op.getResult()),
                                        .count = of.count(),
                                        .op = of.id()};
  const auto constants = [&]<typename Fixed>(Fixed) {
    auto fixed = expertsFixed<Fixed>(
        op, facts, op.getResult(), widthOf(op.getResult()),
        expertsScratch(widthOf(op.getInput()), isQuantized));
    if (isQuantized)
      fixed.inTiles = of.tilesOf(op.getInput());
    return fixed;
  };
  if (isQuantized)
    return of.call(arguments, constants(fixed::ExpertsUpQ8()));
  return of.call(arguments, constants(fixed::ExpertsUpF32()));
}

DriverCall ExpertsGateOp::getDriverCall(const CallFacts &facts) {
  return expertsUpCall(*this, nullptr, facts);
}

DriverCall ExpertsUpOp::getDriverCall(const CallFacts &facts) {
  return expertsUpCall(*this, getGates(), facts);
}

DriverCall ExpertsDownOp::getDriverCall(const CallFacts &facts) {
  CallOf of(*this, facts);
  const auto addend = [&](size_t i) {
    return optionalPlaceOf(i < getAddends().size() ? getAddends()[i] : Value());
  };
  const ExpertsDownArguments arguments = {.in = blockPlaceOf(getInput()),
                                          .weights = floatPlaceOf(getWeights()),
                                          .order = floatPlaceOf(getOrder()).at,
                                          .first = floatPlaceOf(getFirst()).at,
                                          .weight = of.part(0),
                                          .addend = addend(0),
                                          .isScaled = Flag(hasSharedExpert()),
                                          .last = addend(1),
                                          .out = floatPlaceOf(getResult()),
                                          .count = of.count(),
                                          .op = of.id()};
  const bool isQuantized = isInBlocks(getInput().getType());
  const auto constants = [&]<typename Fixed>(Fixed) {
    return expertsFixed<Fixed>(
        *this, facts, getInput(), widthOf(getResult()),
        isQuantized ? expertsScratch(widthOf(getInput()), isQuantized)
                    : kExpertValues);
  };
  if (isQuantized)
    return of.call(arguments, constants(fixed::ExpertsDownQ8()));
  return of.call(arguments, constants(fixed::ExpertsDownF32()));
}

DriverCall CountOp::getDriverCall(const CallFacts &facts) {
  CallOf of(*this, facts);
  const bool inArena = isIntegers(getIds().getType());
  return of.call<fixed::Count>(
      {.ids = inArena ? floatPlaceOf(getIds()).at : ArenaOffset(-1),
       .n = inArena ? lengthOf(getIds()) : Length(0),
       .limit = getLimit() ? floatPlaceOf(getLimit()).at : ArenaOffset(-1),
       .out = floatPlaceOf(getResult()).at,
       .k = lengthOf(getResult()),
       .op = of.id()});
}
