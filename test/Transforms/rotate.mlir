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
// CHECK-NEXT: %[[T:.*]] = qwen.turn %[[L]], @rotation.values : tensor<?x96xf32, #qwen.count<wanted>> -> tensor<?x96xf32, #qwen.count<wanted>>
// CHECK-NEXT: qwen.lm_head %[[T]], @embed
// Turning back, the norm gathers tokens, which the second turn takes from the same thread.
// PLANNED: %[[B:.*]] = qwen.turn %{{.*}} back, @rotation.values {{.*}}barrier = true{{.*}} -> tensor<?x96xf32>
// PLANNED-NEXT: %[[W:.*]] = qwen.wanted_tokens %[[B]]
// PLANNED-NEXT: %[[L:.*]] = qwen.rms_norm %[[W]], @last {{.*}}barrier = true{{.*}} -> tensor<?x96xf32, #qwen.count<wanted>>
// PLANNED-NEXT: %[[T:.*]] = qwen.turn %[[L]], @rotation.values {{.*}}barrier = false{{.*}} -> tensor<?x96xi8, #qwen.blocks<128, <wanted>>>
// PLANNED-NEXT: qwen.lm_head %[[T]], @embed {{.*}}barrier = true
// CALLS: qwen.struct {{.*}}, k = 96, back = 1, count = 0, op =
// CALLS-NEXT: call @turn.turn_avx2(
// CALLS: call @hidden_rows.rms_norm_f32_avx2(
// CALLS: call @rms_norm.rms_norm_f32_avx2(
// CALLS: qwen.struct {{.*}}, k = 96, back = 0, count = 1, op =
// CALLS-NEXT: call @[[TURN:turn.turn_avx2.1]](
// CALLS: call @qwenDriverBarrier
// CALLS: call @lm_head.
// CALLS: func.func private @turn.turn_avx2(
// CALLS-NEXT: qwen.struct {kernel = #qwen.kernel<turn_avx2>, scratch = memref<96xf32>}
// CALLS-NEXT: call @qwenDriverTurnF32(
// CALLS: func.func private @[[TURN]](
// CALLS-NEXT: qwen.struct {kernel = #qwen.kernel<turn_avx2>, quantize = #qwen.kernel<quantize_q8_avx2>, tiles.layout = 0, {{.*}}scratch = memref<224xf32>}
// CALLS-NEXT: call @qwenDriverTurnQ8(
func.func @tied(%ids: tensor<?xi32>, %positions: tensor<?xi32>) -> tensor<?x64xf32, #qwen.count<wanted>> attributes {qwen.limits = {all = 8 : i64, wanted = 4 : i64}} {
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
  %l = qwen.rms_norm %w, @last eps 1.0e-06 : tensor<?x96xf32, #qwen.count<wanted>> -> tensor<?x96xf32, #qwen.count<wanted>>
  %logits = qwen.lm_head %l, @embed : tensor<?x96xf32, #qwen.count<wanted>> -> tensor<?x64xf32, #qwen.count<wanted>>
  return %logits : tensor<?x64xf32, #qwen.count<wanted>>
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
func.func @gated(%ids: tensor<?xi32>) -> (tensor<?x40xf32, #qwen.count<wanted>>, tensor<?x4xf32>) {
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
  %l = qwen.rms_norm %w, @n eps 1.0e-06 : tensor<?x64xf32, #qwen.count<wanted>> -> tensor<?x64xf32, #qwen.count<wanted>>
  %logits = qwen.lm_head %l, @head : tensor<?x64xf32, #qwen.count<wanted>> -> tensor<?x40xf32, #qwen.count<wanted>>
  return %logits, %a : tensor<?x40xf32, #qwen.count<wanted>>, tensor<?x4xf32>
}

// -----

// A norm that another op than a product reads is that of what was turned back, as is a result that no program reads.
qwen.weight @embed : tensor<40x64xf32> from #qwen.source<"embed">
qwen.weight @n : tensor<64xf32> from #qwen.source<"n">
// CHECK-LABEL: func.func @results
// CHECK: %[[X:.*]] = qwen.embedding
// CHECK-NEXT: %[[B:.*]] = qwen.turn %[[X]] back, @rotation.values
// CHECK-NEXT: %[[N:.*]] = qwen.rms_norm %[[B]], @n eps
// CHECK-NEXT: return %[[N]], %[[B]]
func.func @results(%ids: tensor<?xi32>) -> (tensor<?x64xf32> {qwen.name = "normed"}, tensor<?x64xf32> {qwen.name = "hidden"}) {
  %x = qwen.embedding %ids, @embed : tensor<?xi32> -> tensor<?x64xf32>
  %n = qwen.rms_norm %x, @n eps 1.0e-06 : tensor<?x64xf32> -> tensor<?x64xf32>
  return %n, %x : tensor<?x64xf32>, tensor<?x64xf32>
}

