//===- CodeGenTest.cpp - Backend, products and link -----------------------===//

#include "TempDir.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "qwen/CodeGen/Backend/Backend.h"
#include "qwen/CodeGen/Backend/InstructionModels.h"
#include "qwen/CodeGen/Backend/Link.h"
#include "qwen/CodeGen/Products/Products.h"
#include "qwen/Support/Error.h"
#include "llvm/AsmParser/Parser.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/TargetSelect.h"
#include "gtest/gtest.h"
#include <cstring>

using namespace qwen;
using namespace qwen::test;

static std::unique_ptr<llvm::Module> parse(llvm::LLVMContext &context,
                                           llvm::StringRef text) {
  llvm::SMDiagnostic diagnostic;
  auto module = llvm::parseAssemblyString(text, diagnostic, context);
  EXPECT_TRUE(module) << diagnostic.getMessage().str();
  return module;
}

/// A shared object of `module` with one entry.
static SharedObject link(const llvm::Module &module, const std::string &entry,
                         const Target &target) {
  const auto entries = generateEntryTable(entry, target, module.getContext());
  return linkSharedObject(
      {emitObject(module, target), emitObject(*entries, target)}, target);
}

static SharedObject compile(llvm::StringRef text, const Target &target) {
  llvm::LLVMContext context;
  auto module = parse(context, text);
  setTarget(*module, target, leastFeatures(target.arch));
  nameForTarget(*module, target);
  const std::string entry = nameForTarget("f", target);
  optimize(*module, target, entry);
  return link(*module, entry, target);
}

//===----------------------------------------------------------------------===//
// Backend
//===----------------------------------------------------------------------===//

TEST(Backend, RefusesWhatCouldRoundOtherwise) {
  const struct {
    const char *text;
    std::string message;
  } cases[] = {
      {"declare float @llvm.fmuladd.f32(float, float, float)\n"
       "define float @f(float %a) {\n"
       "  %r = call float @llvm.fmuladd.f32(float %a, float %a, float %a)\n"
       "  ret float %r\n}",
       "generated function 'f' has llvm.fmuladd, which may or may not round "
       "the product"},
      {"define float @f(float %a) {\n"
       "  %r = fadd contract float %a, %a\n"
       "  ret float %r\n}",
       "generated function 'f' has fast-math flags in '%r = fadd contract "
       "float %a, %a'"},
      {"declare float @llvm.vector.reduce.fadd.v4f32(float, <4 x float>)\n"
       "define float @f(<4 x float> %a) {\n"
       "  %r = call reassoc float @llvm.vector.reduce.fadd.v4f32(float 0.0, "
       "<4 x float> %a)\n"
       "  ret float %r\n}",
       "generated function 'f' has fast-math flags in '%r = call reassoc float "
       "@llvm.vector.reduce.fadd.v4f32(float 0.000000e+00, <4 x float> %a)'"},
      {"@state = global i32 0\n",
       "generated code needs the variable 'state', but an artifact has "
       "read-only data only"},
      {"@table = external constant i32\n",
       "generated code needs the variable 'table', but an artifact has "
       "read-only data only"},
      {"declare float @llvm.fma.f32(float, float, float)\n"
       "declare void @unused()\n"
       "@table = constant i32 1\n"
       "define float @f(float %a) {\n"
       "  %r = call float @llvm.fma.f32(float %a, float %a, float %a)\n"
       "  ret float %r\n}",
       ""},
  };
  for (const auto &test : cases) {
    llvm::LLVMContext context;
    auto module = parse(context, test.text);
    EXPECT_EQ(messageOf([&] { verifyGenerated(*module); }), test.message);
  }
}

/// exp has no instruction, so code generation calls a library.
TEST(Backend, RefusesLibraryCalls) {
  const Target target = resolveTarget("x86-64-v3");
  EXPECT_EQ(messageOf([&] {
              compile("declare float @llvm.exp.f32(float)\n"
                      "define float @f(float %a) {\n"
                      "  %r = call float @llvm.exp.f32(float %a)\n"
                      "  ret float %r\n}",
                      target);
            }),
            "cannot link the generated code: ld.lld: error: undefined symbol: "
            "expf");
}

