//===- QwenEnums.td - Enumerations of the dialect ----------*- tablegen -*-===//

#ifndef QWEN_DIALECT_QWENENUMS_TD
#define QWEN_DIALECT_QWENENUMS_TD

include "mlir/IR/EnumAttr.td"

class Qwen_Enum<string name, string summary, list<I32EnumAttrCase> cases>
    : I32EnumAttr<name, summary, cases> {
  let cppNamespace = "::qwen";
  let genSpecializedAttr = 0;
}

/// Of tokens, a thread runs exactly its share, so two ops with this unit give a
/// thread the same tokens. Of other units, it may steal some from a tail.
def Qwen_WorkUnit : Qwen_Enum<"WorkUnit", "What the work of an op consists of", [
  I32EnumAttrCase<"Token", 0, "token">,
  I32EnumAttrCase<"Panel", 1, "panel">,
  I32EnumAttrCase<"TokenHead", 2, "token_head">,
  I32EnumAttrCase<"TokenBlock", 3, "token_block">,
  I32EnumAttrCase<"Columns", 4, "columns">
]>;

/// OwnBuffers: each result has its own. OneBuffer: results lie side by side for
/// each token, in whole panels. CallResult: the result of the call, which is not
/// in the arena.
def Qwen_ResultPlace : Qwen_Enum<"ResultPlace", "Where the results of an op lie", [
  I32EnumAttrCase<"OwnBuffers", 0, "own_buffers">,
  I32EnumAttrCase<"OneBuffer", 1, "one_buffer">,
  I32EnumAttrCase<"CallResult", 2, "call_result">
]>;

/// Starts: the result is the stream, the rows of a gathered matrix. Adds: the
/// result is the stream plus products. Norms: the result is the stream, normed,
/// times a vector. Leaves: tokens of the stream, on their way to the head.
/// Heads: the product that reads these, normed. Other: all other ops, which read
/// no stream.
def Qwen_StreamUse : Qwen_Enum<"StreamUse", "How an op uses the residual stream", [
  I32EnumAttrCase<"Other", 0, "other">,
  I32EnumAttrCase<"Starts", 1, "starts">,
  I32EnumAttrCase<"Adds", 2, "adds">,
  I32EnumAttrCase<"Norms", 3, "norms">,
  I32EnumAttrCase<"Leaves", 4, "leaves">,
  I32EnumAttrCase<"Heads", 5, "heads">
]>;

/// Causal: itself and the tokens of its sequence before it. Windows: the tokens of
/// its window. All: the tokens of its sequence.
def Qwen_Mask : Qwen_Enum<"Mask", "The tokens that a token attends to", [
  I32EnumAttrCase<"Causal", 0, "causal">,
  I32EnumAttrCase<"Windows", 1, "windows">,
  I32EnumAttrCase<"All", 2, "all">
]>;

def Qwen_Stage : Qwen_Enum<"Stage", "Stages of a module, in order", [
  I32EnumAttrCase<"Graph", 0, "graph">,
  I32EnumAttrCase<"Quantized", 1, "quantized">,
  I32EnumAttrCase<"Packed", 2, "packed">,
  I32EnumAttrCase<"Calls", 3, "calls">
]>;

#endif // QWEN_DIALECT_QWENENUMS_TD