// -----

// A draft head reads the stream of the program before, which stays turned, beside a result that the caller reads. Both share a
// matrix. Rows of the caller are turned. What an op other than a norm or a sum reads is turned back.
// CHECK-DAG: qwen.weight @up : tensor<64x64xf32> from #qwen.turned<#qwen.source<"up">, scales = #qwen.source<"n">, columns = 64, outputs = 64>
// CHECK-DAG: qwen.weight @fc : tensor<64x64xf32> from #qwen.turned<#qwen.source<"fc">, scales = #qwen.source<"own">, columns = 64, outputs = 64>
// CHECK-DAG: qwen.weight @plain : tensor<64x64xf32> from #qwen.source<"plain">
qwen.weight @embed : tensor<40x64xf32> from #qwen.source<"embed">
qwen.weight @n : tensor<64xf32> from #qwen.source<"n">
qwen.weight @own : tensor<64xf32> from #qwen.source<"own">
qwen.weight @up : tensor<64x64xf32> from #qwen.source<"up">
qwen.weight @fc : tensor<64x64xf32> from #qwen.source<"fc">
qwen.weight @plain : tensor<64x64xf32> from #qwen.source<"plain">
// CHECK-LABEL: func.func @forward
// CHECK: %[[Y:.*]] = qwen.add
// CHECK-NEXT: %[[B:.*]] = qwen.turn %[[Y]] back, @rotation.values
// CHECK-NEXT: return %[[B]], %[[Y]]
func.func @forward(%ids: tensor<?xi32>) -> (tensor<?x64xf32> {qwen.name = "rows"}, tensor<?x64xf32> {qwen.name = "hidden"}) {
  %x = qwen.embedding %ids, @embed : tensor<?xi32> -> tensor<?x64xf32>
  %n = qwen.rms_norm %x, @n eps 1.0e-06 : tensor<?x64xf32> -> tensor<?x64xf32>
  %u = qwen.linear %n, [@up] : tensor<?x64xf32> -> tensor<?x64xf32>
  %y = qwen.add %x, %u : tensor<?x64xf32>
  return %y, %y : tensor<?x64xf32>, tensor<?x64xf32>
}
// CHECK-LABEL: func.func @draft
// CHECK-SAME: (%[[IDS:.*]]: tensor<?xi32>, %[[H:.*]]: tensor<?x64xf32>
// CHECK-NEXT: %[[X:.*]] = qwen.embedding %[[IDS]]
// CHECK-NEXT: %[[N:.*]] = qwen.rms_norm %[[H]], @rotation.ones
// CHECK-NEXT: %[[F:.*]] = qwen.linear %[[N]], [@fc]
// CHECK-NEXT: %[[S:.*]] = qwen.add %[[F]], %[[X]]
// CHECK-NEXT: %[[M:.*]] = qwen.rms_norm %[[S]], @rotation.ones
// CHECK-NEXT: %[[U:.*]] = qwen.linear %[[M]], [@up]
// CHECK-NEXT: %[[T:.*]] = qwen.add %[[S]], %[[U]]
// CHECK-NEXT: return %[[T]]
func.func @draft(%ids: tensor<?xi32>, %h: tensor<?x64xf32> {qwen.name = "hidden", qwen.from = @forward}) -> (tensor<?x64xf32> {qwen.name = "hidden"}) {
  %x = qwen.embedding %ids, @embed : tensor<?xi32> -> tensor<?x64xf32>
  %n = qwen.rms_norm %h, @own eps 1.0e-06 : tensor<?x64xf32> -> tensor<?x64xf32>
  %f = qwen.linear %n, [@fc] : tensor<?x64xf32> -> tensor<?x64xf32>
  %s = qwen.add %f, %x : tensor<?x64xf32>
  %m = qwen.rms_norm %s, @n eps 1.0e-06 : tensor<?x64xf32> -> tensor<?x64xf32>
  %u = qwen.linear %m, [@up] : tensor<?x64xf32> -> tensor<?x64xf32>
  %t = qwen.add %s, %u : tensor<?x64xf32>
  return %t : tensor<?x64xf32>
}
// CHECK-LABEL: func.func @second
// CHECK-SAME: (%[[H:.*]]: tensor<?x64xf32> {{.*}}, %[[G:.*]]: tensor<?x64xf32>
// CHECK-NEXT: %[[T:.*]] = qwen.turn %[[G]], @rotation.values
// CHECK-NEXT: %[[P:.*]] = qwen.turn %[[H]] back, @rotation.values
// CHECK-NEXT: %[[S:.*]] = qwen.add %[[H]], %[[T]]
// CHECK-NEXT: %[[N:.*]] = qwen.rms_norm %[[S]], @rotation.ones
// CHECK-NEXT: %[[U:.*]] = qwen.linear %[[N]], [@up]
// CHECK-NEXT: %[[Y:.*]] = qwen.add %[[S]], %[[U]]
// CHECK-NEXT: %[[L:.*]] = qwen.linear %[[P]], [@plain]
// CHECK-NEXT: %[[Z:.*]] = qwen.gate %[[L]], %[[G]]
// CHECK-NEXT: %[[B:.*]] = qwen.turn %[[Y]] back, @rotation.values
// CHECK-NEXT: return %[[B]], %[[Z]]
func.func @second(%h: tensor<?x64xf32> {qwen.name = "hidden", qwen.from = @draft}, %g: tensor<?x64xf32> {qwen.name = "given"})
    -> (tensor<?x64xf32> {qwen.name = "sum"}, tensor<?x64xf32> {qwen.name = "other"}) {
  %s = qwen.add %h, %g : tensor<?x64xf32>
  %n = qwen.rms_norm %s, @n eps 1.0e-06 : tensor<?x64xf32> -> tensor<?x64xf32>
  %u = qwen.linear %n, [@up] : tensor<?x64xf32> -> tensor<?x64xf32>
  %y = qwen.add %s, %u : tensor<?x64xf32>
  %l = qwen.linear %h, [@plain] : tensor<?x64xf32> -> tensor<?x64xf32>
  %z = qwen.gate %l, %g : tensor<?x64xf32> -> tensor<?x64xf32>
  return %y, %z : tensor<?x64xf32>, tensor<?x64xf32>
}

