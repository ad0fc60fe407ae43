//===- Lower.cpp - Planned IR to calls of kernels -------------------------===//

#include "qwen/CodeGen/Lower/Lower.h"

#include "Instances.h"

#include "qwen/CodeGen/Lower/Work.h"
#include "qwen/Dialect/QwenDialect.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace qwen;

namespace qwen {
#define GEN_PASS_DEF_LOWER
#include "qwen/CodeGen/Lower/Passes.h.inc"
} // namespace qwen

//===----------------------------------------------------------------------===//
// Facts of a planned function
//===----------------------------------------------------------------------===//

/// The op's path in the model, from its location, or its name and number. What
/// fusion has split off of a module of the model gets its name behind it.
static std::string opName(Operation *op, int64_t id) {
  std::string name;
  op->getLoc()->walk([&](Location location) {
    auto named = dyn_cast<NameLoc>(location);
    if (!named)
      return WalkResult::advance();
    name = named.getName().str();
    return WalkResult::interrupt();
  });
  const std::string mnemonic = op->getName().stripDialect().str();
  if (name.empty())
    return mnemonic + "." + std::to_string(id);
  return isa<AppendOp, QuantizeOp>(op) ? name + "." + mnemonic : name;
}

/// Where a value lies. qwen.wanted_rows is a view of its input.
static BufferAttr bufferOf(Value value) {
  if (auto view = value.getDefiningOp<WantedRowsOp>())
    return bufferOf(view.getInput());
  return cast<ForwardOp>(value.getDefiningOp())
      .getPlanAttr()
      .getBuffers()[cast<OpResult>(value).getResultNumber()];
}

namespace {
//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

/// Lowers the ops of one planned function to calls in another one.
class ForwardLowering {
public:
  ForwardLowering(ModuleOp module, func::FuncOp planned)
      : module(module), planned(planned),
        builder(planned.getLoc(), planned->getContext()), functions(module) {}

  LogicalResult run();

private:
  LogicalResult check();
  /// What the manifest says of an op's work; numbers that are 0 are left out.
  DictionaryAttr describe(const OpWork &work);
  LogicalResult lower(ForwardOp op);
  LogicalResult lowerOp(EmbeddingOp op);
  LogicalResult lowerOp(RopeTableOp op);
  LogicalResult lowerOp(RmsNormOp op);
  LogicalResult lowerOp(QuantizeOp op);
  LogicalResult lowerOp(SwiGluOp op);
  LogicalResult lowerOp(LinearOp op);
  LogicalResult lowerOp(LmHeadOp op);
  LogicalResult lowerOp(AppendOp op);
  LogicalResult lowerOp(AttentionOp op);

  Value i64(int64_t value) {
    return arith::ConstantIntOp::create(builder, value, 64);
  }
  Value i32(int64_t value) {
    return arith::ConstantIntOp::create(builder, value, 32);
  }
  Value f32(double value) {
    return arith::ConstantFloatOp::create(builder, builder.getF32Type(),
                                          APFloat(static_cast<float>(value)));
  }
  void add(SmallVectorImpl<Value> &arguments, ArrayRef<int64_t> numbers) {
    for (int64_t number : numbers)
      arguments.push_back(i64(number));
  }
  /// Places of a value's parts: offset; with scales and sums where quantized.
  void addOperand(SmallVectorImpl<Value> &arguments, Value value);
  void addScalesAndSums(SmallVectorImpl<Value> &arguments, BufferAttr buffer,
                        ForwardOp op);
  func::CallOp call(const std::string &function, ArrayRef<Value> arguments = {},
                    TypeRange results = {});

  /// Says that the thread begins `op`.
  void trace(ForwardOp op) {
    call(functions.trace(), i32(op.getPlanAttr().getId()));
  }

  /// Place in the weight image of part `i` of `op`, or -1 for none.
  int64_t part(ForwardOp op, size_t i = 0) const;
  /// Whether the quantized operand of a product lies as its kernels read it.
  LogicalResult checkOperand(Operation *op, Value operand);