/// Loops that fill and copy stay loops. Multiplications and additions stay
/// separate even if the machine has fma.
TEST(Backend, KeepsLoopsAndRoundings) {
  const char *text =
      "define float @f(ptr %to, ptr %from, i64 %n, float %a, float %b) {\n"
      "entry:\n  br label %fill\n"
      "fill:\n"
      "  %i = phi i64 [0, %entry], [%next, %fill]\n"
      "  %p = getelementptr i8, ptr %to, i64 %i\n"
      "  store i8 0, ptr %p\n"
      "  %next = add i64 %i, 1\n"
      "  %more = icmp ult i64 %next, %n\n"
      "  br i1 %more, label %fill, label %done\n"
      "done:\n"
      "  %m = fmul float %a, %b\n"
      "  %r = fadd float %m, %a\n"
      "  ret float %r\n}";
  for (const char *spec : {"x86-64-v3", "armv8-a"}) {
    const Target target = resolveTarget(spec);
    llvm::LLVMContext context;
    auto module = parse(context, text);
    setTarget(*module, target, leastFeatures(target.arch));
    nameForTarget(*module, target);
    optimize(*module, target, nameForTarget("f", target));
    EXPECT_EQ(printIR(*module).find("memset"), std::string::npos);
    const std::string code = emitAssembly(*module, target);
    EXPECT_EQ(code.find("memset"), std::string::npos);
    EXPECT_NE(code.find("mul"), std::string::npos);
    EXPECT_EQ(code.find("fmadd"), std::string::npos);
    EXPECT_EQ(code.find("fma"), std::string::npos);
  }
}

TEST(Backend, ReplacesTheProducersTarget) {
  const Target target = resolveTarget("znver4");
  llvm::LLVMContext context;
  auto module = parse(
      context, "target triple = \"armv7-none-eabi\"\n"
               "define void @linear_f32_1x16_avx2() #0 { ret void }\n"
               "define void @f() #0 { ret void }\n"
               "attributes #0 = { alwaysinline \"target-cpu\"=\"znver5\" "
               "\"target-features\"=\"+sse4a\" \"unsafe-fp-math\"=\"true\" }\n"
               "!llvm.module.flags = !{!0}\n"
               "!0 = !{i32 2, !\"halide_mattrs\", !\"+sse4a\"}\n");
  setTarget(*module, target, leastFeatures(Arch::X86_64));
  EXPECT_EQ(module->getTargetTriple().str(), "x86_64-unknown-linux-gnu");
  EXPECT_EQ(module->getModuleFlagsMetadata(), nullptr);
  for (const llvm::Function &function : *module) {
    EXPECT_EQ(function.getFnAttribute("target-cpu").getValueAsString(),
              "x86-64");
    EXPECT_EQ(function.getFnAttribute("target-features").getValueAsString(),
              "+avx2,+fma,+f16c");
    EXPECT_EQ(function.getFnAttribute("tune-cpu").getValueAsString(), "znver4");
    EXPECT_FALSE(function.hasFnAttribute("unsafe-fp-math"));
    EXPECT_TRUE(function.hasFnAttribute("no-builtins"));
  }
  // Kernels stay functions that profiles and disassembly can name.
  EXPECT_TRUE(module->getFunction("linear_f32_1x16_avx2")
                  ->hasFnAttribute(llvm::Attribute::NoInline));
  EXPECT_FALSE(
      module->getFunction("f")->hasFnAttribute(llvm::Attribute::NoInline));
}

