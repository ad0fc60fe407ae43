//===- Rotate.cpp - Rotations folded into weights -------------------------===//

#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Numerics/Rotation.h"
#include "qwen/Transforms/Passes.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace qwen;

namespace qwen {
#define GEN_PASS_DEF_ROTATE
#include "qwen/Transforms/Passes.h.inc"
} // namespace qwen

namespace {
/// What is folded into the columns of a weight: that of a norm, if any, and the
/// rotation of blocks of `size`.
struct Columns {
  int64_t size;
  FlatSymbolRefAttr scales = {};
  bool operator==(const Columns &) const = default;
};

/// What is folded into a weight. `outputs` is the size of turned blocks.
struct Fold {
  std::optional<Columns> columns = {};
  /// Whether the columns undo a `qwen.hadamard`.
  std::optional<bool> hadamard = {};
  std::optional<int64_t> outputs = {};
};

/// Collects the folds of all programs of a module, and then changes the
/// weights.
class Rotation {
public:
  explicit Rotation(ModuleOp module) : symbols(module), builder(module) {
    WeightOp first = *module.getOps<WeightOp>().begin();
    builder.setInsertionPoint(first);
  }

  LogicalResult add(func::FuncOp program);
  LogicalResult apply();

private:
  LogicalResult addOp(Operation &op);
  LogicalResult addStream(AddOp op);
  LogicalResult addNorm(RmsNormOp op);
  LogicalResult addHeads(AttentionOp op);
  LogicalResult addHead(LmHeadOp op);
  LogicalResult addHadamard(SwiGluOp op);
  void turnBack(WantedTokensOp op);

  LogicalResult fold(Operation *op, FlatSymbolRefAttr weight, const Fold &part);
  LogicalResult foldOutputs(Operation *op, Value product, int64_t size);
  TurnOp turn(OpBuilder &at, StringRef name, Value tokens, bool back);
  FlatSymbolRefAttr vector(StringRef name, int64_t size,
                           SourceAttrInterface source);

  SymbolTable symbols;
  OpBuilder builder;
  /// The values of the residual stream.
  llvm::DenseSet<Value> stream;
  /// By the names of weights.
  llvm::MapVector<StringAttr, Fold> folds;
};
} // namespace

//===----------------------------------------------------------------------===//
// What is folded
//===----------------------------------------------------------------------===//

/// Adds `part` to what is folded into `weight`, which `op` reads.
LogicalResult Rotation::fold(Operation *op, FlatSymbolRefAttr weight,
                             const Fold &part) {
  Fold &whole = folds[weight.getAttr()];
  const auto add = [](auto &to, const auto &from) {
    if (!to)
      to = from;
    return !from || to == from;
  };
  if (add(whole.columns, part.columns) && add(whole.hadamard, part.hadamard) &&
      add(whole.outputs, part.outputs))
    return success();
  return op->emitOpError() << "reads " << weight
                           << ", which another op needs with another rotation";
}

/// Folds the rotation of blocks of `size` outputs into the product, and its
/// bias, that only `op` reads.
LogicalResult Rotation::foldOutputs(Operation *op, Value product,
                                    int64_t size) {
  const auto isOnly = [](Value value) { return value.hasOneUse(); };
  if (auto experts = product.getDefiningOp<ExpertsDownOp>();
      experts && isOnly(product)) {
    for (Value addend : experts.getAddends())
      if (failed(foldOutputs(op, addend, size)))
        return failure();
    return fold(experts, experts.getDownAttr(), {.outputs = size});
  }
  auto bias = product.getDefiningOp<AddBiasOp>();
  const Value before = bias ? bias.getInput() : product;
  auto linear = before.getDefiningOp<LinearOp>();
  if (!linear || linear.getWeights().size() != 1 || linear.getResidual() ||
      linear.getBias() || !isOnly(product) || !isOnly(before))
    return op->emitOpError() << "needs a product of its own, before fusion, to "
                                "fold a rotation into";
  if (bias && failed(fold(bias, bias.getBiasAttr(), {.outputs = size})))
    return failure();
  return fold(linear, cast<FlatSymbolRefAttr>(linear.getWeights()[0]),
              {.outputs = size});
}

