//===- QwenBase.td - The dialect, its attributes and types -*- tablegen -*-===//

#ifndef QWEN_DIALECT_QWENBASE_TD
#define QWEN_DIALECT_QWENBASE_TD

include "qwen/Dialect/QwenInterfaces.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/BuiltinAttributeInterfaces.td"
include "mlir/IR/OpBase.td"

def Qwen_Dialect : Dialect {
  let name = "qwen";
  let cppNamespace = "::qwen";
  let summary = "Operations of Qwen language models";
  let description = [{
    The dialect has one op for each operation of the model. A value holds the
    activations of a ragged batch; its first dimension counts tokens. The
    type is `tensor<?xNxf32>`, or `tensor<?xNxi8, #qwen.blocks<128>>` for
    activations quantized in blocks (int8 values with a scale for each block and
    a sum for each group of 32 values). Such a type counts all tokens;
    `#qwen.count` names another count. A program has a limit for each of its
    counts, and its first argument counts the tokens of the call. Weights are symbols that name a
    source of values (`qwen.weight`) or bytes of the weight image (`qwen.packed`);
    they are never constants. The KV cache is a resource; `qwen.append` and
    `qwen.attention` have effects on it.

    docs/numerics.md defines the result of each op, to the bit.
  }];
  let useDefaultAttributePrinterParser = 1;
  let hasOperationAttrVerify = 1;
  let hasRegionArgAttrVerify = 1;
  let hasRegionResultAttrVerify = 1;
  let dependentDialects = ["::mlir::func::FuncDialect"];
}

class Qwen_Attr<string name, string attrMnemonic, list<Trait> traits = []>
    : AttrDef<Qwen_Dialect, name, traits> {
  let mnemonic = attrMnemonic;
}

