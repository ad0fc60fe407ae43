//===- TargetCodeTest.cpp - The targets of one file -----------------------===//

#include "qwen/CodeGen/Artifact/TargetCode.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "qwen/Dialect/QwenDialect.h"
#include "qwen/Support/Error.h"
#include "gtest/gtest.h"

using namespace qwen;

namespace {
/// Modules of stage "calls" with only the facts of their targets.
class TargetCodeTest : public testing::Test {
protected:
  TargetCodeTest() {
    mlir::DialectRegistry registry;
    registry.insert<QwenDialect, mlir::func::FuncDialect>();
    context.appendDialectRegistry(registry);
    context.loadAllAvailableDialects();
  }

  TargetCode make(const char *target, std::vector<std::string> kernels = {}) {
    TargetCode code{resolveTarget(target),
                    mlir::parseSourceString<mlir::ModuleOp>(R"mlir(
      module attributes {qwen.weight_bytes = 2048 : i64} {
        qwen.weight @w : tensor<16x32xf32> from #qwen.source<"m"> as #qwen.format<q8_0>
        qwen.packed @w.packed [@w] : tensor<16x32xf32>
          in #qwen.layout<q8_0, panel = 16, chunk = 4> at 0
        func.func @forward() attributes {qwen.arena_bytes = 1024 : i64,
                                         qwen.limits = {all = 8 : i64},
                                         qwen.ops = ["embedding"]} {
          return
        }
      })mlir",
                                                            &context)};
    EXPECT_TRUE(code.module);
    mlir::OpBuilder builder(&context);
    builder.setInsertionPointToEnd(code.module->getBody());
    for (const std::string &kernel : kernels)
      mlir::func::FuncOp::create(builder, builder.getUnknownLoc(), kernel,
                                 builder.getFunctionType({}, {}))
          .setPrivate();
    return code;
  }

  mlir::MLIRContext context;
};
} // namespace

static std::string names(const std::vector<TargetCode> &targets) {
  std::string result;
  for (const TargetCode &code : targets)
    result += (result.empty() ? "" : " ") + code.target.name;
  return result;
}

static std::string messageOf(const TargetCode &a, const TargetCode &b) {
  std::vector<TargetCode> targets(2);
  targets[0].target = a.target;
  targets[0].module = a.module.get().clone();
  targets[1].target = b.target;
  targets[1].module = b.module.get().clone();
  try {
    checkShared(targets);
  } catch (const Error &error) {
    return error.what();
  }
  return "";
}

TEST_F(TargetCodeTest, NewerInstructionSetsAreBetter) {
  std::vector<TargetCode> targets;
  targets.push_back(make("haswell", {"linear_q4_0_1x16x4_avx2"}));
  targets.push_back(make("zen4", {"linear_q4_0_1x16x4_avx512vnni"}));
  targets.push_back(make("alderlake", {"linear_q4_0_1x16x4_avxvnni"}));
  EXPECT_TRUE(orderTargets(targets).empty());
  EXPECT_EQ(names(targets), "zen4 alderlake haswell");

  // The newest instruction set decides, then the next.
  targets.clear();
  targets.push_back(make("armv8.2-a+sve",
                         {"linear_q4_0_1x16x4_sve", "linear_q4_0_8x16x4_sve"}));
  targets.push_back(make("armv8.6-a", {"linear_q4_0_1x16x4_neon_dotprod",
                                       "linear_q4_0_8x16x4_neon_i8mm"}));
  targets.push_back(make("neoverse-n2", {"linear_q4_0_1x16x4_sve",
                                         "linear_q4_0_8x16x4_neon_i8mm"}));
  EXPECT_TRUE(orderTargets(targets).empty());
  EXPECT_EQ(names(targets), "neoverse-n2 armv8.6-a armv8.2-a+sve");
}

TEST_F(TargetCodeTest, OfEqualOnesTheFirstStays) {
  std::vector<TargetCode> targets;
  targets.push_back(make("cortex-a72", {"linear_f32_1x16_neon"}));
  targets.push_back(make("neoverse-n1", {"linear_f32_1x16_neon"}));
  targets.push_back(make("neoverse-v1", {"linear_f32_1x16_sve"}));
  EXPECT_EQ(orderTargets(targets),
            std::vector<std::string>{
                "target 'neoverse-n1' gets no code of its own: it runs that of "
                "'cortex-a72', which uses the same CPU features"});
  EXPECT_EQ(names(targets), "neoverse-v1 cortex-a72");
}

TEST_F(TargetCodeTest, TargetsOfOneFileShareEverythingButCode) {
  const TargetCode first = make("haswell", {"linear_q8_0_1x16x4_avx2"});
  EXPECT_EQ(messageOf(first, make("zen4", {"linear_q8_0_1x16x4_avx512vnni"})),
            "");
  const std::string start = "targets 'haswell' and 'zen4' cannot share a file: "
                            "";
  const std::string end = "; compile a file for each";

  mlir::Builder builder(&context);
  for (const char *name : {"qwen.arena_bytes", "qwen.weight_bytes"}) {
    TargetCode other = make("zen4");
    mlir::Operation *owner = *other.module;
    if (!owner->hasAttr(name))
      owner = programsOf(*other.module).front();
    const int64_t value =
        owner->getAttrOfType<mlir::IntegerAttr>(name).getInt();
    owner->setAttr(name, builder.getI64IntegerAttr(7));
    EXPECT_EQ(messageOf(first, other),
              start + name + " is " + std::to_string(value) +
                  " : i64 for the first and 7 : i64 for the second" + end);
  }
  TargetCode limited = make("zen4");
  setLimit(programsOf(*limited.module).front(), kWantedName, 7);
  EXPECT_EQ(messageOf(first, limited),
            start +
                "qwen.limits is {all = 8 : i64} for the first and {all = 8 "
                ": i64, wanted = 7 : i64} for the second" +
                end);

  TargetCode other = make("zen4");
  programsOf(*other.module)
      .front()
      ->setAttr("qwen.ops", builder.getStrArrayAttr({"x"}));
  EXPECT_EQ(messageOf(first, other), start +
                                         "qwen.ops is [\"embedding\"] for the "
                                         "first and [\"x\"] for the second" +
                                         end);

  other = make("zen4");
  auto packed = *other.module->getOps<PackedOp>().begin();
  packed.setLayoutAttr(LayoutAttr::get(&context, WeightFormat::Q4_0));
  const std::string message = messageOf(first, other);
  EXPECT_EQ(message.rfind(start + "w.packed is ", 0), 0u) << message;
  EXPECT_NE(message.find("#qwen.layout<q8_0"), std::string::npos) << message;
  EXPECT_NE(message.find("#qwen.layout<q4_0"), std::string::npos) << message;

  other = make("zen4");
  (*other.module->getOps<PackedOp>().begin()).erase();
  EXPECT_EQ(messageOf(first, other),
            start + "their weight images have different parts" + end);
}
