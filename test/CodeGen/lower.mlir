// RUN: qwen-opt %s --qwen-lower | FileCheck %s
// RUN: qwen-opt %s --qwen-lower | FileCheck %s --check-prefix=FACTS
// RUN: qwen-opt %s --qwen-lower | FileCheck %s --check-prefix=PRODUCT
// RUN: sed s/_8x16x4_avx512vnni/_16x16x4_amx_int8/g %s | qwen-opt - --qwen-lower | FileCheck %s --check-prefix=TILES
//
// A Qwen3 of one layer with q4_0 weights: each op is a call on the calling
// thread's share, after a barrier where the plan has one.

// FACTS: qwen.weight @w
// FACTS: func.func @forward(
// FACTS-SAME: qwen.caches = [{format = "f16", kind = "paged", layer_bytes = 128 : i64, layers = array<i64: 0>, name = "kv"}]
// FACTS-SAME: qwen.counts = ["all"]
// FACTS-SAME: qwen.inputs = [{name = "ids"}, {name = "positions"}]
// FACTS-SAME: qwen.ops = ["embed_tokens", "rope_table.1", "layers.0.input_layernorm", "layers.0.self_attn.qkv_proj", "append.4", "attention.5", "quantize.6", "linear.7", "rms_norm.8", "linear.9", "swiglu.10", "linear.11", "rms_norm.12", "lm_head.13", "count.14"]
// FACTS-SAME: qwen.outputs = [{name = "logits", stride = 48 : i64, width = 40 : i64}]
// A token reads 36 bytes of a panel of the embedding; weights have their bias; a row of the cache is f16.
// FACTS-SAME: qwen.work = [{active_bytes = 36 : i64, calls = [{calls = 1 : i64, length = 64 : i64}], kind = "embedding", token_bytes = 256 : i64, weight_bytes = 1728 : i64},
// FACTS-SAME: {active_bytes = 64 : i64, calls = [{calls = 1 : i64, length = 16 : i64}], kind = "rope_table", token_bytes = 128 : i64, weight_bytes = 64 : i64},
// FACTS-SAME: {active_bytes = 256 : i64, calls = [{calls = 1 : i64, length = 64 : i64}], kind = "rms_norm", token_bytes = 332 : i64, weight_bytes = 256 : i64},
// FACTS-SAME: {active_bytes = 5120 : i64, calls = [{gemm = 1 : i64, macs = 8192 : i64}], kind = "linear", token_bytes = 588 : i64, weight_bytes = 5120 : i64},
// FACTS-SAME: {active_bytes = 128 : i64, calls = [{calls = 1 : i64, length = 16 : i64}, {calls = 1 : i64, kernel = 1 : i64, length = 32 : i64}, {calls = 1 : i64, kernel = 2 : i64, length = 32 : i64}], kind = "append", token_bytes = 512 : i64, weight_bytes = 128 : i64},
// FACTS-SAME: {active_bytes = 128 : i64, calls = [{calls = 2 : i64, length = 16 : i64}, {kernel = 1 : i64, position_macs = 64 : i64}, {kernel = 2 : i64, position_macs = 64 : i64}, {kernel = 3 : i64, length = 64 : i64, page_calls = 1 : i64, queries = 2 : i64}, {calls = 1 : i64, kernel = 3 : i64, length = 32 : i64, queries = 2 : i64}, {kernel = 4 : i64, length = 32 : i64, page_calls = 1 : i64, queries = 2 : i64}, {calls = 2 : i64, kernel = 5 : i64, length = 32 : i64}], kind = "attention", position_bytes = 128 : i64, token_bytes = 640 : i64, weight_bytes = 128 : i64},
// FACTS-SAME: {calls = [{calls = 1 : i64, length = 64 : i64}], kind = "quantize", token_bytes = 332 : i64},
// FACTS-SAME: {active_bytes = 2304 : i64, calls = [{gemm = 1 : i64, macs = 4096 : i64}], kind = "linear", token_bytes = 588 : i64, weight_bytes = 2304 : i64},
// FACTS-SAME: {active_bytes = 256 : i64, calls = [{calls = 1 : i64, length = 64 : i64}], kind = "rms_norm", token_bytes = 332 : i64, weight_bytes = 256 : i64},
// FACTS-SAME: {active_bytes = 11520 : i64, calls = [{gemm = 1 : i64, macs = 20480 : i64}], kind = "linear", token_bytes = 1356 : i64, weight_bytes = 11520 : i64},
// FACTS-SAME: {calls = [{calls = 1 : i64, length = 160 : i64}], kind = "swiglu", token_bytes = 1468 : i64},
// FACTS-SAME: {active_bytes = 5760 : i64, calls = [{gemm = 1 : i64, macs = 10240 : i64}], kind = "linear", token_bytes = 700 : i64, weight_bytes = 5760 : i64},
// FACTS-SAME: {active_bytes = 256 : i64, calls = [{calls = 1 : i64, length = 64 : i64}], count = 1 : i64, kind = "rms_norm", token_bytes = 332 : i64, weight_bytes = 256 : i64},
// FACTS-SAME: {active_bytes = 1728 : i64, calls = [{gemm = 1 : i64, macs = 2560 : i64}, {calls = 1 : i64, kernel = 2 : i64, length = 40 : i64}], count = 1 : i64, kind = "lm_head", token_bytes = 236 : i64, weight_bytes = 1728 : i64},
// FACTS-SAME: {kind = "count"}]

