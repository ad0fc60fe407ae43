//===- AmxModel.cpp - AMX in plain IR -------------------------------------===//

#include "AmxModel.h"
#include "qwen/ABI/Error.h"
#include "qwen/CodeGen/Backend/Backend.h"
#include "llvm/AsmParser/Parser.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/SourceMgr.h"

using namespace qwen;

/// The instructions as functions of the state: the tile registers, with zeros
/// outside of their shapes, then the 64 bytes that ldtilecfg read.
static constexpr char kFunctions[] = R"(
%tile = type [16 x <16 x i32>]
%state = type { [8 x %tile], [64 x i8] }

define void @model.init(ptr %state) {
  %palette = getelementptr %state, ptr %state, i64 0, i32 1, i64 0
  store i8 0, ptr %palette
  ret void
}

define ptr @model.line(ptr %state, i8 %tile, i64 %line) {
  %at = getelementptr %state, ptr %state, i64 0, i32 0, i8 %tile, i64 %line
  ret ptr %at
}

define i64 @model.lines(ptr %state, i8 %tile) {
  %palette.at = getelementptr %state, ptr %state, i64 0, i32 1, i64 0
  %palette = load i8, ptr %palette.at
  %configured = icmp eq i8 %palette, 1
  call void @model.check(i1 %configured)
  %at = getelementptr %state, ptr %state, i64 0, i32 1, i64 48
  %own = getelementptr i8, ptr %at, i8 %tile
  %lines = load i8, ptr %own
  %some = icmp ne i8 %lines, 0
  call void @model.check(i1 %some)
  %result = zext i8 %lines to i64
  ret i64 %result
}

define i64 @model.words(ptr %state, i8 %tile) {
  %at = getelementptr %state, ptr %state, i64 0, i32 1, i64 16
  %own = getelementptr i16, ptr %at, i8 %tile
  %bytes = load i16, ptr %own, align 1
  %odd = and i16 %bytes, 3
  %whole = icmp eq i16 %odd, 0
  %some = icmp ne i16 %bytes, 0
  %good = and i1 %whole, %some
  call void @model.check(i1 %good)
  %words = lshr i16 %bytes, 2
  %result = zext i16 %words to i64
  ret i64 %result
}

define <16 x i1> @model.columns(i64 %words) {
  %count = trunc i64 %words to i32
  %first = insertelement <16 x i32> poison, i32 %count, i64 0
  %all = shufflevector <16 x i32> %first, <16 x i32> poison, <16 x i32> zeroinitializer
  %mask = icmp ult <16 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>, %all
  ret <16 x i1> %mask
}

define void @model.check(i1 %good) {
  br i1 %good, label %done, label %refused
refused:
  call void @llvm.trap()
  unreachable
done:
  ret void
}

define void @model.clear(ptr %state, i8 %tile) {
entry:
  br label %each
each:
  %r = phi i64 [ 0, %entry ], [ %next, %each ]
  %at = call ptr @model.line(ptr %state, i8 %tile, i64 %r)
  store <16 x i32> zeroinitializer, ptr %at
  %next = add i64 %r, 1
  %more = icmp ult i64 %next, 16
  br i1 %more, label %each, label %done
done:
  ret void
}

define void @model.ldtilecfg(ptr %state, ptr %from) {
entry:
  %palette.and.start = load i16, ptr %from, align 1
  %started = icmp eq i16 %palette.and.start, 1
  call void @model.check(i1 %started)
  %after.start = getelementptr i8, ptr %from, i64 2
  %reserved = load i112, ptr %after.start, align 1
  %after.bytes = getelementptr i8, ptr %from, i64 32
  %no.bytes = load i128, ptr %after.bytes, align 1
  %after.lines = getelementptr i8, ptr %from, i64 56
  %no.lines = load i64, ptr %after.lines, align 1
  %wide.reserved = zext i112 %reserved to i128
  %wide.lines = zext i64 %no.lines to i128
  %some = or i128 %wide.reserved, %no.bytes
  %any = or i128 %some, %wide.lines
  %unused = icmp eq i128 %any, 0
  call void @model.check(i1 %unused)
  %config = getelementptr %state, ptr %state, i64 0, i32 1
  %copy = load <64 x i8>, ptr %from, align 1
  store <64 x i8> %copy, ptr %config, align 1
  br label %each
each:
  %tile = phi i8 [ 0, %entry ], [ %next, %each ]
  %bytes.at = getelementptr i8, ptr %from, i64 16
  %own.bytes = getelementptr i16, ptr %bytes.at, i8 %tile
  %bytes = load i16, ptr %own.bytes, align 1
  %narrow = icmp ule i16 %bytes, 64
  %lines.at = getelementptr i8, ptr %from, i64 48
  %own.lines = getelementptr i8, ptr %lines.at, i8 %tile
  %lines = load i8, ptr %own.lines
  %short = icmp ule i8 %lines, 16
  %fits = and i1 %narrow, %short
  call void @model.check(i1 %fits)
  call void @model.clear(ptr %state, i8 %tile)
  %next = add i8 %tile, 1
  %more = icmp ult i8 %next, 8
  br i1 %more, label %each, label %done
done:
  ret void
}

