//===- HalideAdapter.cpp - Halide kernels behind C signatures -------------===//

#include "qwen/CodeGen/Backend/HalideAdapter.h"

#include "qwen/ABI/Error.h"
#include "qwen/ABI/KernelABI.h"
#include "qwen/CodeGen/Halide/HalideKernels.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/Bitcode/BitcodeReader.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace qwen;
using llvm::Value;

/// IR types of the C types that the signatures of KernelABI.h use.
template <typename T> static llvm::Type *irType(llvm::LLVMContext &context) {
  if constexpr (std::is_void_v<T>)
    return llvm::Type::getVoidTy(context);
  else if constexpr (std::is_pointer_v<T>)
    return llvm::PointerType::getUnqual(context);
  else if constexpr (std::is_same_v<T, float>)
    return llvm::Type::getFloatTy(context);
  else
    return llvm::Type::getIntNTy(context, 8 * sizeof(T));
}

template <typename Result, typename... Parameters>
static llvm::FunctionType *irSignature(Result (*)(Parameters...),
                                       llvm::LLVMContext &context) {
  return llvm::FunctionType::get(irType<Result>(context),
                                 {irType<Parameters>(context)...}, false);
}

template <typename Fn>
static llvm::FunctionType *irSignature(llvm::LLVMContext &context) {
  return irSignature(static_cast<Fn *>(nullptr), context);
}

/// The signature that KernelABI.h gives to `op`.
static llvm::FunctionType *signature(KernelOp op, llvm::LLVMContext &context) {
  switch (op) {
  case KernelOp::Embed:
    return irSignature<EmbedFn>(context);
  case KernelOp::RopeTable:
    return irSignature<RopeTableFn>(context);
  case KernelOp::RmsNormF32:
    return irSignature<RmsNormF32Fn>(context);
  case KernelOp::RmsNormQ8:
    return irSignature<RmsNormQ8Fn>(context);
  case KernelOp::QuantizeQ8:
    return irSignature<QuantizeQ8Fn>(context);
  case KernelOp::SwiGluF32:
    return irSignature<SwiGluF32Fn>(context);
  case KernelOp::SwiGluQ8:
    return irSignature<SwiGluQ8Fn>(context);
  case KernelOp::Rope:
    return irSignature<RopeFn>(context);
  case KernelOp::NormRope:
    return irSignature<NormRopeFn>(context);
  case KernelOp::AppendK:
  case KernelOp::AppendV:
    return irSignature<AppendKFn>(context);
  case KernelOp::SoftmaxPage:
    return irSignature<SoftmaxPageFn>(context);
  case KernelOp::MergePage:
    return irSignature<MergePageFn>(context);
  case KernelOp::FinishAttention:
    return irSignature<FinishAttentionFn>(context);
  case KernelOp::CheckFinite:
    return irSignature<CheckFiniteFn>(context);
  case KernelOp::LinearF32:
  case KernelOp::LinearQ8:
  case KernelOp::AttentionScores:
  case KernelOp::AttentionValues:
    break;
  }
  llvm_unreachable("halideBitcode has refused the kernel");
}

namespace {
/// Builds the body of an adapter: the arguments of Halide's function in order,
/// then the call.
class Body {
public:
  Body(llvm::Function *adapter, llvm::Function *kernel)
      : adapter(adapter), kernel(kernel), context(adapter->getContext()),
        builder(llvm::BasicBlock::Create(context, "", adapter)),
        // HalideRuntime.h: halide_dimension_t is min, extent, stride, flags;
        // halide_buffer_t is device, device_interface, host, flags, type,
        // dimensions, dim, padding.
        dimensionType(llvm::ArrayType::get(builder.getInt32Ty(), 4)),
        bufferType(llvm::StructType::get(
            context,
            {builder.getInt64Ty(), builder.getPtrTy(), builder.getPtrTy(),
             builder.getInt64Ty(), builder.getInt32Ty(), builder.getInt32Ty(),
             builder.getPtrTy(), builder.getPtrTy()})) {}

  Value *argument(unsigned i) { return adapter->getArg(i); }

  /// A size of the C signature as Halide's int32; divided, it counts groups.
  Value *size(unsigned i, int64_t divisor = 1) {
    Value *quotient =
        builder.CreateUDiv(argument(i), builder.getInt64(divisor));
    return builder.CreateTrunc(quotient, builder.getInt32Ty());
  }

