// RUN: qwen-opt %s --qwen-quantize | FileCheck %s --check-prefixes=CHECK,Q4
// RUN: qwen-opt %s --qwen-quantize="weights=f32 kv=f32" | FileCheck %s --check-prefixes=CHECK,F32
// RUN: qwen-opt %s --qwen-quantize=weights=bf16 | FileCheck %s --check-prefixes=CHECK,BF16
// RUN: qwen-opt %s --qwen-quantize=weights=q8_0 | FileCheck %s --check-prefix=Q8
// RUN: qwen-opt %s --qwen-quantize=weights=q4_g128 | FileCheck %s --check-prefix=G128

// A matrix has the format of its name, whatever others have.
// RUN: qwen-opt %s --qwen-quantize="weights=q8_0 formats=embed=bf16,q=q4_0,exact=q4_0" | FileCheck %s --check-prefix=NAMES
// NAMES: qwen.weight @embed : {{.*}} as <bf16>
// NAMES: qwen.weight @q : {{.*}} as <q4_0>
// NAMES: qwen.weight @exact : {{.*}} as <f32>
// NAMES: qwen.weight @norm : {{.*}} as <f32>
// NAMES: %[[XQ:.*]] = qwen.quantize
// NAMES: qwen.linear %[[XQ]], [@q] :
// NAMES: %[[S:.*]] = qwen.swiglu
// NAMES-NEXT: qwen.lm_head %[[S]], @embed :

// RUN: not qwen-opt %s --qwen-quantize="formats=embed" 2>&1 | FileCheck %s --check-prefix=NOFORMAT
// NOFORMAT: 'embed' is not NAME=FORMAT, where FORMAT is f32, bf16, {{.*}}
// RUN: not qwen-opt %s --qwen-quantize="formats=q=q9" 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// UNKNOWN: 'q=q9' is not NAME=FORMAT
// RUN: not qwen-opt %s --qwen-quantize="formats=q=q4_0,norm=f32" 2>&1 | FileCheck %s --check-prefix=NOMATRIX
// NOMATRIX: error: has no matrix 'norm', which has a format

// Keys and values of a layer have the format of its number, whatever others have.
// RUN: qwen-opt %s --qwen-quantize="kv=f16 kv-layers=1=f32" | FileCheck %s --check-prefix=LAYERS
// LAYERS: qwen.append {{.*}}layer 0 kv_heads 2 format <f16> :
// LAYERS: qwen.attention {{.*}}layer 0 heads 2 kv_heads 2 format <f16> :
// LAYERS: qwen.append {{.*}}layer 1 kv_heads 2 format <f32> :
// LAYERS: qwen.attention {{.*}}layer 1 heads 2 kv_heads 2 format <f32> :

// RUN: not qwen-opt %s --qwen-quantize="kv-layers=1=f8" 2>&1 | FileCheck %s --check-prefix=NOKV
// NOKV: '1=f8' is not LAYER=FORMAT, where FORMAT is f32
// RUN: not qwen-opt %s --qwen-quantize="kv-layers=one=f16" 2>&1 | FileCheck %s --check-prefix=NOLAYER
// NOLAYER: 'one=f16' is not LAYER=FORMAT
// RUN: not qwen-opt %s --qwen-quantize="kv-layers=1=f32,2=f32" 2>&1 | FileCheck %s --check-prefix=NOKEYS
// NOKEYS: error: has no keys and values in layer 2, which has a format of them

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
qwen.weight @whole : tensor<64x256xf32> from #qwen.source<"m", keeps = <q5_0>>
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
  // Q4: qwen.append {{.*}}layer 0 kv_heads 2 format <f16> :
  // F32: qwen.append {{.*}}layer 0 kv_heads 2 format <f32> :
  // BF16: qwen.append {{.*}}layer 0 kv_heads 2 format <f16> :
  qwen.append %n, %n layer 0 kv_heads 2 : tensor<?x64xf32>
  %a = qwen.attention %n layer 0 heads 2 kv_heads 2 : tensor<?x64xf32>
  qwen.append %a, %a layer 1 kv_heads 2 : tensor<?x64xf32>
  %b = qwen.attention %a layer 1 heads 2 kv_heads 2 : tensor<?x64xf32>
  // Q4: %[[S:.*]] = qwen.swiglu
  // Q4-NEXT: %[[SQ:.*]] = qwen.quantize %[[S]]
  // Q4-NEXT: qwen.lm_head %[[SQ]], @embed :
  %s = qwen.swiglu %y, %z : tensor<?x64xf32> -> tensor<?x64xf32>
  %l = qwen.lm_head %s, @embed : tensor<?x64xf32> -> tensor<?x256xf32>
  return %l : tensor<?x256xf32>
}