TEST(Backend, LinksModules) {
  const Target target = resolveTarget("armv8-a");
  llvm::LLVMContext context;
  auto whole = parse(context, "declare i32 @g()\n"
                              "define i32 @f() {\n"
                              "  %r = call i32 @g()\n  ret i32 %r\n}");
  setTarget(*whole, target, leastFeatures(target.arch));
  for (const char *expected : {"", "symbol 'g' is defined twice"}) {
    auto part = parse(context, "define i32 @g() { ret i32 7 }");
    setTarget(*part, target, leastFeatures(target.arch));
    EXPECT_EQ(messageOf([&] { linkModule(*whole, std::move(part)); }),
              expected);
  }
  EXPECT_EQ(messageOf([&] { verifyGenerated(*whole); }), "");
}

TEST(Backend, SaysWhatHasNoLowering) {
  mlir::DialectRegistry registry;
  registerCodeGenDialects(registry);
  mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
  context.allowUnregisteredDialects();
  const struct {
    const char *text;
    const char *stage;
    const char *what;
  } cases[] = {
      {"func.func @f(%x: tensor<4xf32>) {\n"
       "  %r = scf.forall (%i) in (4) shared_outs(%o = %x) -> tensor<4xf32> "
       "{}\n"
       "  return\n}",
       "cannot lower to the llvm dialect: ", "scf.forall"},
      {"func.func @f(%x: i32) { \"other.op\"(%x) : (i32) -> () return }",
       "cannot translate to llvm ir: ", "other.op"},
  };
  for (const auto &test : cases) {
    auto module = mlir::parseSourceString<mlir::ModuleOp>(test.text, &context);
    llvm::LLVMContext llvmContext;
    const std::string message =
        messageOf([&] { translateToLLVM(*module, llvmContext); });
    EXPECT_EQ(message.rfind(test.stage, 0), 0u) << message;
    EXPECT_NE(message.find(test.what), std::string::npos) << message;
  }
}

TEST(Products, AreTheRowsOfMlir) {
  mlir::DialectRegistry registry;
  registerCodeGenDialects(registry);
  mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
  context.loadAllAvailableDialects();
  mlir::OwningOpRef<mlir::ModuleOp> module =
      mlir::ModuleOp::create(mlir::UnknownLoc::get(&context));
  for (const KernelInfo &row : kernelTable()) {
    const bool isProduct = row.provider() == KernelProvider::MLIR;
    const KernelSchedule schedule =
        isProduct ? scheduleOf(row) : KernelSchedule();
    EXPECT_EQ(messageOf([&] { emitProduct(row, schedule, *module); }),
              isProduct
                  ? ""
                  : "kernel '" + std::string(row.name) + "' is not a product");
    EXPECT_EQ(module->lookupSymbol(llvm::StringRef(row.name)) != nullptr,
              isProduct);
  }
}

//===----------------------------------------------------------------------===//
// Schedule
//===----------------------------------------------------------------------===//

static std::string scheduleText(const char *kernel, std::string_view changes) {
  const KernelInfo &row = *findKernel(kernel);
  return printSchedule(row, changedSchedule(row, changes));
}

/// The message of a change of the schedule of `kernel`.
static std::string refusal(const char *kernel, const std::string &changes) {
  return messageOf([&] { changedSchedule(*findKernel(kernel), changes); });
}

TEST(Schedule, IsReadAsText) {
  const char *kernel = "linear_q4_0_4x16x4_avx2";
  const KernelInfo &row = *findKernel(kernel);
  KernelSchedule want = scheduleOf(row);
  auto &loops = std::get<HeldDotsSchedule>(want.loops);
  loops.tokens = 2;
  loops.prefetch = 1024;
  EXPECT_EQ(changedSchedule(row, "tokens=2,prefetch=1024"), want);
  EXPECT_EQ(changedSchedule(row, ""), scheduleOf(row));
  // Of the field of another order, too.
  const std::string fields =
      "in a schedule of HeldDots; there are order tokens vectors unroll "
      "prefetch streams cached reused";
  EXPECT_EQ(refusal(kernel, "tile=4"), "no field 'tile' " + fields);
  EXPECT_EQ(refusal(kernel, "inTurn=1"), "no field 'inTurn' " + fields);
  EXPECT_EQ(refusal(kernel, "=4"), "no field '' " + fields);
  for (const std::string text :
       {"tokens", "tokens=", "tokens=4x", "tokens= 4", "tokens=4,", ",",
        "tokens=99999999999999999999", "order=GroupDots,"})
    EXPECT_EQ(refusal(kernel, text),
              "schedule '" + text + "' is no list such as 'tokens=4,unroll=2'");
}

