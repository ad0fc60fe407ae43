//===- Passes.td - Passes over the qwen dialect ------------*- tablegen -*-===//

#ifndef QWEN_TRANSFORMS_PASSES
#define QWEN_TRANSFORMS_PASSES

include "mlir/Pass/PassBase.td"

class Qwen_Pass<string argument> : Pass<argument, "::mlir::ModuleOp"> {
  let dependentDialects = ["::qwen::QwenDialect"];
}

//===----------------------------------------------------------------------===//
// Graph
//===----------------------------------------------------------------------===//

def FuseEpilogues : Qwen_Pass<"qwen-fuse-epilogues"> {
  let summary = "Makes biases and residuals epilogues of products";
  let description = [{
    `qwen.add_bias` of a linear becomes the linear's `bias`, and `qwen.add` of a
    linear its `residual`, where the linear has one weight and no other user and
    where the residual is there before the linear. docs/numerics.md adds bias,
    then residual: a bias is not put behind a residual.
  }];
}

def FuseProjections : Qwen_Pass<"qwen-fuse-projections"> {
  let summary = "Makes one product of linears with the same input";
  let description = [{
    Linears with the same input and without residual become one linear with
    their weights, in program order (q, k, v; gate, up). Those with a bias and
    those without make products of their own. Run after qwen-fuse-epilogues.
  }];
}

def FuseAttention : Qwen_Pass<"qwen-fuse-attention"> {
  let summary = "Splits the append off attention and folds norms and rotations";
  let description = [{
    `qwen.attention append(k, v)` becomes `qwen.append`, which norms (Qwen3) and
    rotates the keys, and `qwen.attention rope(...)`, which does so with the
    queries. Queries and keys must come from `qwen.rope`.
  }];
}

//===----------------------------------------------------------------------===//
// Quantized
//===----------------------------------------------------------------------===//

def Quantize : Qwen_Pass<"qwen-quantize"> {
  let summary = "Chooses formats and quantizes activations";
  let description = [{
    Sets the format of every weight (matrices: `weights`; vectors: f32) and of
    the KV cache. The rows that products with quantized weights read are
    quantized by one `qwen.quantize`, which all its users share.
  }];
  let options = [
    Option<"weights", "weights", "::qwen::WeightFormat",
           "::qwen::WeightFormat::Q4_0", "format of the matrices",
           "::qwen::weightFormatValues()">,
    Option<"kv", "kv", "::qwen::KvFormat", "::qwen::KvFormat::F16",
           "format of the KV cache",
           [{::llvm::cl::values(
              clEnumValN(::qwen::KvFormat::F32, "f32", "32-bit floats"),
              clEnumValN(::qwen::KvFormat::F16, "f16", "16-bit floats"))}]>,
  ];
}

def FuseQuantize : Qwen_Pass<"qwen-fuse-quantize"> {
  let summary = "Quantizes where rows are computed";
  let description = [{
    `qwen.quantize` of a `qwen.rms_norm` over whole rows or of a `qwen.swiglu`
    becomes its quantized result type, where nothing else reads the f32 rows.
  }];
}

//===----------------------------------------------------------------------===//
// Packed
//===----------------------------------------------------------------------===//

def SelectKernels : Qwen_Pass<"qwen-select-kernels"> {
  let summary = "Chooses a row of the kernel table for each op";
  let description = [{
    The features are those of `qwen.target_features`, or of the option, in the
    spelling of CpuFeatures.def. Each op gets the last row that they can run.
  }];
  let options = [
    ListOption<"features", "features", "std::string",
               "CPU features, in place of the module's">,
  ];
}

def Pack : Qwen_Pass<"qwen-pack"> {
  let summary = "Lays out the weight image";
  let description = [{
    Gives each matrix and each vector that an op reads a `qwen.packed` with its
    layout and its place in the weight image, in program order, and makes the
    ops refer to it. The same weights in the same layout are packed once (a tied
    embedding is also the output's weight). The segments of a product have one
    format and follow each other without padding; so do biases. Inverse
    frequencies of `qwen.rope_table` get a place, too. Sets `qwen.weight_bytes`.
  }];
}

def Plan : Qwen_Pass<"qwen-plan"> {
  let summary = "Numbers the ops and places barriers and buffers";
  let description = [{
    All threads run all ops in order, each op divided into units of work:

    | op | units |
    |---|---|
    | embedding, rope_table, rms_norm, quantize | rows |
    | linear, lm_head | panels of 16 columns, over all rows |
    | append, attention | row x KV head |
    | swiglu | row x block of 128 columns |

    A thread does the same units of two ops that are divided alike. An op starts
    with a barrier if it reads what, since the last barrier, an op with other
    units has written, if it appends to a layer that has been attended to since
    then, or if it attends to a layer that has been appended to.

    Between two barriers lies a phase. A value is alive from the phase that
    writes it to the last phase that reads it, both included, and only values
    that are never alive in the same phase share memory, so that sharing needs
    no barrier. The one exception is in place: a product may write over its
    residual (the same panels of the same rows) if no other op of its phase
    or of a later one reads that.

    Buffers start at multiples of 64 bytes and have `qwen.max_tokens` rows or,
    past `qwen.output_rows`, `qwen.max_rows`. Results of a fused product are
    column ranges of one buffer. The result of `qwen.lm_head` is the call's
    output and not in the arena (offset -1). Sets `qwen.arena_bytes`.
  }];
}

def VerifyPlan : Qwen_Pass<"qwen-verify-plan"> {
  let summary = "Checks barriers and buffers of a plan";
  let description = [{
    Checks what qwen-plan promises, from its result and with rules of its own:

    - A barrier lies between an op and each op whose result it reads. Only ops
      on rows may follow each other without one, and only if they have equally
      many rows and none is gathered by `qwen.output_rows`: then a thread reads
      its own rows. Threads may take units of products and attention from each
      other, so no two of those have the same units.
    - An op before `qwen.attention` appends to its layer of the cache, and a
      barrier lies between them, and between `qwen.attention` and a later
      append.
    - Buffers that are alive in one phase are disjoint. A buffer is alive from
      the phase that writes it to the last phase that reads it, both included,
      or to the end if the function returns it. A product may write exactly over
      its residual if nothing else reads that in the phase or later.
    - Buffers start at multiples of 64 bytes and end within `qwen.arena_bytes`.
      Rows of a product have room for whole panels.
    - `qwen.lm_head` is the last op: it skips its barrier where the caller wants
      hidden rows.

    The error is at the op that comes later; a note shows the other op.
  }];
}

//===----------------------------------------------------------------------===//
// Stages
//===----------------------------------------------------------------------===//

def VerifyStage : Qwen_Pass<"qwen-verify-stage"> {
  let summary = "Checks that the module has reached a stage";
  let description = [{
    graph: ops as imported. quantized: every weight has a format, products read
    what their weights ask for, and no op is left that only fusion removes.
    packed: every op has its kernels, weights, plan. calls: no op computes.
    An error names the pass that must come first. Sets `qwen.stage`.
  }];
  let options = [
    Option<"stage", "stage", "::qwen::Stage", "::qwen::Stage::Graph",
           "the stage",
           [{::llvm::cl::values(
              clEnumValN(::qwen::Stage::Graph, "graph", "as imported"),
              clEnumValN(::qwen::Stage::Quantized, "quantized",
                         "fused, with formats"),
              clEnumValN(::qwen::Stage::Packed, "packed",
                         "with kernels, weight image and plan"),
              clEnumValN(::qwen::Stage::Calls, "calls", "lowered"))}]>,
  ];
}

#endif // QWEN_TRANSFORMS_PASSES
