//===- QwenWeights.td - Symbols that name weights ----------*- tablegen -*-===//

#ifndef QWEN_DIALECT_QWENWEIGHTS_TD
#define QWEN_DIALECT_QWENWEIGHTS_TD

include "qwen/Dialect/QwenBase.td"
include "mlir/IR/BuiltinAttributes.td"
include "mlir/IR/SymbolInterfaces.td"

class Qwen_Op<string mnemonic, list<Trait> traits = []>
    : Op<Qwen_Dialect, mnemonic, traits>;

def Qwen_ImageOp : Qwen_Op<"image", [Symbol]> {
  let summary = "A weight image beside the model's";
  let description = [{
    Has the weights and parts whose `image` is its name, for example an adapter
    or a draft head in another file. All other weights and parts are in the
    image of the model. qwen-pack sets its `bytes`.

    Example:

    ```mlir
    qwen.image @draft bytes 4194304
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, OptionalAttr<Qwen_Bytes>:$bytes);
  let assemblyFormat = "$sym_name (`bytes` $bytes^)? attr-dict";
}

def Qwen_WeightOp : Qwen_Op<"weight", [Symbol, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "A weight of the model";
  let description = [{
    `source` says where its values come from. `type` has the elements bf16 if all
    values are such numbers, else f32.
    `format` is the weight's format in the compiled model; qwen-quantize sets it
    on every weight. A matrix that is `exact` gets a format of floats that holds
    its values. `image` is the qwen.image that it lies in; without it, it lies in
    the model's.

    Example:

    ```mlir
    qwen.weight @model.norm.weight : tensor<896xbf16> from #qwen.source<"model.norm.weight">
    qwen.weight @lm_head.weight : tensor<151936x896xbf16> from #qwen.source<"lm_head.weight"> as <q4_0>
    qwen.weight @model.layers.0.mlp.up_proj.weight : tensor<4864x896xf32> from #qwen.source<"model.layers.0.mlp.up_proj.weight", keeps = <q5_0>>
    qwen.weight @rope.frequencies : tensor<32xf32> from #qwen.frequencies<theta = 1.0e+06>
    qwen.weight @in_proj_a.weight : tensor<16x96xbf16> from #qwen.source<"in_proj_a.weight"> exact
    qwen.weight @mtp.norm.weight : tensor<896xf32> from #qwen.source<"mtp.norm.weight"> of @draft
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, TypeAttrOf<AnyRankedTensor>:$type,
                       Qwen_SourceInterface:$source, UnitAttr:$exact,
                       OptionalAttr<Qwen_FormatAttr>:$format,
                       OptionalAttr<FlatSymbolRefAttr>:$image);
  let assemblyFormat = [{
    $sym_name `:` $type `from` $source (`exact` $exact^)? (`as` $format^)?
    (`of` $image^)? attr-dict
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// The format of `--weights keep`: the format of the source's integers, or
    /// the nearest where it has no integers any more, unless the matrix is
    /// exact; else floats.
    ::qwen::WeightFormat getKeptFormat();
    bool isMatrix();
    /// Its values. Throws Error as SourceAttrInterface::open does.
    ::qwen::WeightSourcePtr open(const ::qwen::WeightSources &sources);
  }];
}

def Qwen_PackedOp : Qwen_Op<"packed", [Symbol, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "A part of a weight image";
  let description = [{
    With a layout, the part is a matrix `type`: the outputs of all `segments`,
    one segment after another, in `layout`. Without a layout, it is an f32
    vector (the weight of a norm, or the concatenated biases of a fused linear),
    with zero padding to a multiple of 16 values. The part lies at byte `offset`
    of `image`, the image of all its segments. With `experts`, it is that many matrices, `stride` bytes
    from one to the next. A segment has the outputs of all experts, and a matrix
    has the outputs of its expert, one segment after another.

    Example:

    ```mlir
    qwen.packed @layers.0.qkv [@layers.0.q, @layers.0.k, @layers.0.v] : tensor<1152x896xf32> in #qwen.layout<q4_0, panel = 16, chunk = 4> at 4194304
    qwen.packed @experts.gate_up [@experts.gate, @experts.up] : tensor<196608x2048xf32> in #qwen.layout<q4_0, panel = 16, chunk = 4> at 0 experts 128 stride 2654208
    qwen.packed @layers.0.norm [@model.layers.0.input_layernorm.weight] : tensor<896xf32> at 0
    qwen.packed @mtp.norm [@mtp.norm.weight] : tensor<896xf32> at 0 of @draft
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, FlatSymbolRefArrayAttr:$segments,
                       TypeAttrOf<AnyRankedTensor>:$type,
                       OptionalAttr<Qwen_LayoutAttr>:$layout, Qwen_Offset:$offset,
                       OptionalAttr<I64Attr>:$experts, OptionalAttr<I64Attr>:$stride,
                       OptionalAttr<FlatSymbolRefAttr>:$image);
  let assemblyFormat = [{
    $sym_name $segments `:` $type (`in` $layout^)? `at` custom<Integer>($offset)
    (`of` $image^)? (`experts` $experts^ `stride` $stride)? attr-dict
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// Bytes in the image, padding to whole panels included.
    int64_t getByteSize();
    /// Matrices `stride` bytes apart; 1 without experts.
    int64_t getMatrices();
    /// Bytes of a matrix.
    int64_t getMatrixBytes() { return getByteSize() / getMatrices(); }
    /// The byte of the image behind the last matrix.
    int64_t getEnd();
  }];
}

#endif // QWEN_DIALECT_QWENWEIGHTS_TD