/// Fields are those of the order, and the order is one of those that the kernel
/// has code for.
TEST(Schedule, HasAnOrder) {
  EXPECT_EQ(scheduleText("linear_q4_0_2x16x4_avx2", ""),
            "order = HeldDots of GroupDots HeldDots\n"
            "tokens = 2 of 1 2\n"
            "vectors = 2 of 1 2\n"
            "unroll = 1 of 1 2 4\n"
            "prefetch = 1024 of 0 1 512 1024 2048 4096 8192\n"
            "streams = 2 of 0 2 4 8\n"
            "cached = 65536 of 8192 16384 32768 65536 131072 262144 524288 "
            "1048576 2097152 4194304 8388608 16777216\n"
            "reused = 262144 of 8192 16384 32768 65536 131072 262144 524288 "
            "1048576 2097152 4194304\n");
  // What both orders have stays; else a field has its least choice.
  const std::string other = scheduleText("linear_q4_k_32x16x4_avx512vnni",
                                         "order=GroupDots,vectors=2");
  EXPECT_EQ(other.substr(0, other.find("cached")),
            "order = GroupDots of GroupDots StripDots BlockDots\n"
            "tokens = 4 of 1 2 4 8 16 32\n"
            "vectors = 2 of 1 2\n"
            "unroll = 1 of 1 2 4\n"
            "inTurn = 0 of 0 1\n"
            "prefetch = 1 of 0 1 512 1024 2048 4096 8192\n"
            "streams = 0 of 0\n");
  const struct {
    const char *kernel, *orders;
  } cases[] = {
      {"attention_scores_f32_avx2", "PageChains"},
      {"linear_f32_4x16_avx2", "Chains"},
      {"linear_q4_0_4x16x4_neon", "GroupDots"},
      {"linear_q4_0_32x16x4_avx2", "GroupDots HeldDots StripDots"},
      {"linear_q4_0_32x16x4_avx512vnni", "GroupDots StripDots"},
      {"linear_q4_0_8x16x4_neon_dotprod", "GroupDots UnpackOnce"},
      {"linear_q4_0_8x16x4_sve_i8mm", "PairDots UnpackOnce"},
      {"linear_q4_0_16x16x4_amx_int8", "TileGroups"},
      {"linear_q4_m_64_16x16x4_amx_int8", "TileGroups"},
      {"linear_q4_z_128_16x16x4_amx_int8", "TileBlocks"},
      {"linear_q6_k_16x16x4_amx_int8", "TilePlanes"},
  };
  for (const auto &test : cases)
    for (const std::string order : {"Tiles", ""})
      EXPECT_EQ(refusal(test.kernel, "order=" + order),
                "schedule of kernel '" + std::string(test.kernel) +
                    "' has order=" + order + "; it can be " + test.orders);
}

