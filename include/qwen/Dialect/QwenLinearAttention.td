//===- QwenLinearAttention.td - Linear attention -----------*- tablegen -*-===//
//
// A part of QwenOps.td.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_DIALECT_QWENLINEARATTENTION_TD
#define QWEN_DIALECT_QWENLINEARATTENTION_TD

def Qwen_ShortConvolutionOp : Qwen_ComputeOp<"short_convolution", "Columns",
    [DeclareOpInterfaceMethods<MemoryEffectsOpInterface>, AllTypesMatch<["input", "result"]>],
    ["getWeightUses", "getCacheUse"],
    (ins Qwen_FloatActivations:$input, FlatSymbolRefAttr:$weight, Qwen_Layer:$layer),
    "$input `,` $weight `layer` custom<Integer>($layer)", "type($input)"> {
  let summary = "Causal convolution of each channel, then silu";
  let description = [{
    Channel c of token t becomes silu(sum over j < 4 of w[c][j] *
    input[t - 3 + j][c]) over the tokens of its sequence, with zeros before the
    first. The weight is a vector [channels][4]. The inputs of the last three
    tokens of a sequence are its fixed cache "convolution" of layer `layer`.

    Example:

    ```mlir
    %c = qwen.short_convolution %u, @conv1d.weight layer 0 : tensor<?x6144xf32>
    ```
  }];
  let results = (outs Qwen_FloatActivations:$result);
  let hasVerifier = 1;
}

def Qwen_DeltaGatesOp : Qwen_ComputeOp<"delta_gates", "Token",
    [Pure, AllTypesMatch<["a", "b", "decay", "beta"]>], ["getWeightUses"],
    (ins Qwen_FloatActivations:$a, Qwen_FloatActivations:$b, FlatSymbolRefAttr:$rate, FlatSymbolRefAttr:$bias),
    "$a `,` $b `,` $rate `,` $bias", "type($a)"> {
  let summary = "Decay and strength of each value head";
  let description = [{
    decay = exp(-rate * softplus(a + bias)) and beta = sigmoid(b).

    Example:

    ```mlir
    %decay, %beta = qwen.delta_gates %a, %b, @A_log, @dt_bias : tensor<?x16xf32>
    ```
  }];
  let results = (outs Qwen_FloatActivations:$decay, Qwen_FloatActivations:$beta);
}

def Qwen_DeltaRuleOp : Qwen_ComputeOp<"delta_rule", "Columns",
    [DeclareOpInterfaceMethods<MemoryEffectsOpInterface>, AllTypesMatch<["decay", "beta"]>],
    ["getCacheUse"],
    (ins Qwen_FloatActivations:$input, Qwen_FloatActivations:$decay, Qwen_FloatActivations:$beta, Qwen_Layer:$layer, Qwen_Count:$key_heads, UnitAttr:$interleaved),
    "$input `,` $decay `,` $beta `layer` custom<Integer>($layer) `key_heads` custom<Integer>($key_heads) (`interleaved` $interleaved^)?",
    "type($input) `,` type($decay) `->` type($result)"> {
  let summary = "The gated delta rule";
  let description = [{
    A token's input has the heads of q, then the heads of k (both `key_heads`),
    then the heads of v. Each value head, with the heads of q and k that it
    shares, runs the tokens of a sequence in order:

        q = q / sqrt(sum q^2 + 1e-6) / sqrt(dk);  k = k / sqrt(sum k^2 + 1e-6)
        change = beta * (v - decay * S^T k)
        S = decay * S + k change^T;  result = S^T q

    The value heads of a key head follow each other. If they are `interleaved`,
    the first value head of each key head comes first, then the second of each.
    S is f32 [dk][dv], zeros before the first token. The states of all value heads
    are the fixed cache "delta" of layer `layer`.

    Example:

    ```mlir
    %o = qwen.delta_rule %c, %decay, %beta layer 0 key_heads 16
        : tensor<?x6144xf32>, tensor<?x16xf32> -> tensor<?x2048xf32>
    ```
  }];
  let results = (outs Qwen_FloatActivations:$result);
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    int64_t getValueHeads();
    /// Consecutive value heads that share a key head.
    int64_t getSharing();
    /// Values of a head of q and k, and of v.
    int64_t getKeyDim();
    int64_t getValueDim();
  }];
}

#endif // QWEN_DIALECT_QWENLINEARATTENTION_TD
