// RUN: qwen-opt %s --qwen-rotate -split-input-file -verify-diagnostics | FileCheck %s
// A rotated graph goes through the other passes.
// RUN: sed '/^\/\/ -----/,$d' %s | qwen-opt - --qwen-rotate '--qwen-pipeline=weights=q8_0' | FileCheck %s --check-prefix=PLANNED
// RUN: sed '/^\/\/ -----/,$d' %s | qwen-opt - --qwen-rotate '--qwen-pipeline=weights=q8_0' --qwen-lower | FileCheck %s --check-prefix=CALLS

// A layer with biases and a tied head. Each kind of fold: the embedding and the head; a product behind a norm; v with the
// norm, and its heads; o with heads and the stream; down. The norms of heads stay, as do q and k but for their columns.
// CHECK-DAG: qwen.weight @rotation.ones : tensor<96xf32> from #qwen.ones
// CHECK-DAG: qwen.weight @rotation.values : tensor<99xf32> from #qwen.rotation<96>
// CHECK-DAG: qwen.weight @embed : tensor<64x96xf32> from #qwen.turned<#qwen.source<"embed">, columns = 96>
// CHECK-DAG: qwen.weight @q : tensor<96x96xf32> from #qwen.turned<#qwen.source<"q">, scales = #qwen.source<"n1">, columns = 96>
// CHECK-DAG: qwen.weight @q.bias : tensor<96xf32> from #qwen.source<"q.bias">
// CHECK-DAG: qwen.weight @k : tensor<48x96xf32> from #qwen.turned<#qwen.source<"k", keeps = <q8_0>>, scales = #qwen.source<"n1">, columns = 96>
// CHECK-DAG: qwen.weight @v : tensor<48x96xf32> from #qwen.turned<#qwen.source<"v">, scales = #qwen.source<"n1">, columns = 96, outputs = 48>
// CHECK-DAG: qwen.weight @v.bias : tensor<48xf32> from #qwen.turned<#qwen.source<"v.bias">, outputs = 48>
// CHECK-DAG: qwen.weight @q.norm : tensor<48xbf16> from #qwen.source<"q.norm">
// CHECK-DAG: qwen.weight @o : tensor<96x96xf32> from #qwen.turned<#qwen.source<"o">, columns = 48, outputs = 96>
// CHECK-DAG: qwen.weight @up : tensor<128x96xf32> from #qwen.turned<#qwen.source<"up">, scales = #qwen.source<"n2">, columns = 96>
// CHECK-DAG: qwen.weight @down : tensor<96x128xf32> from #qwen.turned<#qwen.source<"down">, hadamard = true, outputs = 96>
// CHECK-DAG: qwen.weight @last : tensor<96xf32> from #qwen.source<"last">
// CHECK-NOT: qwen.weight @n1
// CHECK-NOT: qwen.weight @n2
module attributes {qwen.target_features = #qwen.features<avx2, fma, f16c>} {
qwen.weight @embed : tensor<64x96xbf16> from #qwen.source<"embed">
qwen.weight @n1 : tensor<96xf32> from #qwen.source<"n1">
qwen.weight @q : tensor<96x96xbf16> from #qwen.source<"q">
qwen.weight @q.bias : tensor<96xf32> from #qwen.source<"q.bias">
qwen.weight @k : tensor<48x96xf32> from #qwen.source<"k", keeps = <q8_0>>
qwen.weight @v : tensor<48x96xbf16> from #qwen.source<"v">
qwen.weight @v.bias : tensor<48xbf16> from #qwen.source<"v.bias">
qwen.weight @q.norm : tensor<48xbf16> from #qwen.source<"q.norm">
qwen.weight @o : tensor<96x96xbf16> from #qwen.source<"o">
qwen.weight @n2 : tensor<96xf32> from #qwen.source<"n2">
qwen.weight @up : tensor<128x96xbf16> from #qwen.source<"up">
qwen.weight @gate : tensor<128x96xbf16> from #qwen.source<"gate">
qwen.weight @down : tensor<96x128xbf16> from #qwen.source<"down">
qwen.weight @last : tensor<96xf32> from #qwen.source<"last">
qwen.weight @frequencies : tensor<24xf32> from #qwen.frequencies<theta = 1.0e+06>

// CHECK-LABEL: func.func @tied
// CHECK: %[[X:.*]] = qwen.embedding
// CHECK: %[[N:.*]] = qwen.rms_norm %[[X]], @rotation.ones eps
// CHECK: qwen.linear %[[N]], [@q]
// CHECK: qwen.rms_norm %{{.*}}, @q.norm eps {{.*}} heads 48
// CHECK: %[[H:.*]] = qwen.add %[[X]],
// CHECK: qwen.rms_norm %[[H]], @rotation.ones eps
// CHECK: %[[G:.*]] = qwen.swiglu
// CHECK-NEXT: %[[D:.*]] = qwen.hadamard %[[G]]
// CHECK-NEXT: qwen.linear %[[D]], [@down]
// CHECK: %[[Y:.*]] = qwen.add %[[H]],
// CHECK-NEXT: %[[B:.*]] = qwen.turn %[[Y]] back, @rotation.values : tensor<?x96xf32> -> tensor<?x96xf32>
// CHECK-NEXT: %[[W:.*]] = qwen.wanted_tokens %[[B]]
// CHECK-NEXT: %[[L:.*]] = qwen.rms_norm %[[W]], @last eps
// CHECK-NEXT: %[[T:.*]] = qwen.turn %[[L]], @rotation.values : tensor<?x96xf32> -> tensor<?x96xf32>
// CHECK-NEXT: qwen.lm_head %[[T]], @embed
// Turning back, the norm gathers tokens, which the second turn takes from the same thread.
// PLANNED: %[[B:.*]] = qwen.turn %{{.*}} back, @rotation.values {{.*}}barrier = true{{.*}} -> tensor<?x96xf32>
// PLANNED-NEXT: %[[W:.*]] = qwen.wanted_tokens %[[B]]
// PLANNED-NEXT: %[[L:.*]] = qwen.rms_norm %[[W]], @last {{.*}}barrier = true{{.*}} -> tensor<?x96xf32>
// PLANNED-NEXT: %[[T:.*]] = qwen.turn %[[L]], @rotation.values {{.*}}barrier = false{{.*}} -> tensor<?x96xi8, #qwen.blocks<128>>
// PLANNED-NEXT: qwen.lm_head %[[T]], @embed {{.*}}barrier = true
// CALLS: qwen.struct {{.*}}, k = 96, back = 1, wanted = 0, op =
// CALLS-NEXT: call @turn.turn_avx2(
// CALLS: call @hidden_rows.rms_norm_f32_avx2(
// CALLS: call @rms_norm.rms_norm_f32_avx2(
// CALLS: qwen.struct {{.*}}, k = 96, back = 0, wanted = 1, op =
// CALLS-NEXT: call @[[TURN:turn.turn_avx2.1]](
// CALLS: call @qwenDriverBarrier
// CALLS: call @lm_head.
// CALLS: func.func private @turn.turn_avx2(
// CALLS-NEXT: qwen.struct {kernel = #qwen.kernel<turn_avx2>, scratch = memref<96xf32>}
// CALLS-NEXT: call @qwenDriverTurnF32(
// CALLS: func.func private @[[TURN]](
// CALLS-NEXT: qwen.struct {kernel = #qwen.kernel<turn_avx2>, quantize = #qwen.kernel<quantize_q8_avx2>, scratch = memref<192xf32>}
// CALLS-NEXT: call @qwenDriverTurnQ8(
func.func @tied(%ids: tensor<?xi32>, %positions: tensor<?xi32>) -> tensor<?x64xf32> attributes {qwen.max_tokens = 8 : i64, qwen.max_rows = 4 : i64} {
  %x = qwen.embedding %ids, @embed : tensor<?xi32> -> tensor<?x96xf32>
  %cos, %sin = qwen.rope_table %positions, @frequencies : tensor<?xi32> -> tensor<?x24xf32>
  %n = qwen.rms_norm %x, @n1 eps 1.0e-06 : tensor<?x96xf32> -> tensor<?x96xf32>
  %q0 = qwen.linear %n, [@q] : tensor<?x96xf32> -> tensor<?x96xf32>
  %q1 = qwen.add_bias %q0, @q.bias : tensor<?x96xf32>
  %k1 = qwen.linear %n, [@k] : tensor<?x96xf32> -> tensor<?x48xf32>
  %v0 = qwen.linear %n, [@v] : tensor<?x96xf32> -> tensor<?x48xf32>
  %v1 = qwen.add_bias %v0, @v.bias : tensor<?x48xf32>
  %q2 = qwen.rms_norm %q1, @q.norm eps 1.0e-06 heads 48 : tensor<?x96xf32> -> tensor<?x96xf32>
  %q3 = qwen.rope %q2, %cos, %sin : tensor<?x96xf32>, tensor<?x24xf32>
  %k2 = qwen.rope %k1, %cos, %sin : tensor<?x48xf32>, tensor<?x24xf32>
  qwen.append %k2, %v1 layer 0 kv_heads 1 : tensor<?x48xf32>
  %a = qwen.attention %q3 layer 0 heads 2 kv_heads 1 : tensor<?x96xf32>
  %o = qwen.linear %a, [@o] : tensor<?x96xf32> -> tensor<?x96xf32>
  %h = qwen.add %x, %o : tensor<?x96xf32>
  %m = qwen.rms_norm %h, @n2 eps 1.0e-06 : tensor<?x96xf32> -> tensor<?x96xf32>
  %g = qwen.linear %m, [@gate] : tensor<?x96xf32> -> tensor<?x128xf32>
  %u = qwen.linear %m, [@up] : tensor<?x96xf32> -> tensor<?x128xf32>
  %s = qwen.swiglu %g, %u : tensor<?x128xf32> -> tensor<?x128xf32>
  %d = qwen.linear %s, [@down] : tensor<?x128xf32> -> tensor<?x96xf32>
  %y = qwen.add %h, %d : tensor<?x96xf32>
  %w = qwen.wanted_tokens %y : tensor<?x96xf32>
  %l = qwen.rms_norm %w, @last eps 1.0e-06 : tensor<?x96xf32> -> tensor<?x96xf32>
  %logits = qwen.lm_head %l, @embed : tensor<?x96xf32> -> tensor<?x64xf32>
  return %logits : tensor<?x64xf32>
}
}