TEST(Schedule, HasLimits) {
  const struct {
    const char *kernel, *change, *message;
  } cases[] = {
      {"linear_q4_0_8x16x4_neon_i8mm", "tokens=3",
       "has tokens=3; it can be 2 4 8"},
      {"linear_q4_0_4x16x4_neon_dotprod", "tokens=8",
       "has tokens=8; it can be 1 2 4"},
      {"linear_q4_0_4x16x4_neon_dotprod", "vectors=0",
       "has vectors=0; it can be 1 2 4"},
      {"linear_q4_0_4x16x4_avx2", "vectors=4", "has vectors=4; it can be 1 2"},
      {"linear_q4_0_32x16x4_avx512vnni", "vectors=4",
       "has vectors=4; it can be 1 2"},
      {"linear_q4_0_32x16x4_avx512vnni", "streams=2",
       "has streams=2; it can be 0"},
      {"linear_q4_0_4x16x4_avx2", "unroll=8", "has unroll=8; it can be 1 2 4"},
      {"linear_q4_0_4x16x4_avx2", "prefetch=-2048",
       "has prefetch=-2048; it can be 0 1 512 1024 2048 4096 8192"},
      {"linear_q4_0_32x16x4_avx2", "strip=16",
       "has strip=16; it can be 32 64 128 256"},
      {"linear_q4_0_32x16x4_avx2", "depth=4",
       "has depth=4; it can be 8 16 32 64 128"},
      {"linear_q4_0_32x16x4_avx2", "prefetch=512",
       "has prefetch=512; it can be 0 1"},
      {"linear_q4_0_32x16x4_avx2", "unroll=2", "has unroll=2; it can be 1"},
      {"linear_q4_0_8x16x4_neon_i8mm", "strip=9",
       "has strip=9; it can be 8 16 32 64 128 256"},
      {"linear_q4_0_8x16x4_neon_i8mm", "panels=0",
       "has panels=0; it can be 1 2 4 8 16"},
      {"linear_q4_0_8x16x4_neon_i8mm", "reused=8192",
       "has reused=8192; it can be 0"},
      {"linear_q4_0_16x16x4_amx_int8", "depth=4",
       "has depth=4; it can be 8 16 32 64 128"},
      {"linear_q4_k_16x16x4_amx_int8", "strip=16",
       "has strip=16; it can be 32 64 128 256 512"},
      {"linear_q4_0_16x16x4_amx_int8", "rest=17",
       "has rest=17; it can be 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16"},
      {"linear_q4_0_16x16x4_amx_int8", "least=8",
       "has least=8; it can be 16 32 64"},
      {"linear_q4_0_16x16x4_amx_int8", "bypass=1",
       "has bypass=1; it can be 0 1048576 2097152 4194304 8388608 16777216"},
      {"attention_scores_f32_avx2", "vectors=4",
       "has vectors=4; it can be 1 2"},
      {"attention_values_f32_avx2", "strip=32", "has strip=32; it can be 0"},
  };
  for (const auto &test : cases)
    EXPECT_EQ(refusal(test.kernel, test.change), "schedule of kernel '" +
                                                     std::string(test.kernel) +
                                                     "' " + test.message);
}

//===----------------------------------------------------------------------===//
// InstructionModels
//===----------------------------------------------------------------------===//

/// IR after modelInstructions for a machine with `features`.
static std::string modelled(llvm::StringRef text, CpuFeatureSet features) {
  llvm::LLVMContext context;
  auto module = parse(context, text);
  const Target target = resolveTarget("x86-64-v3+avxvnni");
  setTarget(*module, target, target.features);
  modelInstructions(*module, features);
  emitObject(*module, target);
  return printIR(*module);
}

TEST(InstructionModels, ReplaceWhatTheMachineLacks) {
  constexpr char dot[] = R"(
define <8 x i32> @f(<8 x i32> %s, <32 x i8> %w, <32 x i8> %x) {
  %r = call <8 x i32> @llvm.x86.avx512.vpdpbusd.256(<8 x i32> %s, <32 x i8> %w, <32 x i8> %x)
  ret <8 x i32> %r
}
declare <8 x i32> @llvm.x86.avx512.vpdpbusd.256(<8 x i32>, <32 x i8>, <32 x i8>)
)";
  const CpuFeatureSet least = leastFeatures(Arch::X86_64);
  const std::string plain = modelled(dot, least);
  EXPECT_EQ(plain.find(" call "), std::string::npos) << plain;
  EXPECT_EQ(plain.find("avxvnni"), std::string::npos) << plain;
  EXPECT_NE(plain.find("+avx2,+fma,+f16c"), std::string::npos) << plain;
  const std::string real =
      modelled(dot, least | CpuFeatureSet{CpuFeature::AVXVNNI});
  EXPECT_NE(real.find(" call "), std::string::npos) << real;
  EXPECT_NE(real.find("+avxvnni"), std::string::npos) << real;
}

