//===- HalideAdapter.cpp - Halide kernels behind C signatures -------------===//

#include "qwen/CodeGen/Backend/HalideAdapter.h"

#include "qwen/ABI/Error.h"
#include "qwen/CodeGen/Halide/HalideKernels.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/Bitcode/BitcodeReader.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace qwen;
using llvm::Value;

/// IR types of the C types that the signatures of KernelOps.def use.
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

namespace {
/// Builds the body of an adapter: the arguments of Halide's function in order,
/// then the call.
class Body {
public:
  Body(const KernelInfo &kernel, llvm::Function *adapter,
       llvm::Function *callee)
      : kernel(kernel),
        builder(llvm::BasicBlock::Create(adapter->getContext(), "", adapter)),
        adapter(adapter), callee(callee),
        // HalideRuntime.h: halide_dimension_t is min, extent, stride, flags;
        // halide_buffer_t is device, device_interface, host, flags, type,
        // dimensions, dim, padding.
        dimensionType(llvm::ArrayType::get(builder.getInt32Ty(), 4)),
        bufferType(llvm::StructType::get(
            adapter->getContext(),
            {builder.getInt64Ty(), builder.getPtrTy(), builder.getPtrTy(),
             builder.getInt64Ty(), builder.getInt32Ty(), builder.getInt32Ty(),
             builder.getPtrTy(), builder.getPtrTy()})) {}

  Value *argument(unsigned i) { return adapter->getArg(i); }
  unsigned argumentCount() const {
    return static_cast<unsigned>(adapter->arg_size());
  }
  bool returnsFlag() const { return adapter->getReturnType()->isIntegerTy(); }
  /// The index of the first size.
  unsigned firstSize() const {
    return llvm::find_if(adapter->args(),
                         [](const llvm::Argument &argument) {
                           return argument.getType()->isIntegerTy(64);
                         })
        ->getArgNo();
  }