LogicalResult Rotation::addStream(AddOp op) {
  const bool isLeft = stream.contains(op.getLhs());
  stream.insert(op.getResult());
  return foldOutputs(op, isLeft ? op.getRhs() : op.getLhs(),
                     widthOf(op.getResult()));
}

/// Folds the weight of a norm over the stream into the products behind it.
LogicalResult Rotation::addNorm(RmsNormOp op) {
  const int64_t width = widthOf(op.getInput());
  for (Operation *user : op.getResult().getUsers()) {
    SmallVector<Attribute> weights;
    auto linear = dyn_cast<LinearOp>(user);
    if (linear && !linear.getResidual())
      llvm::append_range(weights, linear.getWeights());
    else if (auto experts = dyn_cast<ExpertsUpOp>(user))
      weights = {experts.getGateAttr(), experts.getUpAttr()};
    else
      return op.emitOpError() << "is read by '" << user->getName()
                              << "' when only a product, before fusion, can";
    for (Attribute weight : weights)
      if (failed(fold(user, cast<FlatSymbolRefAttr>(weight),
                      {.columns = Columns{width, op.getWeightAttr()}})))
        return failure();
  }
  op.setWeightAttr(
      vector("rotation.ones", width, OnesAttr::get(op.getContext())));
  return success();
}

/// Turns the heads of v, if only a product reads what attention makes of them.
LogicalResult Rotation::addHeads(AttentionOp op) {
  AppendOp append = op.getAppend();
  if (!append || !op.getResult().hasOneUse())
    return success();
  auto linear = dyn_cast<LinearOp>(*op.getResult().user_begin());
  if (!linear || linear.getWeights().size() != 1)
    return success();
  const int64_t size = op.getHeadDim();
  if (failed(foldOutputs(op, append.getValues(), size)))
    return failure();
  return fold(linear, cast<FlatSymbolRefAttr>(linear.getWeights()[0]),
              {.columns = Columns{size}});
}

//===----------------------------------------------------------------------===//
// Activations that are turned
//===----------------------------------------------------------------------===//

/// The vector `name` of `size` values.
FlatSymbolRefAttr Rotation::vector(StringRef name, int64_t size,
                                   SourceAttrInterface source) {
  if (!symbols.lookup(name)) {
    auto weight = WeightOp::create(
        builder, NameLoc::get(builder.getStringAttr(name)), name,
        RankedTensorType::get(size, builder.getF32Type()), source,
        /*exact=*/false, FormatAttr());
    symbols.insert(weight);
  }
  return FlatSymbolRefAttr::get(builder.getContext(), name);
}

TurnOp Rotation::turn(OpBuilder &at, StringRef name, Value tokens, bool back) {
  const int64_t size = widthOf(tokens);
  TurnOp::Properties properties;
  if (back)
    properties.setBack(at.getUnitAttr());
  properties.setRotation(vector("rotation.values",
                                size + numerics::oddPart(size),
                                RotationAttr::get(at.getContext(), size)));
  return TurnOp::create(at, NameLoc::get(at.getStringAttr(name)),
                        TypeRange(tokens.getType()), ValueRange(tokens),
                        properties);
}

/// Transforms the activations of a feed-forward network before its last
/// product. The gate of linear attention reads a norm.
LogicalResult Rotation::addHadamard(SwiGluOp op) {
  if (!op.getUp().getDefiningOp<LinearOp>() || !op.getResult().hasOneUse())
    return success();
  auto linear = dyn_cast<LinearOp>(*op.getResult().user_begin());
  if (!linear || linear.getWeights().size() != 1)
    return success();
  OpBuilder at(linear);
  linear.getInputMutable().assign(
      HadamardOp::create(at, op.getLoc(), op.getResult()));
  return fold(linear, cast<FlatSymbolRefAttr>(linear.getWeights()[0]),
              {.hadamard = true});
}

