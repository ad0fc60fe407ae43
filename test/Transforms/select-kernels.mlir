// The best kernels of each target.
// RUN: split-file %s %t
// RUN: qwen-opt %t/model.mlir --qwen-select-kernels | FileCheck %t/model.mlir --check-prefixes=CHECK,A72
// RUN: sed 's/<neon>/<neon,dotprod>/' %t/model.mlir | qwen-opt - --qwen-select-kernels | FileCheck %t/model.mlir --check-prefixes=CHECK,N1
// RUN: sed 's/<neon>/<neon,dotprod,sve,i8mm>/' %t/model.mlir | qwen-opt - --qwen-select-kernels | FileCheck %t/model.mlir --check-prefixes=CHECK,N2
// RUN: sed 's/<neon>/<avx2,fma,f16c>/' %t/model.mlir | qwen-opt - --qwen-select-kernels | FileCheck %t/model.mlir --check-prefixes=CHECK,AVX2
// RUN: sed 's/<neon>/<avx2,fma,f16c,avx512f,avx512cd,avx512bw,avx512dq,avx512vl,avx512vnni>/' %t/model.mlir | qwen-opt - --qwen-select-kernels | FileCheck %t/model.mlir --check-prefixes=CHECK,VNNI
// RUN: sed 's/<neon>/<avx2,fma,f16c,avx512f,avx512cd,avx512bw,avx512dq,avx512vl,avx512vnni,"amx-tile","amx-int8">/' %t/model.mlir | qwen-opt - --qwen-select-kernels | FileCheck %t/model.mlir --check-prefixes=CHECK,AMX
// RUN: sed 's/<neon>/<avx2,fma,f16c,avxvnni>/' %t/model.mlir | qwen-opt - --qwen-select-kernels | FileCheck %t/model.mlir --check-prefixes=CHECK,AVXVNNI
// RUN: qwen-opt %t/invalid.mlir --qwen-select-kernels -split-input-file -verify-diagnostics

