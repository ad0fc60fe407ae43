// RUN: qwen-opt %s --qwen-lower -split-input-file -verify-diagnostics

// Each op has a plan.
module {
qwen.weight @t : tensor<48x32xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.packed @t.packed [@t] : tensor<48x32xf32> in #qwen.layout<f32, panel = 16, chunk = 1> at 0
func.func @forward(%ids: tensor<?xi32>, %positions: tensor<?xi32>) {
  // expected-error @+1 {{has no plan; run qwen-plan first}}
  %x = qwen.embedding %ids, @t packed [@t.packed] : tensor<?xi32> -> tensor<?x32xf32>
  return
}
}

// -----

// Ids count the ops.
module {
qwen.weight @t : tensor<48x32xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.packed @t.packed [@t] : tensor<48x32xf32> in #qwen.layout<f32, panel = 16, chunk = 1> at 0
func.func @forward(%ids: tensor<?xi32>, %positions: tensor<?xi32>) {
  // expected-error @+1 {{has plan id 3 when 0 is next}}
  %x = qwen.embedding %ids, @t packed [@t.packed] kernels [#qwen.kernel<embed_f32_avx2>] {plan = #qwen.plan<id = 3, barrier = false, buffers = [#qwen.buffer<offset = 0, stride = 32>]>} : tensor<?xi32> -> tensor<?x32xf32>
  return
}
}

// -----

// An op of the graph stage.
module {
qwen.weight @t : tensor<48x32xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.packed @t.packed [@t] : tensor<48x32xf32> in #qwen.layout<f32, panel = 16, chunk = 1> at 0
func.func @forward(%ids: tensor<?xi32>, %positions: tensor<?xi32>) {
  %x = qwen.embedding %ids, @t packed [@t.packed] kernels [#qwen.kernel<embed_f32_avx2>] {plan = #qwen.plan<id = 0, barrier = false, buffers = [#qwen.buffer<offset = 0, stride = 32>]>} : tensor<?xi32> -> tensor<?x32xf32>
  // expected-error @+1 {{cannot be lowered to calls}}
  %y = qwen.add %x, %x {plan = #qwen.plan<id = 1, barrier = false, buffers = [#qwen.buffer<offset = 0, stride = 32>]>} : tensor<?x32xf32>
  return
}
}

// -----

// Kernels are chosen.
module {
qwen.weight @t : tensor<48x32xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.packed @t.packed [@t] : tensor<48x32xf32> in #qwen.layout<f32, panel = 16, chunk = 1> at 0
func.func @forward(%ids: tensor<?xi32>, %positions: tensor<?xi32>) {
  // expected-error @+1 {{has no kernels; run qwen-select-kernels first}}
  %x = qwen.embedding %ids, @t packed [@t.packed] {plan = #qwen.plan<id = 0, barrier = false, buffers = [#qwen.buffer<offset = 0, stride = 32>]>} : tensor<?xi32> -> tensor<?x32xf32>
  return
}
}

// -----

// Weights are packed.
module {
qwen.weight @t : tensor<48x32xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.packed @t.packed [@t] : tensor<48x32xf32> in #qwen.layout<f32, panel = 16, chunk = 1> at 0
func.func @forward(%ids: tensor<?xi32>, %positions: tensor<?xi32>) {
  // expected-error @+1 {{has no packed weights; run qwen-pack first}}
  %x = qwen.embedding %ids, @t kernels [#qwen.kernel<embed_f32_avx2>] {plan = #qwen.plan<id = 0, barrier = false, buffers = [#qwen.buffer<offset = 0, stride = 32>]>} : tensor<?xi32> -> tensor<?x32xf32>
  return
}
}

// -----

// Products read rows without gaps.
module {
qwen.weight @t : tensor<48x32xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.packed @t.packed [@t] : tensor<48x32xf32> in #qwen.layout<f32, panel = 16, chunk = 1> at 0
qwen.weight @m : tensor<32x32xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.packed @m.packed [@m] : tensor<32x32xf32> in #qwen.layout<f32, panel = 16, chunk = 1> at 16384
func.func @forward(%ids: tensor<?xi32>, %positions: tensor<?xi32>) {
  %x = qwen.embedding %ids, @t packed [@t.packed] kernels [#qwen.kernel<embed_f32_avx2>] {plan = #qwen.plan<id = 0, barrier = false, buffers = [#qwen.buffer<offset = 0, stride = 48>]>} : tensor<?xi32> -> tensor<?x32xf32>
  // expected-error @+1 {{reads activations with a stride of 48 when products need 32}}
  %y = qwen.linear %x, [@m] packed [@m.packed] kernels [#qwen.kernel<linear_f32_1x16_avx2>, #qwen.kernel<linear_f32_4x16_avx2>] {plan = #qwen.plan<id = 1, barrier = false, buffers = [#qwen.buffer<offset = 8192, stride = 32>]>} : tensor<?x32xf32> -> tensor<?x32xf32>
  return
}
}

// -----

// Products have packed weights.
module {
qwen.weight @t : tensor<48x32xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.packed @t.packed [@t] : tensor<48x32xf32> in #qwen.layout<f32, panel = 16, chunk = 1> at 0
qwen.weight @m : tensor<32x32xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.packed @m.packed [@m] : tensor<32x32xf32> in #qwen.layout<f32, panel = 16, chunk = 1> at 16384
func.func @forward(%ids: tensor<?xi32>, %positions: tensor<?xi32>) {
  %x = qwen.embedding %ids, @t packed [@t.packed] kernels [#qwen.kernel<embed_f32_avx2>] {plan = #qwen.plan<id = 0, barrier = false, buffers = [#qwen.buffer<offset = 0, stride = 32>]>} : tensor<?xi32> -> tensor<?x32xf32>
  // expected-error @+1 {{has no packed weights; run qwen-pack first}}
  %y = qwen.linear %x, [@m] kernels [#qwen.kernel<linear_f32_1x16_avx2>, #qwen.kernel<linear_f32_4x16_avx2>] {plan = #qwen.plan<id = 1, barrier = false, buffers = [#qwen.buffer<offset = 8192, stride = 32>]>} : tensor<?x32xf32> -> tensor<?x32xf32>
  return
}
}

// -----

// The parts of a product lie side by side.
module {
qwen.weight @t : tensor<48x32xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.packed @t.packed [@t] : tensor<48x32xf32> in #qwen.layout<f32, panel = 16, chunk = 1> at 0
qwen.weight @m : tensor<32x32xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.weight @m2 : tensor<32x32xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.packed @both [@m, @m2] : tensor<64x32xf32> in #qwen.layout<f32, panel = 16, chunk = 1> at 16384
func.func @forward(%ids: tensor<?xi32>, %positions: tensor<?xi32>) {
  %x = qwen.embedding %ids, @t packed [@t.packed] kernels [#qwen.kernel<embed_f32_avx2>] {plan = #qwen.plan<id = 0, barrier = false, buffers = [#qwen.buffer<offset = 0, stride = 32>]>} : tensor<?xi32> -> tensor<?x32xf32>
  // expected-error @+1 {{has results that do not lie side by side}}
  %y, %z = qwen.linear %x, [@m, @m2] packed [@both] kernels [#qwen.kernel<linear_f32_1x16_avx2>, #qwen.kernel<linear_f32_4x16_avx2>] {plan = #qwen.plan<id = 1, barrier = false, buffers = [#qwen.buffer<offset = 8192, stride = 64>, #qwen.buffer<offset = 8256, stride = 64>]>} : tensor<?x32xf32> -> tensor<?x32xf32>, tensor<?x32xf32>
  return
}
}

// -----

// A residual lies as the result does.
module {
qwen.weight @t : tensor<48x32xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.packed @t.packed [@t] : tensor<48x32xf32> in #qwen.layout<f32, panel = 16, chunk = 1> at 0
qwen.weight @m : tensor<32x32xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.packed @m.packed [@m] : tensor<32x32xf32> in #qwen.layout<f32, panel = 16, chunk = 1> at 16384
func.func @forward(%ids: tensor<?xi32>, %positions: tensor<?xi32>) {
  %x = qwen.embedding %ids, @t packed [@t.packed] kernels [#qwen.kernel<embed_f32_avx2>] {plan = #qwen.plan<id = 0, barrier = false, buffers = [#qwen.buffer<offset = 0, stride = 32>]>} : tensor<?xi32> -> tensor<?x32xf32>
  // expected-error @+1 {{has a residual with a stride of 32 when 48 is needed}}
  %y = qwen.linear %x, [@m] residual(%x : tensor<?x32xf32>) packed [@m.packed] kernels [#qwen.kernel<linear_f32_1x16_avx2>, #qwen.kernel<linear_f32_4x16_avx2>] {plan = #qwen.plan<id = 1, barrier = false, buffers = [#qwen.buffer<offset = 8192, stride = 48>]>} : tensor<?x32xf32> -> tensor<?x32xf32>
  return
}
}

// -----

// A layer has one shape.
module {
qwen.weight @t : tensor<48x32xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.weight @rope.frequencies : tensor<8xf32> from #qwen.frequencies<theta = 1.0e+06> as #qwen.format<f32>
qwen.packed @t.packed [@t] : tensor<48x32xf32> in #qwen.layout<f32, panel = 16, chunk = 1> at 0
qwen.packed @rope.packed [@rope.frequencies] : tensor<8xf32> at 8192
func.func @forward(%ids: tensor<?xi32>, %positions: tensor<?xi32>) {
  %x = qwen.embedding %ids, @t packed [@t.packed] kernels [#qwen.kernel<embed_f32_avx2>] {plan = #qwen.plan<id = 0, barrier = false, buffers = [#qwen.buffer<offset = 0, stride = 32>]>} : tensor<?xi32> -> tensor<?x32xf32>
  %cos, %sin = qwen.rope_table %positions, @rope.frequencies packed [@rope.packed] kernels [#qwen.kernel<rope_table_avx2>] {plan = #qwen.plan<id = 1, barrier = false, buffers = [#qwen.buffer<offset = 64, stride = 8>, #qwen.buffer<offset = 128, stride = 8>]>} : tensor<?xi32> -> tensor<?x8xf32>
  %a = qwen.attention %x rope(%cos, %sin : tensor<?x8xf32>, tensor<?x8xf32>) layer 0 heads 2 kv_heads 2 format <f32> kernels [#qwen.kernel<rope_avx2>, #qwen.kernel<attention_scores_f32_avx2>, #qwen.kernel<attention_values_f32_avx2>, #qwen.kernel<softmax_page_avx2>, #qwen.kernel<merge_page_avx2>, #qwen.kernel<finish_attention_avx2>] {plan = #qwen.plan<id = 2, barrier = false, buffers = [#qwen.buffer<offset = 8192, stride = 32>]>} : tensor<?x32xf32>
  // expected-error @+1 {{has 128 bytes of f32 in the paged kv cache of layer 0 when an op before it has 256 of f32 in a paged one}}
  %b = qwen.attention %x rope(%cos, %sin : tensor<?x8xf32>, tensor<?x8xf32>) layer 0 heads 2 kv_heads 1 format <f32> kernels [#qwen.kernel<rope_avx2>, #qwen.kernel<attention_scores_f32_avx2>, #qwen.kernel<attention_values_f32_avx2>, #qwen.kernel<softmax_page_avx2>, #qwen.kernel<merge_page_avx2>, #qwen.kernel<finish_attention_avx2>] {plan = #qwen.plan<id = 3, barrier = false, buffers = [#qwen.buffer<offset = 8192, stride = 32>]>} : tensor<?x32xf32>
  return
}
}

// -----

// A layer has one format, also where two have the same bytes.
module {
qwen.weight @t : tensor<48x32xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.weight @rope.frequencies : tensor<8xf32> from #qwen.frequencies<theta = 1.0e+06> as #qwen.format<f32>
qwen.packed @t.packed [@t] : tensor<48x32xf32> in #qwen.layout<f32, panel = 16, chunk = 1> at 0
qwen.packed @rope.packed [@rope.frequencies] : tensor<8xf32> at 8192
func.func @forward(%ids: tensor<?xi32>, %positions: tensor<?xi32>) {
  %x = qwen.embedding %ids, @t packed [@t.packed] kernels [#qwen.kernel<embed_f32_avx2>] {plan = #qwen.plan<id = 0, barrier = false, buffers = [#qwen.buffer<offset = 0, stride = 32>]>} : tensor<?xi32> -> tensor<?x32xf32>
  %cos, %sin = qwen.rope_table %positions, @rope.frequencies packed [@rope.packed] kernels [#qwen.kernel<rope_table_avx2>] {plan = #qwen.plan<id = 1, barrier = false, buffers = [#qwen.buffer<offset = 64, stride = 8>, #qwen.buffer<offset = 128, stride = 8>]>} : tensor<?xi32> -> tensor<?x8xf32>
  %a = qwen.attention %x rope(%cos, %sin : tensor<?x8xf32>, tensor<?x8xf32>) layer 0 heads 2 kv_heads 1 format <f32> kernels [#qwen.kernel<rope_avx2>, #qwen.kernel<attention_scores_f32_avx2>, #qwen.kernel<attention_values_f32_avx2>, #qwen.kernel<softmax_page_avx2>, #qwen.kernel<merge_page_avx2>, #qwen.kernel<finish_attention_avx2>] {plan = #qwen.plan<id = 2, barrier = false, buffers = [#qwen.buffer<offset = 8192, stride = 32>]>} : tensor<?x32xf32>
  // expected-error @+1 {{has 128 bytes of f16 in the paged kv cache of layer 0 when an op before it has 128 of f32 in a paged one}}
  %b = qwen.attention %x rope(%cos, %sin : tensor<?x8xf32>, tensor<?x8xf32>) layer 0 heads 2 kv_heads 2 format <f16> kernels [#qwen.kernel<rope_avx2>, #qwen.kernel<attention_scores_f16_avx2>, #qwen.kernel<attention_values_f16_avx2>, #qwen.kernel<softmax_page_avx2>, #qwen.kernel<merge_page_avx2>, #qwen.kernel<finish_attention_avx2>] {plan = #qwen.plan<id = 3, barrier = false, buffers = [#qwen.buffer<offset = 8192, stride = 32>]>} : tensor<?x32xf32>
  return
}
}

// -----

// Keys and values have a format.
module {
qwen.weight @t : tensor<48x32xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.weight @rope.frequencies : tensor<8xf32> from #qwen.frequencies<theta = 1.0e+06> as #qwen.format<f32>
qwen.packed @t.packed [@t] : tensor<48x32xf32> in #qwen.layout<f32, panel = 16, chunk = 1> at 0
qwen.packed @rope.packed [@rope.frequencies] : tensor<8xf32> at 8192
func.func @forward(%ids: tensor<?xi32>, %positions: tensor<?xi32>) {
  %x = qwen.embedding %ids, @t packed [@t.packed] kernels [#qwen.kernel<embed_f32_avx2>] {plan = #qwen.plan<id = 0, barrier = false, buffers = [#qwen.buffer<offset = 0, stride = 32>]>} : tensor<?xi32> -> tensor<?x32xf32>
  %cos, %sin = qwen.rope_table %positions, @rope.frequencies packed [@rope.packed] kernels [#qwen.kernel<rope_table_avx2>] {plan = #qwen.plan<id = 1, barrier = false, buffers = [#qwen.buffer<offset = 64, stride = 8>, #qwen.buffer<offset = 128, stride = 8>]>} : tensor<?xi32> -> tensor<?x8xf32>
  // expected-error @+1 {{has no format of keys and values; run qwen-quantize first}}
  %a = qwen.attention %x rope(%cos, %sin : tensor<?x8xf32>, tensor<?x8xf32>) layer 0 heads 2 kv_heads 2 kernels [#qwen.kernel<rope_avx2>, #qwen.kernel<attention_scores_f32_avx2>, #qwen.kernel<attention_values_f32_avx2>, #qwen.kernel<softmax_page_avx2>, #qwen.kernel<merge_page_avx2>, #qwen.kernel<finish_attention_avx2>] {plan = #qwen.plan<id = 2, barrier = false, buffers = [#qwen.buffer<offset = 8192, stride = 32>]>} : tensor<?x32xf32>
  return
}
}

// -----

// Programs that share a layer keep as many states.
module {
qwen.weight @taps : tensor<128xf32> from #qwen.source<"m"> as #qwen.format<f32>
func.func @forward(%x: tensor<?x32xf32>) attributes {qwen.step_back = 2 : i64} {
  %y = qwen.short_convolution %x, @taps layer 0 : tensor<?x32xf32>
  return
}
func.func @half(%x: tensor<?x32xf32>) {
  // expected-error @+1 {{steps back 0 tokens in the convolution cache of layer 0 when an op before it steps back 2}}
  %y = qwen.short_convolution %x, @taps layer 0 : tensor<?x32xf32>
  return
}
}

// -----

// Logits have packed weights.
module {
qwen.weight @t : tensor<48x32xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.packed @t.packed [@t] : tensor<48x32xf32> in #qwen.layout<f32, panel = 16, chunk = 1> at 0
func.func @forward(%ids: tensor<?xi32>, %positions: tensor<?xi32>) {
  %x = qwen.embedding %ids, @t packed [@t.packed] kernels [#qwen.kernel<embed_f32_avx2>] {plan = #qwen.plan<id = 0, barrier = false, buffers = [#qwen.buffer<offset = 0, stride = 32>]>} : tensor<?xi32> -> tensor<?x32xf32>
  // expected-error @+1 {{has no packed weights; run qwen-pack first}}
  %l = qwen.lm_head %x, @t kernels [#qwen.kernel<linear_f32_1x16_avx2>, #qwen.kernel<linear_f32_4x16_avx2>, #qwen.kernel<check_finite_avx2>] {plan = #qwen.plan<id = 1, barrier = false, buffers = [#qwen.buffer<offset = -1, stride = 48>]>} : tensor<?x32xf32> -> tensor<?x48xf32>
  return
}
}

// -----

// Logits are computed from normed tokens.
module {
qwen.weight @t : tensor<48x32xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.packed @t.packed [@t] : tensor<48x32xf32> in #qwen.layout<f32, panel = 16, chunk = 1> at 0
func.func @forward(%ids: tensor<?xi32>, %positions: tensor<?xi32>) {
  %x = qwen.embedding %ids, @t packed [@t.packed] kernels [#qwen.kernel<embed_f32_avx2>] {plan = #qwen.plan<id = 0, barrier = false, buffers = [#qwen.buffer<offset = 0, stride = 32>]>} : tensor<?xi32> -> tensor<?x32xf32>
  // expected-error @+1 {{needs the activations of a norm}}
  %l = qwen.lm_head %x, @t packed [@t.packed] kernels [#qwen.kernel<linear_f32_1x16_avx2>, #qwen.kernel<linear_f32_4x16_avx2>, #qwen.kernel<check_finite_avx2>] {plan = #qwen.plan<id = 1, barrier = false, buffers = [#qwen.buffer<offset = -1, stride = 48>]>} : tensor<?x32xf32> -> tensor<?x48xf32>
  return
}
}

// -----

// The driver reads integers of tokens from the call, not from an operand: an argument is one of them.
module {
qwen.weight @f : tensor<8xf32> from #qwen.frequencies<theta = 1.0e+04> as #qwen.format<f32>
qwen.packed @f.packed [@f] : tensor<8xf32> at 0
// expected-error @+1 {{argument 0 of program @forward is read as widths and as heights of the tokens}}
func.func @forward(%p: tensor<?xi32>) {
  %cos, %sin = qwen.rope_table %p, @f sections(%p, %p : tensor<?xi32>, tensor<?xi32>) <2, 3, 3> packed [@f.packed] kernels [#qwen.kernel<rope_table_avx2>] {plan = #qwen.plan<id = 0, barrier = false, buffers = [#qwen.buffer<offset = 0, stride = 16>, #qwen.buffer<offset = 512, stride = 16>]>} : tensor<?xi32> -> tensor<?x8xf32>
  return
}
}

// -----

module {
qwen.weight @f : tensor<8xf32> from #qwen.frequencies<theta = 1.0e+04> as #qwen.format<f32>
qwen.packed @f.packed [@f] : tensor<8xf32> at 0
// expected-error @+1 {{arguments 0 and 1 of program @forward are read as positions of the tokens when a call has one array of them}}
func.func @forward(%p: tensor<?xi32>, %other: tensor<?xi32>) {
  %cos, %sin = qwen.rope_table %p, @f packed [@f.packed] kernels [#qwen.kernel<rope_table_avx2>] {plan = #qwen.plan<id = 0, barrier = false, buffers = [#qwen.buffer<offset = 0, stride = 16>, #qwen.buffer<offset = 512, stride = 16>]>} : tensor<?xi32> -> tensor<?x8xf32>
  %cos1, %sin1 = qwen.rope_table %other, @f packed [@f.packed] kernels [#qwen.kernel<rope_table_avx2>] {plan = #qwen.plan<id = 1, barrier = false, buffers = [#qwen.buffer<offset = 1024, stride = 16>, #qwen.buffer<offset = 1536, stride = 16>]>} : tensor<?xi32> -> tensor<?x8xf32>
  return
}
}

// -----

// Only wanted tokens have logits.
module {
qwen.weight @n : tensor<32xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.weight @t : tensor<48x32xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.packed @t.packed [@t] : tensor<48x32xf32> in #qwen.layout<f32, panel = 16, chunk = 1> at 0
qwen.packed @n.packed [@n] : tensor<32xf32> at 8192
func.func @forward(%x: tensor<?x32xf32> {qwen.name = "x", qwen.place = #qwen.buffer<offset = 0, stride = 32>}) {
  %y = qwen.rms_norm %x, @n eps 1.0e-06 packed [@n.packed] kernels [#qwen.kernel<rms_norm_f32_avx2>, #qwen.kernel<rms_norm_f32_avx2>] {plan = #qwen.plan<id = 0, barrier = false, buffers = [#qwen.buffer<offset = 4096, stride = 32>]>} : tensor<?x32xf32> -> tensor<?x32xf32>
  // expected-error @+1 {{gives logits of all when those of wanted are needed}}
  %l = qwen.lm_head %y, @t packed [@t.packed] kernels [#qwen.kernel<linear_f32_1x16_avx2>, #qwen.kernel<linear_f32_4x16_avx2>, #qwen.kernel<check_finite_avx2>] {plan = #qwen.plan<id = 1, barrier = true, buffers = [#qwen.buffer<offset = -1, stride = 48>]>} : tensor<?x32xf32> -> tensor<?x48xf32>
  return
}
}

// -----

// Every count has a limit.
module {
func.func @forward(%x: tensor<?x32xf32> {qwen.name = "x", qwen.place = #qwen.buffer<offset = 0, stride = 32>}, %y: tensor<?x32xf32, #qwen.count<merged>> {qwen.name = "y", qwen.place = #qwen.buffer<offset = 4096, stride = 32>}) {
  // expected-error @+1 {{runs on merged, which has no limit in qwen.limits}}
  %h = qwen.hadamard %y kernels [#qwen.kernel<hadamard_avx2>] {plan = #qwen.plan<id = 0, barrier = false, buffers = [#qwen.buffer<offset = 8192, stride = 32>]>} : tensor<?x32xf32, #qwen.count<merged>>
  return
}
}