TEST(InstructionModels, ReplaceWideRegisters) {
  constexpr char dot[] = R"(
define <16 x i32> @f(<16 x i32> %s, <32 x i16> %w, <32 x i16> %x) {
  %a = call { <16 x i32>, <32 x i16> } asm sideeffect "", "=v,=v,0,1"(<16 x i32> %s, <32 x i16> %w)
  %s1 = extractvalue { <16 x i32>, <32 x i16> } %a, 0
  %w1 = extractvalue { <16 x i32>, <32 x i16> } %a, 1
  %r = call <16 x i32> @llvm.x86.avx512.vpdpwssd.512(<16 x i32> %s1, <32 x i16> %w1, <32 x i16> %x)
  ret <16 x i32> %r
}
declare <16 x i32> @llvm.x86.avx512.vpdpwssd.512(<16 x i32>, <32 x i16>, <32 x i16>)
)";
  const std::string plain = modelled(dot, leastFeatures(Arch::X86_64));
  EXPECT_EQ(plain.find(" call "), std::string::npos) << plain;
}

TEST(InstructionModels, KeepTilesInTheFrame) {
  constexpr char tiles[] = R"(
define void @f(ptr %config, ptr %from, ptr %to) {
  call void @llvm.x86.ldtilecfg(ptr %config)
  call void @llvm.x86.tilezero(i8 0)
  call void @llvm.x86.tileloadd64(i8 1, ptr %from, i64 64)
  call void @llvm.x86.tdpbssd(i8 0, i8 1, i8 1)
  call void @llvm.x86.tilestored64(i8 0, ptr %to, i64 64)
  call void @llvm.x86.tilerelease()
  ret void
}
declare void @llvm.x86.ldtilecfg(ptr)
declare void @llvm.x86.tilezero(i8 immarg)
declare void @llvm.x86.tileloadd64(i8 immarg, ptr, i64)
declare void @llvm.x86.tdpbssd(i8 immarg, i8 immarg, i8 immarg)
declare void @llvm.x86.tilestored64(i8 immarg, ptr, i64)
declare void @llvm.x86.tilerelease()
)";
  const std::string plain = modelled(tiles, leastFeatures(Arch::X86_64));
  EXPECT_EQ(plain.find("call void @llvm.x86."), std::string::npos) << plain;
  EXPECT_NE(plain.find("alloca ["), std::string::npos) << plain;
}

TEST(InstructionModels, RefuseWhatHasNone) {
  EXPECT_EQ(messageOf([] {
              modelled(R"(
define <8 x i32> @f(<8 x i32> %s, <16 x i16> %w, <16 x i16> %x) {
  %r = call <8 x i32> @llvm.x86.avx512.vpdpwssd.256(<8 x i32> %s, <16 x i16> %w, <16 x i16> %x)
  ret <8 x i32> %r
}
declare <8 x i32> @llvm.x86.avx512.vpdpwssd.256(<8 x i32>, <16 x i16>, <16 x i16>)
)",
                       leastFeatures(Arch::X86_64));
            }),
            "generated function 'f' uses 'llvm.x86.avx512.vpdpwssd.256', which "
            "this machine lacks and which has no model");
  EXPECT_EQ(messageOf([] {
              modelled(R"(
define void @f() {
  call void @llvm.x86.tdpbf16ps(i8 0, i8 1, i8 2)
  ret void
}
declare void @llvm.x86.tdpbf16ps(i8 immarg, i8 immarg, i8 immarg)
)",
                       leastFeatures(Arch::X86_64));
            }),
            "generated function 'f' uses 'llvm.x86.tdpbf16ps', which this "
            "machine lacks and which has no model");
}

