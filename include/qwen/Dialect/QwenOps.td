//===- QwenOps.td - Operations of a Qwen model -------------*- tablegen -*-===//

#ifndef QWEN_DIALECT_QWENOPS_TD
#define QWEN_DIALECT_QWENOPS_TD

include "qwen/Dialect/QwenInterfaces.td"
include "qwen/Dialect/QwenWeights.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

//===----------------------------------------------------------------------===//
// Types
//===----------------------------------------------------------------------===//

/// One int32 for each token: ids or positions.
def Qwen_TokenIntegers : Type<CPred<"::qwen::isTokenIntegers($_self)">,
    "one i32 for each token, tensor<?xi32>", "::mlir::RankedTensorType">;
/// The activations of each token, in f32.
def Qwen_FloatActivations : Type<CPred<"::qwen::isFloatActivations($_self)">,
    "activations in f32, tensor<?xNxf32>", "::mlir::RankedTensorType">;
/// The activations of each token, quantized in blocks.
def Qwen_QuantizedActivations : Type<CPred<"::qwen::isQuantizedActivations($_self)">,
    "activations in blocks, tensor<?xNxi8, #qwen.blocks<128>>", "::mlir::RankedTensorType">;
def Qwen_Activations : AnyTypeOf<[Qwen_FloatActivations, Qwen_QuantizedActivations],
    "activations in f32 or in blocks", "::mlir::RankedTensorType">;

/// Integers that all tokens share, in the arena.
def Qwen_Integers : Type<CPred<"::qwen::isIntegers($_self)">, "integers, tensor<Nxi32>",
    "::mlir::RankedTensorType">;

/// An op of `forward` that computes. `unit` is its WorkUnit. `methods` are
/// methods of ForwardOp that it has beside the required ones. Passes set the
/// last three attributes.
class Qwen_ComputeOp<string mnemonic, string unit, list<Trait> traits,
                     list<string> methods, dag operands, string syntax, string types>
    : Qwen_Op<mnemonic,
              traits # [DeclareOpInterfaceMethods<SymbolUserOpInterface>,
                        DeclareOpInterfaceMethods<Qwen_ForwardOp, methods>]> {
  /// For docs/architecture.md.
  string workUnit = unit;
  let arguments = !con(operands, (ins
      OptionalAttr<FlatSymbolRefArrayAttr>:$packed,
      OptionalAttr<TypedArrayAttrBase<Qwen_KernelAttr, "kernels">>:$kernels,
      OptionalAttr<Qwen_PlanAttr>:$plan));
  let assemblyFormat = syntax
      # " (`packed` $packed^)? (`kernels` $kernels^)? attr-dict `:` " # types;
  let extraClassDefinition = [{
    ::qwen::WorkUnit $cppClass::getWorkUnit() { return ::qwen::WorkUnit::}] # unit # [{; }
    ::llvm::LogicalResult $cppClass::verifySymbolUses(::mlir::SymbolTableCollection &symbols) {
      return ::qwen::detail::verifyWeightUses(*this, symbols);
    }
  }];
}

//===----------------------------------------------------------------------===//
// Activations in, activations out
//===----------------------------------------------------------------------===//

def Qwen_EmbeddingOp : Qwen_ComputeOp<"embedding", "Token", [Pure, DeclareOpInterfaceMethods<Qwen_StreamOp>], ["getWeightUses"],
    (ins Qwen_TokenIntegers:$ids, FlatSymbolRefAttr:$weight),
    "$ids `,` $weight", "type($ids) `->` type($result)"> {
  let summary = "Looks up the embedding of each token";
  let description = [{
    Token i of the result is row `ids[i]` of the weight [vocab][hidden],
    dequantized (exact).

    Example:

    ```mlir
    %x = qwen.embedding %ids, @model.embed_tokens.weight : tensor<?xi32> -> tensor<?x896xf32>
    ```
  }];
  let results = (outs Qwen_FloatActivations:$result);
}

