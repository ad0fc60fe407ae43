// RUN: qwen-opt %s --qwen-quantize | FileCheck %s --check-prefixes=CHECK,Q4
// RUN: qwen-opt %s --qwen-quantize="weights=f32 kv=f32" | FileCheck %s --check-prefixes=CHECK,F32
// RUN: qwen-opt %s --qwen-quantize=weights=bf16 | FileCheck %s --check-prefixes=CHECK,BF16
// RUN: qwen-opt %s --qwen-quantize=weights=q8_0 | FileCheck %s --check-prefix=Q8
// RUN: qwen-opt %s --qwen-quantize=weights=q4_g128 | FileCheck %s --check-prefix=G128

// The last rule that matches a matrix wins, whatever the rules before it say.
// RUN: qwen-opt %s --qwen-quantize="weights=q8_0 tensor-weights=.=q4_g128,q=q4_0,^em.*d=bf16" | FileCheck %s --check-prefix=RULES
// RUN: qwen-opt %s --qwen-quantize="weights=q8_0 tensor-weights=q|embed=f32,^q=q4_0,embed=bf16" | FileCheck %s --check-prefix=RULES
// RULES: qwen.weight @embed : {{.*}} as <bf16>
// RULES: qwen.weight @q : {{.*}} as <q4_0>
// RULES: qwen.weight @norm : {{.*}} as <f32>
// RULES: %[[XQ:.*]] = qwen.quantize
// RULES: qwen.linear %[[XQ]], [@q] :
// RULES: %[[S:.*]] = qwen.swiglu
// RULES-NEXT: qwen.lm_head %[[S]], @embed :

// The format of the checkpoint, or the one that is nearest.
// RUN: qwen-opt %s --qwen-quantize="tensor-weights==keep" | FileCheck %s --check-prefix=KEEP
// RUN: qwen-opt %s --qwen-quantize="weights=f32 tensor-weights=embed|q|whole=keep" | FileCheck %s --check-prefix=KEEP
// KEEP: qwen.weight @embed : {{.*}} as <bf16>
// KEEP: qwen.weight @q : {{.*}} as <bf16>

// RUN: not qwen-opt %s --qwen-quantize="tensor-weights=down_proj" 2>&1 | FileCheck %s --check-prefix=NOFORMAT
// NOFORMAT: error: --tensor-weights 'down_proj' has no format when 'REGEX=FORMAT' is needed
// RUN: not qwen-opt %s --qwen-quantize="tensor-weights=q=q4_0,q[=q8_0" 2>&1 | FileCheck %s --check-prefix=NOREGEX
// NOREGEX: error: --tensor-weights 'q[=q8_0' is not a regular expression: missing ]: [
// RUN: not qwen-opt %s --qwen-quantize="tensor-weights=q=q9" 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// UNKNOWN: error: --tensor-weights 'q=q9' names format 'q9' when keep, f32, bf16, {{.*}} is needed
// RUN: not qwen-opt %s --qwen-quantize="tensor-weights=q=q4_0,norm=f32" 2>&1 | FileCheck %s --check-prefix=NOMATCH
// NOMATCH: error: --tensor-weights 'norm=f32' matches no matrix of the checkpoint; qwen-opt CHECKPOINT --emit=graph prints their names

// Q4: qwen.kv_format = #qwen.kv_format<f16>
// F32: qwen.kv_format = #qwen.kv_format<f32>
// BF16: qwen.kv_format = #qwen.kv_format<f16>

// Q4: qwen.weight @embed : {{.*}} as <q4_0>
// F32: qwen.weight @embed : {{.*}} as <f32>
qwen.weight @embed : tensor<256x64xbf16> from #qwen.source<"m">
// Q4: qwen.weight @q : {{.*}} as <q4_0>
// F32: qwen.weight @q : {{.*}} as <f32>
// BF16: qwen.weight @q : {{.*}} as <bf16>
// Q8: qwen.weight @q : {{.*}} as <q8_0>
// Q8: qwen.quantize
// G128: qwen.weight @q : {{.*}} as <q4_g128>
// G128: qwen.quantize
qwen.weight @q : tensor<64x64xbf16> from #qwen.source<"m">
// KEEP: qwen.weight @whole : {{.*}} as <q5_0>
qwen.weight @whole : tensor<64x256xf32> from #qwen.source<"m", keeps = <q5_0>>
// KEEP: qwen.weight @whole.adapted : {{.*}} as <q4_k>
qwen.weight @whole.adapted : tensor<64x256xf32> from #qwen.source<"m", nearest = <q4_k>>
// Q4: qwen.weight @exact : {{.*}} as <f32>
qwen.weight @exact : tensor<64x256xf32> from #qwen.source<"m", keeps = <q4_k>> exact
// CHECK: qwen.weight @norm : {{.*}} as <f32>
qwen.weight @norm : tensor<64xbf16> from #qwen.source<"m">

// CHECK-LABEL: func.func @forward
func.func @forward(%ids: tensor<?xi32>) -> tensor<?x256xf32> {
  // Q4: %[[X:.*]] = qwen.embedding
  %x = qwen.embedding %ids, @embed : tensor<?xi32> -> tensor<?x64xf32>
  // Once for both products, where the activations are made; others read f32.
  // Q4-NEXT: %[[XQ:.*]] = qwen.quantize %[[X]] : tensor<?x64xf32> -> tensor<?x64xi8, #qwen.blocks<128>>
  // Q4-NEXT: qwen.linear %[[XQ]], [@q] :
  // Q4-NEXT: %[[N:.*]] = qwen.rms_norm %[[X]],
  // Q4-NEXT: qwen.linear %[[XQ]], [@q] residual(%[[N]] :
  // F32-NOT: qwen.quantize
  // BF16-NOT: qwen.quantize
  %y = qwen.linear %x, [@q] : tensor<?x64xf32> -> tensor<?x64xf32>
  %n = qwen.rms_norm %x, @norm eps 1.0e-06 : tensor<?x64xf32> -> tensor<?x64xf32>
  %z = qwen.linear %x, [@q] residual(%n : tensor<?x64xf32>) : tensor<?x64xf32> -> tensor<?x64xf32>
  // Q4: %[[S:.*]] = qwen.swiglu
  // Q4-NEXT: %[[SQ:.*]] = qwen.quantize %[[S]]
  // Q4-NEXT: qwen.lm_head %[[SQ]], @embed :
  %s = qwen.swiglu %y, %z : tensor<?x64xf32> -> tensor<?x64xf32>
  %l = qwen.lm_head %s, @embed : tensor<?x64xf32> -> tensor<?x256xf32>
  return %l : tensor<?x256xf32>
}