  ModuleOp module;
  func::FuncOp planned;
  ImplicitLocOpBuilder builder;
  Instances functions;
  AttentionShape shape{};
  /// Offsets by the names of packed parts.
  llvm::StringMap<int64_t> offsets;
  Value context, thread;
  SmallVector<Attribute> opNames, opWork, opKernels;
  int64_t resultStride = 0;
};

struct Lower final : qwen::impl::LowerBase<Lower> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto planned = module.lookupSymbol<func::FuncOp>(kForwardName);
    if (!planned) {
      module.emitError() << "has no function '" << kForwardName << "'";
      return signalPassFailure();
    }
    if (failed(ForwardLowering(module, planned).run()))
      signalPassFailure();
  }
};
} // namespace

//===----------------------------------------------------------------------===//
// The function
//===----------------------------------------------------------------------===//

LogicalResult ForwardLowering::check() {
  auto kv = module->getAttrOfType<KvFormatAttr>(kKvFormatAttr);
  if (!kv)
    return module.emitError()
           << "has no '" << kKvFormatAttr << "'; run qwen-quantize first";
  shape.format = kv.getValue();
  for (Operation &op : planned.front().without_terminator()) {
    if (isa<WantedRowsOp>(op))
      continue;
    auto forward = dyn_cast<ForwardOp>(op);
    if (!forward)
      return op.emitOpError() << "cannot be lowered to calls";
    if (!forward.getPlanAttr())
      return op.emitOpError() << "has no plan; run qwen-plan first";
    if (!forward.getKernelsAttr())
      return op.emitOpError()
             << "has no kernels; run qwen-select-kernels first";
    if (!forward.getPackedAttr() && !forward.getWeightUses().empty())
      return op.emitOpError() << "has no packed weights; run qwen-pack first";
    if (auto attention = dyn_cast<AttentionOp>(op)) {
      if (!attention.getCos())
        return op.emitOpError() << "is not fused; run "
                                   "qwen-fuse-attention first";
      const int64_t heads = attention.getHeads(),
                    kvHeads = attention.getKvHeads(),
                    headDim = attention.getHeadDim();
      if (shape.layers > 0 &&
          (heads != shape.heads || kvHeads != shape.kvHeads ||
           headDim != shape.headDim))
        return op.emitOpError()
               << "has another shape than the attention of the other layers";
      shape.heads = heads;
      shape.kvHeads = kvHeads;
      shape.headDim = headDim;
      shape.layers = std::max<int64_t>(shape.layers, attention.getLayer() + 1);
    }
  }
  return success();
}

LogicalResult ForwardLowering::run() {
  if (failed(check()))
    return failure();
  for (auto packed : module.getOps<PackedOp>())
    offsets[packed.getSymName()] = static_cast<int64_t>(packed.getOffset());

  const Type pointer = LLVM::LLVMPointerType::get(module.getContext());
  const Type i32Type = builder.getI32Type();
  builder.setInsertionPoint(planned);
  auto forward = func::FuncOp::create(
      builder, kForwardName,
      builder.getFunctionType({pointer, i32Type, i32Type}, {}));
  Block *entry = forward.addEntryBlock();
  builder.setInsertionPointToStart(entry);
  context = entry->getArgument(0);
  thread = entry->getArgument(1);
  for (ForwardOp op : planned.front().getOps<ForwardOp>())
    if (failed(lower(op)))
      return failure();
  builder.setLoc(planned.getLoc());
  call(functions.trace(), i32(static_cast<int64_t>(opNames.size())));
  func::ReturnOp::create(builder);

  planned.erase();
  module->setAttr(kOpsAttr, builder.getArrayAttr(opNames));
  module->setAttr(kWorkAttr, builder.getArrayAttr(opWork));
  module->setAttr(kOpKernelsAttr, builder.getArrayAttr(opKernels));
  module->setAttr(kResultStrideAttr, builder.getI64IntegerAttr(resultStride));
  return success();
}

DictionaryAttr ForwardLowering::describe(const OpWork &work) {
  SmallVector<NamedAttribute> fields = {
      builder.getNamedAttr("kind", builder.getStringAttr(work.kind))};
  const std::pair<const char *, int64_t> numbers[] = {
      {"weight_bytes", work.weightBytes},
      {"row_bytes", work.tokenBytes},
      {"macs", work.macs},
      {"position_bytes", work.positionBytes},
      {"position_macs", work.positionMacs}};
  for (const auto &[name, number] : numbers)
    if (number)
      fields.push_back(
          builder.getNamedAttr(name, builder.getI64IntegerAttr(number)));
  if (work.wantedRows)
    fields.push_back(
        builder.getNamedAttr("output_rows", builder.getBoolAttr(true)));
  return builder.getDictionaryAttr(fields);
}

