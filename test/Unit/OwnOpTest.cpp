//===- OwnOpTest.cpp - Passes over an op that they do not know ------------===//
//
// A second kind of product, of another dialect, which says by ForwardOp what it
// does. The passes before packing, and calibration, treat it like qwen.linear.
//
//===----------------------------------------------------------------------===//

#include "calibration/BackwardPass.h"
#include "qwen/Transforms/Passes.h"

#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"

#include <gtest/gtest.h>

using namespace qwen;

namespace {
/// result = input * transpose(weight), plus the second operand if there is one.
class ProductOp
    : public mlir::Op<
          ProductOp,
          mlir::OpTrait::OneTypedResult<mlir::RankedTensorType>::Impl,
          ForwardOp::Trait> {
public:
  using Op::Op;
  static llvm::StringRef getOperationName() { return "own.product"; }
  static llvm::ArrayRef<llvm::StringRef> getAttributeNames() { return {}; }

  llvm::SmallVector<KernelUse> getKernelUses() {
    return {{KernelOp::LinearF32}, {KernelOp::LinearF32, /*gemm=*/true}};
  }
  llvm::SmallVector<WeightUse> getWeightUses() {
    const auto weight =
        (*this)->getAttrOfType<mlir::FlatSymbolRefAttr>("weight");
    return {{mlir::ArrayAttr::get(getContext(), weight),
             WeightRole::Matrix,
             {widthOf((*this)->getResult(0))},
             widthOf((*this)->getOperand(0))}};
  }
  std::optional<llvm::SmallVector<mlir::Value>> getSummands() {
    return llvm::SmallVector<mlir::Value>((*this)->getOperands().drop_front());
  }
  bool fuseAddend(mlir::Value addend) {
    if ((*this)->getNumOperands() > 1)
      return false;
    (*this)->insertOperands(1, addend);
    return true;
  }
  WorkUnit getWorkUnit() { return WorkUnit::Panel; }
  DriverCall getDriverCall(const CallFacts &) { return {}; }

  void setKernelsAttr(mlir::ArrayAttr) {}
  mlir::ArrayAttr getKernelsAttr() { return {}; }
  void setPackedAttr(mlir::ArrayAttr) {}
  mlir::ArrayAttr getPackedAttr() { return {}; }
  void setPlanAttr(PlanAttr) {}
  PlanAttr getPlanAttr() { return {}; }
};

class OwnDialect : public mlir::Dialect {
public:
  explicit OwnDialect(mlir::MLIRContext *context)
      : Dialect(getDialectNamespace(), context,
                mlir::TypeID::get<OwnDialect>()) {
    addOperations<ProductOp>();
  }
  static llvm::StringRef getDialectNamespace() { return "own"; }
};

class OwnOpTest : public testing::Test {
protected:
  OwnOpTest() {
    context.loadDialect<QwenDialect, mlir::func::FuncDialect, OwnDialect>();
    module = mlir::parseSourceString<mlir::ModuleOp>(R"mlir(
      qwen.weight @embed : tensor<64x96xf32> from #qwen.source<"embed">
      qwen.weight @n1 : tensor<96xf32> from #qwen.source<"n1">
      qwen.weight @up : tensor<128x96xf32> from #qwen.source<"up">
      qwen.weight @gate : tensor<128x96xf32> from #qwen.source<"gate">
      qwen.weight @down : tensor<96x128xf32> from #qwen.source<"down">
      qwen.weight @last : tensor<96xf32> from #qwen.source<"last">
      func.func @forward(%ids: tensor<?xi32>, %positions: tensor<?xi32>) -> tensor<?x64xf32, #qwen.count<wanted>> {
        %x = qwen.embedding %ids, @embed : tensor<?xi32> -> tensor<?x96xf32>
        %n = qwen.rms_norm %x, @n1 eps 1.0e-06 : tensor<?x96xf32> -> tensor<?x96xf32>
        %u = "own.product"(%n) {weight = @up} : (tensor<?x96xf32>) -> tensor<?x128xf32>
        %g = "own.product"(%n) {weight = @gate} : (tensor<?x96xf32>) -> tensor<?x128xf32>
        %s = qwen.swiglu %g, %u : tensor<?x128xf32> -> tensor<?x128xf32>
        %d = "own.product"(%s) {weight = @down} : (tensor<?x128xf32>) -> tensor<?x96xf32>
        %h = qwen.add %x, %d : tensor<?x96xf32>
        %w = qwen.wanted_tokens %h : tensor<?x96xf32>
        %l = qwen.rms_norm %w, @last eps 1.0e-06
          : tensor<?x96xf32, #qwen.count<wanted>> -> tensor<?x96xf32, #qwen.count<wanted>>
        %y = qwen.lm_head %l, @embed : tensor<?x96xf32, #qwen.count<wanted>> -> tensor<?x64xf32, #qwen.count<wanted>>
        return %y : tensor<?x64xf32, #qwen.count<wanted>>
      }
    )mlir",
                                                     &context);
  }

  /// Runs one pass, or more, and returns the products.
  template <typename... Passes>
  std::vector<ProductOp> products(Passes... passes) {
    mlir::PassManager manager(&context);
    (manager.addPass(std::move(passes)), ...);
    EXPECT_TRUE(llvm::succeeded(manager.run(*module)));
    std::vector<ProductOp> found;
    module->walk([&](ProductOp op) { found.push_back(op); });
    return found;
  }

  std::string sourceOf(const char *weight) {
    std::string text;
    llvm::raw_string_ostream out(text);
    mlir::SymbolTable(*module).lookup<WeightOp>(weight).getSource().print(out);
    return text;
  }

  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
};
} // namespace