//--- model.mlir
module attributes {qwen.target_features = #qwen.features<neon>} {
qwen.weight @embed : tensor<256x64xbf16> from #qwen.source<"m"> as #qwen.format<f32>
qwen.weight @w : tensor<64x64xbf16> from #qwen.source<"m"> as #qwen.format<q4_0>
qwen.weight @w8 : tensor<64x64xbf16> from #qwen.source<"m"> as #qwen.format<q8_0>
qwen.weight @w128 : tensor<64x64xbf16> from #qwen.source<"m"> as #qwen.format<q4_g128>
qwen.weight @wb : tensor<64x64xbf16> from #qwen.source<"m"> as #qwen.format<bf16>
qwen.weight @n : tensor<64xbf16> from #qwen.source<"m"> as #qwen.format<f32>
qwen.weight @rope.frequencies : tensor<32xf32> from #qwen.frequencies<theta = 1.0e+06> as #qwen.format<f32>

// CHECK-LABEL: func.func @forward
func.func @forward(%ids: tensor<?xi32>, %positions: tensor<?xi32>) -> tensor<?x256xf32, #qwen.count<wanted>> {
  // A72: qwen.embedding {{.*}}kernels [#qwen.kernel<embed_f32_neon>]
  // VNNI: qwen.embedding {{.*}}kernels [#qwen.kernel<embed_f32_avx512>]
  %x = qwen.embedding %ids, @embed : tensor<?xi32> -> tensor<?x64xf32>
  // A72: qwen.rope_table {{.*}}kernels [#qwen.kernel<rope_table_neon>]
  %cos, %sin = qwen.rope_table %positions, @rope.frequencies : tensor<?xi32> -> tensor<?x32xf32>
  // A72: qwen.rms_norm {{.*}}kernels [#qwen.kernel<rms_norm_q8_neon>]
  %q = qwen.rms_norm %x, @n eps 1.0e-06 : tensor<?x64xf32> -> tensor<?x64xi8, #qwen.blocks<128>>
  // A72: qwen.linear {{.*}}kernels [#qwen.kernel<linear_q8_0_1x16x4_neon>, #qwen.kernel<linear_q8_0_4x16x4_neon>
  // N1: qwen.linear {{.*}}kernels [#qwen.kernel<linear_q8_0_1x16x4_neon_dotprod>, #qwen.kernel<linear_q8_0_8x16x4_neon_dotprod>
  // N2: qwen.linear {{.*}}kernels [#qwen.kernel<linear_q8_0_1x16x4_sve>, #qwen.kernel<linear_q8_0_8x16x4_sve_i8mm>
  // AVX2: qwen.linear {{.*}}kernels [#qwen.kernel<linear_q8_0_1x16x4_avx2>, #qwen.kernel<linear_q8_0_32x16x4_avx2>
  // VNNI: qwen.linear {{.*}}kernels [#qwen.kernel<linear_q8_0_1x16x4_avx512vnni>, #qwen.kernel<linear_q8_0_32x16x4_avx512vnni>
  // AMX: qwen.linear {{.*}}kernels [#qwen.kernel<linear_q8_0_1x16x4_avx512vnni>, #qwen.kernel<linear_q8_0_16x16x4_amx_int8>
  %y8 = qwen.linear %q, [@w8] : tensor<?x64xi8, #qwen.blocks<128>> -> tensor<?x64xf32>
  // N1: qwen.linear {{.*}}kernels [#qwen.kernel<linear_q4_g128_1x16x4_neon_dotprod>, #qwen.kernel<linear_q4_g128_8x16x4_neon_dotprod>
  // N2: qwen.linear {{.*}}kernels [#qwen.kernel<linear_q4_g128_1x16x4_sve>, #qwen.kernel<linear_q4_g128_8x16x4_sve_i8mm>
  %y128 = qwen.linear %q, [@w128] : tensor<?x64xi8, #qwen.blocks<128>> -> tensor<?x64xf32>
  // A72: qwen.linear {{.*}}kernels [#qwen.kernel<linear_q4_0_1x16x4_neon>, #qwen.kernel<linear_q4_0_4x16x4_neon>
  // N1: qwen.linear {{.*}}kernels [#qwen.kernel<linear_q4_0_1x16x4_neon_dotprod>, #qwen.kernel<linear_q4_0_8x16x4_neon_dotprod>
  // AVX2: qwen.linear {{.*}}kernels [#qwen.kernel<linear_q4_0_1x16x4_avx2>, #qwen.kernel<linear_q4_0_32x16x4_avx2>
  // VNNI: qwen.linear {{.*}}kernels [#qwen.kernel<linear_q4_0_1x16x4_avx512vnni>, #qwen.kernel<linear_q4_0_32x16x4_avx512vnni>
  // AMX: qwen.linear {{.*}}kernels [#qwen.kernel<linear_q4_0_1x16x4_avx512vnni>, #qwen.kernel<linear_q4_0_16x16x4_amx_int8>
  // AVXVNNI: qwen.linear {{.*}}kernels [#qwen.kernel<linear_q4_0_1x16x4_avxvnni>, #qwen.kernel<linear_q4_0_4x16x4_avxvnni>
  %y = qwen.linear %q, [@w] : tensor<?x64xi8, #qwen.blocks<128>> -> tensor<?x64xf32>
  // A72: qwen.linear {{.*}}kernels [#qwen.kernel<linear_bf16_1x16_neon>, #qwen.kernel<linear_bf16_4x16_neon>
  // AMX: qwen.linear {{.*}}#qwen.kernel<linear_bf16_8x16_avx512>
  // VNNI: qwen.linear {{.*}}kernels [#qwen.kernel<linear_bf16_1x16_avx512>, #qwen.kernel<linear_bf16_8x16_avx512>
  %yb = qwen.linear %x, [@wb] : tensor<?x64xf32> -> tensor<?x64xf32>
  // A72: qwen.append {{.*}}kernels [#qwen.kernel<norm_rope_neon>, #qwen.kernel<append_k_f16_neon>, #qwen.kernel<append_v_f16_neon>]
  qwen.append %y, %y rope(%cos, %sin : tensor<?x32xf32>, tensor<?x32xf32>) layer 0 kv_heads 1 norm @n eps 1.0e-06 format <f16> : tensor<?x64xf32>
  // A layer has a format of its own.
  // AVX2: qwen.append {{.*}}kernels [#qwen.kernel<rope_avx2>, #qwen.kernel<append_k_f32_avx2>,
  qwen.append %y, %y rope(%cos, %sin : tensor<?x32xf32>, tensor<?x32xf32>) layer 1 kv_heads 1 format <f32> : tensor<?x64xf32>
  // A72: qwen.attention {{.*}}kernels [#qwen.kernel<rope_neon>, #qwen.kernel<attention_scores_f16_neon>, #qwen.kernel<attention_values_f16_neon>, #qwen.kernel<softmax_page_neon>, #qwen.kernel<merge_page_neon>, #qwen.kernel<finish_attention_neon>]
  %a = qwen.attention %y rope(%cos, %sin : tensor<?x32xf32>, tensor<?x32xf32>) layer 0 heads 1 kv_heads 1 format <f16> : tensor<?x64xf32>
  // A72: qwen.attention {{.*}}kernels [#qwen.kernel<norm_rope_neon>,
  %b = qwen.attention %y rope(%cos, %sin : tensor<?x32xf32>, tensor<?x32xf32>) layer 0 heads 1 kv_heads 1 norm @n eps 1.0e-06 format <f16> : tensor<?x64xf32>
  // A72: qwen.quantize {{.*}}kernels [#qwen.kernel<quantize_q8_neon>]
  %aq = qwen.quantize %a : tensor<?x64xf32> -> tensor<?x64xi8, #qwen.blocks<128>>
  // A72: qwen.swiglu {{.*}}kernels [#qwen.kernel<swiglu_q8_neon>]
  %s = qwen.swiglu %a, %b : tensor<?x64xf32> -> tensor<?x64xi8, #qwen.blocks<128>>
  // A72: qwen.swiglu {{.*}}kernels [#qwen.kernel<swiglu_f32_neon>]
  %t = qwen.swiglu %a, %b : tensor<?x64xf32> -> tensor<?x64xf32>
  %r = qwen.wanted_tokens %t : tensor<?x64xf32>
  // A72: qwen.rms_norm {{.*}}kernels [#qwen.kernel<rms_norm_f32_neon>, #qwen.kernel<rms_norm_f32_neon>]
  %l = qwen.rms_norm %r, @n eps 1.0e-06 : tensor<?x64xf32, #qwen.count<wanted>> -> tensor<?x64xf32, #qwen.count<wanted>>
  // A72: qwen.lm_head {{.*}}kernels [#qwen.kernel<linear_f32_1x16_neon>, #qwen.kernel<linear_f32_4x16_neon>, #qwen.kernel<check_finite_neon>
  // AVXVNNI: qwen.lm_head {{.*}}#qwen.kernel<linear_f32_4x16_avx2>
  // N1: qwen.lm_head {{.*}}kernels [#qwen.kernel<linear_f32_1x16_neon>, #qwen.kernel<linear_f32_4x16_neon>
  // VNNI: qwen.lm_head {{.*}}kernels [#qwen.kernel<linear_f32_1x16_avx512>, #qwen.kernel<linear_f32_8x16_avx512>
  %z = qwen.lm_head %l, @embed : tensor<?x64xf32, #qwen.count<wanted>> -> tensor<?x256xf32, #qwen.count<wanted>>
  return %z : tensor<?x256xf32, #qwen.count<wanted>>
}
}

