// The whole pipeline over one layer of Qwen2 (biases, tied embedding) and one
// of Qwen3 (head norms, a separate output weight).
// RUN: split-file %s %t
// RUN: qwen-opt %t/qwen2.mlir --qwen-pipeline="weights=q4_0 kv=f16" | FileCheck %t/qwen2.mlir
// RUN: qwen-opt %t/qwen3.mlir --qwen-pipeline="weights=f32 kv=f32" | FileCheck %t/qwen3.mlir

// A projection with another format is a product of its own; norms and quantize
// have separate results where some products read f32.
// RUN: qwen-opt %t/qwen2.mlir --qwen-pipeline="weights=q4_0 formats=l0.v.weight=f32" | FileCheck %s --check-prefix=MIXED
// MIXED: %[[N:.*]] = qwen.rms_norm {{.*}} -> tensor<?x64xf32>
// MIXED-NEXT: %[[NQ:.*]] = qwen.quantize %[[N]]
// MIXED-NEXT: %[[QK:.*]]:2 = qwen.linear %[[NQ]], [@l0.q.weight, @l0.k.weight] bias {{.*}}linear_q4_0_1x16x4_avx2
// MIXED-NEXT: %[[V:.*]] = qwen.linear %[[N]], [@l0.v.weight] bias {{.*}}linear_f32_1x16_avx2
// MIXED-NEXT: qwen.append %[[QK]]#1, %[[V]] rope(

// The pipeline can stop at an earlier stage.
// RUN: qwen-opt %t/qwen2.mlir --qwen-pipeline=last=graph | FileCheck %s --check-prefix=GRAPH
// RUN: qwen-opt %t/qwen2.mlir --qwen-pipeline=last=quantized | FileCheck %s --check-prefix=QUANTIZED
// GRAPH: qwen.stage = "graph"
// GRAPH: qwen.add_bias
// QUANTIZED: qwen.stage = "quantized"
// QUANTIZED-NOT: qwen.packed
// QUANTIZED-NOT: kernel