// -----

// A product, and its bias, begins the stream of a head.
// CHECK-DAG: qwen.weight @fc : tensor<64x64xf32> from #qwen.turned<#qwen.source<"fc">, outputs = 64>
// CHECK-DAG: qwen.weight @fc.bias : tensor<64xf32> from #qwen.turned<#qwen.source<"fc.bias">, outputs = 64>
// CHECK-DAG: qwen.weight @up : tensor<64x64xf32> from #qwen.turned<#qwen.source<"up">, scales = #qwen.source<"n">, columns = 64, outputs = 64>
qwen.weight @n : tensor<64xf32> from #qwen.source<"n">
qwen.weight @fc : tensor<64x64xf32> from #qwen.source<"fc">
qwen.weight @fc.bias : tensor<64xf32> from #qwen.source<"fc.bias">
qwen.weight @up : tensor<64x64xf32> from #qwen.source<"up">
// CHECK-LABEL: func.func @head
// CHECK-SAME: (%[[P:.*]]: tensor<?x64xf32>
// CHECK-NEXT: %[[F:.*]] = qwen.linear %[[P]], [@fc]
// CHECK-NEXT: %[[X:.*]] = qwen.add_bias %[[F]], @fc.bias
// CHECK-NEXT: %[[N:.*]] = qwen.rms_norm %[[X]], @rotation.ones
// CHECK-NEXT: %[[U:.*]] = qwen.linear %[[N]], [@up]
// CHECK-NEXT: %[[Y:.*]] = qwen.add %[[X]], %[[U]]
// CHECK-NEXT: %[[B:.*]] = qwen.turn %[[Y]] back
// CHECK-NEXT: return %[[B]]
func.func @head(%p: tensor<?x64xf32> {qwen.name = "patches"}) -> (tensor<?x64xf32> {qwen.name = "rows"}) {
  %f = qwen.linear %p, [@fc] : tensor<?x64xf32> -> tensor<?x64xf32>
  %x = qwen.add_bias %f, @fc.bias : tensor<?x64xf32>
  %n = qwen.rms_norm %x, @n eps 1.0e-06 : tensor<?x64xf32> -> tensor<?x64xf32>
  %u = qwen.linear %n, [@up] : tensor<?x64xf32> -> tensor<?x64xf32>
  %y = qwen.add %x, %u : tensor<?x64xf32>
  return %y : tensor<?x64xf32>
}