define void @model.tilerelease(ptr %state) {
  call void @model.init(ptr %state)
  ret void
}

define void @model.tilezero(ptr %state, i8 %tile) {
  %lines = call i64 @model.lines(ptr %state, i8 %tile)
  call void @model.clear(ptr %state, i8 %tile)
  ret void
}

define void @model.tileloadd64(ptr %state, i8 %tile, ptr %from, i64 %stride) {
entry:
  %lines = call i64 @model.lines(ptr %state, i8 %tile)
  %words = call i64 @model.words(ptr %state, i8 %tile)
  %mask = call <16 x i1> @model.columns(i64 %words)
  call void @model.clear(ptr %state, i8 %tile)
  br label %each
each:
  %r = phi i64 [ 0, %entry ], [ %next, %each ]
  %offset = mul i64 %r, %stride
  %line = getelementptr i8, ptr %from, i64 %offset
  %value = call <16 x i32> @llvm.masked.load.v16i32.p0(ptr align 1 %line, <16 x i1> %mask, <16 x i32> zeroinitializer)
  %at = call ptr @model.line(ptr %state, i8 %tile, i64 %r)
  store <16 x i32> %value, ptr %at
  %next = add i64 %r, 1
  %more = icmp ult i64 %next, %lines
  br i1 %more, label %each, label %done
done:
  ret void
}

define void @model.tilestored64(ptr %state, i8 %tile, ptr %to, i64 %stride) {
entry:
  %lines = call i64 @model.lines(ptr %state, i8 %tile)
  %words = call i64 @model.words(ptr %state, i8 %tile)
  %mask = call <16 x i1> @model.columns(i64 %words)
  br label %each
each:
  %r = phi i64 [ 0, %entry ], [ %next, %each ]
  %at = call ptr @model.line(ptr %state, i8 %tile, i64 %r)
  %value = load <16 x i32>, ptr %at
  %offset = mul i64 %r, %stride
  %line = getelementptr i8, ptr %to, i64 %offset
  call void @llvm.masked.store.v16i32.p0(<16 x i32> %value, ptr align 1 %line, <16 x i1> %mask)
  %next = add i64 %r, 1
  %more = icmp ult i64 %next, %lines
  br i1 %more, label %each, label %done
done:
  ret void
}

