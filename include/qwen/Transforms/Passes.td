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

def Rotate : Qwen_Pass<"qwen-rotate"> {
  let summary = "Folds rotations into weights";
  let description = [{
    Turns the residual stream by one orthogonal matrix (docs/numerics.md), so
    that no channel is much larger than the others. The weights of the norms
    over the stream are folded into the products behind them. The columns of
    these products and of the embedding are turned, and the outputs of the
    products that write the stream. Where only a product reads the result of
    attention, the values of each KV head are turned, and the columns of that
    product. `qwen.hadamard` transforms what a feed-forward network's last
    product reads, and its columns undo that. Behind the last layer, `qwen.turn`
    turns the stream back: hidden values are the model's. A second one, behind
    the last norm, turns what the head reads.

    An argument or a result of a program is as it is without rotations: where
    it is the stream, `qwen.turn` turns it. A result stays turned where another
    program reads it (`qwen.from`) as the stream, in norms before products or in
    sums. All ops that read a weight must need the same rotations.

    Sources become `#qwen.turned`, and their values f32. Run before fusion.
  }];
}

def FuseEpilogues : Qwen_Pass<"qwen-fuse-epilogues"> {
  let summary = "Fuses biases and residuals into products";
  let description = [{
    Fuses `qwen.add_bias` of a linear into its `bias`, and `qwen.add` of a
    linear into its `residual`. The linear must have one weight and no other
    user, and the residual must dominate the linear. docs/numerics.md adds the
    bias before the residual, so the pass fuses no bias after a residual.
  }];
}

//===----------------------------------------------------------------------===//
// Quantized
//===----------------------------------------------------------------------===//

def Quantize : Qwen_Pass<"qwen-quantize"> {
  let summary = "Chooses formats and quantizes activations";
  let description = [{
    Sets the format of every weight, and of the keys and values of every layer.
    Vectors are f32. A matrix has the format that `formats` has for its name, or
    `weights`. An exact matrix has the format of floats that holds its values.
    The keys and values of a layer have the format that `kv-layers` has for its
    number, or `kv`.

    Products with quantized weights read quantized activations: the pass inserts
    one `qwen.quantize` for all such products with the same input.
  }];
  let options = [
    Option<"weights", "weights", "::qwen::WeightFormat",
           "::qwen::WeightFormat::Q4_0", "format of the matrices",
           "::qwen::weightFormatValues()">,
    ListOption<"formats", "formats", "::qwen::MatrixFormat",
               "formats of single matrices, as NAME=FORMAT">,
    Option<"kv", "kv", "::qwen::KvFormat", "::qwen::KvFormat::F16",
           "format of the KV cache", "::qwen::kvFormatValues()">,
    ListOption<"kvLayers", "kv-layers", "::qwen::KvLayer",
               "formats of keys and values of single layers, as LAYER=FORMAT">,
  ];
}

def FuseProjections : Qwen_Pass<"qwen-fuse-projections"> {
  let summary = "Fuses linears with the same input";
  let description = [{
    Fuses linears with the same input, without residual and with weights of the
    same format into one linear with all their weights, in program order (q, k,
    v; gate, up). Linears with a bias and linears without one are fused
    separately. Run after qwen-fuse-epilogues and qwen-quantize.
  }];
}

def FuseAttention : Qwen_Pass<"qwen-fuse-attention"> {
  let summary = "Fuses norms and rotations into append and attention";
  let description = [{
    Moves the rotation of keys, and the norm of each head before it (Qwen3), into
    `qwen.append`, and the rotation and norm of queries into `qwen.attention`.
    Attention over the call gets the rotation of queries and keys, which must be
    one, and no norm. Keys and queries that do not come from `qwen.rope` stay as
    they are.
  }];
}

def FuseQuantize : Qwen_Pass<"qwen-fuse-quantize"> {
  let summary = "Fuses quantize into the op that computes its input";
  let description = [{
    Fuses `qwen.quantize` into the `qwen.rms_norm` (without heads), the
    `qwen.gate`, the `qwen.map` or the `qwen.swiglu` before it, whose result
    type becomes quantized. A `qwen.hadamard` between `qwen.swiglu` and `qwen.quantize`
    becomes a part of the swiglu. Nothing else may read the f32 values.
  }];
}