//--- qwen2.mlir
// The image: matrices in q4_0, the embedding once.
// CHECK: module attributes
// CHECK-SAME: qwen.stage = "packed"
// CHECK-SAME: qwen.weight_bytes = 34752
// CHECK: qwen.packed @embed.packed [@embed] {{.*}}q4_0
// CHECK-NEXT: qwen.packed @rope.frequencies.packed
// CHECK-NEXT: qwen.packed @l0.norm1.weight.packed
// CHECK-NEXT: qwen.packed @l0.q_k_v.weight.packed [@l0.q.weight, @l0.k.weight, @l0.v.weight] : tensor<128x64xf32>
// CHECK-NEXT: qwen.packed @l0.q_k_v.bias.packed
// CHECK-NEXT: qwen.packed @l0.o.weight.packed
// CHECK-NEXT: qwen.packed @l0.norm2.weight.packed
// CHECK-NEXT: qwen.packed @l0.gate_up.weight.packed [@l0.gate.weight, @l0.up.weight] : tensor<320x64xf32>
// CHECK-NEXT: qwen.packed @l0.down.weight.packed
// CHECK-NEXT: qwen.packed @norm.weight.packed
// The ops: one quantization for q, k, v and one for gate, up, both by the norm.
// CHECK-NEXT: func.func @forward{{.*}}qwen.arena_bytes = 1003520
// CHECK-NEXT: %[[X:.*]] = qwen.embedding %{{.*}}, @embed packed [@embed.packed] {{.*}}barrier = false
// CHECK-NEXT: %[[COS:.*]], %[[SIN:.*]] = qwen.rope_table {{.*}}barrier = false
// CHECK-NEXT: %[[N:.*]] = qwen.rms_norm %[[X]], {{.*}}barrier = false{{.*}} -> tensor<?x64xi8, #qwen.blocks<128>>
// CHECK-NEXT: %[[QKV:.*]]:3 = qwen.linear %[[N]], [@l0.q.weight, @l0.k.weight, @l0.v.weight] bias [{{.*}}] packed [@l0.q_k_v.weight.packed, @l0.q_k_v.bias.packed] {{.*}}barrier = true
// CHECK-NEXT: qwen.append %[[QKV]]#1, %[[QKV]]#2 rope(%[[COS]], %[[SIN]] : {{.*}}) layer 0 kv_heads 2 format <f16> {{.*}}barrier = true
// CHECK-NEXT: %[[A:.*]] = qwen.attention %[[QKV]]#0 rope(%[[COS]], %[[SIN]] : {{.*}}barrier = true
// CHECK-NEXT: %[[AQ:.*]] = qwen.quantize %[[A]] {{.*}}barrier = true
// CHECK-NEXT: %[[H:.*]] = qwen.linear %[[AQ]], [@l0.o.weight] residual(%[[X]] : {{.*}}barrier = true
// CHECK-NEXT: %[[M:.*]] = qwen.rms_norm %[[H]], {{.*}}barrier = true{{.*}} -> tensor<?x64xi8, #qwen.blocks<128>>
// CHECK-NEXT: %[[GU:.*]]:2 = qwen.linear %[[M]], [@l0.gate.weight, @l0.up.weight] packed {{.*}}barrier = true
// CHECK-NEXT: %[[S:.*]] = qwen.swiglu %[[GU]]#0, %[[GU]]#1 {{.*}}barrier = true{{.*}} -> tensor<?x160xi8, #qwen.blocks<128>>
// CHECK-NEXT: %[[Y:.*]] = qwen.linear %[[S]], [@l0.down.weight] residual(%[[H]] : {{.*}}barrier = true
// CHECK-NEXT: %[[R:.*]] = qwen.wanted_tokens %[[Y]]
// CHECK-NEXT: %[[F:.*]] = qwen.rms_norm %[[R]], {{.*}}#qwen.kernel<rms_norm_f32_avx2>]{{.*}}barrier = true
// CHECK-NEXT: %[[L:.*]] = qwen.lm_head %[[F]], @embed packed [@embed.packed] {{.*}}barrier = true
// CHECK-NEXT: return %[[L]]
module attributes {qwen.target_features = #qwen.features<avx2, fma, f16c>} {
qwen.weight @embed : tensor<256x64xbf16> from #qwen.source<"m">
qwen.weight @l0.norm1.weight : tensor<64xbf16> from #qwen.source<"m">
qwen.weight @l0.q.weight : tensor<64x64xbf16> from #qwen.source<"m">
qwen.weight @l0.k.weight : tensor<32x64xbf16> from #qwen.source<"m">
qwen.weight @l0.v.weight : tensor<32x64xbf16> from #qwen.source<"m">
qwen.weight @l0.q.bias : tensor<64xbf16> from #qwen.source<"m">
qwen.weight @l0.k.bias : tensor<32xbf16> from #qwen.source<"m">
qwen.weight @l0.v.bias : tensor<32xbf16> from #qwen.source<"m">
qwen.weight @l0.o.weight : tensor<64x64xbf16> from #qwen.source<"m">
qwen.weight @l0.norm2.weight : tensor<64xbf16> from #qwen.source<"m">
qwen.weight @l0.gate.weight : tensor<160x64xbf16> from #qwen.source<"m">
qwen.weight @l0.up.weight : tensor<160x64xbf16> from #qwen.source<"m">
qwen.weight @l0.down.weight : tensor<64x160xbf16> from #qwen.source<"m">
qwen.weight @norm.weight : tensor<64xbf16> from #qwen.source<"m">
qwen.weight @rope.frequencies : tensor<8xf32> from #qwen.frequencies<theta = 1.0e+06>
func.func @forward(%ids: tensor<?xi32>, %positions: tensor<?xi32>) -> tensor<?x256xf32, #qwen.count<wanted>> attributes {qwen.limits = {all = 512 : i64, wanted = 32 : i64}} {
  %x = qwen.embedding %ids, @embed : tensor<?xi32> -> tensor<?x64xf32>
  %cos, %sin = qwen.rope_table %positions, @rope.frequencies : tensor<?xi32> -> tensor<?x8xf32>
  %n = qwen.rms_norm %x, @l0.norm1.weight eps 1.0e-06 : tensor<?x64xf32> -> tensor<?x64xf32>
  %q0 = qwen.linear %n, [@l0.q.weight] : tensor<?x64xf32> -> tensor<?x64xf32>
  %q1 = qwen.add_bias %q0, @l0.q.bias : tensor<?x64xf32>
  %k0 = qwen.linear %n, [@l0.k.weight] : tensor<?x64xf32> -> tensor<?x32xf32>
  %k1 = qwen.add_bias %k0, @l0.k.bias : tensor<?x32xf32>
  %v0 = qwen.linear %n, [@l0.v.weight] : tensor<?x64xf32> -> tensor<?x32xf32>
  %v1 = qwen.add_bias %v0, @l0.v.bias : tensor<?x32xf32>
  %q2 = qwen.rope %q1, %cos, %sin : tensor<?x64xf32>, tensor<?x8xf32>
  %k2 = qwen.rope %k1, %cos, %sin : tensor<?x32xf32>, tensor<?x8xf32>
  qwen.append %k2, %v1 layer 0 kv_heads 2 : tensor<?x32xf32>
  %a = qwen.attention %q2 layer 0 heads 4 kv_heads 2 : tensor<?x64xf32>
  %o = qwen.linear %a, [@l0.o.weight] : tensor<?x64xf32> -> tensor<?x64xf32>
  %h = qwen.add %x, %o : tensor<?x64xf32>
  %m = qwen.rms_norm %h, @l0.norm2.weight eps 1.0e-06 : tensor<?x64xf32> -> tensor<?x64xf32>
  %g = qwen.linear %m, [@l0.gate.weight] : tensor<?x64xf32> -> tensor<?x160xf32>
  %u = qwen.linear %m, [@l0.up.weight] : tensor<?x64xf32> -> tensor<?x160xf32>
  %s = qwen.swiglu %g, %u : tensor<?x160xf32> -> tensor<?x160xf32>
  %d = qwen.linear %s, [@l0.down.weight] : tensor<?x160xf32> -> tensor<?x64xf32>
  %y = qwen.add %h, %d : tensor<?x64xf32>
  %r = qwen.wanted_tokens %y : tensor<?x64xf32>
  %f = qwen.rms_norm %r, @norm.weight eps 1.0e-06 : tensor<?x64xf32, #qwen.count<wanted>> -> tensor<?x64xf32, #qwen.count<wanted>>
  %logits = qwen.lm_head %f, @embed : tensor<?x64xf32, #qwen.count<wanted>> -> tensor<?x256xf32, #qwen.count<wanted>>
  return %logits : tensor<?x256xf32, #qwen.count<wanted>>
}
}