//--- invalid.mlir
// expected-error@+1 {{the module has no qwen.target_features, the CPU features of the target}}
module {}

// -----

module attributes {qwen.target_features = #qwen.features<neon>} {
func.func @f(%x: tensor<?x64xf32>, %c: tensor<?x16xf32>) {
  // expected-error@+1 {{'qwen.append' op has no format of keys and values; run qwen-quantize first}}
  qwen.append %x, %x rope(%c, %c : tensor<?x16xf32>, tensor<?x16xf32>) layer 0 kv_heads 2 : tensor<?x64xf32>
  return
}
}

// -----

module attributes {qwen.target_features = #qwen.features<avx2>} {
func.func @f(%x: tensor<?x64xf32>) {
  // expected-error@+1 {{finds no kernel that runs on a target with avx2}}
  %q = qwen.quantize %x : tensor<?x64xf32> -> tensor<?x64xi8, #qwen.blocks<128>>
  return
}
}

// -----

module attributes {qwen.target_features = #qwen.features<>} {
qwen.weight @w : tensor<64x64xbf16> from #qwen.source<"m"> as #qwen.format<f32>
func.func @f(%x: tensor<?x64xf32>) {
  // expected-error@+1 {{finds no kernel that runs on a target with no known features}}
  %y = qwen.linear %x, [@w] : tensor<?x64xf32> -> tensor<?x64xf32>
  return
}
}

// -----

module attributes {qwen.target_features = #qwen.features<neon>} {
qwen.weight @w : tensor<64x64xbf16> from #qwen.source<"m">
func.func @f(%x: tensor<?x64xf32>) {
  // expected-error@+1 {{reads @w, which has no format; run qwen-quantize first}}
  %y = qwen.linear %x, [@w] : tensor<?x64xf32> -> tensor<?x64xf32>
  return
}
}
