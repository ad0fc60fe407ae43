//===- QwenInterfaces.td - What passes ask of an op --------*- tablegen -*-===//

#ifndef QWEN_DIALECT_QWENINTERFACES_TD
#define QWEN_DIALECT_QWENINTERFACES_TD

include "qwen/Dialect/QwenEnums.td"
include "mlir/IR/OpBase.td"

def Qwen_ForwardOp : OpInterface<"ForwardOp"> {
  let description = [{
    An op of `forward` that computes. Passes are loops over this interface:
    docs/adding-an-op.md lists them.
  }];
  let cppNamespace = "::qwen";
  let methods = [
    InterfaceMethod<"Kinds of the kernels that the op calls, with their calls; `kernels` has one for each.",
        "::llvm::SmallVector<::qwen::KernelUse>", "getKernelUses">,
    InterfaceMethod<"Weights that the op reads; `packed` has a part for each.",
        "::llvm::SmallVector<::qwen::WeightUse>", "getWeightUses", (ins), "", [{ return {}; }]>,
    InterfaceMethod<"What the work of the op consists of.",
        "::qwen::WorkUnit", "getWorkUnit">,
    InterfaceMethod<"The cache that the op reads or writes.",
        "::std::optional<::qwen::CacheUse>", "getCacheUse", (ins), "",
        [{ return ::std::nullopt; }]>,
    InterfaceMethod<"Sets the format of keys and values, if the op has some.", "void", "setCacheFormat",
        (ins "::qwen::KvFormatAttr":$format), "", [{ (void)format; }]>,
    InterfaceMethod<"Where the results lie.", "::qwen::ResultPlace", "getResultPlace",
        (ins), "", [{ return ::qwen::ResultPlace::OwnBuffers; }]>,
    InterfaceMethod<[{
        The operand that the matrices multiply; null of an op without matrices.
        By default the first.
      }], "::mlir::OpOperand *", "getProductInput", (ins), "",
        [{ return ::qwen::detail::hasMatrices($_op.getWeightUses()) ? &$_op->getOpOperand(0) : nullptr; }]>,
    InterfaceMethod<[{
        What the op adds to its products, if its only result is the sum of both:
        a rotation of the outputs of all of them is one of the result. None of
        other ops.
      }], "::std::optional<::llvm::SmallVector<::mlir::Value>>", "getSummands", (ins), "",
        [{ return ::std::nullopt; }]>,
    InterfaceMethod<"Makes `bias` a part of the op that computes the sum with it. Returns false if the op cannot.",
        "bool", "fuseBias", (ins "::mlir::FlatSymbolRefAttr":$bias), "", [{ return false; }]>,
    InterfaceMethod<"Makes `addend` an operand of the op that computes the sum with it. Returns false if the op cannot.",
        "bool", "fuseAddend", (ins "::mlir::Value":$addend), "", [{ return false; }]>,
    InterfaceMethod<"Whether the op can quantize its only result in blocks, as its type says.",
        "bool", "canQuantizeResult", (ins), "", [{ return false; }]>,
    InterfaceMethod<"The operand over which the op may write its only result, or null.",
        "::mlir::OpOperand *", "getInPlaceOperand", (ins), "", [{ return nullptr; }]>,
    InterfaceMethod<[{
        Changes `work`, which has the bytes of operands, results and weights:
        bytes of a cache, bytes of weights that a token does not read.
      }], "void", "addWork", (ins "::qwen::OpWork &":$work), "", [{ return; }]>,

    InterfaceMethod<[{
        Whether the op reads ids, positions or sequences, which only the tokens
        of the call have: then its values count these.
      }], "bool", "readsCall", (ins), "",
        [{ return $_op.getCacheUse() || ::llvm::any_of($_op->getOperandTypes(), ::qwen::isTokenIntegers); }]>,
    InterfaceMethod<"Whether the op gathers the tokens of its first operand where these are selected (ViewOp).",
        "bool", "gathersTokens", (ins), "", [{ return false; }]>,

    InterfaceMethod<"The call of the driver for a planned op.",
        "::qwen::DriverCall", "getDriverCall", (ins "const ::qwen::CallFacts &":$facts)>,

    // The attributes that passes set.
    InterfaceMethod<"Sets the kernels.", "void", "setKernelsAttr",
        (ins "::mlir::ArrayAttr":$kernels), [{ $_op.setKernelsAttr(kernels); }]>,
    InterfaceMethod<"The kernels, or null before qwen-select-kernels.",
        "::mlir::ArrayAttr", "getKernelsAttr", (ins), [{ return $_op.getKernelsAttr(); }]>,
    InterfaceMethod<"Sets the parts of the weight image.", "void", "setPackedAttr",
        (ins "::mlir::ArrayAttr":$packed), [{ $_op.setPackedAttr(packed); }]>,
    InterfaceMethod<"The parts of the weight image, or null before qwen-pack.",
        "::mlir::ArrayAttr", "getPackedAttr", (ins), [{ return $_op.getPackedAttr(); }]>,
    InterfaceMethod<"Sets the plan.", "void", "setPlanAttr",
        (ins "::qwen::PlanAttr":$plan), [{ $_op.setPlanAttr(plan); }]>,
    InterfaceMethod<"The plan, or null before qwen-plan.", "::qwen::PlanAttr", "getPlanAttr",
        (ins), [{ return $_op.getPlanAttr(); }]>,
  ];
  let verify = [{
    return ::qwen::detail::verifyForwardOp(::llvm::cast<::qwen::ForwardOp>($_op));
  }];
}

