//===- QwenOps.td - Operations of a Qwen model -------------*- tablegen -*-===//

#ifndef QWEN_DIALECT_QWENOPS_TD
#define QWEN_DIALECT_QWENOPS_TD

include "qwen/Dialect/QwenWeights.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

//===----------------------------------------------------------------------===//
// Types
//===----------------------------------------------------------------------===//

/// One int32 for each token: ids or positions.
def Qwen_TokenIntegers : Type<CPred<"::qwen::isTokenIntegers($_self)">,
    "one i32 for each token, tensor<?xi32>", "::mlir::RankedTensorType">;
/// One row of f32 for each token.
def Qwen_FloatActivations : Type<CPred<"::qwen::isFloatActivations($_self)">,
    "rows of f32, tensor<?xNxf32>", "::mlir::RankedTensorType">;
/// One row quantized in blocks for each token.
def Qwen_QuantizedActivations : Type<CPred<"::qwen::isQuantizedActivations($_self)">,
    "rows in blocks, tensor<?xNxi8, #qwen.blocks<128>>", "::mlir::RankedTensorType">;
def Qwen_Activations : AnyTypeOf<[Qwen_FloatActivations, Qwen_QuantizedActivations],
    "rows of f32 or in blocks", "::mlir::RankedTensorType">;

/// The KV cache: the ops of a layer append to it and read it, in program order.
def Qwen_KvCache : Resource<"::qwen::KvCacheResource">;

/// An op that refers to weights. Its verifier checks them against the operands.
class Qwen_WeightUserOp<string mnemonic, list<Trait> traits = []>
    : Qwen_Op<mnemonic,
              traits # [DeclareOpInterfaceMethods<SymbolUserOpInterface>]>;

//===----------------------------------------------------------------------===//
// Rows in, rows out
//===----------------------------------------------------------------------===//

def Qwen_EmbeddingOp : Qwen_WeightUserOp<"embedding", [Pure]> {
  let summary = "Looks up the embedding of each token";
  let description = [{
    Token i of the result is row `ids[i]` of the weight [vocab][hidden],
    dequantized (exact).

    Example:

    ```mlir
    %x = qwen.embedding %ids, @model.embed_tokens.weight : tensor<?xi32> -> tensor<?x896xf32>
    ```
  }];
  let arguments = (ins Qwen_TokenIntegers:$ids, FlatSymbolRefAttr:$weight,
                       OptionalAttr<Qwen_PlanAttr>:$plan,
                       OptionalAttr<StrAttr>:$kernel);
  let results = (outs Qwen_FloatActivations:$result);
  let assemblyFormat = [{
    $ids `,` $weight attr-dict `:` type($ids) `->` type($result)
  }];
  let hasVerifier = 1;
}

def Qwen_RmsNormOp : Qwen_WeightUserOp<"rms_norm", [Pure]> {
  let summary = "Root-mean-square norm";
  let description = [{
    y = (x * (1 / sqrt(mean(x * x) + eps))) * w over all values of a token, or
    over each of its heads of `head_dim` values. With a quantized result type,
    the op also quantizes its result in blocks. The norm before `qwen.lm_head`
    has a `hidden_kernel` too: if the caller wants hidden values instead of
    logits, it writes them, in f32, to the result of the call.

    Example:

    ```mlir
    %y = qwen.rms_norm %x, @model.norm.weight eps 1.0e-06 : tensor<?x896xf32> -> tensor<?x896xf32>
    %q = qwen.rms_norm %x, @model.norm.weight eps 1.0e-06 : tensor<?x896xf32> -> tensor<?x896xi8, #qwen.blocks<128>>
    %h = qwen.rms_norm %x, @q_norm.weight eps 1.0e-06 heads 128 : tensor<?x2048xf32> -> tensor<?x2048xf32>
    ```
  }];
  let arguments = (ins Qwen_FloatActivations:$input, FlatSymbolRefAttr:$weight,
                       F64Attr:$eps, OptionalAttr<I64Attr>:$head_dim,
                       OptionalAttr<Qwen_PlanAttr>:$plan,
                       OptionalAttr<StrAttr>:$kernel,
                       OptionalAttr<StrAttr>:$hidden_kernel);
  let results = (outs Qwen_Activations:$result);
  let assemblyFormat = [{
    $input `,` $weight `eps` custom<Float>($eps) (`heads` $head_dim^)?
        attr-dict `:` type($input) `->` type($result)
  }];
  let hasVerifier = 1;
}