def Qwen_CountAttr : Qwen_Attr<"Count", "count"> {
  let summary = "What the first dimension of a value counts";
  let description = [{
    Encoding of a tensor: a word of lower-case letters, digits and `_`. `wanted`
    are the tokens whose logits are wanted. A tensor without it counts `all`
    tokens.

    Example: `tensor<?x896xf32, #qwen.count<wanted>>`
  }];
  let parameters = (ins "::mlir::StringAttr":$name);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def Qwen_BlocksAttr : Qwen_Attr<"Blocks", "blocks"> {
  let summary = "Activations quantized in blocks";
  let description = [{
    Encoding of a tensor of int8 values: each `size` consecutive values of a
    token form a block with an f32 scale; the last block may be shorter. The
    exact sum of each group of 32 values is stored too. `count` is what the
    tensor counts.

    Examples: `tensor<?x896xi8, #qwen.blocks<128>>`, `tensor<?x896xi8, #qwen.blocks<128, <wanted>>>`
  }];
  let parameters = (ins "int64_t":$size, OptionalParameter<"::qwen::CountAttr">:$count);
  let assemblyFormat = "`<` $size (`,` $count^)? `>`";
  let genVerifyDecl = 1;
}

def Qwen_Count : ConfinedAttr<I64Attr, [IntPositive]>;

def Qwen_Bytes : ConfinedAttr<I64Attr, [IntNonNegative]>;

def Qwen_Offset : ConfinedAttr<I64Attr, [AttrConstraint<
    CPred<"::llvm::cast<::mlir::IntegerAttr>($_self).getInt() >= 0 && ::llvm::cast<::mlir::IntegerAttr>($_self).getInt() % int64_t(::qwen::kTensorAlign) == 0">,
    "whose value is a multiple of 64, 0 or more">]>;

def Qwen_Symbols : ConfinedAttr<FlatSymbolRefArrayAttr, [ArrayMinCount<1>]>;

def Qwen_Layer : ConfinedAttr<I64Attr, [AttrConstraint<
    CPred<"::llvm::cast<::mlir::IntegerAttr>($_self).getValue().ult(::qwen::kMaxLayers)">,
    "whose value is the number of a layer, 0 to 65535">]>;

def Qwen_PositiveNumber : ConfinedAttr<F64Attr, [AttrConstraint<
    CPred<"::qwen::isPositive(::llvm::cast<::mlir::FloatAttr>($_self).getValue())">,
    "whose value is a positive number of f32">]>;

def Qwen_FormatAttr : Qwen_Attr<"Format", "format"> {
  let summary = "Number format of a weight in the image";
  let description = [{
    Example: `#qwen.format<q4_0>`
  }];
  let parameters = (ins "::qwen::WeightFormat":$value);
  let hasCustomAssemblyFormat = 1;
}

def Qwen_SourceAttr : Qwen_Attr<"Source", "source", [DeclareAttrInterfaceMethods<Qwen_SourceInterface>]> {
  let summary = "A weight of the checkpoint";
  let description = [{
    Values that the checkpoint's reader gives under `name`, or that the compiler
    computed and keeps under it. `keeps` is the format that keeps their integers,
    if they are integers. `nearest` is the one in which `--weights keep` encodes
    values that are no integers any more, because an adapter changes them.

    Example: `#qwen.source<"lm_head.weight", keeps = <q4_k>>`
  }];
  let parameters = (ins "::mlir::StringAttr":$name, OptionalParameter<"::qwen::FormatAttr">:$keeps,
                        OptionalParameter<"::qwen::FormatAttr">:$nearest);
  let builders = [AttrBuilder<(ins "::mlir::StringAttr":$name, "::qwen::FormatAttr":$keeps), [{
    return $_get($_ctxt, name, keeps, ::qwen::FormatAttr());
  }]>];
  let assemblyFormat = "`<` $name (`,` struct($keeps, $nearest)^)? `>`";
}

def Qwen_KvFormatAttr : Qwen_Attr<"KvFormat", "kv_format"> {
  let summary = "Number format of the keys and values of a layer";
  let description = [{
    Example: `#qwen.kv_format<f16>`
  }];
  let parameters = (ins "::qwen::KvFormat":$value);
  let hasCustomAssemblyFormat = 1;
}

def Qwen_ElementMapAttr : Qwen_Attr<"ElementMap", "element_map"> {
  let summary = "A function of one value";
  let description = [{
    The name of a row of qwen/ABI/ElementMaps.def.

    Example: `#qwen.element_map<sigmoid>`
  }];
  let parameters = (ins "::qwen::ElementMap":$value);
  let hasCustomAssemblyFormat = 1;
}

def Qwen_LayoutAttr : Qwen_Attr<"Layout", "layout"> {
  let summary = "Layout of a packed matrix";
  let description = [{
    A panel holds the weights of `panel` outputs. Within a panel, chunks of
    `chunk` values along K follow each other, one for each output in turn.
    `chunk` is 1 for f32 and bf16, and 4 for integers: the width of the dot
    instructions. qwen/ABI/Blocks.h defines the bytes.

    Example: `#qwen.layout<q4_0, panel = 16, chunk = 4>`
  }];
  let parameters = (ins "::qwen::WeightFormat":$format, "int64_t":$panel,
                        "int64_t":$chunk);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let builders = [AttrBuilder<(ins "::qwen::WeightFormat":$format), [{
    return $_get($_ctxt, format, ::qwen::kPanelOutputs, ::qwen::chunkValues(format));
  }]>];
}

def Qwen_FeaturesAttr : Qwen_Attr<"Features", "features"> {
  let summary = "CPU features of a target";
  let description = [{
    The names of qwen/ABI/CpuFeatures.def.

    Example: `#qwen.features<avx2, fma, f16c>`
  }];
  let parameters = (ins "::qwen::CpuFeatureSet":$value);
  let hasCustomAssemblyFormat = 1;
}

def Qwen_KernelAttr : Qwen_Attr<"Kernel", "kernel"> {
  let summary = "A kernel of the kernel table";
  let description = [{
    The name of a row of qwen/ABI/Kernels.def.

    Example: `#qwen.kernel<linear_q4_0_1x16x4_avx2>`
  }];
  let parameters = (ins "const ::qwen::KernelInfo *":$info);
  let hasCustomAssemblyFormat = 1;
}

def Qwen_YarnAttr : Qwen_Attr<"Yarn", "yarn"> {
  let summary = "Frequencies of a longer context";
  let description = [{
    The parameters of YaRN (qwen/Numerics/Math.h).

    Example: `#qwen.yarn<factor = 4.0, positions = 32768, fast = 32.0, slow = 1.0>`
  }];
  let parameters = (ins APFloatParameter<"longer context">:$factor, "int64_t":$positions,
    APFloatParameter<"most rotations">:$fast, APFloatParameter<"fewest rotations">:$slow);
  let assemblyFormat = [{
    `<` `factor` `=` custom<Float>($factor) `,` `positions` `=` $positions `,` `fast` `=` custom<Float>($fast) `,`
    `slow` `=` custom<Float>($slow) `>`
  }];
  let genVerifyDecl = 1;
}

def Qwen_FrequenciesAttr : Qwen_Attr<"Frequencies", "frequencies", [DeclareAttrInterfaceMethods<Qwen_SourceInterface>]> {
  let summary = "Inverse frequencies of the rotary embedding";
  let description = [{
    A source of n values: value j is theta^(-j / n), which `yarn` changes. With `axes`, each n / axes values are such values.
    The compiler computes the values (docs/numerics.md).

    Example: `#qwen.frequencies<theta = 1.000000e+06>`, `#qwen.frequencies<theta = 1.000000e+04, axes = 2>`
  }];
  let parameters = (ins APFloatParameter<"base of the frequencies">:$theta, OptionalParameter<"::qwen::YarnAttr">:$yarn,
                        DefaultValuedParameter<"int64_t", "1">:$axes);
  let builders = [AttrBuilder<(ins "const ::llvm::APFloat &":$theta, "::qwen::YarnAttr":$yarn), [{
    return $_get($_ctxt, theta, yarn, 1);
  }]>];
  let assemblyFormat = "`<` `theta` `=` custom<Float>($theta) (`,` struct($yarn, $axes)^)? `>`";
}

def Qwen_SectionsAttr : Qwen_Attr<"Sections", "sections"> {
  let summary = "The frequencies that rotate by time, height and width";
  let description = [{
    How many frequencies of a token with three positions rotate by each position: the time comes first, then the height and the
    width. `interleaved`: frequency j rotates by the height if j mod 3 is 1 and j < 3 * heights, by the width
    if j mod 3 is 2 and j < 3 * widths, and by the time otherwise.

    Example: `#qwen.sections<16, 24, 24>`, `#qwen.sections<24, 20, 20, interleaved = true>`
  }];
  let parameters = (ins "int64_t":$times, "int64_t":$heights, "int64_t":$widths,
                        DefaultValuedParameter<"bool", "false">:$interleaved);
  let assemblyFormat = [{
    `<` $times `,` $heights `,` $widths (`,` `interleaved` `=` $interleaved^)? `>`
  }];
  let genVerifyDecl = 1;
}

def Qwen_MaskAttr : EnumAttr<Qwen_Dialect, Qwen_Mask, "mask"> {
  let summary = "The tokens that a token attends to";
  let description = [{
    `causal`: itself and the tokens of its sequence before it. `windows`: the tokens of its window, which is consecutive
    tokens of a sequence. `all`: the tokens of its sequence.

    Example: `#qwen.mask<windows>`
  }];
  let assemblyFormat = "`<` $value `>`";
}

def Qwen_TurnedAttr : Qwen_Attr<"Turned", "turned", [DeclareAttrInterfaceMethods<Qwen_SourceInterface>]> {
  let summary = "Values of another source, turned";
  let description = [{
    What qwen-rotate folds into the values of `source`, a matrix [outputs][K] or
    a vector, in double: first factors of the columns, then the rotation of each
    block of `columns` columns or the inverse of `qwen.hadamard`, then the
    rotation of each block of `outputs` outputs (docs/numerics.md).

    Example: `#qwen.turned<#qwen.source<"up_proj.weight">, scales = #qwen.source<"norm.weight">, columns = 896>`
  }];
  let parameters = (ins "::qwen::SourceAttrInterface":$source,
                        OptionalParameter<"::qwen::SourceAttrInterface">:$scales,
                        DefaultValuedParameter<"int64_t", "0">:$columns,
                        DefaultValuedParameter<"bool", "false">:$hadamard,
                        DefaultValuedParameter<"int64_t", "0">:$outputs);
  let assemblyFormat = "`<` $source (`,` struct($scales, $columns, $hadamard, $outputs)^)? `>`";
  let genVerifyDecl = 1;
}

def Qwen_RotationAttr : Qwen_Attr<"Rotation", "rotation", [DeclareAttrInterfaceMethods<Qwen_SourceInterface>]> {
  let summary = "The signs and the odd part of a rotation";
  let description = [{
    A source of the vector that `qwen.turn` reads for tokens of `size` values
    (docs/numerics.md): `size` signs, then a value for each number below the
    greatest odd divisor of `size`.

    Example: `#qwen.rotation<896>`
  }];
  let parameters = (ins "int64_t":$size);
  let assemblyFormat = "`<` $size `>`";
  let genVerifyDecl = 1;
}

def Qwen_OnesAttr : Qwen_Attr<"Ones", "ones", [DeclareAttrInterfaceMethods<Qwen_SourceInterface>]> {
  let summary = "Ones";
  let description = [{
    A source of a vector: the weight of a norm that is folded into the products
    behind it.

    Example: `#qwen.ones`
  }];
}

def Qwen_BufferAttr : Qwen_Attr<"Buffer", "buffer"> {
  let summary = "Place of a value in the arena";
  let description = [{
    Token i of the value starts `offset + i * stride * (size of an element)`
    bytes from the arena's base. A quantized value has the scales of its blocks
    (f32, ceil(N / 128) per token) at `scales` and the sums of its groups
    (int32, N / 32 per token) at `sums`; both are -1 for other values. A target
    may have the first tokens of such a value in tiles.

    Example: `#qwen.buffer<offset = 4096, stride = 896>`
  }];
  let parameters = (ins "int64_t":$offset, "int64_t":$stride,
                        DefaultValuedParameter<"int64_t", "-1">:$scales,
                        DefaultValuedParameter<"int64_t", "-1">:$sums);
  let assemblyFormat = "`<` struct(params) `>`";
}

def Qwen_PlanAttr : Qwen_Attr<"Plan", "plan"> {
  let summary = "The plan of one op";
  let description = [{
    `id` numbers the ops of a program in order; the manifest's "ops" lists their
    names. If `barrier` is true, all threads wait before the op starts.
    `buffers` has one entry for each result.

    Example: `#qwen.plan<id = 3, barrier = true, buffers = [#qwen.buffer<offset = 0, stride = 896>]>`
  }];
  let parameters = (ins "int64_t":$id, "bool":$barrier,
                        OptionalArrayRefParameter<"::qwen::BufferAttr">:$buffers);
  let assemblyFormat = [{
    `<` `id` `=` $id `,` `barrier` `=` $barrier
        (`,` `buffers` `=` `[` $buffers^ `]`)? `>`
  }];
}

#endif // QWEN_DIALECT_QWENBASE_TD