LogicalResult ForwardLowering::lower(ForwardOp op) {
  builder.setLoc(op->getLoc());
  const PlanAttr plan = op.getPlanAttr();
  if (plan.getId() != static_cast<int64_t>(opNames.size()))
    return op->emitOpError() << "has plan id " << plan.getId() << " when "
                             << opNames.size() << " is next";
  opNames.push_back(builder.getStringAttr(opName(op, plan.getId())));
  opWork.push_back(describe(workOf(op, module, shape.format)));
  opKernels.push_back(op.getKernelsAttr());
  // lm_head waits where it computes: all threads agree whether it does.
  if (op.getResultPlace() != ResultPlace::CallResult) {
    if (plan.getBarrier())
      call(functions.barrier());
    trace(op);
  }
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case<EmbeddingOp, RopeTableOp, RmsNormOp, QuantizeOp, SwiGluOp, LinearOp,
            LmHeadOp, AppendOp, AttentionOp>(
          [&](auto typed) { return lowerOp(typed); });
}

func::CallOp ForwardLowering::call(const std::string &function,
                                   ArrayRef<Value> arguments,
                                   TypeRange results) {
  SmallVector<Value, 16> all = {context, thread};
  all.append(arguments.begin(), arguments.end());
  return func::CallOp::create(builder, function, results, all);
}

int64_t ForwardLowering::part(ForwardOp op, size_t i) const {
  ArrayAttr parts = op.getPackedAttr();
  return parts && i < parts.size()
             ? offsets.lookup(cast<FlatSymbolRefAttr>(parts[i]).getValue())
             : -1;
}

void ForwardLowering::addOperand(SmallVectorImpl<Value> &arguments,
                                 Value value) {
  const BufferAttr buffer = bufferOf(value);
  add(arguments, {buffer.getOffset()});
  if (isQuantizedActivations(value.getType()))
    add(arguments, {buffer.getScales(), buffer.getSums()});
}

void ForwardLowering::addScalesAndSums(SmallVectorImpl<Value> &arguments,
                                       BufferAttr buffer, ForwardOp op) {
  add(arguments, {buffer.getScales(), buffer.getSums()});
  arguments.push_back(i32(op.getPlanAttr().getId()));
}

LogicalResult ForwardLowering::checkOperand(Operation *op, Value operand) {
  const int64_t stride = bufferOf(operand).getStride();
  if (stride == widthOf(operand))
    return success();
  return op->emitOpError() << "reads rows with a stride of " << stride
                           << " when products need " << widthOf(operand);
}

//===----------------------------------------------------------------------===//
// Rows in, rows out
//===----------------------------------------------------------------------===//

LogicalResult ForwardLowering::lowerOp(EmbeddingOp op) {
  const KernelInfo *embed = kernelOf(op, KernelOp::Embed);
  const BufferAttr out = bufferOf(op.getResult());
  SmallVector<Value> arguments;
  add(arguments,
      {part(op), widthOf(op.getResult()), out.getOffset(), out.getStride()});
  call(functions.embedding(*embed), arguments);
  return success();
}

LogicalResult ForwardLowering::lowerOp(RopeTableOp op) {
  const KernelInfo *table = kernelOf(op, KernelOp::RopeTable);
  const BufferAttr cos = bufferOf(op.getCos()), sin = bufferOf(op.getSin());
  if (cos.getStride() != sin.getStride())
    return op.emitOpError() << "has results of different strides";
  SmallVector<Value> arguments;
  add(arguments, {part(op), widthOf(op.getCos()), cos.getOffset(),
                  sin.getOffset(), cos.getStride()});
  call(functions.ropeTable(*table), arguments);
  return success();
}