//===----------------------------------------------------------------------===//
// Link
//===----------------------------------------------------------------------===//

static constexpr char kFunction[] = "define i32 @f() { ret i32 7 }";

TEST(Link, TheSameInputGivesTheSameBytes) {
  for (const char *spec : {"x86-64-v3", "armv8-a"}) {
    const Target target = resolveTarget(spec);
    EXPECT_EQ(compile(kFunction, target).bytes,
              compile(kFunction, target).bytes);
  }
}

TEST(Link, TheTableNamesTheFunctions) {
  const SharedObject object = compile(kFunction, resolveTarget("neoverse-n1"));
  // Read-only data is mapped at its offset in the file.
  const char *table = object.bytes.data() + object.entryTable;
  uint32_t count;
  std::memcpy(&count, table, 4);
  ASSERT_EQ(count, 1u);
  int32_t offset;
  std::memcpy(&offset, table + 8, 4);
  EXPECT_STREQ(table + 8 + offset, "f.neoverse-n1");
  std::memcpy(&offset, table + 4, 4);
  const uint64_t function = object.entryTable + 4 + offset;
  EXPECT_EQ(function % kSegmentAlign, 0u);
  // mov w0, #7
  EXPECT_EQ(std::memcmp(object.bytes.data() + function, "\xe0\x00\x80\x52", 4),
            0);
}

TEST(Link, WritesTheHeader) {
  SharedObject object = compile(kFunction, resolveTarget("armv8-a"));
  ArtifactHeader header = {};
  EXPECT_EQ(std::memcmp(object.bytes.data() + object.headerOffset, &header,
                        sizeof(header)),
            0);
  header = codeHeader(object, Arch::AArch64);
  EXPECT_EQ(header.code.size, object.bytes.size());
  EXPECT_EQ(header.entryTable, object.entryTable);
  writeHeader(object, header);
  EXPECT_EQ(std::memcmp(object.bytes.data() + object.headerOffset,
                        kArtifactMagic, sizeof(kArtifactMagic)),
            0);
}

TEST(Link, RefusesWhatIsNotThere) {
  const Target target = resolveTarget("x86-64-v3");
  llvm::LLVMContext context;
  auto module = parse(context, kFunction);
  setTarget(*module, target, {});
  EXPECT_EQ(
      messageOf([&] { linkSharedObject(emitObject(*module, target), target); }),
      "no object to link has an entry table");
  EXPECT_EQ(messageOf([&] { link(*module, "g", target); }),
            "cannot link the generated code: ld.lld: error: undefined hidden "
            "symbol: g");
  EXPECT_NE(messageOf([&] {
              linkSharedObject(std::vector<char>{'x'}, target);
            }).find("cannot link the generated code: ld.lld: error: "),
            std::string::npos);
}

/// Objects that verifyGenerated would have rejected.
TEST(Link, RefusesWhatCannotBeMapped) {
  const Target target = resolveTarget("x86-64-v3");
  LLVMInitializeX86AsmParser();
  const struct {
    const char *text;
    const char *message;
  } cases[] = {
      {"@state = global i32 1\n", "generated code has writable data"},
      {"@state = thread_local global i32 1\n",
       "generated code has writable data"},
      {"module asm \".section .rodata.address,\\22a\\22\"\n"
       "module asm \".quad qwen.entries\"\n",
       "cannot link the generated code: ld.lld: error: relocation "
       "R_X86_64_64"},
  };
  for (const auto &test : cases) {
    llvm::LLVMContext context;
    auto module = parse(context, std::string(kFunction) + "\n" + test.text);
    setTarget(*module, target, leastFeatures(target.arch));
    nameForTarget(*module, target);
    const std::string message =
        messageOf([&] { link(*module, nameForTarget("f", target), target); });
    EXPECT_EQ(message.rfind(test.message, 0), 0u) << message;
  }
}
