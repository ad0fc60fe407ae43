//===- QwenWeights.td - Symbols that name weights ----------*- tablegen -*-===//

#ifndef QWEN_DIALECT_QWENWEIGHTS_TD
#define QWEN_DIALECT_QWENWEIGHTS_TD

include "qwen/Dialect/QwenBase.td"
include "mlir/IR/BuiltinAttributes.td"
include "mlir/IR/SymbolInterfaces.td"

class Qwen_Op<string mnemonic, list<Trait> traits = []>
    : Op<Qwen_Dialect, mnemonic, traits>;

def Qwen_WeightOp : Qwen_Op<"weight", [Symbol]> {
  let summary = "A tensor of the checkpoint, or one that the compiler computes";
  let description = [{
    The values lie at byte `offset` of `file`, row-major, in the element type of
    `type`: f32, f16 or bf16. A matrix of f32 may have blocks of the type `stored`
    in place of floats. `file` is relative to the checkpoint's folder. A vector of
    f32 may have a formula, `frequencies`, in place of a file. A vector may have a
    `map`, which the compiler applies to each value, and a matrix `outputs`, which
    selects some of the tensor at `offset`.
    `format` is the weight's format in the compiled model; qwen-quantize sets it
    on every weight. A matrix that is `exact` gets a format of floats that holds
    its values.

    Example:

    ```mlir
    qwen.weight @model.norm.weight : tensor<896xbf16> from "model.safetensors" at 136192
    qwen.weight @lm_head.weight : tensor<151936x896xbf16> from "model.safetensors" at 0 as #qwen.format<q4_0>
    qwen.weight @model.layers.0.mlp.up_proj.weight : tensor<4864x896xf32> from "model.gguf" at 4096 stored #qwen.stored<Q5_0>
    qwen.weight @rope.frequencies : tensor<32xf32> frequencies #qwen.frequencies<theta = 1.0e+06>
    qwen.weight @q_norm.weight : tensor<256xbf16> from "model.safetensors" at 0 map plus_one
    qwen.weight @q_proj.gate : tensor<768x96xbf16> from "model.safetensors" at 512 outputs #qwen.outputs<period = 512, first = 256, count = 256>
    qwen.weight @in_proj_a.weight : tensor<16x96xbf16> from "model.safetensors" at 0 exact
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, TypeAttrOf<AnyRankedTensor>:$type,
                       OptionalAttr<StrAttr>:$file, OptionalAttr<I64Attr>:$offset,
                       OptionalAttr<Qwen_StoredAttr>:$stored,
                       OptionalAttr<Qwen_FrequenciesAttr>:$frequencies,
                       OptionalAttr<Qwen_WeightMapAttr>:$map,
                       OptionalAttr<Qwen_OutputsAttr>:$outputs, UnitAttr:$exact,
                       OptionalAttr<Qwen_FormatAttr>:$format);
  let assemblyFormat = [{
    $sym_name `:` $type (`from` $file^ `at` custom<Integer>($offset))? (`stored` $stored^)?
        (`frequencies` $frequencies^)? (`map` $map^)? (`outputs` $outputs^)?
        (`exact` $exact^)? (`as` $format^)? attr-dict
  }];
  let hasVerifier = 1;
  let builders = [
    OpBuilder<(ins "::llvm::StringRef":$name, "::llvm::ArrayRef<int64_t>":$shape,
                   "::qwen::StoredType":$stored, "::llvm::StringRef":$file,
                   "uint64_t":$offset)>,
    OpBuilder<(ins "::llvm::StringRef":$name, "::mlir::RankedTensorType":$type,
                   "::qwen::FrequenciesAttr":$frequencies)>,
  ];
  let extraClassDeclaration = [{
    /// The type of the values in the checkpoint.
    ::qwen::StoredType getStoredType();
    /// The format of `--weights keep`: that of the stored type, of floats if
    /// the matrix is exact.
    ::qwen::WeightFormat getKeptFormat();
  }];
}

def Qwen_PackedOp : Qwen_Op<"packed", [Symbol, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "A part of the weight image";
  let description = [{
    With a layout, the part is a matrix `type`: the outputs of all `segments`,
    one segment after another, in `layout`. Without a layout, it is an f32
    vector (the weight of a norm, or the concatenated biases of a fused linear),
    with zero padding to a multiple of 16 values. The part lies at byte `offset`
    of the weight image.

    Example:

    ```mlir
    qwen.packed @layers.0.qkv [@layers.0.q, @layers.0.k, @layers.0.v] : tensor<1152x896xf32> in #qwen.layout<q4_0, panel = 16, chunk = 4> at 4194304
    qwen.packed @layers.0.norm [@model.layers.0.input_layernorm.weight] : tensor<896xf32> at 0
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, FlatSymbolRefArrayAttr:$segments,
                       TypeAttrOf<AnyRankedTensor>:$type,
                       OptionalAttr<Qwen_LayoutAttr>:$layout, I64Attr:$offset);
  let assemblyFormat = [{
    $sym_name $segments `:` $type (`in` $layout^)? `at` custom<Integer>($offset) attr-dict
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// Bytes in the weight image, padding to whole panels included.
    int64_t getByteSize();
  }];
}

#endif // QWEN_DIALECT_QWENWEIGHTS_TD