def Qwen_RmsNormOp : Qwen_ComputeOp<"rms_norm", "Token",
    [Pure, DeclareOpInterfaceMethods<Qwen_StreamOp, ["getChannelFactors", "setChannelFactors"]>],
    ["getWeightUses", "canQuantizeResult", "gathersTokens"],
    (ins Qwen_FloatActivations:$input, FlatSymbolRefAttr:$weight, Qwen_PositiveNumber:$eps, OptionalAttr<Qwen_Count>:$head_dim),
    "$input `,` $weight `eps` custom<Float>($eps) (`heads` $head_dim^)?",
    "type($input) `->` type($result)"> {
  let summary = "Root-mean-square norm";
  let description = [{
    y = (x * (1 / sqrt(mean(x * x) + eps))) * w over all values of a token, or
    over each of its heads of `head_dim` values. With a quantized result type,
    the op also quantizes its result in blocks. The norm before `qwen.lm_head`
    (and the `qwen.turn` between both, if there is one) has a second kernel: if
    the caller wants hidden values instead of logits, it writes them, in f32, to
    the result of the call.

    Example:

    ```mlir
    %y = qwen.rms_norm %x, @model.norm.weight eps 1.0e-06 : tensor<?x896xf32> -> tensor<?x896xf32>
    %q = qwen.rms_norm %x, @model.norm.weight eps 1.0e-06 : tensor<?x896xf32> -> tensor<?x896xi8, #qwen.blocks<128>>
    %h = qwen.rms_norm %x, @q_norm.weight eps 1.0e-06 heads 128 : tensor<?x2048xf32> -> tensor<?x2048xf32>
    ```
  }];
  let results = (outs Qwen_Activations:$result);
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// The `qwen.lm_head` that reads the result, turned or not, or null.
    LmHeadOp getLmHead();
    /// The call where `qwen.lm_head` follows and hidden values are wanted.
    DriverCall getHiddenCall(const CallFacts &facts);
  }];
}

def Qwen_LinearOp : Qwen_ComputeOp<"linear", "Panel", [Pure],
    ["getWeightUses", "getSummands", "fuseBias", "fuseAddend", "getResultPlace", "getInPlaceOperand"],
    (ins Qwen_Activations:$input, Optional<Qwen_FloatActivations>:$residual,
         Qwen_Symbols:$weights, OptionalAttr<FlatSymbolRefArrayAttr>:$bias),
    "$input `,` $weights (`bias` $bias^)? (`residual` `(` $residual^ `:` type($residual) `)`)?",
    "type($input) `->` type($results)"> {
  let summary = "Product with one or more weights";
  let description = [{
    Result i is input * transpose(weights[i]) + bias[i] + residual; `bias` and
    `residual` are optional. Several weights form a fused product: they share
    the input, and each keeps its name, format and result. `residual` requires a
    single weight. K is a multiple of 32.

    Example:

    ```mlir
    %y = qwen.linear %x, [@down] residual(%r : tensor<?x896xf32>) : tensor<?x4864xf32> -> tensor<?x896xf32>
    %q, %k, %v = qwen.linear %x, [@q, @k, @v] bias [@qb, @kb, @vb]
        : tensor<?x896xf32> -> tensor<?x896xf32>, tensor<?x128xf32>, tensor<?x128xf32>
    ```
  }];
  let results = (outs Variadic<Qwen_FloatActivations>:$results);
  let hasVerifier = 1;
  let builders = [OpBuilder<(ins "::mlir::TypeRange":$results, "::mlir::Value":$input,
                                 "::mlir::ArrayAttr":$weights, "::mlir::ArrayAttr":$bias), [{
    build($_builder, $_state, results, input, /*residual=*/nullptr, weights, bias,
          /*packed=*/nullptr, /*kernels=*/nullptr, /*plan=*/nullptr);
  }]>];
}

