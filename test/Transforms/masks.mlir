// Attention of a vision tower through all passes: without a cache, in windows
// and over a whole sequence, rotated by three positions. Keys and values are f32,
// whatever format the cache has.
// RUN: qwen-opt %s --qwen-pipeline="weights=f32 kv=f16" | FileCheck %s
// RUN: qwen-opt %s --qwen-pipeline="weights=f32 kv=f16" --qwen-lower | FileCheck %s --check-prefix=CALLS

module attributes {qwen.stage = "graph", qwen.target_features = #qwen.features<avx2, fma, f16c>} {
qwen.weight @q : tensor<64x64xf32> from #qwen.source<"m">
qwen.weight @k : tensor<32x64xf32> from #qwen.source<"m">
qwen.weight @frequencies : tensor<8xf32> from #qwen.frequencies<theta = 1.0e+04, axes = 2>

// CHECK-LABEL: func.func @tower
// CHECK: qwen.rope_table {{.*}} <0, 4, 4> {{.*}} barrier = false
// CHECK: qwen.attention {{.*}} rope({{.*}}) heads 4 kv_heads 2 mask <windows> of({{.*}} : tensor<?xi32>) kernels [#qwen.kernel<rope_avx2>, #qwen.kernel<append_k_f32_avx2>, #qwen.kernel<append_v_f32_avx2>, #qwen.kernel<attention_scores_f32_avx2>, #qwen.kernel<attention_values_f32_avx2>, {{.*}} barrier = true
// Nothing that the other one writes.
// CHECK: qwen.attention {{.*}} heads 4 kv_heads 2 mask <all> kernels [#qwen.kernel<append_k_f32_avx2>, {{.*}} barrier = false

// CALLS: func.func @tower(
// CALLS-SAME: qwen.caches = []
// CALLS-SAME: qwen.inputs = [{name = "x", offset = {{[0-9]+}} : i64, stride = 64 : i64, width = 64 : i64}, {name = "times"}, {name = "heights"}, {name = "widths"}, {name = "windows"}]
// A unit of 64 tokens lays out 64 keys of two heads, so once for each token and page.
// CALLS-SAME: {calls = [{calls = 4 : i64, length = 8 : i64}, {calls = 2 : i64, length = 8 : i64, page_calls = 2 : i64}, {calls = 2 : i64, kernel = 1 : i64, length = 16 : i64, page_calls = 2 : i64}, {calls = 2 : i64, kernel = 2 : i64, length = 16 : i64, page_calls = 2 : i64}, {kernel = 3 : i64, position_macs = 64 : i64}, {{.*}}], kind = "attention", token_bytes = 832 : i64, whole_sequence = true}
// CALLS: qwen.struct {frequencies.image = 0, frequencies = {{[0-9]+}}, cos = [[COS:[0-9]+]], cos.stride = 16, sin = [[SIN:[0-9]+]], sin.stride = 16, half = 8, scale = 1.000000e+00 : f32, op = 0}
// CALLS: call @rope_table.rope_table_avx2(
// CALLS: qwen.struct {queries = [[Q:[0-9]+]], queries.stride = 128, keys = {{[0-9]+}}, keys.stride = 128, values = {{[0-9]+}}, values.stride = 128, cos = [[COS]], cos.stride = 16, sin = [[SIN]], sin.stride = 16, out = {{[0-9]+}}, out.stride = 64, op = 2}
// CALLS: call @call_attention.rope_avx2(
// CALLS: qwen.struct {queries = [[Q]], {{.*}}, cos = -1, cos.stride = 0, sin = -1, sin.stride = 0, out = {{[0-9]+}}, out.stride = 64, op = 3}
// CALLS: call @call_attention.append_k_f32_avx2(
// CALLS: qwen.struct {times = 0, heights = 4, widths = 4, interleaved = 0, scratch = memref<16xf32>, kernel = #qwen.kernel<rope_table_avx2>}
// CALLS: call @qwenDriverRopeSections(
// CALLS: qwen.struct {kvHeads = 2, groupQueries = 2, headDim = 16, half = 8, causal = 0, windows = 1, scale = 2.500000e-01 : f32, blockTokens = 64, scratch = memref<{{[0-9]+}}xf32>, rope = #qwen.kernel<rope_avx2>, appendK = #qwen.kernel<append_k_f32_avx2>, appendV = #qwen.kernel<append_v_f32_avx2>, scores = #qwen.kernel<attention_scores_f32_avx2>, values = #qwen.kernel<attention_values_f32_avx2>, softmax = #qwen.kernel<softmax_page_avx2>, merge = #qwen.kernel<merge_page_avx2>, finish = #qwen.kernel<finish_attention_avx2>}
// CALLS: call @qwenDriverCallAttention(
// CALLS: qwen.struct {{.*}} half = 0, causal = 0, windows = 0, {{.*}}, rope = none, appendK =
func.func @tower(%x: tensor<?x64xf32> {qwen.name = "x"}, %times: tensor<?xi32>, %heights: tensor<?xi32>, %widths: tensor<?xi32>, %windows: tensor<?xi32>) -> (tensor<?x64xf32> {qwen.name = "a"}, tensor<?x64xf32> {qwen.name = "b"}) attributes {qwen.limits = {all = 512 : i64}} {
  %cos, %sin = qwen.rope_table %times, @frequencies sections(%heights, %widths : tensor<?xi32>, tensor<?xi32>) <0, 4, 4> : tensor<?xi32> -> tensor<?x8xf32>
  %q = qwen.linear %x, [@q] : tensor<?x64xf32> -> tensor<?x64xf32>
  %k = qwen.linear %x, [@k] : tensor<?x64xf32> -> tensor<?x32xf32>
  %v = qwen.linear %x, [@k] : tensor<?x64xf32> -> tensor<?x32xf32>
  %q1 = qwen.rope %q, %cos, %sin : tensor<?x64xf32>, tensor<?x8xf32>
  %k1 = qwen.rope %k, %cos, %sin : tensor<?x32xf32>, tensor<?x8xf32>
  %a = qwen.attention %q1 over(%k1, %v : tensor<?x32xf32>, tensor<?x32xf32>) heads 4 kv_heads 2 mask <windows> of(%windows : tensor<?xi32>) : tensor<?x64xf32>
  %b = qwen.attention %q over(%k, %v : tensor<?x32xf32>, tensor<?x32xf32>) heads 4 kv_heads 2 mask <all> : tensor<?x64xf32>
  return %a, %b : tensor<?x64xf32>, tensor<?x64xf32>
}
}