void Rotation::turnBack(WantedTokensOp op) {
  OpBuilder at(op);
  op.getInputMutable().assign(
      turn(at, "turn_back", op.getInput(), /*back=*/true));
}

/// The norm before the head leaves hidden values as the model's.
LogicalResult Rotation::addHead(LmHeadOp op) {
  OpBuilder at(op);
  op.getInputMutable().assign(turn(at, "turn", op.getInput(), /*back=*/false));
  return fold(op, op.getWeightAttr(),
              {.columns = Columns{widthOf(op.getInput())}});
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

LogicalResult Rotation::addOp(Operation &op) {
  if (auto attention = dyn_cast<AttentionOp>(op))
    return addHeads(attention);
  if (auto head = dyn_cast<LmHeadOp>(op))
    return addHead(head);
  if (auto gated = dyn_cast<SwiGluOp>(op))
    return addHadamard(gated);
  if (auto embedding = dyn_cast<EmbeddingOp>(op)) {
    stream.insert(embedding.getResult());
    return fold(&op, embedding.getWeightAttr(),
                {.columns = Columns{widthOf(embedding.getResult())}});
  }
  if (llvm::none_of(op.getOperands(),
                    [&](Value value) { return stream.contains(value); }))
    return success();
  if (auto add = dyn_cast<AddOp>(op))
    return addStream(add);
  if (auto norm = dyn_cast<RmsNormOp>(op); norm && !norm.getHeadDim())
    return addNorm(norm);
  if (auto wanted = dyn_cast<WantedTokensOp>(op)) {
    turnBack(wanted);
    return success();
  }
  return op.emitOpError()
         << "reads the residual stream, which only norms over it, additions "
            "and qwen.wanted_tokens can when it is turned";
}

LogicalResult Rotation::add(func::FuncOp program) {
  for (Type type : program.getArgumentTypes())
    if (!isTokenIntegers(type))
      return program.emitError()
             << "program @" << program.getSymName() << " takes " << type
             << " when only ids and positions can be the arguments of a "
                "program that is rotated";
  for (Operation &op : llvm::make_early_inc_range(program.front()))
    if (failed(addOp(op)))
      return failure();
  return success();
}

LogicalResult Rotation::apply() {
  // Nobody reads the weights of norms that are folded everywhere.
  llvm::SmallSetVector<WeightOp, 16> norms;
  for (const auto &[name, part] : folds) {
    auto weight = symbols.lookup<WeightOp>(name);
    const Columns columns = part.columns.value_or(Columns{0});
    SourceAttrInterface scales;
    if (columns.scales) {
      auto norm = symbols.lookup<WeightOp>(columns.scales.getValue());
      scales = norm.getSource();
      norms.insert(norm);
    }
    auto type = cast<RankedTensorType>(weight.getType());
    weight.setType(type.clone(builder.getF32Type()));
    weight.setSourceAttr(TurnedAttr::get(
        weight.getContext(), weight.getSource(), scales, columns.size,
        part.hadamard.value_or(false), part.outputs.value_or(0)));
    if (failed(weight.verify()))
      return failure();
  }
  for (WeightOp norm : norms)
    if (SymbolTable::symbolKnownUseEmpty(norm, symbols.getOp()))
      symbols.erase(norm);
  return success();
}

namespace {
struct Rotate final : qwen::impl::RotateBase<Rotate> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (module.getOps<WeightOp>().empty())
      return;
    Rotation rotation(module);
    for (func::FuncOp program : programsOf(module))
      if (failed(rotation.add(program)))
        return signalPassFailure();
    if (failed(rotation.apply()))
      signalPassFailure();
  }
};
} // namespace
