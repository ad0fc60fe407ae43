// Every op and attribute in every form, printed and read again.
// RUN: qwen-opt %s | qwen-opt | FileCheck %s
// RUN: qwen-opt %s --mlir-print-op-generic | qwen-opt | FileCheck %s

// CHECK: module attributes
// CHECK-SAME: test.blocks = #qwen.blocks<128>
// CHECK-SAME: test.buffer = #qwen.buffer<offset = 4096, stride = 896, scales = 8192, sums = 8256>
// CHECK-SAME: test.features = #qwen.features<avx2, fma, "amx-tile">
// CHECK-SAME: test.format = #qwen.format<q4_0>
// CHECK-SAME: test.format128 = #qwen.format<q4_g128>
// CHECK-SAME: test.format16 = #qwen.format<bf16>
// CHECK-SAME: test.format8 = #qwen.format<q8_0>
// CHECK-SAME: test.kv_format = #qwen.kv_format<f16>
// CHECK-SAME: test.layout = #qwen.layout<f32, panel = 16, chunk = 1>
// CHECK-SAME: test.plan = #qwen.plan<id = 3, barrier = true>
module attributes {
  test.blocks = #qwen.blocks<128>,
  test.buffer = #qwen.buffer<offset = 4096, stride = 896, scales = 8192, sums = 8256>,
  test.features = #qwen.features<fma, avx2, "amx-tile">,
  test.format = #qwen.format<q4_0>,
  test.format8 = #qwen.format<q8_0>,
  test.format16 = #qwen.format<bf16>,
  test.format128 = #qwen.format<q4_g128>,
  test.kv_format = #qwen.kv_format<f16>,
  test.layout = #qwen.layout<f32, panel = 16, chunk = 1>,
  test.plan = #qwen.plan<id = 3, barrier = true>
} {

// Experts have their outputs one after another.
// CHECK: qwen.weight @stack.up : tensor<128x64xf32>
qwen.weight @stack.up : tensor<128x64xf32> from #qwen.source<"experts.up">
qwen.weight @stack.down : tensor<256x32xf32> from #qwen.source<"experts.down"> as #qwen.format<f32>
// CHECK: qwen.packed @stack.packed [@stack.down] : tensor<256x32xf32> in <f32, panel = 16, chunk = 1> at 0 experts 4 stride 16384
qwen.packed @stack.packed [@stack.down] : tensor<256x32xf32> in #qwen.layout<f32, panel = 16, chunk = 1> at 0 experts 4 stride 16384
// CHECK: qwen.weight @embed : tensor<256x64xbf16> from #qwen.source<"model.embed"> as <q4_0>
qwen.weight @embed : tensor<256x64xbf16> from #qwen.source<"model.embed"> as #qwen.format<q4_0>
// CHECK: qwen.weight @norm : tensor<64xf32> from #qwen.source<"m"> as <f32>
qwen.weight @norm : tensor<64xf32> from #qwen.source<"m"> as #qwen.format<f32>
// CHECK: qwen.weight @head_norm : tensor<32xf32> from #qwen.source<"m">
// CHECK-NOT: as
// CHECK: qwen.weight @q :
qwen.weight @head_norm : tensor<32xf32> from #qwen.source<"m">
qwen.weight @q : tensor<64x64xbf16> from #qwen.source<"m"> as #qwen.format<q4_0>
qwen.weight @k : tensor<32x64xbf16> from #qwen.source<"m"> as #qwen.format<q4_0>
qwen.weight @q.bias : tensor<64xbf16> from #qwen.source<"m"> as #qwen.format<f32>
qwen.weight @k.bias : tensor<32xbf16> from #qwen.source<"m"> as #qwen.format<f32>
// CHECK: qwen.weight @kept : tensor<2x256xf32> from #qwen.source<"m", keeps = <q4_k>> as <q8_0>
qwen.weight @kept : tensor<2x256xf32> from #qwen.source<"m", keeps = #qwen.format<q4_k>> as #qwen.format<q8_0>
// CHECK: qwen.weight @adapted : tensor<2x256xf32> from #qwen.source<"m", nearest = <q4_k>> as <q8_0>
qwen.weight @adapted : tensor<2x256xf32> from #qwen.source<"m", nearest = #qwen.format<q4_k>> as #qwen.format<q8_0>
// CHECK: qwen.weight @mapped : tensor<64xbf16> from #qwen.source<"with \22quotes\22">
qwen.weight @mapped : tensor<64xbf16> from #qwen.source<"with \22quotes\22">
qwen.weight @rate : tensor<4xf32> from #qwen.source<"m">
// CHECK: qwen.weight @some : tensor<64x64xbf16> from #qwen.source<"m"> exact as <bf16>
qwen.weight @some : tensor<64x64xbf16> from #qwen.source<"m"> exact as #qwen.format<bf16>
qwen.weight @taps : tensor<1024xf32> from #qwen.source<"m">
// CHECK: qwen.weight @rope.frequencies : tensor<16xf32> from #qwen.frequencies<theta = 1.000000e+06>
qwen.weight @rope.frequencies : tensor<16xf32> from #qwen.frequencies<theta = 1.0e+06>
// CHECK: qwen.weight @turned : tensor<64x64xf32> from #qwen.turned<#qwen.source<"m", keeps = <q4_k>>, scales = #qwen.source<"n">, columns = 64, outputs = 32>
qwen.weight @turned : tensor<64x64xf32> from #qwen.turned<#qwen.source<"m", keeps = <q4_k>>, outputs = 32, columns = 64, scales = #qwen.source<"n">>
// CHECK: qwen.weight @turned.bias : tensor<64xf32> from #qwen.turned<#qwen.source<"m">, outputs = 64>
qwen.weight @turned.bias : tensor<64xf32> from #qwen.turned<#qwen.source<"m">, outputs = 64>
// CHECK: qwen.weight @turned.down : tensor<64x64xf32> from #qwen.turned<#qwen.source<"m">, hadamard = true, outputs = 64>
qwen.weight @turned.down : tensor<64x64xf32> from #qwen.turned<#qwen.source<"m">, hadamard = true, outputs = 64>
// CHECK: qwen.weight @rotation : tensor<65xf32> from #qwen.rotation<64>
qwen.weight @rotation : tensor<65xf32> from #qwen.rotation<64>
// CHECK: qwen.weight @ones : tensor<64xf32> from #qwen.ones
qwen.weight @ones : tensor<64xf32> from #qwen.ones
// CHECK: qwen.weight @rope.yarn : tensor<16xf32> from #qwen.frequencies<theta = 1.000000e+06, yarn = <factor = 4.000000e+00, positions = 32768, fast = 3.200000e+01, slow = 1.000000e+00>>
qwen.weight @rope.yarn : tensor<16xf32> from #qwen.frequencies<theta = 1.0e+06, yarn = <factor = 4.0, positions = 32768, fast = 32.0, slow = 1.0>>
// CHECK: qwen.weight @rope.axes : tensor<16xf32> from #qwen.frequencies<theta = 1.000000e+04, axes = 2>
qwen.weight @rope.axes : tensor<16xf32> from #qwen.frequencies<theta = 1.0e+04, axes = 2>

// CHECK: qwen.image @draft
qwen.image @draft
// CHECK: qwen.image @sized bytes 256
qwen.image @sized bytes 256
// CHECK: qwen.weight @draft.norm : tensor<64xf32> from #qwen.source<"m"> as <f32> of @sized
qwen.weight @draft.norm : tensor<64xf32> from #qwen.source<"m"> as #qwen.format<f32> of @sized
// CHECK: qwen.packed @draft.norm.packed [@draft.norm] : tensor<64xf32> at 0 of @sized
qwen.packed @draft.norm.packed [@draft.norm] : tensor<64xf32> at 0 of @sized

// CHECK: qwen.packed @embed.packed [@embed] : tensor<256x64xf32> in <q4_0, panel = 16, chunk = 4> at 0
qwen.packed @embed.packed [@embed] : tensor<256x64xf32> in #qwen.layout<q4_0, panel = 16, chunk = 4> at 0
// CHECK: qwen.packed @norm.packed [@norm] : tensor<64xf32> at 9216
qwen.packed @norm.packed [@norm] : tensor<64xf32> at 9216
qwen.packed @qk [@q, @k] : tensor<96x64xf32> in #qwen.layout<q4_0, panel = 16, chunk = 4> at 9472
qwen.packed @qk.bias [@q.bias, @k.bias] : tensor<96xf32> at 12928

// CHECK-LABEL: func.func @activations
func.func @activations(%ids: tensor<?xi32>, %r: tensor<?x64xf32>) {
  // CHECK: %[[X:.*]] = qwen.embedding %{{.*}}, @embed : tensor<?xi32> -> tensor<?x64xf32>
  %x = qwen.embedding %ids, @embed : tensor<?xi32> -> tensor<?x64xf32>
  // CHECK: qwen.embedding %{{.*}}, @embed packed [@embed.packed] kernels [#qwen.kernel<embed_q4_0_avx2>] {plan = #qwen.plan<id = 0, barrier = false, buffers = [<offset = 0, stride = 64>]>} :
  %x1 = qwen.embedding %ids, @embed packed [@embed.packed] kernels [#qwen.kernel<embed_q4_0_avx2>] {plan = #qwen.plan<id = 0, barrier = false, buffers = [#qwen.buffer<offset = 0, stride = 64>]>} : tensor<?xi32> -> tensor<?x64xf32>

  // CHECK: qwen.rms_norm %[[X]], @norm eps 1.000000e-03 : tensor<?x64xf32> -> tensor<?x64xf32>
  %n = qwen.rms_norm %x, @norm eps 1.0e-03 : tensor<?x64xf32> -> tensor<?x64xf32>
  // CHECK: %[[Q:.*]] = qwen.rms_norm %[[X]], @norm eps 1.000000e-03 packed [@norm.packed] kernels [#qwen.kernel<rms_norm_q8_neon>] {plan = #qwen.plan<id = 1, barrier = true, buffers = [<offset = 64, stride = 64, scales = 128, sums = 192>]>} : tensor<?x64xf32> -> tensor<?x64xi8, #qwen.blocks<128>>
  %nq = qwen.rms_norm %x, @norm eps 1.0e-03 packed [@norm.packed] kernels [#qwen.kernel<rms_norm_q8_neon>] {plan = #qwen.plan<id = 1, barrier = true, buffers = [#qwen.buffer<offset = 64, stride = 64, scales = 128, sums = 192>]>} : tensor<?x64xf32> -> tensor<?x64xi8, #qwen.blocks<128>>
  // CHECK: qwen.rms_norm %[[X]], @head_norm eps 1.000000e-03 heads 32 : tensor<?x64xf32> -> tensor<?x64xf32>
  %nh = qwen.rms_norm %x, @head_norm eps 1.0e-03 heads 32 : tensor<?x64xf32> -> tensor<?x64xf32>

  // CHECK: qwen.turn %[[X]] back, @rotation : tensor<?x64xf32> -> tensor<?x64xf32>
  %tb = qwen.turn %x back, @rotation : tensor<?x64xf32> -> tensor<?x64xf32>
  // CHECK: qwen.turn %[[X]], @rotation kernels [#qwen.kernel<turn_avx2>, #qwen.kernel<quantize_q8_avx2>] : tensor<?x64xf32> -> tensor<?x64xi8, #qwen.blocks<128>>
  %tq = qwen.turn %x, @rotation kernels [#qwen.kernel<turn_avx2>, #qwen.kernel<quantize_q8_avx2>] : tensor<?x64xf32> -> tensor<?x64xi8, #qwen.blocks<128>>

  // CHECK: %[[Y:.*]] = qwen.linear %[[X]], [@q] : tensor<?x64xf32> -> tensor<?x64xf32>
  %y = qwen.linear %x, [@q] : tensor<?x64xf32> -> tensor<?x64xf32>
  // CHECK: qwen.linear %[[X]], [@q] residual(%{{.*}} : tensor<?x64xf32>) : tensor<?x64xf32> -> tensor<?x64xf32>
  %y1 = qwen.linear %x, [@q] residual(%r : tensor<?x64xf32>) : tensor<?x64xf32> -> tensor<?x64xf32>
  // CHECK: qwen.linear %[[X]], [@q] bias [@q.bias] residual(%{{.*}} : tensor<?x64xf32>) : tensor<?x64xf32> -> tensor<?x64xf32>
  %y2 = qwen.linear %x, [@q] bias [@q.bias] residual(%r : tensor<?x64xf32>) : tensor<?x64xf32> -> tensor<?x64xf32>
  // CHECK: qwen.linear %[[Q]], [@q, @k] bias [@q.bias, @k.bias] packed [@qk, @qk.bias]
  // CHECK-SAME: kernels [#qwen.kernel<linear_q4_0_1x16x4_avx2>, #qwen.kernel<linear_q4_0_2x16x4_avx2>] {plan = #qwen.plan<id = 2, barrier = true, buffers = [<offset = 0, stride = 96>, <offset = 256, stride = 96>]>}
  // CHECK-SAME: : tensor<?x64xi8, #qwen.blocks<128>> -> tensor<?x64xf32>, tensor<?x32xf32>
  %q, %k = qwen.linear %nq, [@q, @k] bias [@q.bias, @k.bias] packed [@qk, @qk.bias] kernels [#qwen.kernel<linear_q4_0_1x16x4_avx2>, #qwen.kernel<linear_q4_0_2x16x4_avx2>] {plan = #qwen.plan<id = 2, barrier = true, buffers = [#qwen.buffer<offset = 0, stride = 96>, #qwen.buffer<offset = 256, stride = 96>]>} : tensor<?x64xi8, #qwen.blocks<128>> -> tensor<?x64xf32>, tensor<?x32xf32>

  // CHECK: qwen.add_bias %[[Y]], @q.bias : tensor<?x64xf32>
  %b = qwen.add_bias %y, @q.bias : tensor<?x64xf32>
  // CHECK: qwen.add %{{.*}}, %[[Y]] : tensor<?x64xf32>
  %a = qwen.add %r, %y : tensor<?x64xf32>
  // CHECK: qwen.swiglu %[[Y]], %[[X]] : tensor<?x64xf32> -> tensor<?x64xf32>
  %s = qwen.swiglu %y, %x : tensor<?x64xf32> -> tensor<?x64xf32>
  // CHECK: qwen.swiglu %[[Y]], %[[X]] kernels [#qwen.kernel<swiglu_q8_avx512>] : tensor<?x64xf32> -> tensor<?x64xi8, #qwen.blocks<128>>
  %sq = qwen.swiglu %y, %x kernels [#qwen.kernel<swiglu_q8_avx512>] : tensor<?x64xf32> -> tensor<?x64xi8, #qwen.blocks<128>>
  // CHECK: %[[M:.*]] = qwen.map <sigmoid> %[[X]] : tensor<?x64xf32> -> tensor<?x64xf32>
  %m = qwen.map <sigmoid> %x : tensor<?x64xf32> -> tensor<?x64xf32>
  // CHECK: qwen.map <sigmoid> %[[M]] kernels [#qwen.kernel<sigmoid_neon>, #qwen.kernel<quantize_q8_neon>] : tensor<?x64xf32> -> tensor<?x64xi8, #qwen.blocks<128>>
  %mq = qwen.map <sigmoid> %m kernels [#qwen.kernel<sigmoid_neon>, #qwen.kernel<quantize_q8_neon>] : tensor<?x64xf32> -> tensor<?x64xi8, #qwen.blocks<128>>
  // CHECK: qwen.swiglu %[[Y]], %[[X]] hadamard kernels [#qwen.kernel<swiglu_f32_neon>, #qwen.kernel<hadamard_q8_neon>] : tensor<?x64xf32> -> tensor<?x64xi8, #qwen.blocks<128>>
  %sh = qwen.swiglu %y, %x hadamard kernels [#qwen.kernel<swiglu_f32_neon>, #qwen.kernel<hadamard_q8_neon>] : tensor<?x64xf32> -> tensor<?x64xi8, #qwen.blocks<128>>
  // CHECK: qwen.hadamard %[[Y]] : tensor<?x64xf32>
  %t = qwen.hadamard %y : tensor<?x64xf32>
  // CHECK: qwen.hadamard %[[Y]] kernels [#qwen.kernel<hadamard_neon>] : tensor<?x64xf32>
  %t1 = qwen.hadamard %y kernels [#qwen.kernel<hadamard_neon>] : tensor<?x64xf32>
  // CHECK: qwen.quantize %[[X]] kernels [#qwen.kernel<quantize_q8_avx2>] : tensor<?x64xf32> -> tensor<?x64xi8, #qwen.blocks<128>>
  %xq = qwen.quantize %x kernels [#qwen.kernel<quantize_q8_avx2>] : tensor<?x64xf32> -> tensor<?x64xi8, #qwen.blocks<128>>
  return
}

// CHECK-LABEL: func.func @heads
func.func @heads(%positions: tensor<?xi32>, %q: tensor<?x64xf32>, %k: tensor<?x32xf32>, %v: tensor<?x32xf32>) {
  // CHECK: %[[COS:.*]], %[[SIN:.*]] = qwen.rope_table %{{.*}}, @rope.frequencies : tensor<?xi32> -> tensor<?x16xf32>
  %cos, %sin = qwen.rope_table %positions, @rope.frequencies : tensor<?xi32> -> tensor<?x16xf32>
  // CHECK: qwen.rope_table %{{.*}}, @rope.yarn scale 1.250000e+00 : tensor<?xi32> -> tensor<?x16xf32>
  %cos2, %sin2 = qwen.rope_table %positions, @rope.yarn scale 1.25 : tensor<?xi32> -> tensor<?x16xf32>
  // CHECK: qwen.rope_table %{{.*}}, @rope.frequencies kernels [#qwen.kernel<rope_table_neon>] : tensor<?xi32> -> tensor<?x16xf32>
  %cos1, %sin1 = qwen.rope_table %positions, @rope.frequencies kernels [#qwen.kernel<rope_table_neon>] : tensor<?xi32> -> tensor<?x16xf32>
  // CHECK: qwen.rope %{{.*}}, %[[COS]], %[[SIN]] : tensor<?x64xf32>, tensor<?x16xf32>
  %r = qwen.rope %q, %cos, %sin : tensor<?x64xf32>, tensor<?x16xf32>

  // CHECK: qwen.append %{{.*}}, %{{.*}} rope(%[[COS]], %[[SIN]] : tensor<?x16xf32>, tensor<?x16xf32>) layer 3 kv_heads 1 : tensor<?x32xf32>
  qwen.append %k, %v rope(%cos, %sin : tensor<?x16xf32>, tensor<?x16xf32>) layer 3 kv_heads 1 : tensor<?x32xf32>
  // CHECK: qwen.append %{{.*}}, %{{.*}} rope(%[[COS]], %[[SIN]] : tensor<?x16xf32>, tensor<?x16xf32>) layer 3 kv_heads 1 norm @head_norm eps 1.000000e-03
  // CHECK-SAME: kernels [#qwen.kernel<norm_rope_neon>, #qwen.kernel<append_k_f16_neon>, #qwen.kernel<append_v_f16_neon>] {plan = #qwen.plan<id = 7, barrier = true>} : tensor<?x32xf32>
  qwen.append %k, %v rope(%cos, %sin : tensor<?x16xf32>, tensor<?x16xf32>) layer 3 kv_heads 1 norm @head_norm eps 1.0e-03 format <f16> kernels [#qwen.kernel<norm_rope_neon>, #qwen.kernel<append_k_f16_neon>, #qwen.kernel<append_v_f16_neon>] {plan = #qwen.plan<id = 7, barrier = true>} : tensor<?x32xf32>

  // CHECK: qwen.append %{{.*}}, %{{.*}} layer 3 kv_heads 1 : tensor<?x32xf32>
  // CHECK: qwen.attention %{{.*}} layer 3 heads 2 kv_heads 1 : tensor<?x64xf32>
  qwen.append %k, %v layer 3 kv_heads 1 : tensor<?x32xf32>
  %a0 = qwen.attention %q layer 3 heads 2 kv_heads 1 : tensor<?x64xf32>
  // CHECK: qwen.attention %{{.*}} rope(%[[COS]], %[[SIN]] : tensor<?x16xf32>, tensor<?x16xf32>) layer 3 heads 2 kv_heads 1 : tensor<?x64xf32>
  %a1 = qwen.attention %q rope(%cos, %sin : tensor<?x16xf32>, tensor<?x16xf32>) layer 3 heads 2 kv_heads 1 : tensor<?x64xf32>
  // CHECK: qwen.attention %{{.*}} rope(%[[COS]], %[[SIN]] : tensor<?x16xf32>, tensor<?x16xf32>) layer 3 heads 2 kv_heads 1 norm @head_norm eps 1.000000e-03
  // CHECK-SAME: kernels [#qwen.kernel<norm_rope_avx2>, #qwen.kernel<attention_scores_f32_avx2>, #qwen.kernel<attention_values_f32_avx2>, #qwen.kernel<softmax_page_avx2>, #qwen.kernel<merge_page_avx2>, #qwen.kernel<finish_attention_avx2>] : tensor<?x64xf32>
  %a2 = qwen.attention %q rope(%cos, %sin : tensor<?x16xf32>, tensor<?x16xf32>) layer 3 heads 2 kv_heads 1 norm @head_norm eps 1.0e-03 format <f32> kernels [#qwen.kernel<norm_rope_avx2>, #qwen.kernel<attention_scores_f32_avx2>, #qwen.kernel<attention_values_f32_avx2>, #qwen.kernel<softmax_page_avx2>, #qwen.kernel<merge_page_avx2>, #qwen.kernel<finish_attention_avx2>] : tensor<?x64xf32>
  return
}

// CHECK-LABEL: func.func @call
func.func @call(%t: tensor<?xi32>, %h: tensor<?xi32>, %w: tensor<?xi32>, %q: tensor<?x64xf32>, %k: tensor<?x32xf32>) {
  // CHECK: %[[COS:.*]], %[[SIN:.*]] = qwen.rope_table %{{.*}}, @rope.axes sections(%{{.*}}, %{{.*}} : tensor<?xi32>, tensor<?xi32>) <0, 8, 8> : tensor<?xi32> -> tensor<?x16xf32>
  %cos, %sin = qwen.rope_table %t, @rope.axes sections(%h, %w : tensor<?xi32>, tensor<?xi32>) <0, 8, 8> : tensor<?xi32> -> tensor<?x16xf32>
  // CHECK: qwen.rope_table %{{.*}}, @rope.yarn sections(%{{.*}}, %{{.*}} : tensor<?xi32>, tensor<?xi32>) <6, 5, 5, interleaved = true> scale 1.250000e+00 kernels [#qwen.kernel<rope_table_neon>] : tensor<?xi32> -> tensor<?x16xf32>
  %cos1, %sin1 = qwen.rope_table %t, @rope.yarn sections(%h, %w : tensor<?xi32>, tensor<?xi32>) <6, 5, 5, interleaved = true> scale 1.25 kernels [#qwen.kernel<rope_table_neon>] : tensor<?xi32> -> tensor<?x16xf32>
  // CHECK: qwen.attention %{{.*}} over(%{{.*}}, %{{.*}} : tensor<?x32xf32>, tensor<?x32xf32>) heads 2 kv_heads 1 : tensor<?x64xf32>
  %a0 = qwen.attention %q over(%k, %k : tensor<?x32xf32>, tensor<?x32xf32>) heads 2 kv_heads 1 mask <causal> : tensor<?x64xf32>
  // CHECK: qwen.attention %{{.*}} over(%{{.*}}, %{{.*}} : tensor<?x32xf32>, tensor<?x32xf32>) heads 2 kv_heads 1 mask <all> kernels [#qwen.kernel<append_k_f32_neon>, #qwen.kernel<append_v_f32_neon>, #qwen.kernel<attention_scores_f32_neon>, #qwen.kernel<attention_values_f32_neon>, #qwen.kernel<softmax_page_neon>, #qwen.kernel<merge_page_neon>, #qwen.kernel<finish_attention_neon>] : tensor<?x64xf32>
  %a1 = qwen.attention %q over(%k, %k : tensor<?x32xf32>, tensor<?x32xf32>) heads 2 kv_heads 1 mask <all> kernels [#qwen.kernel<append_k_f32_neon>, #qwen.kernel<append_v_f32_neon>, #qwen.kernel<attention_scores_f32_neon>, #qwen.kernel<attention_values_f32_neon>, #qwen.kernel<softmax_page_neon>, #qwen.kernel<merge_page_neon>, #qwen.kernel<finish_attention_neon>] : tensor<?x64xf32>
  // CHECK: qwen.attention %{{.*}} over(%{{.*}}, %{{.*}} : tensor<?x32xf32>, tensor<?x32xf32>) rope(%[[COS]], %[[SIN]] : tensor<?x16xf32>, tensor<?x16xf32>) heads 2 kv_heads 1 mask <windows> of(%{{.*}} : tensor<?xi32>) {plan = #qwen.plan<id = 3, barrier = true, buffers = [<offset = 0, stride = 64>]>} : tensor<?x64xf32>
  %a2 = qwen.attention %q over(%k, %k : tensor<?x32xf32>, tensor<?x32xf32>) rope(%cos, %sin : tensor<?x16xf32>, tensor<?x16xf32>) heads 2 kv_heads 1 mask <windows> of(%w : tensor<?xi32>) {plan = #qwen.plan<id = 3, barrier = true, buffers = [#qwen.buffer<offset = 0, stride = 64>]>} : tensor<?x64xf32>
  return
}

// CHECK-LABEL: func.func @partial
func.func @partial(%q: tensor<?x64xf32>, %k: tensor<?x32xf32>, %c: tensor<?x8xf32>) {
  // CHECK: qwen.rope %{{.*}}, %{{.*}}, %{{.*}} heads 32 : tensor<?x64xf32>, tensor<?x8xf32>
  %r = qwen.rope %q, %c, %c heads 32 : tensor<?x64xf32>, tensor<?x8xf32>
  // CHECK: qwen.append %{{.*}}, %{{.*}} rope(%{{.*}}, %{{.*}} : tensor<?x8xf32>, tensor<?x8xf32>) layer 3 kv_heads 1 norm @head_norm eps 1.000000e-03 : tensor<?x32xf32>
  qwen.append %k, %k rope(%c, %c : tensor<?x8xf32>, tensor<?x8xf32>) layer 3 kv_heads 1 norm @head_norm eps 1.0e-03 : tensor<?x32xf32>
  // CHECK: %[[A:.*]] = qwen.attention %{{.*}} rope(%{{.*}}, %{{.*}} : tensor<?x8xf32>, tensor<?x8xf32>) layer 3 heads 2 kv_heads 1 : tensor<?x64xf32>
  %a = qwen.attention %q rope(%c, %c : tensor<?x8xf32>, tensor<?x8xf32>) layer 3 heads 2 kv_heads 1 : tensor<?x64xf32>
  // CHECK: qwen.gate %[[A]], %{{.*}} : tensor<?x64xf32> -> tensor<?x64xf32>
  %g = qwen.gate %a, %q : tensor<?x64xf32> -> tensor<?x64xf32>
  // CHECK: qwen.gate %[[A]], %{{.*}} kernels [#qwen.kernel<sigmoid_gate_avx2>, #qwen.kernel<quantize_q8_avx2>] : tensor<?x64xf32> -> tensor<?x64xi8, #qwen.blocks<128>>
  %gq = qwen.gate %a, %q kernels [#qwen.kernel<sigmoid_gate_avx2>, #qwen.kernel<quantize_q8_avx2>] : tensor<?x64xf32> -> tensor<?x64xi8, #qwen.blocks<128>>
  return
}

// CHECK-LABEL: func.func @linear_attention
func.func @linear_attention(%u: tensor<?x256xf32>, %a: tensor<?x4xf32>) {
  // CHECK: %[[C:.*]] = qwen.short_convolution %{{.*}}, @taps layer 2 : tensor<?x256xf32>
  %c = qwen.short_convolution %u, @taps layer 2 : tensor<?x256xf32>
  // CHECK: %[[D:.*]], %[[B:.*]] = qwen.delta_gates %{{.*}}, %{{.*}}, @rate, @rate kernels [#qwen.kernel<delta_gates_avx2>] : tensor<?x4xf32>
  %d, %b = qwen.delta_gates %a, %a, @rate, @rate kernels [#qwen.kernel<delta_gates_avx2>] : tensor<?x4xf32>
  // CHECK: qwen.delta_rule %[[C]], %[[D]], %[[B]] layer 2 key_heads 2 : tensor<?x256xf32>, tensor<?x4xf32> -> tensor<?x128xf32>
  %o = qwen.delta_rule %c, %d, %b layer 2 key_heads 2 : tensor<?x256xf32>, tensor<?x4xf32> -> tensor<?x128xf32>
  // CHECK: qwen.delta_rule %[[C]], %[[D]], %[[B]] layer 3 key_heads 2 interleaved : tensor<?x256xf32>
  %i = qwen.delta_rule %c, %d, %b layer 3 key_heads 2 interleaved : tensor<?x256xf32>, tensor<?x4xf32> -> tensor<?x128xf32>
  return
}

// CHECK-LABEL: func.func @integers
func.func @integers(%ids: tensor<?xi32>) {
  // CHECK: %[[N:.*]] = qwen.count %{{.*}} : tensor<?xi32> -> tensor<4xi32>
  %n = qwen.count %ids : tensor<?xi32> -> tensor<4xi32>
  // CHECK: qwen.count %[[N]] below(%[[N]] : tensor<4xi32>) kernels [] : tensor<4xi32> -> tensor<2xi32>
  %m = qwen.count %n below(%n : tensor<4xi32>) kernels [] : tensor<4xi32> -> tensor<2xi32>
  return
}

// CHECK-LABEL: func.func @experts
func.func @experts(%x: tensor<?x64xf32>, %xq: tensor<?x64xi8, #qwen.blocks<128>>, %l: tensor<?x4xf32>, %s: tensor<?x1xf32>) {
  // CHECK: %[[W:.*]], %[[IDS:.*]], %[[ORDER:.*]], %[[FIRST:.*]] = qwen.route %{{.*}} normalized kernels [#qwen.kernel<choose_experts_avx2>] : tensor<?x4xf32> -> tensor<?x2xf32>, tensor<?x2xi32>, tensor<5xi32>
  %w, %ids, %order, %first = qwen.route %l normalized kernels [#qwen.kernel<choose_experts_avx2>] : tensor<?x4xf32> -> tensor<?x2xf32>, tensor<?x2xi32>, tensor<5xi32>
  // CHECK: %[[W3:.*]], %{{.*}}, %{{.*}}, %{{.*}} = qwen.route %{{.*}} shared(%{{.*}} : tensor<?x1xf32>) : tensor<?x4xf32> -> tensor<?x3xf32>, tensor<?x2xi32>, tensor<5xi32>
  %w3, %ids3, %order3, %first3 = qwen.route %l shared(%s : tensor<?x1xf32>) : tensor<?x4xf32> -> tensor<?x3xf32>, tensor<?x2xi32>, tensor<5xi32>
  // CHECK: %[[H:.*]] = qwen.experts_up %{{.*}}, %[[ORDER]], %[[FIRST]], @stack.up, @stack.up : tensor<?x64xf32>, tensor<?x2xi32>, tensor<5xi32> -> tensor<?x2x32xf32>
  %h = qwen.experts_up %x, %order, %first, @stack.up, @stack.up : tensor<?x64xf32>, tensor<?x2xi32>, tensor<5xi32> -> tensor<?x2x32xf32>
  // CHECK: %[[Q:.*]] = qwen.experts_up %{{.*}}, %[[ORDER]], %[[FIRST]], @stack.up, @stack.up : tensor<?x64xi8, #qwen.blocks<128>>, tensor<?x2xi32>, tensor<5xi32> -> tensor<?x2x32xi8, #qwen.blocks<128>>
  %q = qwen.experts_up %xq, %order, %first, @stack.up, @stack.up : tensor<?x64xi8, #qwen.blocks<128>>, tensor<?x2xi32>, tensor<5xi32> -> tensor<?x2x32xi8, #qwen.blocks<128>>
  // CHECK: %[[G:.*]] = qwen.experts_gate %{{.*}}, %[[ORDER]], %[[FIRST]], @stack.up : tensor<?x64xf32>, tensor<?x2xi32>, tensor<5xi32> -> tensor<?x2x32xf32>
  %g = qwen.experts_gate %x, %order, %first, @stack.up : tensor<?x64xf32>, tensor<?x2xi32>, tensor<5xi32> -> tensor<?x2x32xf32>
  // CHECK: qwen.experts_up %{{.*}}, %[[ORDER]], %[[FIRST]], gates(%[[G]] : tensor<?x2x32xf32>), @stack.up : tensor<?x64xf32>, tensor<?x2xi32>, tensor<5xi32> -> tensor<?x2x32xf32>
  %u = qwen.experts_up %x, %order, %first, gates(%g : tensor<?x2x32xf32>), @stack.up : tensor<?x64xf32>, tensor<?x2xi32>, tensor<5xi32> -> tensor<?x2x32xf32>
  // CHECK: qwen.experts_down %[[H]], %[[W]], %[[ORDER]], %[[FIRST]], @stack.down : tensor<?x2x32xf32>, tensor<?x2xf32>, tensor<?x2xi32>, tensor<5xi32> -> tensor<?x64xf32>
  %y = qwen.experts_down %h, %w, %order, %first, @stack.down : tensor<?x2x32xf32>, tensor<?x2xf32>, tensor<?x2xi32>, tensor<5xi32> -> tensor<?x64xf32>
  // CHECK: qwen.experts_down %[[Q]], %[[W3]], %[[ORDER]], %[[FIRST]], @stack.down plus(%{{.*}}, %{{.*}} : tensor<?x64xf32>, tensor<?x64xf32>) : tensor<?x2x32xi8, #qwen.blocks<128>>, tensor<?x3xf32>
  %z = qwen.experts_down %q, %w3, %order, %first, @stack.down plus(%x, %y : tensor<?x64xf32>, tensor<?x64xf32>) : tensor<?x2x32xi8, #qwen.blocks<128>>, tensor<?x3xf32>, tensor<?x2xi32>, tensor<5xi32> -> tensor<?x64xf32>
  return
}

// Any word is a count.
// CHECK-LABEL: func.func @counts
// CHECK-SAME: tensor<?x64xf32, #qwen.count<patches>>
// CHECK-SAME: qwen.limits = {merged = 4 : i64, patches = 16 : i64}
func.func @counts(%x: tensor<?x64xf32, #qwen.count<patches>>, %ids: tensor<?xi32, #qwen.count<patches>>) attributes {qwen.limits = {patches = 16 : i64, merged = 4 : i64}} {
  // CHECK: qwen.quantize %{{.*}} : tensor<?x64xf32, #qwen.count<patches>> -> tensor<?x64xi8, #qwen.blocks<128, <patches>>>
  %q = qwen.quantize %x : tensor<?x64xf32, #qwen.count<patches>> -> tensor<?x64xi8, #qwen.blocks<128, <patches>>>
  // CHECK: qwen.embedding %{{.*}}, @embed : tensor<?xi32, #qwen.count<patches>> -> tensor<?x64xf32, #qwen.count<patches>>
  %e = qwen.embedding %ids, @embed : tensor<?xi32, #qwen.count<patches>> -> tensor<?x64xf32, #qwen.count<patches>>
  return
}

// CHECK-LABEL: func.func @struct
func.func @struct() {
  // CHECK: qwen.struct {in = -1, in.stride = 64, eps = 9.99999997E-7 : f32, rope = none, kernel = #qwen.kernel<rope_avx2>, scratch = memref<64xf32>, tiles = [#qwen.kernel<linear_q4_0_1x16x4_avx2>]} : !llvm.ptr
  %0 = qwen.struct {in = -1, in.stride = 64, eps = 9.99999997E-7 : f32, rope = none, kernel = #qwen.kernel<rope_avx2>, scratch = memref<64xf32>, tiles = [#qwen.kernel<linear_q4_0_1x16x4_avx2>]} : !llvm.ptr
  // CHECK: qwen.struct {} : !llvm.ptr
  %1 = qwen.struct {} : !llvm.ptr
  return
}

// CHECK-LABEL: func.func @output
func.func @output(%x: tensor<?x64xf32>, %xq: tensor<?x64xi8, #qwen.blocks<128>>) {
  // CHECK: %[[LAST:.*]] = qwen.wanted_tokens %{{.*}} : tensor<?x64xf32>
  %last = qwen.wanted_tokens %x : tensor<?x64xf32>
  // CHECK: %[[N:.*]] = qwen.rms_norm %[[LAST]], @norm eps {{.*}} : tensor<?x64xf32, #qwen.count<wanted>> -> tensor<?x64xi8, #qwen.blocks<128, <wanted>>>
  %n = qwen.rms_norm %last, @norm eps 1.0e-06 : tensor<?x64xf32, #qwen.count<wanted>> -> tensor<?x64xi8, #qwen.blocks<128, <wanted>>>
  // CHECK: qwen.lm_head %[[N]], @embed : tensor<?x64xi8, #qwen.blocks<128, <wanted>>> -> tensor<?x256xf32, #qwen.count<wanted>>
  %l0 = qwen.lm_head %n, @embed : tensor<?x64xi8, #qwen.blocks<128, <wanted>>> -> tensor<?x256xf32, #qwen.count<wanted>>
  // CHECK: qwen.lm_head %{{.*}}, @embed packed [@embed.packed]
  // CHECK-SAME: kernels [#qwen.kernel<linear_q4_0_1x16x4_avx2>, #qwen.kernel<linear_q4_0_2x16x4_avx2>, #qwen.kernel<check_finite_avx2>] {plan = #qwen.plan<id = 9, barrier = true, buffers = [<offset = -1, stride = 256>]>} : tensor<?x64xi8, #qwen.blocks<128>> -> tensor<?x256xf32>
  %l1 = qwen.lm_head %xq, @embed packed [@embed.packed] kernels [#qwen.kernel<linear_q4_0_1x16x4_avx2>, #qwen.kernel<linear_q4_0_2x16x4_avx2>, #qwen.kernel<check_finite_avx2>] {plan = #qwen.plan<id = 9, barrier = true, buffers = [#qwen.buffer<offset = -1, stride = 256>]>} : tensor<?x64xi8, #qwen.blocks<128>> -> tensor<?x256xf32>
  return
}

}