  void scalar(Value *value) { arguments.push_back(value); }

  /// Strides are in elements. Compiled without assertions, Halide's code reads
  /// nothing but host and dim; the rest stays unset.
  struct Dimension {
    Value *extent;
    Value *stride;
  };
  void buffer(Value *host, llvm::ArrayRef<Dimension> dimensions) {
    Value *dims = builder.CreateAlloca(
        llvm::ArrayType::get(dimensionType, dimensions.size()));
    for (auto [i, dimension] : llvm::enumerate(dimensions)) {
      const std::array<Value *, 4> fields = {builder.getInt32(0),
                                             dimension.extent, dimension.stride,
                                             builder.getInt32(0)};
      for (auto [field, value] : llvm::enumerate(fields))
        builder.CreateStore(
            value,
            builder.CreateConstGEP2_32(
                dimensionType,
                builder.CreateConstGEP1_32(dimensionType, dims, i), 0, field));
    }
    Value *buffer = builder.CreateAlloca(bufferType);
    builder.CreateStore(host, builder.CreateStructGEP(bufferType, buffer, 2));
    builder.CreateStore(dims, builder.CreateStructGEP(bufferType, buffer, 6));
    arguments.push_back(buffer);
  }

  void vector(Value *host, Value *extent, int32_t stride = 1) {
    buffer(host, {{extent, builder.getInt32(stride)}});
  }

  /// A row in groups of 32.
  void grouped(Value *host, Value *groups) {
    Value *group = builder.getInt32(kGroup);
    buffer(host, {{group, builder.getInt32(1)}, {groups, group}});
  }

  /// The outputs of a quantizer, from C argument `first` on, for a kernel whose
  /// size is argument `k`.
  void quantized(unsigned first, unsigned k) {
    Value *groups = size(k, kGroup);
    grouped(argument(first), groups);
    Value *blocks = builder.CreateTrunc(
        builder.CreateUDiv(
            builder.CreateAdd(argument(k),
                              builder.getInt64(kActivationBlock - 1)),
            builder.getInt64(kActivationBlock)),
        builder.getInt32Ty());
    vector(argument(first + 1), blocks);
    vector(argument(first + 2), groups);
    flag();
  }

  /// A single value.
  void cell(Value *host) { buffer(host, {}); }

  /// The output that the C function returns.
  void flag() {
    result = builder.CreateAlloca(builder.getInt32Ty());
    cell(result);
  }

  void finish() {
    builder.CreateCall(kernel, arguments);
    if (result)
      builder.CreateRet(builder.CreateLoad(builder.getInt32Ty(), result));
    else
      builder.CreateRetVoid();
  }

  llvm::Function *adapter;
  llvm::Function *kernel;
  llvm::LLVMContext &context;
  llvm::IRBuilder<> builder;

private:
  llvm::Type *dimensionType;
  llvm::StructType *bufferType;
  llvm::SmallVector<Value *> arguments;
  Value *result = nullptr;
};

} // namespace

