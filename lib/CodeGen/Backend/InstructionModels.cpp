//===- InstructionModels.cpp - Instructions in plain IR -------------------===//

#include "qwen/CodeGen/Backend/InstructionModels.h"
#include "AmxCalls.h"
#include "qwen/CodeGen/Backend/Backend.h"
#include "qwen/Support/Error.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/IntrinsicsX86.h"
#include "llvm/IR/Module.h"

using namespace qwen;
using llvm::Value;

static constexpr char kFeatures[] = "target-features";

/// vpdpbusd: adds to each word of `sums` the products of four unsigned bytes of
/// `w` and four signed bytes of `x`, without saturation.
static Value *dotBytes(llvm::IRBuilder<> &builder, Value *sums, Value *w,
                       Value *x) {
  llvm::Type *type = sums->getType();
  w = builder.CreateBitCast(w, type);
  x = builder.CreateBitCast(x, type);
  for (uint64_t bit = 0; bit < 32; bit += 8) {
    Value *unsignedByte =
        builder.CreateAnd(builder.CreateLShr(w, bit), uint64_t{0xff});
    Value *signedByte = builder.CreateAShr(builder.CreateShl(x, 24 - bit), 24);
    sums = builder.CreateAdd(sums, builder.CreateMul(unsignedByte, signedByte));
  }
  return sums;
}

/// vpdpwssd: adds to each word of `sums` the products of two signed halves of
/// `w` and `x`, without saturation.
static Value *dotHalves(llvm::IRBuilder<> &builder, Value *sums, Value *w,
                        Value *x) {
  llvm::Type *type = sums->getType();
  w = builder.CreateBitCast(w, type);
  x = builder.CreateBitCast(x, type);
  for (uint64_t left : {16, 0}) {
    auto half = [&](Value *words) {
      return builder.CreateAShr(builder.CreateShl(words, left), 16);
    };
    sums = builder.CreateAdd(sums, builder.CreateMul(half(w), half(x)));
  }
  return sums;
}

/// vpshufb: each byte of `indices` is a place in the same 16 bytes of `table`;
/// a negative one gives 0.
static Value *lookUpBytes(llvm::IRBuilder<> &builder, Value *table,
                          Value *indices) {
  llvm::Type *type = table->getType();
  Value *low = builder.CreateAnd(indices, uint64_t{15});
  Value *result = llvm::Constant::getNullValue(type);
  for (int place = 0; place < 16; ++place) {
    llvm::SmallVector<int> lanes;
    for (int i = 0;
         i < int(llvm::cast<llvm::FixedVectorType>(type)->getNumElements());
         ++i)
      lanes.push_back(i / 16 * 16 + place);
    Value *isHere = builder.CreateICmpEQ(
        low, llvm::ConstantInt::get(type, uint64_t(place)));
    result = builder.CreateSelect(
        isHere, builder.CreateShuffleVector(table, lanes), result);
  }
  Value *zero = llvm::Constant::getNullValue(type);
  return builder.CreateSelect(builder.CreateICmpSLT(indices, zero), zero,
                              result);
}

/// The result of `call` in plain IR, or null if it has no model.
static Value *model(llvm::IntrinsicInst &call) {
  llvm::IRBuilder<> builder(&call);
  switch (call.getIntrinsicID()) {
  case llvm::Intrinsic::x86_avx512_vpdpbusd_256:
  case llvm::Intrinsic::x86_avx512_vpdpbusd_512:
    return dotBytes(builder, call.getArgOperand(0), call.getArgOperand(1),
                    call.getArgOperand(2));
  case llvm::Intrinsic::x86_avx512_vpdpwssd_512:
    return dotHalves(builder, call.getArgOperand(0), call.getArgOperand(1),
                     call.getArgOperand(2));
  case llvm::Intrinsic::x86_avx512_pshuf_b_512:
    return lookUpBytes(builder, call.getArgOperand(0), call.getArgOperand(1));
  default:
    return nullptr;
  }
}

/// The operands of `call` in a structure, as assembly without an instruction
/// returns them (ProductBuilder::keepOrder), or null if it is none: a machine
/// may lack its registers.
static Value *operandsOf(llvm::CallInst &call) {
  auto *type = llvm::dyn_cast<llvm::StructType>(call.getType());
  if (!type || !call.isInlineAsm())
    return nullptr;
  llvm::IRBuilder<> builder(&call);
  Value *all = llvm::PoisonValue::get(type);
  for (unsigned i = 0; i < call.arg_size(); ++i)
    all = builder.CreateInsertValue(all, call.getArgOperand(i), i);
  return all;
}

/// Whether every supported machine has the instruction.
static bool isLeast(const llvm::IntrinsicInst &call) {
  const llvm::StringRef name = call.getCalledFunction()->getName();
  return !name.starts_with("llvm.x86.") || name.starts_with("llvm.x86.sse") ||
         name.starts_with("llvm.x86.ssse3.") ||
         name.starts_with("llvm.x86.avx.") ||
         name.starts_with("llvm.x86.avx2.");
}

/// The features of a function that setTarget has prepared.
static CpuFeatureSet featuresOf(const llvm::Function &function) {
  CpuFeatureSet result;
  llvm::SmallVector<llvm::StringRef> names;
  function.getFnAttribute(kFeatures).getValueAsString().split(names, ',');
  for (llvm::StringRef name : names)
    if (name.consume_front("+"))
      if (auto feature = parseFeature(std::string_view(name)))
        result.insert(*feature);
  return result;
}

static void modelFunction(llvm::Function &function, CpuFeatureSet features,
                          AmxModel &tiles) {
  for (llvm::Instruction &instruction :
       llvm::make_early_inc_range(llvm::instructions(function))) {
    auto *call = llvm::dyn_cast<llvm::CallInst>(&instruction);
    if (!call)
      continue;
    Value *value = operandsOf(*call);
    auto *intrinsic = llvm::dyn_cast<llvm::IntrinsicInst>(call);
    if (!value &&
        (!intrinsic || isLeast(*intrinsic) || tiles.replace(*intrinsic)))
      continue;
    if (!value)
      value = model(*intrinsic);
    if (!value)
      throw Error("generated function '" +
                  part::subject(function.getName().str()) + "' uses '" +
                  call->getCalledFunction()->getName().str() +
                  "', which this machine lacks and which has no model");
    call->replaceAllUsesWith(value);
    call->eraseFromParent();
  }
  function.addFnAttr(kFeatures, featureAttribute(features));
}

void qwen::modelInstructions(llvm::Module &module, CpuFeatureSet features) {
  const std::string attribute = featureAttribute(features);
  AmxModel tiles(module, attribute);
  for (llvm::Function &function : module) {
    if (function.isDeclaration())
      continue;
    const CpuFeatureSet used = featuresOf(function);
    const CpuFeatureSet missing = used - features;
    if (!missing.empty())
      modelFunction(function, used - missing, tiles);
  }
}