def Qwen_StreamOp : OpInterface<"StreamOp"> {
  let description = [{
    An op that reads or makes the residual stream, which qwen-rotate turns.
  }];
  let cppNamespace = "::qwen";
  let methods = [
    InterfaceMethod<"How the op uses the stream.", "::qwen::StreamUse", "getStreamUse">,
    InterfaceMethod<"The vector of an op that norms the stream: the factors of its channels.",
        "::mlir::FlatSymbolRefAttr", "getChannelFactors", (ins), "", [{ return {}; }]>,
    InterfaceMethod<"Replaces this vector.", "void", "setChannelFactors",
        (ins "::mlir::FlatSymbolRefAttr":$factors), "", [{ (void)factors; }]>,
  ];
}

def Qwen_ViewOp : OpInterface<"ViewOp"> {
  let description = [{
    An op that computes nothing: its only result is a view of its only operand,
    which counts something else. The view has selected tokens of the operand,
    which the call names, or joins consecutive ones.
  }];
  let cppNamespace = "::qwen";
  let methods = [
    InterfaceMethod<[{
        How many tokens of the operand, one after another, are one of the result:
        1 if the result has selected tokens.
      }], "int64_t", "getJoinedTokens", (ins), "", [{ return 1; }]>,
  ];
  let verify = [{
    return ::qwen::detail::verifyViewOp(::llvm::cast<::qwen::ViewOp>($_op));
  }];
}

def Qwen_SourceInterface : AttrInterface<"SourceAttrInterface"> {
  let description = [{
    The source of a weight's values: a weight of the checkpoint, or a formula
    that the compiler evaluates.
  }];
  let cppNamespace = "::qwen";
  let methods = [
    InterfaceMethod<"Checks that `op`, a weight of `type`, can have these values.",
        "::llvm::LogicalResult", "verifyWeight",
        (ins "::mlir::Operation *":$op, "::mlir::RankedTensorType":$type)>,
    InterfaceMethod<"The format that keeps the integers of these values, if they are integers.",
        "::std::optional<::qwen::WeightFormat>", "getIntegers">,
    InterfaceMethod<"The values of a weight of `type`. Throws Error if `sources` lack them.",
        "::qwen::WeightSourcePtr", "open",
        (ins "::mlir::RankedTensorType":$type, "const ::qwen::WeightSources &":$sources)>,
  ];
}

#endif // QWEN_DIALECT_QWENINTERFACES_TD