/// Passes the C arguments on, as lib/CodeGen/Halide expects them.
static void buildBody(Body &body, const KernelInfo &kernel) {
  const auto argument = [&](unsigned i) { return body.argument(i); };
  llvm::IRBuilder<> &builder = body.builder;
  switch (kernel.op) {
  case KernelOp::Embed: {
    // Offsets of rows do not fit Halide's int32, those within a panel do.
    Value *weights = argument(0), *k = argument(2);
    Value *id = builder.CreateZExt(argument(1), builder.getInt64Ty());
    Value *panel = builder.CreateUDiv(id, builder.getInt64(kPanelOutputs));
    Value *rowOfPanel = builder.CreateURem(id, builder.getInt64(kPanelOutputs));
    const WeightFormat format = *weightFormat(kernel.format);
    const bool quantized = isQuantized(format);
    Value *panelSize =
        builder.CreateMul(builder.CreateUDiv(k, builder.getInt64(kGroup)),
                          builder.getInt64(panelGroupBytes(format)));
    Value *blocks = nullptr;
    if (quantized) {
      const int64_t size = weightBlock(format);
      blocks =
          builder.CreateUDiv(builder.CreateAdd(k, builder.getInt64(size - 1)),
                             builder.getInt64(size));
      panelSize = builder.CreateAdd(
          panelSize, builder.CreateMul(
                         blocks, builder.getInt64(panelHeaderBytes(format))));
      blocks = builder.CreateTrunc(blocks, builder.getInt32Ty());
    }
    Value *base =
        builder.CreatePtrAdd(weights, builder.CreateMul(panel, panelSize));
    const auto at = [&](int64_t begin, int64_t bytesPerRow) {
      Value *offset =
          builder.CreateMul(rowOfPanel, builder.getInt64(bytesPerRow));
      return builder.CreatePtrAdd(
          base, builder.CreateAdd(offset, builder.getInt64(begin)));
    };
    const auto constant = [&](int64_t value) {
      return builder.getInt32(static_cast<uint32_t>(value));
    };
    if (!quantized) {
      body.vector(at(0, panelGroupBytes(format) / (kGroup * kPanelOutputs)),
                  body.size(2), kPanelOutputs);
      body.vector(argument(3), body.size(2));
      break;
    }
    const int64_t groupBytes = panelGroupBytes(format);
    const int64_t chunks = groupBytes / (4 * kPanelOutputs);
    body.vector(at(0, 2), blocks, panelBlockBytes(format) / 2);
    body.buffer(at(panelHeaderBytes(format), 4),
                {{constant(4), constant(1)},
                 {constant(chunks), constant(4 * kPanelOutputs)},
                 {constant(weightBlock(format) / kGroup), constant(groupBytes)},
                 {blocks, constant(panelBlockBytes(format))}});
    body.buffer(argument(3), {{constant(4), constant(1)},
                              {constant(chunks), constant(4)},
                              {constant(kGroup / (4 * chunks)), constant(16)},
                              {body.size(2, kGroup), constant(kGroup)}});
    break;
  }
  case KernelOp::RopeTable:
    body.scalar(argument(0));
    for (unsigned i : {1, 3, 4})
      body.vector(argument(i), body.size(2));
    break;
  case KernelOp::RmsNormF32:
  case KernelOp::RmsNormQ8: {
    Value *groups = body.size(2, kGroup);
    body.grouped(argument(0), groups);
    body.grouped(argument(1), groups);
    body.scalar(groups);
    body.scalar(argument(3));
    if (kernel.op == KernelOp::RmsNormF32)
      body.grouped(argument(4), groups);
    else
      body.quantized(4, 2);
    break;
  }
  case KernelOp::QuantizeQ8: {
    Value *groups = body.size(1, kGroup);
    body.grouped(argument(0), groups);
    body.scalar(groups);
    body.quantized(2, 1);
    break;
  }
  case KernelOp::SwiGluF32:
    for (unsigned i : {0, 1, 3})
      body.vector(argument(i), body.size(2));
    break;
  case KernelOp::SwiGluQ8: {
    Value *groups = body.size(2, kGroup);
    body.grouped(argument(0), groups);
    body.grouped(argument(1), groups);
    body.scalar(groups);
    body.quantized(3, 2);
    break;
  }
  case KernelOp::Rope:
  case KernelOp::NormRope: {
    const bool norm = kernel.op == KernelOp::NormRope;
    const unsigned halfIndex = norm ? 4 : 3;
    Value *half = body.size(halfIndex);
    Value *whole = builder.CreateMul(half, builder.getInt32(2));
    body.vector(argument(0), whole);
    if (norm)
      body.vector(argument(1), whole);
    body.vector(argument(halfIndex - 2), half);
    body.vector(argument(halfIndex - 1), half);
    body.scalar(half);
    if (norm)
      body.scalar(argument(5));
    body.buffer(argument(norm ? 6 : 4),
                {{half, builder.getInt32(1)}, {builder.getInt32(2), half}});
    break;
  }
  case KernelOp::AppendK:
  case KernelOp::AppendV:
    body.vector(argument(0), body.size(1));
    body.scalar(body.size(1));
    body.vector(argument(2), body.size(1),
                kernel.op == KernelOp::AppendK ? kPageTokens : 1);
    body.flag();
    break;
  case KernelOp::SoftmaxPage: {
    Value *slots = builder.getInt32(kPageTokens);
    const auto pages = [&](Value *host) {
      body.buffer(host, {{slots, builder.getInt32(1)}, {body.size(1), slots}});
    };
    pages(argument(0));
    body.scalar(body.size(2));
    pages(argument(3));
    body.vector(argument(4), body.size(1));
    body.vector(argument(5), body.size(1));
    break;
  }
  case KernelOp::MergePage: {
    Value *rows = body.size(2), *headDim = body.size(3);
    Value *bytes = builder.CreateMul(
        builder.CreateUDiv(
            builder.CreateAdd(argument(2), builder.getInt64(kStateQueries - 1)),
            builder.getInt64(kStateQueries)),
        builder.getInt64(4 * kStateQueries));
    const auto state = [&](Value *m) {
      Value *l = builder.CreatePtrAdd(m, bytes);
      body.vector(m, rows);
      body.vector(l, rows);
      body.buffer(builder.CreatePtrAdd(l, bytes),
                  {{headDim, builder.getInt32(1)}, {rows, headDim}});
    };
    for (unsigned i : {0, 1, 4})
      state(argument(i));
    break;
  }
  case KernelOp::FinishAttention:
    body.vector(argument(0), body.size(2));
    body.scalar(argument(1));
    body.vector(argument(3), body.size(2));
    break;
  case KernelOp::CheckFinite:
    body.vector(argument(0), body.size(1));
    body.scalar(body.size(1));
    body.flag();
    break;
  case KernelOp::LinearF32:
  case KernelOp::LinearQ8:
  case KernelOp::AttentionScores:
  case KernelOp::AttentionValues:
    llvm_unreachable("halideBitcode has refused the kernel");
  }
  body.finish();
}

