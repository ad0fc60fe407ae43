// Features come from the module or from the option.
// RUN: split-file %s %t
// RUN: qwen-opt %t/model.mlir --qwen-select-kernels | FileCheck %t/model.mlir --check-prefixes=CHECK,A72
// RUN: qwen-opt %t/model.mlir --qwen-select-kernels="features=neon,dotprod" | FileCheck %t/model.mlir --check-prefixes=CHECK,N1
// RUN: qwen-opt %t/model.mlir --qwen-select-kernels="features=neon,dotprod,sve,i8mm" | FileCheck %t/model.mlir --check-prefixes=CHECK,N2
// RUN: qwen-opt %t/model.mlir --qwen-select-kernels="features=avx2,fma,f16c" | FileCheck %t/model.mlir --check-prefixes=CHECK,AVX2
// RUN: qwen-opt %t/model.mlir --qwen-select-kernels="features=avx2,fma,f16c,avx512f,avx512cd,avx512bw,avx512dq,avx512vl,avx512vnni" | FileCheck %t/model.mlir --check-prefixes=CHECK,VNNI
// RUN: qwen-opt %t/model.mlir --qwen-select-kernels="features=avx2,fma,f16c,avx512f,avx512cd,avx512bw,avx512dq,avx512vl,avx512vnni,amx-tile,amx-int8" | FileCheck %t/model.mlir --check-prefixes=CHECK,AMX
// RUN: qwen-opt %t/model.mlir --qwen-select-kernels="features=avx2,fma,f16c,avxvnni" | FileCheck %t/model.mlir --check-prefixes=CHECK,AVXVNNI
// RUN: qwen-opt %t/invalid.mlir --qwen-select-kernels -split-input-file -verify-diagnostics
// RUN: not qwen-opt %t/model.mlir --qwen-select-kernels=features=mmx 2>&1 | FileCheck %s --check-prefix=UNKNOWN

// UNKNOWN: unknown CPU feature 'mmx'