// -----

// Programs of two widths. A result that another program does not read as the stream is plain, and so are arguments that no op
// reads as the stream.
// CHECK-DAG: qwen.weight @rotation.values : tensor<65xf32> from #qwen.rotation<64>
// CHECK-DAG: qwen.weight @rotation.values.32 : tensor<33xf32> from #qwen.rotation<32>
// CHECK-DAG: qwen.weight @rotation.ones : tensor<32xf32> from #qwen.ones
// CHECK-DAG: qwen.weight @patch : tensor<32x32xf32> from #qwen.turned<#qwen.source<"patch">, scales = #qwen.source<"m">, columns = 32, outputs = 32>
// CHECK-DAG: qwen.weight @fc : tensor<64x64xf32> from #qwen.source<"fc">
qwen.weight @embed : tensor<40x64xf32> from #qwen.source<"embed">
qwen.weight @m : tensor<32xf32> from #qwen.source<"m">
qwen.weight @patch : tensor<32x32xf32> from #qwen.source<"patch">
qwen.weight @fc : tensor<64x64xf32> from #qwen.source<"fc">
// CHECK-LABEL: func.func @forward
// CHECK: qwen.turn %{{.*}} back, @rotation.values :
func.func @forward(%ids: tensor<?xi32>) -> (tensor<?x64xf32> {qwen.name = "hidden"}) {
  %x = qwen.embedding %ids, @embed : tensor<?xi32> -> tensor<?x64xf32>
  return %x : tensor<?x64xf32>
}
// CHECK-LABEL: func.func @vision
// CHECK: qwen.turn %{{.*}}, @rotation.values.32
// CHECK: qwen.turn %{{.*}} back, @rotation.values.32
func.func @vision(%p: tensor<?x32xf32> {qwen.name = "patches"}) -> (tensor<?x32xf32> {qwen.name = "rows"}) {
  %n = qwen.rms_norm %p, @m eps 1.0e-06 : tensor<?x32xf32> -> tensor<?x32xf32>
  %u = qwen.linear %n, [@patch] : tensor<?x32xf32> -> tensor<?x32xf32>
  %y = qwen.add %p, %u : tensor<?x32xf32>
  return %y : tensor<?x32xf32>
}
// CHECK-LABEL: func.func @plain
// CHECK-NOT: qwen.turn
// CHECK: return
func.func @plain(%h: tensor<?x64xf32> {qwen.name = "hidden", qwen.from = @forward}) -> (tensor<?x64xf32> {qwen.name = "rows"}) {
  %y = qwen.linear %h, [@fc] : tensor<?x64xf32> -> tensor<?x64xf32>
  return %y : tensor<?x64xf32>
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
qwen.weight @n : tensor<64xf32> from #qwen.source<"n">
func.func @no_product_writes(%ids: tensor<?xi32>) -> tensor<?x64xf32> {
  %x = qwen.embedding %ids, @embed : tensor<?xi32> -> tensor<?x64xf32>
  %n = qwen.rms_norm %x, @n eps 1.0e-06 : tensor<?x64xf32> -> tensor<?x64xf32>
  // expected-error@+1 {{needs a product of its own, before fusion, to fold a rotation into}}
  %y = qwen.add %x, %n : tensor<?x64xf32>
  return %y : tensor<?x64xf32>
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

// A product that folds nothing reads the matrix of one that does.
qwen.weight @embed : tensor<40x64xf32> from #qwen.source<"embed">
qwen.weight @n : tensor<64xf32> from #qwen.source<"n">
qwen.weight @up : tensor<64x64xf32> from #qwen.source<"up">
func.func @forward(%ids: tensor<?xi32>) -> tensor<?x64xf32> {
  %x = qwen.embedding %ids, @embed : tensor<?xi32> -> tensor<?x64xf32>
  %n = qwen.rms_norm %x, @n eps 1.0e-06 : tensor<?x64xf32> -> tensor<?x64xf32>
  %y = qwen.linear %n, [@up] : tensor<?x64xf32> -> tensor<?x64xf32>
  return %y : tensor<?x64xf32>
}
func.func @plain(%rows: tensor<?x64xf32> {qwen.name = "rows"}) -> tensor<?x64xf32> {
  // expected-error@+1 {{reads @up, which another op needs with another rotation}}
  %y = qwen.linear %rows, [@up] : tensor<?x64xf32> -> tensor<?x64xf32>
  return %y : tensor<?x64xf32>
}