define void @model.tdpbssd(ptr %state, i8 %c, i8 %a, i8 %b) {
entry:
  %lines = call i64 @model.lines(ptr %state, i8 %c)
  %columns = call i64 @model.words(ptr %state, i8 %c)
  %a.lines = call i64 @model.lines(ptr %state, i8 %a)
  %depth = call i64 @model.words(ptr %state, i8 %a)
  %b.lines = call i64 @model.lines(ptr %state, i8 %b)
  %b.columns = call i64 @model.words(ptr %state, i8 %b)
  %same.lines = icmp eq i64 %lines, %a.lines
  call void @model.check(i1 %same.lines)
  %same.columns = icmp eq i64 %columns, %b.columns
  call void @model.check(i1 %same.columns)
  %same.depth = icmp eq i64 %depth, %b.lines
  call void @model.check(i1 %same.depth)
  br label %line
line:
  %r = phi i64 [ 0, %entry ], [ %r.next, %line.end ]
  %c.at = call ptr @model.line(ptr %state, i8 %c, i64 %r)
  %a.at = call ptr @model.line(ptr %state, i8 %a, i64 %r)
  %before = load <16 x i32>, ptr %c.at
  br label %step
step:
  %d = phi i64 [ 0, %line ], [ %d.next, %step ]
  %sum = phi <16 x i32> [ %before, %line ], [ %sum.3, %step ]
  %word.at = getelementptr i32, ptr %a.at, i64 %d
  %word = load i32, ptr %word.at
  %first = insertelement <16 x i32> poison, i32 %word, i64 0
  %x = shufflevector <16 x i32> %first, <16 x i32> poison, <16 x i32> zeroinitializer
  %b.at = call ptr @model.line(ptr %state, i8 %b, i64 %d)
  %w = load <16 x i32>, ptr %b.at
  %x.up0 = shl <16 x i32> %x, splat (i32 24)
  %w.up0 = shl <16 x i32> %w, splat (i32 24)
  %x.up1 = shl <16 x i32> %x, splat (i32 16)
  %w.up1 = shl <16 x i32> %w, splat (i32 16)
  %x.up2 = shl <16 x i32> %x, splat (i32 8)
  %w.up2 = shl <16 x i32> %w, splat (i32 8)
  %x.0 = ashr <16 x i32> %x.up0, splat (i32 24)
  %w.0 = ashr <16 x i32> %w.up0, splat (i32 24)
  %x.1 = ashr <16 x i32> %x.up1, splat (i32 24)
  %w.1 = ashr <16 x i32> %w.up1, splat (i32 24)
  %x.2 = ashr <16 x i32> %x.up2, splat (i32 24)
  %w.2 = ashr <16 x i32> %w.up2, splat (i32 24)
  %x.3 = ashr <16 x i32> %x, splat (i32 24)
  %w.3 = ashr <16 x i32> %w, splat (i32 24)
  %product.0 = mul <16 x i32> %x.0, %w.0
  %product.1 = mul <16 x i32> %x.1, %w.1
  %product.2 = mul <16 x i32> %x.2, %w.2
  %product.3 = mul <16 x i32> %x.3, %w.3
  %sum.0 = add <16 x i32> %sum, %product.0
  %sum.1 = add <16 x i32> %sum.0, %product.1
  %sum.2 = add <16 x i32> %sum.1, %product.2
  %sum.3 = add <16 x i32> %sum.2, %product.3
  %d.next = add i64 %d, 1
  %deeper = icmp ult i64 %d.next, %depth
  br i1 %deeper, label %step, label %line.end
line.end:
  store <16 x i32> %sum.3, ptr %c.at
  %r.next = add i64 %r, 1
  %more = icmp ult i64 %r.next, %lines
  br i1 %more, label %line, label %done
done:
  ret void
}

declare void @llvm.trap()
declare <16 x i32> @llvm.masked.load.v16i32.p0(ptr, <16 x i1>, <16 x i32>)
declare void @llvm.masked.store.v16i32.p0(<16 x i32>, ptr, <16 x i1>)
)";

void AmxModel::link() {
  llvm::SMDiagnostic diagnostic;
  std::unique_ptr<llvm::Module> functions =
      llvm::parseAssemblyString(kFunctions, diagnostic, module.getContext());
  if (!functions)
    throw Error("the model of tiles is not llvm ir: " +
                diagnostic.getMessage().str());
  functions->setTargetTriple(module.getTargetTriple());
  functions->setDataLayout(module.getDataLayout());
  std::vector<std::string> names;
  for (llvm::Function &function : *functions) {
    if (function.isDeclaration())
      continue;
    function.setDoesNotThrow();
    function.addFnAttr("no-builtins");
    function.addFnAttr("target-cpu", "x86-64");
    function.addFnAttr("target-features", features);
    names.push_back(function.getName().str());
  }
  linkModule(module, std::move(functions));
  for (const std::string &name : names)
    module.getFunction(name)->setLinkage(llvm::GlobalValue::InternalLinkage);
}

llvm::Value *AmxModel::stateOf(llvm::Function &function) {
  if (current == &function)
    return state;
  llvm::IRBuilder<> builder(&function.getEntryBlock(),
                            function.getEntryBlock().begin());
  llvm::AllocaInst *memory = builder.CreateAlloca(
      llvm::StructType::getTypeByName(module.getContext(), "state"));
  memory->setAlignment(llvm::Align(64));
  builder.CreateCall(module.getFunction("model.init"), memory);
  current = &function;
  state = memory;
  return state;
}

bool AmxModel::replace(llvm::IntrinsicInst &call) {
  llvm::StringRef name = call.getCalledFunction()->getName();
  if (!name.consume_front("llvm.x86.") ||
      !(name.starts_with("tile") || name.starts_with("tdp") ||
        name == "ldtilecfg"))
    return false;
  if (!module.getFunction("model.init"))
    link();
  llvm::Function *model = module.getFunction(("model." + name).str());
  if (!model)
    return false;
  llvm::SmallVector<llvm::Value *> arguments = {stateOf(*call.getFunction())};
  arguments.append(call.arg_begin(), call.arg_end());
  llvm::IRBuilder<>(&call).CreateCall(model, arguments);
  call.eraseFromParent();
  return true;
}