def Qwen_AddBiasOp : Qwen_Op<"add_bias", [Pure, SameOperandsAndResultType,
    DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "Adds a bias to each token";
  let description = [{
    qwen-fuse-epilogues makes it the `bias` of the linear before it.

    Example:

    ```mlir
    %y = qwen.add_bias %x, @model.layers.0.self_attn.q_proj.bias : tensor<?x896xf32>
    ```
  }];
  let arguments = (ins Qwen_FloatActivations:$input, FlatSymbolRefAttr:$bias);
  let results = (outs Qwen_FloatActivations:$result);
  let assemblyFormat = "$input `,` $bias attr-dict `:` type($input)";
}

def Qwen_AddOp : Qwen_Op<"add", [Pure, SameOperandsAndResultType, DeclareOpInterfaceMethods<Qwen_StreamOp>]> {
  let summary = "Residual addition";
  let description = [{
    qwen-fuse-epilogues makes it the `residual` of the linear that computes
    `rhs`.

    Example:

    ```mlir
    %h = qwen.add %residual, %x : tensor<?x896xf32>
    ```
  }];
  let arguments = (ins Qwen_FloatActivations:$lhs, Qwen_FloatActivations:$rhs);
  let results = (outs Qwen_FloatActivations:$result);
  let assemblyFormat = "$lhs `,` $rhs attr-dict `:` type($result)";
}

def Qwen_SwiGluOp : Qwen_ComputeOp<"swiglu", "TokenBlock", [Pure, AllTypesMatch<["gate", "up"]>],
    ["canQuantizeResult"],
    (ins Qwen_FloatActivations:$gate, Qwen_FloatActivations:$up, UnitAttr:$hadamard),
    "$gate `,` $up (`hadamard` $hadamard^)?", "type($gate) `->` type($result)"> {
  let summary = "silu(gate) * up";
  let description = [{
    silu(x) = x / (1 + exp(-x)). With a quantized result type, the op also
    quantizes its result in blocks; with `hadamard`, it transforms them as
    `qwen.hadamard` does, and then quantizes them.

    Example:

    ```mlir
    %y = qwen.swiglu %gate, %up : tensor<?x4864xf32> -> tensor<?x4864xf32>
    %q = qwen.swiglu %gate, %up hadamard : tensor<?x4864xf32> -> tensor<?x4864xi8, #qwen.blocks<128>>
    ```
  }];
  let results = (outs Qwen_Activations:$result);
  let hasVerifier = 1;
}

def Qwen_MapOp : Qwen_ComputeOp<"map", "TokenBlock", [Pure], ["canQuantizeResult"],
    (ins Qwen_ElementMapAttr:$map, Qwen_FloatActivations:$input),
    "$map $input", "type($input) `->` type($result)"> {
  let summary = "A function of each value";
  let description = [{
    With a quantized result type, the op also quantizes its result in blocks.

    Example:

    ```mlir
    %y = qwen.map <sigmoid> %x : tensor<?x4096xf32> -> tensor<?x4096xf32>
    ```
  }];
  let results = (outs Qwen_Activations:$result);
  let hasVerifier = 1;
}

def Qwen_HadamardOp : Qwen_ComputeOp<"hadamard", "TokenBlock", [Pure, AllTypesMatch<["input", "result"]>], [],
    (ins Qwen_FloatActivations:$input), "$input", "type($input)"> {
  let summary = "Hadamard transform of each block of 128 values";
  let description = [{
    Multiplies each block of 128 values of a token with the Hadamard matrix of
    order 128, whose elements are 1 and -1: additions and subtractions only. A
    last block of fewer values is cut into its powers of two, largest first.
    Weights that read the result hold the inverse: the same matrix / 128.

    Example:

    ```mlir
    %y = qwen.hadamard %x : tensor<?x4864xf32>
    ```
  }];
  let results = (outs Qwen_FloatActivations:$result);
  let hasVerifier = 1;
  let builders = [OpBuilder<(ins "::mlir::Value":$input), [{
    build($_builder, $_state, input.getType(), input, /*packed=*/nullptr,
          /*kernels=*/nullptr, /*plan=*/nullptr);
  }]>];
}