/// Makes Halide's function fit for inlining into other code.
static void cleanKernel(llvm::Function &kernel) {
  kernel.setLinkage(llvm::GlobalValue::InternalLinkage);
  kernel.addFnAttr(llvm::Attribute::AlwaysInline);
  const llvm::DataLayout &layout = kernel.getDataLayout();
  for (llvm::Instruction &instruction : llvm::instructions(kernel)) {
    // Halide's alias classes are the names of its buffers, and two kernels call
    // the same memory differently.
    instruction.setMetadata(llvm::LLVMContext::MD_tbaa, nullptr);
    // Halide takes outputs that it reads again to be aligned to a vector. The
    // ABI promises no more than what an element needs.
    Value *pointer = llvm::getLoadStorePointerOperand(&instruction);
    if (!pointer ||
        llvm::isa<llvm::AllocaInst>(llvm::getUnderlyingObject(pointer, 0)))
      continue;
    const llvm::Align element = layout.getABITypeAlign(
        llvm::getLoadStoreType(&instruction)->getScalarType());
    const llvm::Align least =
        std::min(element, llvm::getLoadStoreAlignment(&instruction));
    if (auto *load = llvm::dyn_cast<llvm::LoadInst>(&instruction))
      load->setAlignment(least);
    else
      llvm::cast<llvm::StoreInst>(instruction).setAlignment(least);
  }
  // Names of values carry Halide's counters, which depend on what it compiled
  // before.
  for (llvm::Argument &argument : kernel.args())
    argument.setName("");
  for (llvm::BasicBlock &block : kernel) {
    block.setName("");
    for (llvm::Instruction &instruction : block)
      instruction.setName("");
  }
}

std::unique_ptr<llvm::Module>
qwen::emitHalideKernel(const KernelInfo &kernel, llvm::LLVMContext &context) {
  const std::string name(kernel.name);
  const std::string bitcode = halideBitcode(kernel);
  llvm::Expected<std::unique_ptr<llvm::Module>> parsed =
      llvm::parseBitcodeFile(llvm::MemoryBufferRef(bitcode, name), context);
  if (!parsed)
    throw Error("kernel '" + name + "': llvm cannot read halide's bitcode: " +
                llvm::toString(parsed.takeError()));
  std::unique_ptr<llvm::Module> module = std::move(*parsed);
  llvm::Function *body = module->getFunction(halideFunctionName(kernel));
  if (!body || body->isDeclaration())
    throw Error("kernel '" + name + "': halide's bitcode does not define '" +
                halideFunctionName(kernel) + "'");

  cleanKernel(*body);
  while (!module->named_metadata_empty())
    module->eraseNamedMetadata(&*module->named_metadata_begin());
  module->setModuleIdentifier(name);
  module->setSourceFileName(name);

  llvm::Function *adapter = llvm::Function::Create(
      signature(kernel.op, context), llvm::GlobalValue::ExternalLinkage, name,
      module.get());
  adapter->addFnAttr(llvm::Attribute::NoUnwind);
  Body adapted(adapter, body);
  buildBody(adapted, kernel);
  return module;
}