// -----

// Gated attention keeps its heads; an exact matrix becomes f32; an untied head.
// CHECK-DAG: qwen.weight @v : tensor<32x64xf32> from #qwen.turned<#qwen.source<"v">, scales = #qwen.source<"n">, columns = 64>
// CHECK-DAG: qwen.weight @o : tensor<64x32xf32> from #qwen.turned<#qwen.source<"o">, outputs = 64>
// CHECK-DAG: qwen.weight @a : tensor<4x64xf32> from #qwen.turned<#qwen.source<"a">, scales = #qwen.source<"n">, columns = 64> exact
// CHECK-DAG: qwen.weight @head : tensor<40x64xf32> from #qwen.turned<#qwen.source<"head">, columns = 64>
qwen.weight @embed : tensor<40x64xf32> from #qwen.source<"embed">
qwen.weight @n : tensor<64xf32> from #qwen.source<"n">
qwen.weight @v : tensor<32x64xf32> from #qwen.source<"v">
qwen.weight @o : tensor<64x32xf32> from #qwen.source<"o">
qwen.weight @a : tensor<4x64xbf16> from #qwen.source<"a"> exact
qwen.weight @head : tensor<40x64xf32> from #qwen.source<"head">
// CHECK-LABEL: func.func @gated
func.func @gated(%ids: tensor<?xi32>) -> (tensor<?x40xf32>, tensor<?x4xf32>) {
  %x = qwen.embedding %ids, @embed : tensor<?xi32> -> tensor<?x64xf32>
  %n = qwen.rms_norm %x, @n eps 1.0e-06 : tensor<?x64xf32> -> tensor<?x64xf32>
  %v = qwen.linear %n, [@v] : tensor<?x64xf32> -> tensor<?x32xf32>
  %a = qwen.linear %n, [@a] : tensor<?x64xf32> -> tensor<?x4xf32>
  qwen.append %v, %v layer 0 kv_heads 1 : tensor<?x32xf32>
  %c = qwen.attention %v layer 0 heads 1 kv_heads 1 : tensor<?x32xf32>
  %g = qwen.gate %c, %v : tensor<?x32xf32> -> tensor<?x32xf32>
  %o = qwen.linear %g, [@o] : tensor<?x32xf32> -> tensor<?x64xf32>
  %y = qwen.add %o, %x : tensor<?x64xf32>
  %w = qwen.wanted_tokens %y : tensor<?x64xf32>
  // The norm is also that before the head: it stays.
  // CHECK: qwen.rms_norm %{{.*}}, @n eps
  %l = qwen.rms_norm %w, @n eps 1.0e-06 : tensor<?x64xf32> -> tensor<?x64xf32>
  %logits = qwen.lm_head %l, @head : tensor<?x64xf32> -> tensor<?x40xf32>
  return %logits, %a : tensor<?x40xf32>, tensor<?x4xf32>
}