def Qwen_QuantizeOp : Qwen_ComputeOp<"quantize", "Token", [Pure], [],
    (ins Qwen_FloatActivations:$input), "$input", "type($input) `->` type($result)"> {
  let summary = "Quantizes activations in blocks";
  let description = [{
    Quantizes each token once, for all users.

    Example:

    ```mlir
    %q = qwen.quantize %x : tensor<?x896xf32> -> tensor<?x896xi8, #qwen.blocks<128>>
    ```
  }];
  let results = (outs Qwen_QuantizedActivations:$result);
  let hasVerifier = 1;
  let builders = [OpBuilder<(ins "::mlir::Value":$input)>];
  let extraClassDeclaration = [{
    /// Activations of `type`, quantized.
    static ::mlir::Type typeOf(::mlir::Type type);
  }];
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

def Qwen_RopeTableOp : Qwen_ComputeOp<"rope_table", "Token", [Pure, AllTypesMatch<["cos", "sin"]>],
    ["getWeightUses"],
    (ins Qwen_TokenIntegers:$positions, Variadic<Qwen_TokenIntegers>:$grid, FlatSymbolRefAttr:$frequencies,
         OptionalAttr<Qwen_SectionsAttr>:$sections, OptionalAttr<F32Attr>:$scale),
    "$positions `,` $frequencies (`sections` `(` $grid^ `:` type($grid) `)` $sections)? (`scale` $scale^)?",
    "type($positions) `->` type($cos)"> {
  let summary = "Rotations of each token's position";
  let description = [{
    cos and sin of positions[i] * frequencies[j], j < head_dim / 2, times `scale` if it is given. All layers and heads share
    them. With `sections`, a token has three positions, its time, which is `positions`, its height and its width.

    Example:

    ```mlir
    %cos, %sin = qwen.rope_table %positions, @rope.frequencies : tensor<?xi32> -> tensor<?x32xf32>
    %cos, %sin = qwen.rope_table %times, @rope.frequencies sections(%heights, %widths : tensor<?xi32>, tensor<?xi32>) <16, 24, 24> : tensor<?xi32> -> tensor<?x64xf32>
    ```
  }];
  let results = (outs Qwen_FloatActivations:$cos, Qwen_FloatActivations:$sin);
  let hasVerifier = 1;
}

def Qwen_RopeOp : Qwen_Op<"rope", [Pure, AllTypesMatch<["input", "result"]>,
                             AllTypesMatch<["cos", "sin"]>]> {
  let summary = "Rotates each head by its position";
  let description = [{
    Half-split rotation: y1 = x1 * cos - x2 * sin, y2 = x2 * cos + x1 * sin, where x1 and x2 are the halves of a head, or, with
    `heads`, of the first values of heads of that size: twice as many as cos has. qwen-fuse-attention makes it a part of
    `qwen.append` (keys) and `qwen.attention` (queries, and keys of the call).

    Example:

    ```mlir
    %y = qwen.rope %x, %cos, %sin : tensor<?x896xf32>, tensor<?x32xf32>
    %y = qwen.rope %x, %cos, %sin heads 256 : tensor<?x2048xf32>, tensor<?x32xf32>
    ```
  }];
  let arguments = (ins Qwen_FloatActivations:$input, Qwen_FloatActivations:$cos, Qwen_FloatActivations:$sin,
                       OptionalAttr<Qwen_Count>:$head_dim);
  let results = (outs Qwen_FloatActivations:$result);
  let assemblyFormat = [{
    $input `,` $cos `,` $sin (`heads` $head_dim^)? attr-dict `:` type($input) `,` type($cos)
  }];
  let hasVerifier = 1;
  let builders = [OpBuilder<(ins "::mlir::Value":$input, "::mlir::Value":$cos, "::mlir::Value":$sin,
                                 CArg<"::mlir::IntegerAttr", "{}">:$headDim), [{
    build($_builder, $_state, input.getType(), input, cos, sin, headDim);
  }]>];
  let extraClassDeclaration = [{
    /// Values of a head.
    int64_t getHeadSize();
  }];
}

/// An op that norms heads (with `norm` and `eps`) and rotates them (with `rope`) before it uses them. `values` are its operands
/// without cos and sin, `sizes` its layer of the KV cache and its numbers of heads. `format` is the layer's format of keys and values.
class Qwen_HeadsOp<string mnemonic, list<Trait> traits, dag values, dag sizes, string syntax, string sizesSyntax, string types>
    : Qwen_ComputeOp<mnemonic, "TokenHead",
          traits # [AttrSizedOperandSegments, DeclareOpInterfaceMethods<MemoryEffectsOpInterface>],
          ["getWeightUses", "getCacheUse", "setCacheFormat", "addWork"],
          !con(values, (ins Optional<Qwen_FloatActivations>:$cos, Optional<Qwen_FloatActivations>:$sin), sizes,
               (ins OptionalAttr<FlatSymbolRefAttr>:$norm, OptionalAttr<Qwen_PositiveNumber>:$eps,
                    OptionalAttr<Qwen_KvFormatAttr>:$format)),
          syntax # " (`rope` `(` $cos^ `,` $sin `:` type($cos) `,` type($sin) `)`)? "
                 # sizesSyntax # " (`norm` $norm^ `eps` $eps)? (`format` $format^)?",
          types> {
  let hasVerifier = 1;
}

def Qwen_AppendOp : Qwen_HeadsOp<"append", [AllTypesMatch<["keys", "values"]>],
    (ins Qwen_FloatActivations:$keys, Qwen_FloatActivations:$values), (ins Qwen_Layer:$layer, Qwen_Count:$kv_heads),
    "$keys `,` $values", "`layer` custom<Integer>($layer) `kv_heads` custom<Integer>($kv_heads)", "type($keys)"> {
  let summary = "Appends keys and values to the cache";
  let description = [{
    For each token and KV head: rounds the key and the value to `format`, which
    qwen-quantize chooses, and writes them to the token's slot of layer `layer`. `norm`, with
    `eps`, norms the key first, and `rope` (cos, sin) rotates it, or its first
    values, twice as many as cos has: qwen-fuse-attention adds both.

    Example:

    ```mlir
    qwen.append %k, %v layer 0 kv_heads 2 : tensor<?x128xf32>
    qwen.append %k, %v rope(%cos, %sin : tensor<?x32xf32>, tensor<?x32xf32>) layer 0 kv_heads 2
        norm @k_norm.weight eps 1.0e-06 format <f16> : tensor<?x128xf32>
    ```
  }];
  let results = (outs);
  let extraClassDeclaration = [{
    /// Values of a KV head.
    int64_t getHeadDim();
  }];
}

def Qwen_AttentionOp : Qwen_HeadsOp<"attention", [AllTypesMatch<["queries", "result"]>],
    (ins Qwen_FloatActivations:$queries, Optional<Qwen_FloatActivations>:$keys, Optional<Qwen_FloatActivations>:$values),
    (ins OptionalAttr<Qwen_Layer>:$layer, Qwen_Count:$heads, Qwen_Count:$kv_heads,
         DefaultValuedAttr<Qwen_MaskAttr, "::qwen::Mask::Causal">:$mask, Optional<Qwen_TokenIntegers>:$windows),
    "$queries (`over` `(` $keys^ `,` $values `:` type($keys) `,` type($values) `)`)?",
    "(`layer` $layer^)? `heads` custom<Integer>($heads) `kv_heads` custom<Integer>($kv_heads) "
    "(`mask` $mask^ (`of` `(` $windows^ `:` type($windows) `)`)?)?",
    "type($queries)"> {
  let summary = "Attention over the paged KV cache, or over the call";
  let description = [{
    Each query head of a token attends to the positions of its sequence up to the token's own, in layer `layer`, to which a
    `qwen.append` before has appended them in the same `format`. `heads` query heads share `kv_heads` KV heads. `norm`, with
    `eps`, norms the queries first, and `rope` (cos, sin) rotates them, or the first values of each head, twice as many as cos has: qwen-fuse-attention
    adds both.

    With `over`, there is no cache: tokens attend to keys and values of the call, in f32, as `mask` says (#qwen.mask<causal> is the
    default), and `rope` rotates the keys, too. The tokens of a sequence follow each other in the call, and so do the tokens of
    a window, whose number each token has in `windows`.

    Example:

    ```mlir
    %o = qwen.attention %q layer 0 heads 14 kv_heads 2 : tensor<?x896xf32>
    %o = qwen.attention %q rope(%cos, %sin : tensor<?x32xf32>, tensor<?x32xf32>) layer 0 heads 14 kv_heads 2 : tensor<?x896xf32>
    %o = qwen.attention %q over(%k, %v : tensor<?x1280xf32>, tensor<?x1280xf32>) heads 16 kv_heads 16
        mask <windows> of(%windows : tensor<?xi32>) : tensor<?x1280xf32>
    ```
  }];
  let results = (outs Qwen_FloatActivations:$result);
  let extraClassDeclaration = [{
    /// Values of a head.
    int64_t getHeadDim();
    /// The op of the same block that appends to the layer, or null.
    AppendOp getAppend();
    /// The values that the op weighs: its own, getAppend()'s, or null.
    ::mlir::Value getWeighed();
  }];
}

def Qwen_GateOp : Qwen_ComputeOp<"gate", "TokenBlock", [Pure, AllTypesMatch<["input", "gate"]>],
    ["canQuantizeResult"],
    (ins Qwen_FloatActivations:$input, Qwen_FloatActivations:$gate),
    "$input `,` $gate", "type($input) `->` type($result)"> {
  let summary = "input * sigmoid(gate)";
  let description = [{
    The gate of attention. With a quantized result type, the op also quantizes
    its result in blocks.

    Example:

    ```mlir
    %y = qwen.gate %o, %gate : tensor<?x2048xf32> -> tensor<?x2048xf32>
    ```
  }];
  let results = (outs Qwen_Activations:$result);
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Linear attention
//===----------------------------------------------------------------------===//

include "qwen/Dialect/QwenLinearAttention.td"

//===----------------------------------------------------------------------===//
// Experts
//===----------------------------------------------------------------------===//

include "qwen/Dialect/QwenExperts.td"

def Qwen_CountOp : Qwen_ComputeOp<"count", "Columns", [Pure], [],
    (ins AnyTypeOf<[Qwen_TokenIntegers, Qwen_Integers]>:$ids, Optional<Qwen_Integers>:$limit),
    "$ids (`below` `(` $limit^ `:` type($limit) `)`)?", "type($ids) `->` type($result)"> {
  let summary = "Counts ids";
  let description = [{
    Number i of the result says how many ids are i: the tokens of each expert.
    `ids` are the argument of the function or lie in the arena. With `below`,
    only the numbers before limit[0], which is not known before the call, are
    computed; those from there on are unspecified.

    Example:

    ```mlir
    %used = qwen.count %ids : tensor<?xi32> -> tensor<8xi32>
    %n = qwen.count %used below(%used : tensor<8xi32>) : tensor<8xi32> -> tensor<64xi32>
    ```
  }];
  let results = (outs Qwen_Integers:$result);
}

//===----------------------------------------------------------------------===//
// Output
//===----------------------------------------------------------------------===//

def Qwen_WantedTokensOp : Qwen_Op<"wanted_tokens", [Pure, InferTypeOpAdaptor, DeclareOpInterfaceMethods<Qwen_StreamOp>,
                                                  DeclareOpInterfaceMethods<Qwen_ViewOp>]> {
  let summary = "Selects the wanted tokens";
  let description = [{
    Token i of the result is the i-th token whose logits are wanted (`counts` of
    Context in qwen/ABI/KernelABI.h). The op is a view: its user gathers the
    tokens. The result counts `wanted`.

    Example:

    ```mlir
    %last = qwen.wanted_tokens %x : tensor<?x896xf32>
    %y = qwen.rms_norm %last, @norm eps 1.0e-06 : tensor<?x896xf32, #qwen.count<wanted>> -> tensor<?x896xf32, #qwen.count<wanted>>
    ```
  }];
  let arguments = (ins Qwen_FloatActivations:$input);
  let results = (outs Qwen_FloatActivations:$result);
  let assemblyFormat = "$input attr-dict `:` type($input)";
}

def Qwen_TurnOp : Qwen_ComputeOp<"turn", "Token", [Pure],
    ["getWeightUses", "canQuantizeResult"],
    (ins Qwen_FloatActivations:$input, UnitAttr:$back, FlatSymbolRefAttr:$rotation),
    "$input (`back` $back^)? `,` $rotation", "type($input) `->` type($result)"> {
  let summary = "Turns the activations of each token by a rotation";
  let description = [{
    x R for the activations x of each token, or x R^T with `back`. `rotation` is a vector with the
    values of #qwen.rotation. With a quantized result type, the op also quantizes
    its result in blocks. The op before `qwen.lm_head` does nothing, like it, if
    the caller wants hidden values.

    Example:

    ```mlir
    %x = qwen.turn %turned back, @rotation : tensor<?x896xf32> -> tensor<?x896xf32>
    %q = qwen.turn %y, @rotation : tensor<?x896xf32> -> tensor<?x896xi8, #qwen.blocks<128>>
    ```
  }];
  let results = (outs Qwen_Activations:$result);
  let hasVerifier = 1;
}

def Qwen_LmHeadOp : Qwen_ComputeOp<"lm_head", "Panel", [Pure, DeclareOpInterfaceMethods<Qwen_StreamOp>],
    ["getWeightUses", "getResultPlace"],
    (ins Qwen_Activations:$input, FlatSymbolRefAttr:$weight),
    "$input `,` $weight", "type($input) `->` type($result)"> {
  let summary = "Computes the logits of the wanted tokens";
  let description = [{
    logits = input * transpose(weight) with weight [vocab][hidden], possibly the
    embedding's. The op checks the logits of each token for values that are not
    finite. If the caller wants hidden values instead, the norm before it writes
    the result of the call, and this op does nothing.

    Example:

    ```mlir
    %logits = qwen.lm_head %x, @model.embed_tokens.weight
        : tensor<?x896xf32, #qwen.count<wanted>> -> tensor<?x151936xf32, #qwen.count<wanted>>
    ```
  }];
  let results = (outs Qwen_FloatActivations:$result);
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

def Qwen_StructOp : Qwen_Op<"struct", [Pure]> {
  let summary = "The address of a struct of the driver";
  let description = [{
    Has the fields of a struct of qwen/ABI/DriverABI.def in their order: i64 and
    f32, kernels (`none` for a null pointer, an array for the tiles of a product
    with their number), and memory. A struct of numbers lies in read-only data,
    another one on the stack of its function. Place, stride, scales and sums of
    a value are `in`, `in.stride` and so on.

    Example:

    ```mlir
    %0 = qwen.struct {in = 4096, in.stride = 896, weight.image = 0, weight = 0, eps = 1.0e-06 : f32, op = 3} : !llvm.ptr
    %1 = qwen.struct {kernel = #qwen.kernel<rope_avx2>, norm = none, scratch = memref<64xf32>} : !llvm.ptr
    ```
  }];
  let arguments = (ins StrArrayAttr:$names, ArrayAttr:$values);
  let results = (outs AnyType:$address);
  let assemblyFormat = "custom<Fields>($names, $values) attr-dict `:` type($address)";
  let hasVerifier = 1;
  let builders = [OpBuilder<(ins "::mlir::Type":$pointer,
                                 "::llvm::ArrayRef<::mlir::NamedAttribute>":$fields)>];
}

#endif // QWEN_DIALECT_QWENOPS_TD