//--- model.mlir
module attributes {qwen.target_features = ["neon"], qwen.kv_format = #qwen.kv_format<f16>} {
qwen.weight @embed : tensor<256x64xbf16> from "m" at 0 as #qwen.format<f32>
qwen.weight @w : tensor<64x64xbf16> from "m" at 0 as #qwen.format<q4_0>
qwen.weight @w8 : tensor<64x64xbf16> from "m" at 0 as #qwen.format<q8_0>
qwen.weight @w128 : tensor<64x64xbf16> from "m" at 0 as #qwen.format<q4_g128>
qwen.weight @wb : tensor<64x64xbf16> from "m" at 0 as #qwen.format<bf16>
qwen.weight @n : tensor<64xbf16> from "m" at 0 as #qwen.format<f32>

// CHECK-LABEL: func.func @forward
func.func @forward(%ids: tensor<?xi32>, %positions: tensor<?xi32>) -> tensor<?x256xf32> {
  // A72: qwen.embedding {{.*}}kernel = "embed_f32_neon"
  // VNNI: qwen.embedding {{.*}}kernel = "embed_f32_avx512"
  %x = qwen.embedding %ids, @embed : tensor<?xi32> -> tensor<?x64xf32>
  // A72: qwen.rope_table {{.*}}kernel = "rope_table_neon"
  %cos, %sin = qwen.rope_table %positions theta 1.0e+06 : tensor<?xi32> -> tensor<?x32xf32>
  // A72: qwen.rms_norm {{.*}}{kernel = "rms_norm_q8_neon"}
  %q = qwen.rms_norm %x, @n eps 1.0e-06 : tensor<?x64xf32> -> tensor<?x64xi8, #qwen.blocks<128>>
  // A72: qwen.linear {{.*}}gemm = "linear_q8_0_4x16x4_neon", gemv = "linear_q8_0_1x16x4_neon"
  // N1: qwen.linear {{.*}}gemm = "linear_q8_0_8x16x4_neon_dotprod", gemv = "linear_q8_0_1x16x4_neon_dotprod"
  // N2: qwen.linear {{.*}}gemm = "linear_q8_0_8x16x4_sve_i8mm", gemv = "linear_q8_0_1x16x4_sve"
  // AVX2: qwen.linear {{.*}}gemm = "linear_q8_0_4x16x4_avx2", gemv = "linear_q8_0_1x16x4_avx2"
  // VNNI: qwen.linear {{.*}}gemm = "linear_q8_0_8x16x4_avx512vnni", gemv = "linear_q8_0_1x16x4_avx512vnni"
  // AMX: qwen.linear {{.*}}gemm = "linear_q8_0_16x16x4_amx_int8", gemv = "linear_q8_0_1x16x4_avx512vnni"
  %y8 = qwen.linear %q, [@w8] : tensor<?x64xi8, #qwen.blocks<128>> -> tensor<?x64xf32>
  // N1: qwen.linear {{.*}}gemm = "linear_q4_g128_8x16x4_neon_dotprod", gemv = "linear_q4_g128_1x16x4_neon_dotprod"
  // N2: qwen.linear {{.*}}gemm = "linear_q4_g128_8x16x4_sve_i8mm", gemv = "linear_q4_g128_1x16x4_sve"
  %y128 = qwen.linear %q, [@w128] : tensor<?x64xi8, #qwen.blocks<128>> -> tensor<?x64xf32>
  // A72: qwen.linear {{.*}}gemm = "linear_q4_0_4x16x4_neon", gemv = "linear_q4_0_1x16x4_neon"
  // N1: qwen.linear {{.*}}gemm = "linear_q4_0_8x16x4_neon_dotprod", gemv = "linear_q4_0_1x16x4_neon_dotprod"
  // AVX2: qwen.linear {{.*}}gemm = "linear_q4_0_4x16x4_avx2", gemv = "linear_q4_0_1x16x4_avx2"
  // VNNI: qwen.linear {{.*}}gemm = "linear_q4_0_8x16x4_avx512vnni", gemv = "linear_q4_0_1x16x4_avx512vnni"
  // AMX: qwen.linear {{.*}}gemm = "linear_q4_0_16x16x4_amx_int8", gemv = "linear_q4_0_1x16x4_avx512vnni"
  // AVXVNNI: qwen.linear {{.*}}gemm = "linear_q4_0_4x16x4_avxvnni", gemv = "linear_q4_0_1x16x4_avxvnni"
  %y = qwen.linear %q, [@w] : tensor<?x64xi8, #qwen.blocks<128>> -> tensor<?x64xf32>
  // A72: qwen.linear {{.*}}gemm = "linear_bf16_4x16_neon", gemv = "linear_bf16_1x16_neon"
  // AMX: qwen.linear {{.*}}gemm = "linear_bf16_8x16_avx512"
  // VNNI: qwen.linear {{.*}}gemm = "linear_bf16_8x16_avx512", gemv = "linear_bf16_1x16_avx512"
  %yb = qwen.linear %x, [@wb] : tensor<?x64xf32> -> tensor<?x64xf32>
  // A72: qwen.append {{.*}}append_k_kernel = "append_k_f16_neon", append_v_kernel = "append_v_f16_neon", rope_kernel = "norm_rope_neon"
  qwen.append %y, %y, %cos, %sin layer 0 norm @n eps 1.0e-06 : tensor<?x64xf32>, tensor<?x32xf32>
  // AVX2: qwen.append {{.*}}rope_kernel = "rope_avx2"
  qwen.append %y, %y, %cos, %sin layer 1 : tensor<?x64xf32>, tensor<?x32xf32>
  // A72: qwen.attention {{.*}}finish_kernel = "finish_attention_neon", merge_kernel = "merge_page_neon", rope_kernel = "rope_neon", scores_kernel = "attention_scores_f16_neon", softmax_kernel = "softmax_page_neon", values_kernel = "attention_values_f16_neon"
  %a = qwen.attention %y rope(%cos, %sin : tensor<?x32xf32>, tensor<?x32xf32>) layer 0 heads 1 kv_heads 1 : tensor<?x64xf32>
  // A72: qwen.attention {{.*}}rope_kernel = "norm_rope_neon"
  %b = qwen.attention %y rope(%cos, %sin : tensor<?x32xf32>, tensor<?x32xf32>) layer 0 heads 1 kv_heads 1 norm @n eps 1.0e-06 : tensor<?x64xf32>
  // A72: qwen.quantize {{.*}}kernel = "quantize_q8_neon"
  %aq = qwen.quantize %a : tensor<?x64xf32> -> tensor<?x64xi8, #qwen.blocks<128>>
  // A72: qwen.swiglu {{.*}}kernel = "swiglu_q8_neon"
  %s = qwen.swiglu %a, %b : tensor<?x64xf32> -> tensor<?x64xi8, #qwen.blocks<128>>
  // A72: qwen.swiglu {{.*}}kernel = "swiglu_f32_neon"
  %t = qwen.swiglu %a, %b : tensor<?x64xf32> -> tensor<?x64xf32>
  %r = qwen.wanted_rows %t : tensor<?x64xf32>
  // A72: qwen.rms_norm {{.*}}{hidden_kernel = "rms_norm_f32_neon", kernel = "rms_norm_f32_neon"}
  %l = qwen.rms_norm %r, @n eps 1.0e-06 : tensor<?x64xf32> -> tensor<?x64xf32>
  // A72: qwen.lm_head {{.*}}check_kernel = "check_finite_neon", gemm = "linear_f32_4x16_neon", gemv = "linear_f32_1x16_neon"
  // AVXVNNI: qwen.lm_head {{.*}}gemm = "linear_f32_4x16_avx2"
  // N1: qwen.lm_head {{.*}}gemm = "linear_f32_4x16_neon", gemv = "linear_f32_1x16_neon"
  // VNNI: qwen.lm_head {{.*}}gemm = "linear_f32_8x16_avx512", gemv = "linear_f32_1x16_avx512"
  %z = qwen.lm_head %l, @embed : tensor<?x64xf32> -> tensor<?x256xf32>
  return %z : tensor<?x256xf32>
}
}