def Qwen_LinearOp : Qwen_WeightUserOp<"linear", [Pure]> {
  let summary = "Product with one or more weights";
  let description = [{
    Result i is input * transpose(weights[i]) + bias[i] + residual; `bias` and
    `residual` are optional. Several weights form a fused product: they share
    the input, and each keeps its name, format and result. `residual` requires a
    single weight. K is a multiple of 32. After packing, `packed` names the part
    of the image with the weights, and `packed_bias` the part with the biases.

    Example:

    ```mlir
    %y = qwen.linear %x, [@down] residual(%r : tensor<?x896xf32>) : tensor<?x4864xf32> -> tensor<?x896xf32>
    %q, %k, %v = qwen.linear %x, [@q, @k, @v] bias [@qb, @kb, @vb]
        : tensor<?x896xf32> -> tensor<?x896xf32>, tensor<?x128xf32>, tensor<?x128xf32>
    ```
  }];
  let arguments = (ins Qwen_Activations:$input, Optional<Qwen_FloatActivations>:$residual,
                       FlatSymbolRefArrayAttr:$weights,
                       OptionalAttr<FlatSymbolRefArrayAttr>:$bias,
                       OptionalAttr<FlatSymbolRefAttr>:$packed,
                       OptionalAttr<FlatSymbolRefAttr>:$packed_bias,
                       OptionalAttr<Qwen_PlanAttr>:$plan,
                       OptionalAttr<StrAttr>:$gemv, OptionalAttr<StrAttr>:$gemm);
  let results = (outs Variadic<Qwen_FloatActivations>:$results);
  let assemblyFormat = [{
    $input `,` $weights (`bias` $bias^)? (`residual` `(` $residual^ `:` type($residual) `)`)?
        (`packed` $packed^)? (`packed_bias` $packed_bias^)?
        attr-dict `:` type($input) `->` type($results)
  }];
  let hasVerifier = 1;
}

