//===- QwenExperts.td - Operations of experts --------------*- tablegen -*-===//
//
// A part of QwenOps.td.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_DIALECT_QWENEXPERTS_TD
#define QWEN_DIALECT_QWENEXPERTS_TD

/// An integer for each choice: a token and one of its experts.
def Qwen_ChoiceIntegers : Type<CPred<"::qwen::isChoiceIntegers($_self)">, "an i32 for each choice, tensor<?xExi32>",
    "::mlir::RankedTensorType">;
/// Activations of each choice, in the order of experts.
def Qwen_ExpertActivations : Type<CPred<"::qwen::isExpertActivations($_self)">,
    "activations of choices, tensor<?xExNxf32> or tensor<?xExNxi8, #qwen.blocks<128>>",
    "::mlir::RankedTensorType">;

def Qwen_RouteOp : Qwen_ComputeOp<"route", "Token", [Pure, AllTypesMatch<["ids", "order"]>], [],
    (ins Qwen_FloatActivations:$logits, Optional<Qwen_FloatActivations>:$shared, UnitAttr:$normalized),
    "$logits (`shared` `(` $shared^ `:` type($shared) `)`)? (`normalized` $normalized^)?",
    "type($logits) `->` type($weights) `,` type($ids) `,` type($first)"> {
  let summary = "Chooses the experts of each token";
  let description = [{
    The experts with the greatest logits of a token, as many as `ids` has: their
    `ids` in ascending order, and their probabilities, the softmax of all logits;
    `normalized` divides these by their sum. `shared` is the logit of the expert
    of all tokens: its sigmoid is one weight more. A token with a logit that is
    not finite is flagged.

    A token and one of its E experts are a choice; its number is token * E + the
    expert's place in the experts of the token. `order` has the choices by
    expert, and for each by token. The choices of expert e are from first[e] on,
    before first[e + 1].

    Example:

    ```mlir
    %w, %ids, %order, %first = qwen.route %logits normalized
        : tensor<?x128xf32> -> tensor<?x8xf32>, tensor<?x8xi32>, tensor<129xi32>
    ```
  }];
  let results = (outs Qwen_FloatActivations:$weights, Qwen_ChoiceIntegers:$ids, Qwen_ChoiceIntegers:$order,
                      Qwen_Integers:$first);
  let hasVerifier = 1;
}

def Qwen_ExpertsGateOp : Qwen_ComputeOp<"experts_gate", "Panel", [Pure], ["getWeightUses"],
    (ins Qwen_Activations:$input, Qwen_ChoiceIntegers:$order, Qwen_Integers:$first, FlatSymbolRefAttr:$gate),
    "$input `,` $order `,` $first `,` $gate",
    "type($input) `,` type($order) `,` type($first) `->` type($result)"> {
  let summary = "The product of experts that is a gate";
  let description = [{
    For each choice, in their order: x * transpose(gate_e), with x the input of its
    token and e its expert. `qwen.experts_up` does this itself where its two
    matrices have one format.

    Example:

    ```mlir
    %g = qwen.experts_gate %x, %order, %first, @gate
        : tensor<?x2048xf32>, tensor<?x8xi32>, tensor<129xi32> -> tensor<?x8x768xf32>
    ```
  }];
  let results = (outs Qwen_ExpertActivations:$result);
  let hasVerifier = 1;
}

def Qwen_ExpertsUpOp : Qwen_ComputeOp<"experts_up", "Panel", [Pure], ["getWeightUses"],
    (ins Qwen_Activations:$input, Qwen_ChoiceIntegers:$order, Qwen_Integers:$first,
         Optional<Qwen_ExpertActivations>:$gates, OptionalAttr<FlatSymbolRefAttr>:$gate, FlatSymbolRefAttr:$up),
    "$input `,` $order `,` $first `,` (`gates` `(` $gates^ `:` type($gates) `)`):($gate)? `,` $up",
    "type($input) `,` type($order) `,` type($first) `->` type($result)"> {
  let summary = "The first products of experts, and silu(gate) * up";
  let description = [{
    For each choice, in their order: silu(x * transpose(gate_e)) * (x *
    transpose(up_e)), with x the input of its token and e its expert.
    `gate` and `up` have the outputs of all experts, one expert after another.
    `gates` are x * transpose(gate_e), if another op has computed them. With a
    quantized result type, the op also quantizes its result in blocks.

    Example:

    ```mlir
    %h = qwen.experts_up %x, %order, %first, @gate, @up
        : tensor<?x2048xf32>, tensor<?x8xi32>, tensor<129xi32> -> tensor<?x8x768xf32>
    ```
  }];
  let results = (outs Qwen_ExpertActivations:$result);
  let hasVerifier = 1;
}

def Qwen_ExpertsDownOp : Qwen_ComputeOp<"experts_down", "Panel", [Pure],
    ["getWeightUses", "getSummands", "fuseAddend"],
    (ins Qwen_ExpertActivations:$input, Qwen_FloatActivations:$weights, Qwen_ChoiceIntegers:$order, Qwen_Integers:$first,
         Variadic<Qwen_FloatActivations>:$addends, FlatSymbolRefAttr:$down),
    "$input `,` $weights `,` $order `,` $first `,` $down (`plus` `(` $addends^ `:` type($addends) `)`)?",
    "type($input) `,` type($weights) `,` type($order) `,` type($first) `->` type($result)"> {
  let summary = "The last product of experts, and their weighted sum";
  let description = [{
    For each token, the sum of weight * (input * transpose(down_e)) over its
    choices, whose experts e ascend, from +0; then the addends in their order, at
    most two. The result of a shared expert comes first, times the weight behind
    the weights of the choices, if there is one. The residual comes last. `down`
    has the outputs of all experts, one expert after another.

    Example:

    ```mlir
    %y = qwen.experts_down %h, %w, %order, %first, @down plus(%x : tensor<?x2048xf32>)
        : tensor<?x8x768xf32>, tensor<?x8xf32>, tensor<?x8xi32>, tensor<129xi32> -> tensor<?x2048xf32>
    ```
  }];
  let results = (outs Qwen_FloatActivations:$result);
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// Whether the first addend has a weight.
    bool hasSharedExpert();
  }];
}

#endif // QWEN_DIALECT_QWENEXPERTS_TD