  /// An int64 as Halide's int32.
  Value *narrow(Value *value) {
    return builder.CreateTrunc(value, builder.getInt32Ty());
  }
  /// A size of the C signature as Halide's int32; divided, it counts groups.
  Value *size(unsigned i, int64_t divisor = 1) {
    return narrow(builder.CreateUDiv(argument(i), builder.getInt64(divisor)));
  }
  /// A size of the C signature in units of `unit`, rounded up.
  Value *ceilSize(unsigned i, int64_t unit) {
    return builder.CreateUDiv(
        builder.CreateAdd(argument(i), builder.getInt64(unit - 1)),
        builder.getInt64(unit));
  }
  Value *constant(int64_t value) {
    return builder.getInt32(static_cast<uint32_t>(value));
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

  void vector(Value *host, Value *extent, int64_t stride = 1) {
    buffer(host, {{extent, constant(stride)}});
  }
  /// `count` vectors of `length` elements without gaps.
  void matrix(Value *host, Value *length, Value *count) {
    buffer(host, {{length, constant(1)}, {count, length}});
  }

  /// The result that the C function returns: a single value.
  void flag() {
    result = builder.CreateAlloca(builder.getInt32Ty());
    buffer(result, {});
  }

  void finish() {
    builder.CreateCall(callee, arguments);
    if (result)
      builder.CreateRet(builder.CreateLoad(builder.getInt32Ty(), result));
    else
      builder.CreateRetVoid();
  }

  const KernelInfo &kernel;
  llvm::IRBuilder<> builder;

private:
  llvm::Function *adapter;
  llvm::Function *callee;
  llvm::Type *dimensionType;
  llvm::StructType *bufferType;
  llvm::SmallVector<Value *> arguments;
  Value *result = nullptr;
};

} // namespace

/// Passes the C arguments on, as lib/CodeGen/Halide expects them.
template <KernelOp Op> static void passArguments(Body &) {
  static_assert(infoOf(Op).provider == KernelProvider::MLIR);
  llvm_unreachable("halideBitcode has refused the kernel");
}

/// Passes vectors of one size.
static void passVectors(Body &body) {
  const unsigned size = body.firstSize();
  for (unsigned i = 0; i < body.argumentCount(); ++i)
    if (body.argument(i)->getType()->isPointerTy())
      body.vector(body.argument(i), body.size(size));
    else if (i != size)
      body.scalar(body.argument(i));
}

template <> void passArguments<KernelOp::RopeTable>(Body &body) {
  passVectors(body);
}
template <> void passArguments<KernelOp::SwiGluF32>(Body &body) {
  passVectors(body);
}
template <> void passArguments<KernelOp::FinishAttention>(Body &body) {
  passVectors(body);
}

template <> void passArguments<KernelOp::Embed>(Body &body) {
  // Offsets of panels do not fit Halide's int32, those within a panel do.
  llvm::IRBuilder<> &builder = body.builder;
  Value *weights = body.argument(0), *k = body.argument(2);
  Value *id = builder.CreateZExt(body.argument(1), builder.getInt64Ty());
  Value *panel = builder.CreateUDiv(id, builder.getInt64(kPanelOutputs));
  Value *output = builder.CreateURem(id, builder.getInt64(kPanelOutputs));
  const WeightFormat format = *weightFormat(body.kernel.format);
  const int64_t bits = codingOf(format).bits;
  const int64_t groupBytes = panelGroupBytes(format);
  Value *panelSize =
      builder.CreateMul(builder.CreateUDiv(k, builder.getInt64(kGroup)),
                        builder.getInt64(groupBytes));
  Value *blocks = nullptr;
  if (isQuantized(format)) {
    blocks = body.ceilSize(2, weightBlock(format));
    panelSize = builder.CreateAdd(
        panelSize,
        builder.CreateMul(blocks, builder.getInt64(panelHeaderBytes(format))));
    blocks = body.narrow(blocks);
  }
  Value *base =
      builder.CreatePtrAdd(weights, builder.CreateMul(panel, panelSize));
  const auto at = [&](int64_t begin, int64_t outputBytes) {
    Value *offset = builder.CreateMul(output, builder.getInt64(outputBytes));
    return builder.CreatePtrAdd(
        base, builder.CreateAdd(offset, builder.getInt64(begin)));
  };
  if (!isQuantized(format)) {
    body.vector(at(0, bits / 8), body.size(2), kPanelOutputs);
    body.vector(body.argument(3), body.size(2));
    return;
  }
  Value *one = body.constant(1), *four = body.constant(4);
  // A group has a chunk for each bit of a code.
  Value *chunks = body.constant(bits);
  const int64_t blockBytes = panelBlockBytes(format);
  body.vector(at(0, 2), blocks, blockBytes / 2);
  body.buffer(
      at(panelHeaderBytes(format), 4),
      {{four, one},
       {chunks, body.constant(4 * kPanelOutputs)},
       {body.constant(weightBlock(format) / kGroup), body.constant(groupBytes)},
       {blocks, body.constant(blockBytes)}});
  body.buffer(body.argument(3),
              {{four, one},
               {chunks, four},
               {body.constant(kGroup / (4 * bits)), body.constant(16)},
               {body.size(2, kGroup), body.constant(kGroup)}});
}

/// Passes activations in groups: the inputs, the number of groups, eps where
/// there is one, the result, which the quantizers write as q, d, sums and flag.
static void passGroups(Body &body) {
  const unsigned k = body.firstSize();
  Value *groups = body.size(k, kGroup), *group = body.constant(kGroup);
  unsigned next = 0;
  for (; next < k; ++next)
    body.matrix(body.argument(next), group, groups);
  body.scalar(groups);
  if (body.argument(++next)->getType()->isFloatTy())
    body.scalar(body.argument(next++));
  body.matrix(body.argument(next), group, groups);
  if (!body.returnsFlag())
    return;
  body.vector(body.argument(next + 1),
              body.narrow(body.ceilSize(k, kActivationBlock)));
  body.vector(body.argument(next + 2), groups);
  body.flag();
}
template <> void passArguments<KernelOp::RmsNormF32>(Body &body) {
  passGroups(body);
}
template <> void passArguments<KernelOp::RmsNormQ8>(Body &body) {
  passGroups(body);
}
template <> void passArguments<KernelOp::QuantizeQ8>(Body &body) {
  passGroups(body);
}
template <> void passArguments<KernelOp::SwiGluQ8>(Body &body) {
  passGroups(body);
}

/// Passes a head of two halves, and with `norm` the norm's weights and eps.
static void passRotation(Body &body, bool norm) {
  const unsigned size = body.firstSize();
  Value *half = body.size(size);
  Value *whole = body.builder.CreateMul(half, body.constant(2));
  body.vector(body.argument(0), whole);
  if (norm)
    body.vector(body.argument(1), whole);
  body.vector(body.argument(size - 2), half);
  body.vector(body.argument(size - 1), half);
  body.scalar(half);
  if (norm)
    body.scalar(body.argument(size + 1));
  body.matrix(body.argument(body.argumentCount() - 1), half, body.constant(2));
}
template <> void passArguments<KernelOp::Rope>(Body &body) {
  passRotation(body, /*norm=*/false);
}
template <> void passArguments<KernelOp::NormRope>(Body &body) {
  passRotation(body, /*norm=*/true);
}

static void passAppend(Body &body, int64_t stride) {
  body.vector(body.argument(0), body.size(1));
  body.scalar(body.size(1));
  body.vector(body.argument(2), body.size(1), stride);
  body.flag();
}
template <> void passArguments<KernelOp::AppendK>(Body &body) {
  passAppend(body, kPageTokens);
}
template <> void passArguments<KernelOp::AppendV>(Body &body) {
  passAppend(body, 1);
}

template <> void passArguments<KernelOp::SoftmaxPage>(Body &body) {
  Value *slots = body.constant(kPageTokens);
  body.matrix(body.argument(0), slots, body.size(1));
  body.scalar(body.size(2));
  body.matrix(body.argument(3), slots, body.size(1));
  body.vector(body.argument(4), body.size(1));
  body.vector(body.argument(5), body.size(1));
}

template <> void passArguments<KernelOp::MergePage>(Body &body) {
  llvm::IRBuilder<> &builder = body.builder;
  Value *queries = body.size(2), *headDim = body.size(3);
  Value *bytes = builder.CreateMul(body.ceilSize(2, kStateQueries),
                                   builder.getInt64(4 * kStateQueries));
  for (unsigned i : {0, 1, 4}) {
    Value *m = body.argument(i), *l = builder.CreatePtrAdd(m, bytes);
    body.vector(m, queries);
    body.vector(l, queries);
    body.matrix(builder.CreatePtrAdd(l, bytes), headDim, queries);
  }
}

template <> void passArguments<KernelOp::CheckFinite>(Body &body) {
  body.vector(body.argument(0), body.size(1));
  body.scalar(body.size(1));
  body.flag();
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

  visitKernelOp(kernel.op, [&]<KernelOp Op>() {
    llvm::Function *adapter = llvm::Function::Create(
        irSignature(static_cast<KernelFn<Op> *>(nullptr), context),
        llvm::GlobalValue::ExternalLinkage, name, module.get());
    adapter->addFnAttr(llvm::Attribute::NoUnwind);
    Body adapted(kernel, adapter, body);
    passArguments<Op>(adapted);
    adapted.finish();
  });
  return module;
}