def Qwen_AddBiasOp : Qwen_WeightUserOp<"add_bias", [Pure, SameOperandsAndResultType]> {
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

def Qwen_AddOp : Qwen_Op<"add", [Pure, SameOperandsAndResultType]> {
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

def Qwen_SwiGluOp : Qwen_Op<"swiglu", [Pure, AllTypesMatch<["gate", "up"]>]> {
  let summary = "silu(gate) * up";
  let description = [{
    silu(x) = x / (1 + exp(-x)). With a quantized result type, the op also
    quantizes its result in blocks.

    Example:

    ```mlir
    %y = qwen.swiglu %gate, %up : tensor<?x4864xf32> -> tensor<?x4864xf32>
    ```
  }];
  let arguments = (ins Qwen_FloatActivations:$gate, Qwen_FloatActivations:$up,
                       OptionalAttr<Qwen_PlanAttr>:$plan,
                       OptionalAttr<StrAttr>:$kernel);
  let results = (outs Qwen_Activations:$result);
  let assemblyFormat = [{
    $gate `,` $up attr-dict `:` type($gate) `->` type($result)
  }];
  let hasVerifier = 1;
}

def Qwen_QuantizeOp : Qwen_Op<"quantize", [Pure]> {
  let summary = "Quantizes activations in blocks";
  let description = [{
    Quantizes each token once, for all users.

    Example:

    ```mlir
    %q = qwen.quantize %x : tensor<?x896xf32> -> tensor<?x896xi8, #qwen.blocks<128>>
    ```
  }];
  let arguments = (ins Qwen_FloatActivations:$input, OptionalAttr<Qwen_PlanAttr>:$plan,
                       OptionalAttr<StrAttr>:$kernel);
  let results = (outs Qwen_QuantizedActivations:$result);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

def Qwen_RopeTableOp : Qwen_Op<"rope_table", [Pure, AllTypesMatch<["cos", "sin"]>]> {
  let summary = "Rotations of each token's position";
  let description = [{
    cos and sin of positions[i] * theta^(-2j / head_dim), j < head_dim / 2. All
    layers and heads share them. The compiler computes the inverse frequencies;
    after packing they lie at `frequencies` in the weight image.

    Example:

    ```mlir
    %cos, %sin = qwen.rope_table %positions theta 1.0e+06 : tensor<?xi32> -> tensor<?x32xf32>
    ```
  }];
  let arguments = (ins Qwen_TokenIntegers:$positions, F64Attr:$theta,
                       OptionalAttr<I64Attr>:$frequencies,
                       OptionalAttr<Qwen_PlanAttr>:$plan,
                       OptionalAttr<StrAttr>:$kernel);
  let results = (outs Qwen_FloatActivations:$cos, Qwen_FloatActivations:$sin);
  let assemblyFormat = [{
    $positions `theta` custom<Float>($theta) (`frequencies` $frequencies^)?
        attr-dict `:` type($positions) `->` type($cos)
  }];
  let hasVerifier = 1;
}

def Qwen_RopeOp : Qwen_Op<"rope", [Pure, AllTypesMatch<["input", "result"]>,
                             AllTypesMatch<["cos", "sin"]>]> {
  let summary = "Rotates each head by its position";
  let description = [{
    Half-split rotation: y1 = x1 * cos - x2 * sin, y2 = x2 * cos + x1 * sin,
    where x1 and x2 are the halves of a head. qwen-fuse-attention makes it a
    part of `qwen.append` (keys) and `qwen.attention` (queries).

    Example:

    ```mlir
    %y = qwen.rope %x, %cos, %sin : tensor<?x896xf32>, tensor<?x32xf32>
    ```
  }];
  let arguments = (ins Qwen_FloatActivations:$input, Qwen_FloatActivations:$cos, Qwen_FloatActivations:$sin);
  let results = (outs Qwen_FloatActivations:$result);
  let assemblyFormat = [{
    $input `,` $cos `,` $sin attr-dict `:` type($input) `,` type($cos)
  }];
  let hasVerifier = 1;
  let builders = [OpBuilder<(ins "::mlir::Value":$input, "::mlir::Value":$cos, "::mlir::Value":$sin), [{
    build($_builder, $_state, input.getType(), input, cos, sin);
  }]>];
}

def Qwen_AppendOp : Qwen_WeightUserOp<"append",
    [MemoryEffects<[MemWrite<Qwen_KvCache>]>, AllTypesMatch<["keys", "values"]>,
     AllTypesMatch<["cos", "sin"]>]> {
  let summary = "Appends keys and values to the cache";
  let description = [{
    For each token and KV head: norms the key (if `norm` is given, with `eps`),
    rotates it, rounds it to the cache's format and writes it to the token's
    slot of layer `layer`. Rounds and writes the value without norm and
    rotation.

    Example:

    ```mlir
    qwen.append %k, %v, %cos, %sin layer 0 norm @k_norm.weight eps 1.0e-06
        : tensor<?x128xf32>, tensor<?x32xf32>
    ```
  }];
  let arguments = (ins Qwen_FloatActivations:$keys, Qwen_FloatActivations:$values,
                       Qwen_FloatActivations:$cos, Qwen_FloatActivations:$sin, I64Attr:$layer,
                       OptionalAttr<FlatSymbolRefAttr>:$norm, OptionalAttr<F64Attr>:$eps,
                       OptionalAttr<Qwen_PlanAttr>:$plan,
                       OptionalAttr<StrAttr>:$rope_kernel,
                       OptionalAttr<StrAttr>:$append_k_kernel,
                       OptionalAttr<StrAttr>:$append_v_kernel);
  let results = (outs);
  let assemblyFormat = [{
    $keys `,` $values `,` $cos `,` $sin `layer` custom<Integer>($layer)
        (`norm` $norm^ `eps` $eps)?
        attr-dict `:` type($keys) `,` type($cos)
  }];
  let hasVerifier = 1;
}

def Qwen_AttentionOp : Qwen_WeightUserOp<"attention",
    [AttrSizedOperandSegments, AllTypesMatch<["queries", "result"]>,
     MemoryEffects<[MemRead<Qwen_KvCache>, MemWrite<Qwen_KvCache>]>]> {
  let summary = "Causal attention over the paged KV cache";
  let description = [{
    Each query head of a token attends to the positions of its sequence up to
    the token's own, in layer `layer`. `heads` query heads share `kv_heads` KV
    heads. In the graph, the op first appends the keys and values in `append` to
    the cache. After qwen-fuse-attention, a `qwen.append` does that, and this op
    norms (`norm`, `eps`) and rotates (`rope`: cos, sin) the queries.

    Example:

    ```mlir
    %o = qwen.attention %q append(%k, %v : tensor<?x128xf32>, tensor<?x128xf32>) layer 0 heads 14 kv_heads 2
        : tensor<?x896xf32>
    %o = qwen.attention %q rope(%cos, %sin : tensor<?x32xf32>, tensor<?x32xf32>) layer 0 heads 14 kv_heads 2
        : tensor<?x896xf32>
    ```
  }];
  let arguments = (ins Qwen_FloatActivations:$queries, Optional<Qwen_FloatActivations>:$keys,
                       Optional<Qwen_FloatActivations>:$values, Optional<Qwen_FloatActivations>:$cos,
                       Optional<Qwen_FloatActivations>:$sin, I64Attr:$layer, I64Attr:$heads,
                       I64Attr:$kv_heads, OptionalAttr<FlatSymbolRefAttr>:$norm,
                       OptionalAttr<F64Attr>:$eps, OptionalAttr<Qwen_PlanAttr>:$plan,
                       OptionalAttr<StrAttr>:$rope_kernel,
                       OptionalAttr<StrAttr>:$scores_kernel,
                       OptionalAttr<StrAttr>:$values_kernel,
                       OptionalAttr<StrAttr>:$softmax_kernel,
                       OptionalAttr<StrAttr>:$merge_kernel,
                       OptionalAttr<StrAttr>:$finish_kernel);
  let results = (outs Qwen_FloatActivations:$result);
  let assemblyFormat = [{
    $queries (`append` `(` $keys^ `,` $values `:` type($keys) `,` type($values) `)`)?
        (`rope` `(` $cos^ `,` $sin `:` type($cos) `,` type($sin) `)`)?
        `layer` custom<Integer>($layer) `heads` custom<Integer>($heads)
        `kv_heads` custom<Integer>($kv_heads)
        (`norm` $norm^ `eps` $eps)?
        attr-dict `:` type($queries)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    int64_t getHeadDim() {
      return ::llvm::cast<::mlir::RankedTensorType>(getQueries().getType())
                 .getDimSize(1) / static_cast<int64_t>(getHeads());
    }
  }];
}

//===----------------------------------------------------------------------===//
// Output
//===----------------------------------------------------------------------===//

def Qwen_WantedRowsOp : Qwen_Op<"wanted_rows", [Pure, SameOperandsAndResultType]> {
  let summary = "Selects the wanted tokens";
  let description = [{
    Row i of the result is token wantedRows[i] of the input (Context in
    qwen/ABI/KernelABI.h). The result has one row for each wanted token. The op
    is a view: its user gathers the rows.

    Example:

    ```mlir
    %last = qwen.wanted_rows %x : tensor<?x896xf32>
    ```
  }];
  let arguments = (ins Qwen_FloatActivations:$input);
  let results = (outs Qwen_FloatActivations:$result);
  let assemblyFormat = "$input attr-dict `:` type($input)";
}

def Qwen_LmHeadOp : Qwen_WeightUserOp<"lm_head", [Pure]> {
  let summary = "Computes the logits of the wanted tokens";
  let description = [{
    logits = input * transpose(weight) with weight [vocab][hidden], possibly the
    embedding's. The op checks each row of logits for values that are not
    finite. If the caller wants hidden values instead, the norm before it writes
    the result of the call, and this op does nothing.

    Example:

    ```mlir
    %logits = qwen.lm_head %x, @model.embed_tokens.weight : tensor<?x896xf32> -> tensor<?x151936xf32>
    ```
  }];
  let arguments = (ins Qwen_Activations:$input, FlatSymbolRefAttr:$weight,
                       OptionalAttr<FlatSymbolRefAttr>:$packed,
                       OptionalAttr<Qwen_PlanAttr>:$plan,
                       OptionalAttr<StrAttr>:$gemv, OptionalAttr<StrAttr>:$gemm,
                       OptionalAttr<StrAttr>:$check_kernel);
  let results = (outs Qwen_FloatActivations:$result);
  let assemblyFormat = [{
    $input `,` $weight (`packed` $packed^)? attr-dict `:` type($input) `->` type($result)
  }];
  let hasVerifier = 1;
}

#endif // QWEN_DIALECT_QWENOPS_TD