// -----

qwen.weight @embed : tensor<40x64xf32> from #qwen.source<"embed">
qwen.weight @n : tensor<64xf32> from #qwen.source<"n">
func.func @no_product(%ids: tensor<?xi32>) -> tensor<?x64xf32> {
  %x = qwen.embedding %ids, @embed : tensor<?xi32> -> tensor<?x64xf32>
  // expected-error@+1 {{is read by 'func.return' when only a product, before fusion, can}}
  %n = qwen.rms_norm %x, @n eps 1.0e-06 : tensor<?x64xf32> -> tensor<?x64xf32>
  return %n : tensor<?x64xf32>
}

// -----

qwen.weight @embed : tensor<40x64xf32> from #qwen.source<"embed">
func.func @another_op(%ids: tensor<?xi32>) -> tensor<?x64xf32> {
  %x = qwen.embedding %ids, @embed : tensor<?xi32> -> tensor<?x64xf32>
  // expected-error@+1 {{reads the residual stream, which only norms over it, additions and qwen.wanted_tokens can when it is turned}}
  %n = qwen.gate %x, %x : tensor<?x64xf32> -> tensor<?x64xf32>
  return %n : tensor<?x64xf32>
}

// -----

qwen.weight @embed : tensor<40x64xf32> from #qwen.source<"embed">
func.func @no_product_writes(%ids: tensor<?xi32>) -> tensor<?x64xf32> {
  %x = qwen.embedding %ids, @embed : tensor<?xi32> -> tensor<?x64xf32>
  // expected-error@+1 {{needs a product of its own, before fusion, to fold a rotation into}}
  %n = qwen.add %x, %x : tensor<?x64xf32>
  return %n : tensor<?x64xf32>
}

// -----

qwen.weight @embed : tensor<64x64xf32> from #qwen.source<"embed">
qwen.weight @n : tensor<64xf32> from #qwen.source<"n">
func.func @two_folds(%ids: tensor<?xi32>) -> tensor<?x64xf32> {
  %x = qwen.embedding %ids, @embed : tensor<?xi32> -> tensor<?x64xf32>
  %n = qwen.rms_norm %x, @n eps 1.0e-06 : tensor<?x64xf32> -> tensor<?x64xf32>
  // expected-error@+1 {{reads @embed, which another op needs with another rotation}}
  %y = qwen.linear %n, [@embed] : tensor<?x64xf32> -> tensor<?x64xf32>
  return %y : tensor<?x64xf32>
}

// -----

// expected-error@+2 {{program @activations takes 'tensor<?x64xf32>' when only ids and positions can be the arguments of a program that is rotated}}
qwen.weight @embed : tensor<64x64xf32> from #qwen.source<"embed">
func.func @activations(%x: tensor<?x64xf32>) -> tensor<?x64xf32> {
  return %x : tensor<?x64xf32>
}