LogicalResult ForwardLowering::lowerOp(RmsNormOp op) {
  const KernelInfo *norm = kernelOf(op, op.getKernelUses().front().kind);
  if (op.getHeadDim())
    return op.emitOpError() << "over heads is not fused; run "
                               "qwen-fuse-attention first";
  const BufferAttr in = bufferOf(op.getInput()), out = bufferOf(op.getResult());
  const int64_t k = widthOf(op.getResult());
  LmHeadOp head = op.getLmHead();

  const auto normRows = [&] {
    SmallVector<Value> arguments;
    add(arguments, {in.getOffset(), in.getStride()});
    arguments.push_back(
        arith::ConstantIntOp::create(builder, op.isOverWantedRows(), 1));
    add(arguments, {part(op), k});
    arguments.push_back(f32(op.getEps().convertToDouble()));
    add(arguments, {out.getOffset(), out.getStride()});
    if (isQuantizedActivations(op.getResult().getType()))
      addScalesAndSums(arguments, out, op);
    call(functions.rmsNorm(*norm), arguments);
  };
  if (!head) {
    normRows();
    return success();
  }

  const KernelInfo *hiddenNorm = kernelOf(op, KernelOp::RmsNormF32);
  const KernelInfo *finite = kernelOf(head, KernelOp::CheckFinite);
  Value wanted =
      call(functions.wantHidden(), {}, {builder.getI1Type()}).getResult(0);
  auto branch = scf::IfOp::create(builder, wanted, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(branch.thenBlock());
  SmallVector<Value> arguments;
  add(arguments, {in.getOffset(), in.getStride(), part(op), k});
  arguments.push_back(f32(op.getEps().convertToDouble()));
  arguments.push_back(i32(op.getPlanAttr().getId()));
  call(functions.hiddenRows(*hiddenNorm, *finite), arguments);
  builder.setInsertionPointToStart(branch.elseBlock());
  normRows();
  return success();
}

LogicalResult ForwardLowering::lowerOp(QuantizeOp op) {
  const KernelInfo *quantize = kernelOf(op, KernelOp::QuantizeQ8);
  const BufferAttr in = bufferOf(op.getInput()), out = bufferOf(op.getResult());
  SmallVector<Value> arguments;
  add(arguments, {in.getOffset(), in.getStride(), widthOf(op.getResult()),
                  out.getOffset(), out.getStride()});
  addScalesAndSums(arguments, out, op);
  call(functions.quantize(*quantize), arguments);
  return success();
}

LogicalResult ForwardLowering::lowerOp(SwiGluOp op) {
  const KernelInfo *swiglu = kernelOf(op, op.getKernelUses().front().kind);
  const BufferAttr gate = bufferOf(op.getGate()), up = bufferOf(op.getUp()),
                   out = bufferOf(op.getResult());
  if (gate.getStride() != up.getStride())
    return op.emitOpError() << "reads rows of different strides";
  SmallVector<Value> arguments;
  add(arguments, {gate.getOffset(), up.getOffset(), gate.getStride(),
                  widthOf(op.getResult()), out.getOffset(), out.getStride()});
  if (isQuantizedActivations(op.getResult().getType()))
    addScalesAndSums(arguments, out, op);
  call(functions.swiGlu(*swiglu), arguments);
  return success();
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

LogicalResult ForwardLowering::lowerOp(LinearOp op) {
  const KernelOp kind = op.getKernelUses().front().kind;
  const KernelInfo *gemv = kernelOf(op, kind);
  const KernelInfo *gemm = kernelOf(op, kind, /*gemm=*/true);
  if (failed(checkOperand(op, op.getInput())))
    return failure();
  const BufferAttr out = bufferOf(op.getResult(0));
  int64_t n = 0;
  for (Value result : op.getResults()) {
    if (bufferOf(result).getOffset() != out.getOffset() + n * 4 ||
        bufferOf(result).getStride() != out.getStride())
      return op.emitOpError() << "has results that do not lie side by side";
    n += widthOf(result);
  }
  int64_t residual = -1;
  if (Value rows = op.getResidual()) {
    if (bufferOf(rows).getStride() != out.getStride())
      return op.emitOpError()
             << "has a residual with a stride of " << bufferOf(rows).getStride()
             << " when " << out.getStride() << " is needed";
    residual = bufferOf(rows).getOffset();
  }
  SmallVector<Value> arguments;
  addOperand(arguments, op.getInput());
  add(arguments, {part(op), widthOf(op.getInput()), ceilDiv(n, kPanelOutputs),
                  part(op, 1), residual, out.getOffset(), out.getStride()});
  arguments.push_back(i32(op.getPlanAttr().getId()));
  call(functions.linear(*gemv, gemm), arguments);
  return success();
}

LogicalResult ForwardLowering::lowerOp(LmHeadOp op) {
  const KernelOp kind = op.getKernelUses().front().kind;
  const KernelInfo *gemv = kernelOf(op, kind);
  const KernelInfo *gemm = kernelOf(op, kind, /*gemm=*/true);
  const KernelInfo *finite = kernelOf(op, KernelOp::CheckFinite);
  if (failed(checkOperand(op, op.getInput())))
    return failure();
  if (!op.getInput().getDefiningOp<RmsNormOp>())
    return op.emitOpError() << "needs the rows of a norm";
  resultStride = bufferOf(op.getResult()).getStride();

  Value wanted =
      call(functions.wantHidden(), {}, {builder.getI1Type()}).getResult(0);
  Value one = arith::ConstantIntOp::create(builder, 1, 1);
  Value logits = arith::XOrIOp::create(builder, wanted, one);
  auto branch = scf::IfOp::create(builder, logits, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(branch.thenBlock());
  if (op.getPlanAttr().getBarrier())
    call(functions.barrier());
  trace(op);
  SmallVector<Value> arguments;
  addOperand(arguments, op.getInput());
  add(arguments,
      {part(op), widthOf(op.getInput()),
       ceilDiv(widthOf(op.getResult()), kPanelOutputs), resultStride});
  arguments.push_back(i32(op.getPlanAttr().getId()));
  call(functions.lmHead(*gemv, gemm, *finite), arguments);
  return success();
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

LogicalResult ForwardLowering::lowerOp(AppendOp op) {
  const KernelInfo *rope = kernelOf(op, op.getKernelUses().front().kind);
  const KernelInfo *appendK = kernelOf(op, KernelOp::AppendK);
  const KernelInfo *appendV = kernelOf(op, KernelOp::AppendV);
  const BufferAttr keys = bufferOf(op.getKeys()),
                   values = bufferOf(op.getValues()),
                   cos = bufferOf(op.getCos()), sin = bufferOf(op.getSin());
  SmallVector<Value> arguments;
  add(arguments, {keys.getOffset(), keys.getStride(), values.getOffset(),
                  values.getStride(), cos.getOffset(), sin.getOffset(),
                  cos.getStride(), part(op)});
  arguments.push_back(
      f32(op.getEpsAttr() ? op.getEpsAttr().getValueAsDouble() : 0));
  add(arguments, {static_cast<int64_t>(op.getLayer()) * shape.layerBytes()});
  arguments.push_back(i32(op.getPlanAttr().getId()));
  call(functions.append(shape, *rope, *appendK, *appendV), arguments);
  return success();
}

LogicalResult ForwardLowering::lowerOp(AttentionOp op) {
  const KernelInfo *rope = kernelOf(op, op.getKernelUses().front().kind);
  const KernelInfo *scores = kernelOf(op, KernelOp::AttentionScores);
  const KernelInfo *values = kernelOf(op, KernelOp::AttentionValues);
  const KernelInfo *softmax = kernelOf(op, KernelOp::SoftmaxPage);
  const KernelInfo *merge = kernelOf(op, KernelOp::MergePage);
  const KernelInfo *finish = kernelOf(op, KernelOp::FinishAttention);
  const BufferAttr queries = bufferOf(op.getQueries()),
                   cos = bufferOf(op.getCos()), sin = bufferOf(op.getSin()),
                   out = bufferOf(op.getResult());
  SmallVector<Value> arguments;
  add(arguments, {queries.getOffset(), queries.getStride(), cos.getOffset(),
                  sin.getOffset(), cos.getStride(), part(op)});
  arguments.push_back(
      f32(op.getEpsAttr() ? op.getEpsAttr().getValueAsDouble() : 0));
  add(arguments, {static_cast<int64_t>(op.getLayer()) * shape.layerBytes(),
                  out.getOffset(), out.getStride()});
  arguments.push_back(i32(op.getPlanAttr().getId()));
  call(functions.attention(shape, *rope, *scores, *values, *softmax, *merge,
                           *finish),
       arguments);
  return success();
}

//===----------------------------------------------------------------------===//
// Interface
//===----------------------------------------------------------------------===//

std::vector<std::string> qwen::calledKernels(ModuleOp module) {
  std::vector<std::string> names;
  for (const KernelInfo &kernel : kernelTable())
    if (auto function =
            module.lookupSymbol<func::FuncOp>(StringRef(kernel.name)))
      if (function.isDeclaration())
        names.emplace_back(kernel.name);
  return names;
}