//--- invalid.mlir
// expected-error@+1 {{the module has no qwen.target_features, the CPU features of the target}}
module attributes {qwen.kv_format = #qwen.kv_format<f16>} {}

// -----

// expected-error@+1 {{the module has no qwen.kv_format, the format of the KV cache; run qwen-quantize first}}
module attributes {qwen.target_features = ["neon"]} {}

// -----

// expected-error@+1 {{unknown CPU feature 'sse9'}}
module attributes {qwen.target_features = ["avx2", "sse9"], qwen.kv_format = #qwen.kv_format<f16>} {}

// -----

module attributes {qwen.target_features = ["avx2"], qwen.kv_format = #qwen.kv_format<f16>} {
func.func @f(%x: tensor<?x64xf32>) {
  // expected-error@+1 {{finds no row of the kernel table for "kernel" that runs on a target with avx2}}
  %q = qwen.quantize %x : tensor<?x64xf32> -> tensor<?x64xi8, #qwen.blocks<128>>
  return
}
}

// -----

module attributes {qwen.target_features = [], qwen.kv_format = #qwen.kv_format<f16>} {
qwen.weight @w : tensor<64x64xbf16> from "m" at 0 as #qwen.format<f32>
func.func @f(%x: tensor<?x64xf32>) {
  // expected-error@+1 {{finds no row of the kernel table for "gemv" that runs on a target with no known features}}
  %y = qwen.linear %x, [@w] : tensor<?x64xf32> -> tensor<?x64xf32>
  return
}
}

// -----

module attributes {qwen.target_features = ["neon"], qwen.kv_format = #qwen.kv_format<f16>} {
qwen.weight @w : tensor<64x64xbf16> from "m" at 0
func.func @f(%x: tensor<?x64xf32>) {
  // expected-error@+1 {{reads @w, which has no format; run qwen-quantize first}}
  %y = qwen.linear %x, [@w] : tensor<?x64xf32> -> tensor<?x64xf32>
  return
}
}

// -----

module attributes {qwen.target_features = ["neon"], qwen.kv_format = #qwen.kv_format<f16>} {
qwen.weight @w : tensor<64x64xbf16> from "m" at 0 as #qwen.format<f32>
qwen.packed @p [@w] : tensor<64x64xf32> in #qwen.layout<f32, panel = 16, chunk = 1> at 0
func.func @f(%ids: tensor<?xi32>) {
  // expected-error@+1 {{has its weights packed before its kernel is chosen; run qwen-select-kernels before qwen-pack}}
  %x = qwen.embedding %ids, @p : tensor<?xi32> -> tensor<?x64xf32>
  return
}
}