//--- qwen3.mlir
// All in f32; the norms of heads go into append and attention.
// CHECK: module attributes
// CHECK-SAME: qwen.stage = "packed"
// CHECK: func.func @forward
// CHECK-NEXT: %[[X:.*]] = qwen.embedding %{{.*}}, @embed packed [@embed.packed]
// CHECK-NEXT: %[[COS:.*]], %[[SIN:.*]] = qwen.rope_table
// CHECK-NEXT: %[[N:.*]] = qwen.rms_norm %[[X]], {{.*}} -> tensor<?x64xf32>
// CHECK-NEXT: %[[QKV:.*]]:3 = qwen.linear %[[N]], [@l0.q.weight, @l0.k.weight, @l0.v.weight] packed {{.*}}#qwen.kernel<linear_f32_4x16_neon>
// CHECK-NEXT: qwen.append %[[QKV]]#1, %[[QKV]]#2 rope(%[[COS]], %[[SIN]] : {{.*}}) layer 0 kv_heads 2 norm @l0.k_norm.weight eps {{.*}} format <f32> packed [@l0.k_norm.weight.packed] {{.*}}#qwen.kernel<append_k_f32_neon>
// CHECK-NEXT: %[[A:.*]] = qwen.attention %[[QKV]]#0 rope(%[[COS]], %[[SIN]] : {{.*}} norm @l0.q_norm.weight eps {{.*}} format <f32> packed [@l0.q_norm.weight.packed]
// CHECK-NEXT: %[[H:.*]] = qwen.linear %[[A]], [@l0.o.weight] residual(%[[X]] :
// CHECK-NEXT: %[[R:.*]] = qwen.wanted_tokens %[[H]]
// CHECK-NEXT: %[[F:.*]] = qwen.rms_norm %[[R]], {{.*}} -> tensor<?x64xf32, #qwen.count<wanted>>
// CHECK-NEXT: qwen.lm_head %[[F]], @head packed [@head.packed]
module attributes {qwen.target_features = #qwen.features<neon, dotprod>} {
qwen.weight @embed : tensor<256x64xbf16> from #qwen.source<"m">
qwen.weight @l0.norm1.weight : tensor<64xbf16> from #qwen.source<"m">
qwen.weight @l0.q.weight : tensor<128x64xbf16> from #qwen.source<"m">
qwen.weight @l0.k.weight : tensor<64x64xbf16> from #qwen.source<"m">
qwen.weight @l0.v.weight : tensor<64x64xbf16> from #qwen.source<"m">
qwen.weight @l0.q_norm.weight : tensor<32xbf16> from #qwen.source<"m">
qwen.weight @l0.k_norm.weight : tensor<32xbf16> from #qwen.source<"m">
qwen.weight @l0.o.weight : tensor<64x128xbf16> from #qwen.source<"m">
qwen.weight @norm.weight : tensor<64xbf16> from #qwen.source<"m">
qwen.weight @head : tensor<256x64xbf16> from #qwen.source<"m">
qwen.weight @rope.frequencies : tensor<16xf32> from #qwen.frequencies<theta = 1.0e+06>
func.func @forward(%ids: tensor<?xi32>, %positions: tensor<?xi32>) -> tensor<?x256xf32, #qwen.count<wanted>> attributes {qwen.limits = {all = 512 : i64, wanted = 32 : i64}} {
  %x = qwen.embedding %ids, @embed : tensor<?xi32> -> tensor<?x64xf32>
  %cos, %sin = qwen.rope_table %positions, @rope.frequencies : tensor<?xi32> -> tensor<?x16xf32>
  %n = qwen.rms_norm %x, @l0.norm1.weight eps 1.0e-06 : tensor<?x64xf32> -> tensor<?x64xf32>
  %q0 = qwen.linear %n, [@l0.q.weight] : tensor<?x64xf32> -> tensor<?x128xf32>
  %k0 = qwen.linear %n, [@l0.k.weight] : tensor<?x64xf32> -> tensor<?x64xf32>
  %v0 = qwen.linear %n, [@l0.v.weight] : tensor<?x64xf32> -> tensor<?x64xf32>
  %q1 = qwen.rms_norm %q0, @l0.q_norm.weight eps 1.0e-06 heads 32 : tensor<?x128xf32> -> tensor<?x128xf32>
  %k1 = qwen.rms_norm %k0, @l0.k_norm.weight eps 1.0e-06 heads 32 : tensor<?x64xf32> -> tensor<?x64xf32>
  %q2 = qwen.rope %q1, %cos, %sin : tensor<?x128xf32>, tensor<?x16xf32>
  %k2 = qwen.rope %k1, %cos, %sin : tensor<?x64xf32>, tensor<?x16xf32>
  qwen.append %k2, %v0 layer 0 kv_heads 2 : tensor<?x64xf32>
  %a = qwen.attention %q2 layer 0 heads 4 kv_heads 2 : tensor<?x128xf32>
  %o = qwen.linear %a, [@l0.o.weight] : tensor<?x128xf32> -> tensor<?x64xf32>
  %h = qwen.add %x, %o : tensor<?x64xf32>
  %r = qwen.wanted_tokens %h : tensor<?x64xf32>
  %f = qwen.rms_norm %r, @norm.weight eps 1.0e-06 : tensor<?x64xf32, #qwen.count<wanted>> -> tensor<?x64xf32, #qwen.count<wanted>>
  %logits = qwen.lm_head %f, @head : tensor<?x64xf32, #qwen.count<wanted>> -> tensor<?x256xf32, #qwen.count<wanted>>
  return %logits : tensor<?x256xf32, #qwen.count<wanted>>
}
}