//===----------------------------------------------------------------------===//
// Packed
//===----------------------------------------------------------------------===//

def SelectKernels : Qwen_Pass<"qwen-select-kernels"> {
  let summary = "Selects kernels for each op";
  let description = [{
    Each op gets, for each kind of kernel that it uses, the last kernel of the
    table that a target with `qwen.target_features` can run.
  }];
}

def Pack : Qwen_Pass<"qwen-pack"> {
  let summary = "Lays out the weight image";
  let description = [{
    Creates a `qwen.packed` for each matrix and vector that an op reads, with
    its layout and its offset in the weight image, in program order, and makes
    the ops refer to it. Weights that several ops read in the same layout are
    packed once: a tied embedding is also the weight of the lm_head. The
    segments of a product have one format and no padding between them; neither
    have biases. Sets `qwen.weight_bytes`.
  }];
}

def Plan : Qwen_Pass<"qwen-plan"> {
  let summary = "Numbers the ops and places barriers and buffers";
  let description = [{
    All threads run all ops in order. Each op's work consists of units:

    | op | unit |
    |---|---|
    | embedding, rope_table, rms_norm, quantize, turn | token |
    | linear, lm_head | panel of 16 outputs, over all tokens |
    | append, attention | token and KV head |
    | swiglu, map, hadamard | token and block of 128 values |

    Ops with the same units give a thread the same units. An op starts with a
    barrier in two cases, each counted from the last barrier on:

    - It reads a value that an op with other units wrote.
    - It writes the cache of a layer that another op reads or writes, or reads
      one that another op writes.

    The ops between two barriers form a phase. A value is alive from the phase
    that writes it to the last phase that reads it, both included. Two values
    share memory only if no phase has both alive, so sharing needs no barrier.
    There is one exception: a product may write over its residual (the same
    panels of the same tokens) if no other op of its phase or of a later one
    reads the residual.

    The alignment of buffers is 64 bytes. A buffer has room for the limit of what
    its value counts (`qwen.limits`). The results of a fused product share one buffer, side by side for each token. The result of
    `qwen.lm_head` is the result of the call and not in the arena (offset -1).
    Sets `qwen.arena_bytes` of each program.

    An argument of activations (`qwen.name`) lies where another program leaves its
    result of that name (`qwen.from`), for all of the program, or in a buffer
    that the caller fills: `qwen.place`. A result with a name stays in the arena.
  }];
}

def VerifyPlan : Qwen_Pass<"qwen-verify-plan"> {
  let summary = "Checks barriers and buffers of a plan";
  let description = [{
    Checks the result of qwen-plan by independent rules:

    - A barrier lies between an op and each op whose result it reads. Only ops
      with tokens as units may follow each other without one. No view may lie
      between them: then a thread reads the tokens that it wrote. Threads may steal units of
      products and attention, so a thread's units differ between two of those.
    - An op before `qwen.attention` appends to its layer of the cache. A barrier
      lies between the two, and between `qwen.attention` and a later append. A
      fixed cache may be read first: it begins with zeros.
    - Buffers that are alive in one phase are disjoint. A buffer is alive from
      the phase that writes it (the first, of an argument) to the last phase that
      reads it, both included, or to the end if the program returns it or takes
      it from another program. A product may write exactly over
      its residual if nothing else reads the residual in that phase or later.
    - The alignment of buffers is 64 bytes, and they end within
      `qwen.arena_bytes`. The buffer of a product has room for whole panels.
    - `qwen.lm_head` is the last op, because it skips its barrier if the caller
      wants hidden values.

    The error is at the later op; a note shows the other op.
  }];
}

//===----------------------------------------------------------------------===//
// Stages
//===----------------------------------------------------------------------===//

def VerifyStage : Qwen_Pass<"qwen-verify-stage"> {
  let summary = "Checks that the module has reached a stage";
  let description = [{
    - graph: the ops of the importer.
    - quantized: every weight has a format, products read activations of the
      type that their weights require, and no op is left that fusion removes.
    - packed: every op has kernels, packed weights and a plan.
    - calls: the programs call kernels; no op that computes is left.

    An error names the pass that must run first. Sets `qwen.stage`.
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
