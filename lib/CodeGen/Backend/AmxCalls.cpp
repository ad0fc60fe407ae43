//===- AmxCalls.cpp - Calls of the model of AMX ---------------------------===//

#include "AmxCalls.h"
#include "qwen/CodeGen/Backend/Backend.h"
#include "qwen/CodeGen/Cpp/AmxState.h"
#include "qwen/CodeGen/Cpp/CppBitcode.h"
#include "qwen/Support/Error.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Bitcode/BitcodeReader.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/IntrinsicsX86.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace qwen;

namespace {
/// An instruction and its function in lib/CodeGen/Cpp/AmxModel.cpp.
struct ModelledInstruction {
  llvm::Intrinsic::ID instruction;
  const char *function;
};
} // namespace

static constexpr ModelledInstruction kInstructions[] = {
    {llvm::Intrinsic::x86_ldtilecfg, "qwenAmxConfigure"},
    {llvm::Intrinsic::x86_tilerelease, "qwenAmxRelease"},
    {llvm::Intrinsic::x86_tilezero, "qwenAmxZero"},
    {llvm::Intrinsic::x86_tileloadd64, "qwenAmxLoad"},
    {llvm::Intrinsic::x86_tilestored64, "qwenAmxStore"},
    {llvm::Intrinsic::x86_tdpbssd, "qwenAmxDotSigned"},
};
static constexpr char kInit[] = "qwenAmxInit";

void AmxModel::link() {
  llvm::Expected<std::unique_ptr<llvm::Module>> functions =
      llvm::parseBitcodeFile(
          llvm::MemoryBufferRef(amxModelBitcode(), "the model of amx"),
          module.getContext());
  if (!functions)
    throw Error("llvm cannot read the bitcode of the model of amx: " +
                llvm::toString(functions.takeError()));
  (*functions)->setTargetTriple(module.getTargetTriple());
  (*functions)->setDataLayout(module.getDataLayout());
  std::vector<std::string> names;
  for (llvm::Function &function : **functions) {
    if (function.isDeclaration())
      continue;
    function.addFnAttr("target-features", features);
    names.push_back(function.getName().str());
  }
  linkModule(module, std::move(*functions));
  for (const std::string &name : names)
    module.getFunction(name)->setLinkage(llvm::GlobalValue::InternalLinkage);
}

llvm::Value *AmxModel::stateOf(llvm::Function &function) {
  if (current == &function)
    return state;
  llvm::IRBuilder<> builder(&function.getEntryBlock(),
                            function.getEntryBlock().begin());
  llvm::AllocaInst *memory = builder.CreateAlloca(
      llvm::ArrayType::get(builder.getInt8Ty(), sizeof(AmxState)));
  memory->setAlignment(llvm::Align(alignof(AmxState)));
  builder.CreateCall(module.getFunction(kInit), memory);
  current = &function;
  state = memory;
  return state;
}

bool AmxModel::replace(llvm::IntrinsicInst &call) {
  const auto *const row =
      llvm::find_if(kInstructions, [&](const ModelledInstruction &row) {
        return row.instruction == call.getIntrinsicID();
      });
  if (row == std::end(kInstructions))
    return false;
  if (!module.getFunction(kInit))
    link();
  llvm::Value *tiles = stateOf(*call.getFunction());
  llvm::IRBuilder<> builder(&call);
  llvm::SmallVector<llvm::Value *> arguments = {tiles};
  // Numbers of tiles are i8 in intrinsics.
  for (llvm::Value *argument : call.args())
    arguments.push_back(argument->getType()->isIntegerTy()
                            ? builder.CreateZExt(argument, builder.getInt64Ty())
                            : argument);
  builder.CreateCall(module.getFunction(row->function), arguments);
  call.eraseFromParent();
  return true;
}