TEST_F(OwnOpTest, AProductReadsQuantizedActivationsAndTakesTheResidual) {
  ASSERT_TRUE(module);
  QuantizeOptions options;
  options.weights = WeightFormat::Q8_0;
  const std::vector<ProductOp> own = products(
      createFuseEpilogues(), createQuantize(options), createFuseQuantize());
  ASSERT_EQ(own.size(), 3u);
  for (ProductOp op : own)
    EXPECT_TRUE(isInBlocks(op->getOperand(0).getType()));
  // The norm and the swiglu quantize, once for all readers.
  EXPECT_TRUE(llvm::isa<RmsNormOp>(own[0]->getOperand(0).getDefiningOp()));
  EXPECT_EQ(own[0]->getOperand(0), own[1]->getOperand(0));
  EXPECT_TRUE(llvm::isa<SwiGluOp>(own[2]->getOperand(0).getDefiningOp()));
  EXPECT_TRUE(llvm::isa<EmbeddingOp>(own[2]->getOperand(1).getDefiningOp()));
  EXPECT_TRUE(programsOf(*module).front().getOps<AddOp>().empty());
}

TEST_F(OwnOpTest, RotationsFoldIntoAProduct) {
  ASSERT_TRUE(module);
  const std::vector<ProductOp> own = products(createRotate());
  ASSERT_EQ(own.size(), 3u);
  EXPECT_EQ(sourceOf("up"), "#qwen.turned<#qwen.source<\"up\">, scales = "
                            "#qwen.source<\"n1\">, columns = 96>");
  EXPECT_EQ(sourceOf("down"), "#qwen.turned<#qwen.source<\"down\">, "
                              "hadamard = true, outputs = 96>");
  EXPECT_TRUE(llvm::isa<HadamardOp>(own[2]->getOperand(0).getDefiningOp()));
}

TEST_F(OwnOpTest, CalibrationFindsAProduct) {
  ASSERT_TRUE(module);
  const SublayerChain chain = divide(programsOf(*module).front());
  ASSERT_EQ(chain.sublayers.size(), 2u);
  const std::vector<ProductInput> &inputs = chain.sublayers[0].inputs;
  ASSERT_EQ(inputs.size(), 2u);
  EXPECT_EQ(inputs[0].weights, (std::vector<std::string>{"up", "gate"}));
  EXPECT_EQ(inputs[1].weights, (std::vector<std::string>{"down"}));
  mlir::Operation *found = findOpWithoutGradient(chain.sublayers[0]);
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->getName().getStringRef(), ProductOp::getOperationName());
  EXPECT_EQ(findOpWithoutGradient(chain.sublayers[1]), nullptr);
}