module {
qwen.weight @w : tensor<64xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.image @other
qwen.image @draft
qwen.weight @hn : tensor<32xf32> from #qwen.source<"m"> as #qwen.format<f32> of @draft
qwen.weight @q_b : tensor<64xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.weight @k_b : tensor<32xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.weight @v_b : tensor<32xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.weight @e : tensor<40x64xf32> from #qwen.source<"m"> as #qwen.format<q4_0>
qwen.weight @q_w : tensor<64x64xf32> from #qwen.source<"m"> as #qwen.format<q4_0>
qwen.weight @k_w : tensor<32x64xf32> from #qwen.source<"m"> as #qwen.format<q4_0>
qwen.weight @v_w : tensor<32x64xf32> from #qwen.source<"m"> as #qwen.format<q4_0>
qwen.weight @o_w : tensor<64x64xf32> from #qwen.source<"m"> as #qwen.format<q4_0>
qwen.weight @g_w : tensor<160x64xf32> from #qwen.source<"m"> as #qwen.format<q4_0>
qwen.weight @u_w : tensor<160x64xf32> from #qwen.source<"m"> as #qwen.format<q4_0>
qwen.weight @d_w : tensor<64x160xf32> from #qwen.source<"m"> as #qwen.format<q4_0>
qwen.weight @rope.frequencies : tensor<16xf32> from #qwen.frequencies<theta = 1.0e+06> as #qwen.format<f32>
qwen.packed @norm [@w] : tensor<64xf32> at 0
qwen.packed @head_norm [@hn] : tensor<32xf32> at 256 of @draft
qwen.packed @bias [@q_b, @k_b, @v_b] : tensor<128xf32> at 1024
qwen.packed @embed [@e] : tensor<40x64xf32> in #qwen.layout<q4_0, panel = 16, chunk = 4> at 16384
qwen.packed @qkv [@q_w, @k_w, @v_w] : tensor<128x64xf32> in #qwen.layout<q4_0, panel = 16, chunk = 4> at 20480
qwen.packed @o [@o_w] : tensor<64x64xf32> in #qwen.layout<q4_0, panel = 16, chunk = 4> at 32768
qwen.packed @gate_up [@g_w, @u_w] : tensor<320x64xf32> in #qwen.layout<q4_0, panel = 16, chunk = 4> at 36864
qwen.packed @down [@d_w] : tensor<64x160xf32> in #qwen.layout<q4_0, panel = 16, chunk = 4> at 49152
qwen.packed @rope.packed [@rope.frequencies] : tensor<16xf32> at 8192

// CHECK-LABEL: func.func @forward
// CHECK-SAME: (%[[CTX:.*]]: !llvm.ptr, %[[T:.*]]: i32, %{{.*}}: i32)
func.func @forward(%ids: tensor<?xi32>, %positions: tensor<?xi32>) -> tensor<?x40xf32, #qwen.count<wanted>> {
  // CHECK-NOT: @qwenDriverBarrier
  // CHECK: %[[ARGUMENTS:.*]] = qwen.struct {weight.image = 0, weight = 16384, out = 1024, out.stride = 64, k = 64, op = 0} : !llvm.ptr
  // CHECK: call @embedding.embed_q4_0_avx512(%[[CTX]], %[[T]], %[[ARGUMENTS]])
  %x = qwen.embedding %ids, @e packed [@embed] kernels [#qwen.kernel<embed_q4_0_avx512>] {plan = #qwen.plan<id = 0, barrier = false, buffers = [#qwen.buffer<offset = 1024, stride = 64>]>} : tensor<?xi32> -> tensor<?x64xf32> loc("embed_tokens")
  // CHECK: qwen.struct {frequencies.image = 0, frequencies = 8192, cos = 64, cos.stride = 16, sin = 128, sin.stride = 16, half = 16, scale = 1.000000e+00 : f32, op = 1}
  // CHECK: call @rope_table.rope_table_avx512(
  %cos, %sin = qwen.rope_table %positions, @rope.frequencies packed [@rope.packed] kernels [#qwen.kernel<rope_table_avx512>] {plan = #qwen.plan<id = 1, barrier = false, buffers = [#qwen.buffer<offset = 64, stride = 16>, #qwen.buffer<offset = 128, stride = 16>]>} : tensor<?xi32> -> tensor<?x16xf32>
  // All tokens' rows; quantized at once.
  // CHECK: qwen.struct {in = 1024, in.stride = 64, weight.image = 0, weight = 0, out = 2048, out.stride = 64, out.scales = 4096, out.sums = 4352, k = 64, eps = 9.99999997E-7 : f32, gathers = 0, count = 0, op = 2}
  // CHECK: call @rms_norm.rms_norm_q8_avx512(
  %q0 = qwen.rms_norm %x, @w eps 1.0e-06 packed [@norm] kernels [#qwen.kernel<rms_norm_q8_avx512>] {plan = #qwen.plan<id = 2, barrier = false, buffers = [#qwen.buffer<offset = 2048, stride = 64, scales = 4096, sums = 4352>]>} : tensor<?x64xf32> -> tensor<?x64xi8, #qwen.blocks<128>> loc("layers.0.input_layernorm")
  // Where there is a barrier, the op begins behind it.
  // CHECK: call @qwenDriverBarrier(%[[CTX]], %[[T]])
  // CHECK-NEXT: %[[NUMBER:.*]] = arith.constant 3 : i32
  // CHECK-NEXT: call @qwenDriverTrace(%[[CTX]], %[[T]], %[[NUMBER]])
  // CHECK: qwen.struct {in = 2048, in.stride = 64, in.scales = 4096, in.sums = 4352, weight.image = 0, weight = 20480, bias.image = 0, bias = 1024, out = 8192, out.stride = 128, k = 64, panels = 8, residual = -1, count = 0, op = 3}
  // CHECK: call @linear.linear_q4_0_8x16x4_avx512vnni(
  %q, %k, %v = qwen.linear %q0, [@q_w, @k_w, @v_w] bias [@q_b, @k_b, @v_b] packed [@qkv, @bias] kernels [#qwen.kernel<linear_q4_0_1x16x4_avx512vnni>, #qwen.kernel<linear_q4_0_8x16x4_avx512vnni>] {plan = #qwen.plan<id = 3, barrier = true, buffers = [#qwen.buffer<offset = 8192, stride = 128>, #qwen.buffer<offset = 8448, stride = 128>, #qwen.buffer<offset = 8576, stride = 128>]>} : tensor<?x64xi8, #qwen.blocks<128>> -> tensor<?x64xf32>, tensor<?x32xf32>, tensor<?x32xf32> loc("layers.0.self_attn.qkv_proj")
  // CHECK: call @qwenDriverBarrier
  // CHECK: qwen.struct {keys = 8448, keys.stride = 128, values = 8576, values.stride = 128, cos = 64, cos.stride = 16, sin = 128, sin.stride = 16, norm.image = 2, norm = 256, eps = 9.99999997E-7 : f32, layer = 0, op = 4}
  // CHECK: call @append.norm_rope_avx512(
  qwen.append %k, %v rope(%cos, %sin : tensor<?x16xf32>, tensor<?x16xf32>) layer 0 kv_heads 1 norm @hn eps 1.0e-06 format <f16> packed [@head_norm] kernels [#qwen.kernel<norm_rope_avx512>, #qwen.kernel<append_k_f16_avx512>, #qwen.kernel<append_v_f16_avx512>] {plan = #qwen.plan<id = 4, barrier = true>} : tensor<?x32xf32>
  // CHECK: call @qwenDriverBarrier
  // CHECK: qwen.struct {queries = 8192, queries.stride = 128, cos = 64, cos.stride = 16, sin = 128, sin.stride = 16, norm.image = 2, norm = 256, out = 16384, out.stride = 64, eps = 9.99999997E-7 : f32, layer = 0, op = 5}
  // CHECK: call @attention.norm_rope_avx512(
  %a = qwen.attention %q rope(%cos, %sin : tensor<?x16xf32>, tensor<?x16xf32>) layer 0 heads 2 kv_heads 1 norm @hn eps 1.0e-06 format <f16> packed [@head_norm] kernels [#qwen.kernel<norm_rope_avx512>, #qwen.kernel<attention_scores_f16_avx512>, #qwen.kernel<attention_values_f16_avx512>, #qwen.kernel<softmax_page_avx512>, #qwen.kernel<merge_page_avx512>, #qwen.kernel<finish_attention_avx512>] {plan = #qwen.plan<id = 5, barrier = true, buffers = [#qwen.buffer<offset = 16384, stride = 64>]>} : tensor<?x64xf32>
  // CHECK: qwen.struct {in = 16384, in.stride = 64, out = 2048, out.stride = 64, out.scales = 4096, out.sums = 4352, k = 64, count = 0, op = 6}
  // CHECK: call @quantize.quantize_q8_avx512
  %aq = qwen.quantize %a kernels [#qwen.kernel<quantize_q8_avx512>] {plan = #qwen.plan<id = 6, barrier = true, buffers = [#qwen.buffer<offset = 2048, stride = 64, scales = 4096, sums = 4352>]>} : tensor<?x64xf32> -> tensor<?x64xi8, #qwen.blocks<128>>
  // In place: the residual is the result's memory.
  // CHECK: qwen.struct {in = 2048, {{.*}} bias.image = 0, bias = -1, out = 1024, out.stride = 64, k = 64, panels = 4, residual = 1024, count = 0, op = 7}
  // CHECK: call @linear.linear_q4_0_8x16x4_avx512vnni(
  %h = qwen.linear %aq, [@o_w] residual(%x : tensor<?x64xf32>) packed [@o] kernels [#qwen.kernel<linear_q4_0_1x16x4_avx512vnni>, #qwen.kernel<linear_q4_0_8x16x4_avx512vnni>] {plan = #qwen.plan<id = 7, barrier = true, buffers = [#qwen.buffer<offset = 1024, stride = 64>]>} : tensor<?x64xi8, #qwen.blocks<128>> -> tensor<?x64xf32>
  %q1 = qwen.rms_norm %h, @w eps 1.0e-06 packed [@norm] kernels [#qwen.kernel<rms_norm_q8_avx512>] {plan = #qwen.plan<id = 8, barrier = true, buffers = [#qwen.buffer<offset = 2048, stride = 64, scales = 4096, sums = 4352>]>} : tensor<?x64xf32> -> tensor<?x64xi8, #qwen.blocks<128>>
  // AMX: the product also computes the SwiGLU.
  // TILES: qwen.struct {in = 2048, {{.*}}, op = 9, gated = 4416, gated.stride = 160, gated.scales = 6400, gated.sums = 6464, panelBytes = {{[0-9]+}}, gateOp = 10}
  // TILES: call @linear_swiglu.linear_q4_0_16x16x4_amx_int8(
  %gate, %up = qwen.linear %q1, [@g_w, @u_w] packed [@gate_up] kernels [#qwen.kernel<linear_q4_0_1x16x4_avx512vnni>, #qwen.kernel<linear_q4_0_8x16x4_avx512vnni>] {plan = #qwen.plan<id = 9, barrier = true, buffers = [#qwen.buffer<offset = 8192, stride = 320>, #qwen.buffer<offset = 8832, stride = 320>]>} : tensor<?x64xi8, #qwen.blocks<128>> -> tensor<?x160xf32>, tensor<?x160xf32>
  // CHECK: qwen.struct {in = 8832, in.stride = 320, gate = 8192, gate.stride = 320, out = 4416, out.stride = 160, out.scales = 6400, out.sums = 6464, k = 160, count = 0, op = 10}
  // CHECK: call @swiglu.swiglu_q8_avx512
  %s = qwen.swiglu %gate, %up kernels [#qwen.kernel<swiglu_q8_avx512>] {plan = #qwen.plan<id = 10, barrier = true, buffers = [#qwen.buffer<offset = 4416, stride = 160, scales = 6400, sums = 6464>]>} : tensor<?x160xf32> -> tensor<?x160xi8, #qwen.blocks<128>>
  %y = qwen.linear %s, [@d_w] residual(%h : tensor<?x64xf32>) packed [@down] kernels [#qwen.kernel<linear_q4_0_1x16x4_avx512vnni>, #qwen.kernel<linear_q4_0_8x16x4_avx512vnni>] {plan = #qwen.plan<id = 11, barrier = true, buffers = [#qwen.buffer<offset = 1024, stride = 64>]>} : tensor<?x160xi8, #qwen.blocks<128>> -> tensor<?x64xf32>
  %rows = qwen.wanted_tokens %y : tensor<?x64xf32>
  // Hidden rows, and the norm of the output rows and their logits.
  // CHECK: call @qwenDriverBarrier
  // CHECK: qwen.struct {in = 1024, {{.*}}, gathers = 1, count = 2, op = 12}
  // CHECK: call @hidden_rows.rms_norm_f32_avx512(
  // CHECK: qwen.struct {in = 1024, {{.*}}, gathers = 1, count = 1, op = 12}
  // CHECK: call @rms_norm.rms_norm_q8_avx512(
  %final = qwen.rms_norm %rows, @w eps 1.0e-06 packed [@norm] kernels [#qwen.kernel<rms_norm_q8_avx512>, #qwen.kernel<rms_norm_f32_avx512>] {plan = #qwen.plan<id = 12, barrier = true, buffers = [#qwen.buffer<offset = 2048, stride = 64, scales = 4096, sums = 4352>]>} : tensor<?x64xf32, #qwen.count<wanted>> -> tensor<?x64xi8, #qwen.blocks<128, <wanted>>>
  // CHECK: call @qwenDriverBarrier
  // CHECK: qwen.struct {in = 2048, in.stride = 64, in.scales = 4096, in.sums = 4352, weight.image = 0, weight = 16384, bias.image = 0, bias = -1, out = -1, out.stride = 48, k = 64, panels = 3, residual = -1, count = 1, op = 13}
  // CHECK: call @lm_head.linear_q4_0_8x16x4_avx512vnni(
  // CHECK: qwen.struct {ids = -1, n = 0, limit = -1, out = 20480, k = 8, op = 14}
  // CHECK: call @count(
  // CHECK-NEXT: %[[COUNT:.*]] = arith.constant 15 : i32
  // CHECK-NEXT: call @qwenDriverTrace(%[[CTX]], %[[T]], %[[COUNT]])
  // CHECK-NEXT: return
  %logits = qwen.lm_head %final, @e packed [@embed] kernels [#qwen.kernel<linear_q4_0_1x16x4_avx512vnni>, #qwen.kernel<linear_q4_0_8x16x4_avx512vnni>, #qwen.kernel<check_finite_avx512>] {plan = #qwen.plan<id = 13, barrier = true, buffers = [#qwen.buffer<offset = -1, stride = 48>]>} : tensor<?x64xi8, #qwen.blocks<128, <wanted>>> -> tensor<?x40xf32, #qwen.count<wanted>>
  %counts = qwen.count %ids kernels [] {plan = #qwen.plan<id = 14, barrier = false, buffers = [#qwen.buffer<offset = 20480, stride = 16>]>} : tensor<?xi32> -> tensor<8xi32>
  return %logits : tensor<?x40xf32, #qwen.count<wanted>>
}

// Programs share instances.
// CHECK-LABEL: func.func @again
func.func @again(%x: tensor<?x64xf32> {qwen.name = "rows", qwen.place = #qwen.buffer<offset = 1024, stride = 64>}) {
  // CHECK: call @quantize.quantize_q8_avx512(
  %q = qwen.quantize %x kernels [#qwen.kernel<quantize_q8_avx512>] {plan = #qwen.plan<id = 0, barrier = false, buffers = [#qwen.buffer<offset = 2048, stride = 64, scales = 4096, sums = 4352>]>} : tensor<?x64xf32> -> tensor<?x64xi8, #qwen.blocks<128>>
  // CHECK: qwen.struct {in = 1024, in.stride = 64, out = 4416, out.stride = 64, out.scales = -1, out.sums = -1, k = 64, count = 0, op = 1}
  // CHECK: call @hadamard.hadamard_avx512(
  %h = qwen.hadamard %x kernels [#qwen.kernel<hadamard_avx512>] {plan = #qwen.plan<id = 1, barrier = false, buffers = [#qwen.buffer<offset = 4416, stride = 64>]>} : tensor<?x64xf32>
  // CHECK: qwen.struct {in = 4416, in.stride = 64, gate = 1024, gate.stride = 64, out = 6464, out.stride = 64, out.scales = 8192, out.sums = 8256, k = 64, count = 0, op = 2}
  // CHECK: call @swiglu.swiglu_f32_avx512(
  %s = qwen.swiglu %x, %h hadamard kernels [#qwen.kernel<swiglu_f32_avx512>, #qwen.kernel<hadamard_q8_avx512>] {plan = #qwen.plan<id = 2, barrier = true, buffers = [#qwen.buffer<offset = 6464, stride = 64, scales = 8192, sums = 8256>]>} : tensor<?x64xf32> -> tensor<?x64xi8, #qwen.blocks<128>>
  return
}
}
// An instance adds what it fixes: values along K that stay in a cache, panels
// that follow each other, values along K of the tokens of a call, panels that
// share work (1: VNNI's kernels do nothing to activations first), and the kernels,
// the one with the largest M first.
// PRODUCT-LABEL: func.func private @linear.linear_q4_0_8x16x4_avx512vnni(
// PRODUCT-SAME: %[[CTX:.*]]: !llvm.ptr, %[[T:.*]]: i32, %[[ARGUMENTS:.*]]: !llvm.ptr) attributes {passthrough = ["noinline"]}
// PRODUCT-NEXT: %[[FIXED:.*]] = qwen.struct {cached = 4096, least = 4, reused = 262144, together = 1, tiles = {{\[\[}}#qwen.kernel<linear_q4_0_8x16x4_avx512vnni>, 0, 8, 8, 0], [#qwen.kernel<linear_q4_0_4x16x4_avx512vnni>, 0, 4, 4, 0], [#qwen.kernel<linear_q4_0_3x16x4_avx512vnni>, 0, 3, 3, 0], [#qwen.kernel<linear_q4_0_2x16x4_avx512vnni>, 0, 2, 2, 0], [#qwen.kernel<linear_q4_0_1x16x4_avx512vnni>, 0, 1, 1, 0]]} : !llvm.ptr
// PRODUCT-NEXT: call @qwenDriverLinearQ8(%[[CTX]], %[[T]], %[[ARGUMENTS]], %[[FIXED]])
// PRODUCT-NEXT: return
// AMX leaves what 16 do not divide to VNNI, and multiplies two panels with all tokens.
// TILES-LABEL: func.func private @linear.linear_q4_0_16x16x4_amx_int8(
// TILES: qwen.struct {cached = 524288, least = 4, reused = 0, together = 2, tiles = {{\[\[}}#qwen.kernel<linear_q4_0_16x16x4_amx_int8>, 1, 16, 16, 8], [#qwen.kernel<linear_q4_0_8x16x4_avx512vnni>, {{.*}}[#qwen.kernel<linear_q4_0_1x16x4_avx512vnni>, 0, 1, 1, 0]]}
// TILES: func.func private @linear_swiglu.linear_q4_0_16x16x4_amx_int8(
// TILES-NEXT: qwen.struct {cached = {{.*}}, swiGlu = #qwen.kernel<swiglu_q8_avx512>, tiles.layout = 1, tiles.multiple = 16,{{.*}} scratch = memref<{{[0-9]+}}xf32>}
// TILES-NEXT: call @qwenDriverLinearSwiGluQ8(
// The driver and kernels are declared only.
// CHECK: func.func private @qwenDriverEmbedding(!llvm.ptr, i32, !llvm.ptr, !llvm.ptr){{$}}
// CHECK: func.func private @linear_q4_0_1x16x4_avx512vnni(!llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr, i64, i64, i64, i64, i64){{$}}
// A head has 32 values, a page of f16 8192 bytes; there is a norm, so that the rotation alone is absent.
// CHECK: func.func private @append.norm_rope_avx512(
// CHECK: qwen.struct {kvHeads = 1, headDim = 32, half = 16, headBytes = 4096, cache = 0, pageBytes = 8192, scratch = memref<32xf32>, rope = none, normRope = #qwen.kernel<norm_rope_avx512>, headNorm = none, appendK = #qwen.kernel<append_k_f16_avx512>, appendV = #qwen.kernel<append_v_f16_avx512>}
// CHECK: call @qwenDriverAppend(
// CHECK: func.func private @attention.norm_rope_avx512(
// CHECK: qwen.struct {kvHeads = 1, groupQueries = 2, headDim = 32, half = 16, headBytes = 4096, cache = 0, pageBytes = 8192, scale = 0.176776692 : f32, blockTokens = {{[0-9]+}}, room = {{[0-9]+}}, scratch = memref<{{[0-9]+}}xf32>, rope = none, normRope = #qwen.kernel<norm_rope_avx512>, headNorm = none, encodeQuery = none, scores = #qwen.kernel<attention_scores_f16_avx512>, values = #qwen.kernel<attention_values_f16_avx512>, softmax = #qwen.kernel<softmax_page_avx512>, merge = #qwen.kernel<merge_page_avx512>, finish = #qwen.kernel<finish_attention_avx512>}
// CHECK: call @qwenDriverAttention(
// The norm of hidden values tests them with the kernel of the logits.
// CHECK: func.func private @hidden_rows.rms_norm_f32_avx512(
// CHECK: qwen.struct {norm = #qwen.kernel<rms_norm_f32_avx512>, check = #qwen.kernel<check_finite_avx512>}
// CHECK: call @qwenDriverHiddenRows(
// CHECK: func.func private @check_finite_avx512(!llvm.ptr, i64) -> i32
// CHECK: func.func private @count(
// CHECK: qwen.struct {} : !llvm.ptr
// CHECK: call @qwenDriverCount(
// The instance has the kernels of both steps.
// CHECK: func.func private @swiglu.swiglu_f32_avx512(
// CHECK: qwen.struct {kernel = #qwen.kernel<swiglu_f32_avx512>, transform = #qwen.kernel<hadamard_q8_avx512>, tiles.layout = 0, {{.*}}}
// CHECK: call @qwenDriverSwiGluHadamardQ8(
