// RUN: split-file %s %t
// RUN: qwen-opt %t/model.mlir --qwen-pack | FileCheck %t/model.mlir
// RUN: qwen-opt %t/experts.mlir --qwen-pack | FileCheck %t/experts.mlir
// RUN: qwen-opt %t/images.mlir --qwen-pack | FileCheck %t/images.mlir
// RUN: qwen-opt %t/invalid.mlir --qwen-pack -split-input-file -verify-diagnostics

//--- model.mlir
// Parts lie in program order at multiples of 64. The tied embedding lies there
// once, and so does a norm that two ops share.
// CHECK: module attributes {qwen.weight_bytes = 14912 : i64}
// CHECK: qwen.weight @rope.frequencies :
// CHECK-NEXT: qwen.packed @embed.packed [@embed] : tensor<250x64xf32> in <q4_0, panel = 16, chunk = 4> at 0
// CHECK-NEXT: qwen.packed @rope.frequencies.packed [@rope.frequencies] : tensor<12xf32> at 9216
// CHECK-NEXT: qwen.packed @l0.norm.packed [@l0.norm] : tensor<64xf32> at 9280
// CHECK-NEXT: qwen.packed @l0.q_k.weight.packed [@l0.q.weight, @l0.k.weight] : tensor<72x64xf32> in <q4_0, panel = 16, chunk = 4> at 9536
// CHECK-NEXT: qwen.packed @l0.q_k.bias.packed [@l0.q.bias, @l0.k.bias] : tensor<72xf32> at 12416
// The 72 biases are padded to 80.
// CHECK-NEXT: qwen.packed @l0.head_norm.packed [@l0.head_norm] : tensor<24xf32> at 12736
// CHECK-NEXT: qwen.packed @last.packed_0 [@last] : tensor<8x32xf32> in <f32, panel = 16, chunk = 1> at 12864
// CHECK-NEXT: func.func @forward
module {
qwen.weight @embed : tensor<250x64xbf16> from #qwen.source<"m"> as #qwen.format<q4_0>
qwen.weight @l0.norm : tensor<64xbf16> from #qwen.source<"m"> as #qwen.format<f32>
qwen.weight @l0.head_norm : tensor<24xbf16> from #qwen.source<"m"> as #qwen.format<f32>
qwen.weight @l0.q.weight : tensor<48x64xbf16> from #qwen.source<"m"> as #qwen.format<q4_0>
qwen.weight @l0.k.weight : tensor<24x64xbf16> from #qwen.source<"m"> as #qwen.format<q4_0>
qwen.weight @l0.q.bias : tensor<48xbf16> from #qwen.source<"m"> as #qwen.format<f32>
qwen.weight @l0.k.bias : tensor<24xbf16> from #qwen.source<"m"> as #qwen.format<f32>
// A name that packing would give.
qwen.weight @last.packed : tensor<64xbf16> from #qwen.source<"m"> as #qwen.format<f32>
qwen.weight @last : tensor<8x32xbf16> from #qwen.source<"m"> as #qwen.format<f32>
qwen.weight @rope.frequencies : tensor<12xf32> from #qwen.frequencies<theta = 1.0e+06> as #qwen.format<f32>

func.func @forward(%ids: tensor<?xi32>, %positions: tensor<?xi32>, %h: tensor<?x32xf32>) -> (tensor<?x8xf32>, tensor<?x250xf32>) {
  // CHECK: qwen.embedding %{{.*}}, @embed packed [@embed.packed]
  %x = qwen.embedding %ids, @embed : tensor<?xi32> -> tensor<?x64xf32>
  // CHECK: qwen.rope_table {{.*}} packed [@rope.frequencies.packed]
  %cos, %sin = qwen.rope_table %positions, @rope.frequencies : tensor<?xi32> -> tensor<?x12xf32>
  // CHECK: qwen.rms_norm %{{.*}}, @l0.norm eps {{.*}} packed [@l0.norm.packed]
  %n = qwen.rms_norm %x, @l0.norm eps 1.0e-06 : tensor<?x64xf32> -> tensor<?x64xi8, #qwen.blocks<128>>
  // CHECK: qwen.linear %{{.*}}, [@l0.q.weight, @l0.k.weight] bias [@l0.q.bias, @l0.k.bias] packed [@l0.q_k.weight.packed, @l0.q_k.bias.packed]
  %q, %k = qwen.linear %n, [@l0.q.weight, @l0.k.weight] bias [@l0.q.bias, @l0.k.bias] : tensor<?x64xi8, #qwen.blocks<128>> -> tensor<?x48xf32>, tensor<?x24xf32>
  // CHECK: qwen.append {{.*}} norm @l0.head_norm eps {{.*}} packed [@l0.head_norm.packed]
  qwen.append %k, %k rope(%cos, %sin : tensor<?x12xf32>, tensor<?x12xf32>) layer 0 kv_heads 1 norm @l0.head_norm eps 1.0e-06 : tensor<?x24xf32>
  // CHECK: qwen.attention {{.*}} norm @l0.head_norm eps {{.*}} packed [@l0.head_norm.packed]
  %a = qwen.attention %q rope(%cos, %sin : tensor<?x12xf32>, tensor<?x12xf32>) layer 0 heads 2 kv_heads 1 norm @l0.head_norm eps 1.0e-06 : tensor<?x48xf32>
  // CHECK: qwen.linear %{{.*}}, [@last] packed [@last.packed_0]
  %y = qwen.linear %h, [@last] : tensor<?x32xf32> -> tensor<?x8xf32>
  // CHECK: qwen.lm_head %{{.*}}, @embed packed [@embed.packed]
  %l = qwen.lm_head %n, @embed : tensor<?x64xi8, #qwen.blocks<128>> -> tensor<?x250xf32>
  return %y, %l : tensor<?x8xf32>, tensor<?x250xf32>
}
}

//--- experts.mlir
// Of 4 experts, gate and up of one (two panels each, 8,192 bytes together), then
// its down, 2,176 bytes, lie side by side; the next expert's follow.
// CHECK: module attributes {qwen.weight_bytes = 41728 : i64}
// CHECK: qwen.packed @l0.norm.packed [@l0.norm] : tensor<64xf32> at 0
// CHECK-NEXT: qwen.packed @l0.gate_up.weight.packed [@l0.gate.weight, @l0.up.weight] : tensor<256x64xf32> in <bf16, panel = 16, chunk = 1> at 256 experts 4 stride 10368
// CHECK-NEXT: qwen.packed @l0.down.weight.packed [@l0.down.weight] : tensor<256x32xf32> in <q8_0, panel = 16, chunk = 4> at 8448 experts 4 stride 10368
module {
qwen.weight @l0.norm : tensor<64xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.weight @l0.gate.weight : tensor<128x64xf32> from #qwen.source<"m"> as #qwen.format<bf16>
qwen.weight @l0.up.weight : tensor<128x64xf32> from #qwen.source<"m"> as #qwen.format<bf16>
qwen.weight @l0.down.weight : tensor<256x32xf32> from #qwen.source<"m"> as #qwen.format<q8_0>

func.func @forward(%x: tensor<?x64xf32>, %l: tensor<?x4xf32>) -> tensor<?x64xf32> {
  %n = qwen.rms_norm %x, @l0.norm eps 1.0e-06 : tensor<?x64xf32> -> tensor<?x64xf32>
  %w, %ids, %order, %first = qwen.route %l : tensor<?x4xf32> -> tensor<?x2xf32>, tensor<?x2xi32>, tensor<5xi32>
  // CHECK: qwen.experts_up {{.*}} packed [@l0.gate_up.weight.packed]
  %h = qwen.experts_up %n, %order, %first, @l0.gate.weight, @l0.up.weight : tensor<?x64xf32>, tensor<?x2xi32>, tensor<5xi32> -> tensor<?x2x32xi8, #qwen.blocks<128>>
  // CHECK: qwen.experts_down {{.*}} packed [@l0.down.weight.packed]
  %y = qwen.experts_down %h, %w, %order, %first, @l0.down.weight : tensor<?x2x32xi8, #qwen.blocks<128>>, tensor<?x2xf32>, tensor<?x2xi32>, tensor<5xi32> -> tensor<?x64xf32>
  return %y : tensor<?x64xf32>
}
}

//--- images.mlir
// Each image begins at 0.
// CHECK: module attributes {qwen.weight_bytes = 256 : i64}
// CHECK: qwen.image @draft bytes 16640
// CHECK: qwen.image @none bytes 0
// CHECK: qwen.packed @a.packed [@a] : tensor<64xf32> at 0{{$}}
// CHECK-NEXT: qwen.packed @w.packed [@w] : tensor<64x64xf32> in <f32, panel = 16, chunk = 1> at 0 of @draft
// CHECK-NEXT: qwen.packed @b.packed [@b] : tensor<64xf32> at 16384 of @draft
module {
qwen.image @draft
qwen.image @none
qwen.weight @a : tensor<64xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.weight @w : tensor<64x64xf32> from #qwen.source<"m"> as #qwen.format<f32> of @draft
qwen.weight @b : tensor<64xf32> from #qwen.source<"m"> as #qwen.format<f32> of @draft

func.func @forward(%x: tensor<?x64xf32>) -> tensor<?x64xf32> {
  %n = qwen.rms_norm %x, @a eps 1.0e-06 : tensor<?x64xf32> -> tensor<?x64xf32>
  %y = qwen.linear %n, [@w] bias [@b] : tensor<?x64xf32> -> tensor<?x64xf32>
  return %y : tensor<?x64xf32>
}
}

//--- invalid.mlir
qwen.image @draft
qwen.weight @w : tensor<64x64xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.weight @v : tensor<64x64xf32> from #qwen.source<"m"> as #qwen.format<f32> of @draft
func.func @forward(%x: tensor<?x64xf32>) {
  // expected-error@+1 {{reads @w and @v of different images when weights that lie together need one image}}
  %y, %z = qwen.linear %x, [@w, @v] : tensor<?x64xf32> -> tensor<?x64xf32>, tensor<?x64xf32>
  return
}

// -----

qwen.image @draft
qwen.weight @up : tensor<128x64xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.weight @down : tensor<256x32xf32> from #qwen.source<"m"> as #qwen.format<f32> of @draft
func.func @forward(%x: tensor<?x64xf32>, %l: tensor<?x4xf32>) -> tensor<?x64xf32> {
  %w, %ids, %order, %first = qwen.route %l : tensor<?x4xf32> -> tensor<?x2xf32>, tensor<?x2xi32>, tensor<5xi32>
  %g = qwen.experts_gate %x, %order, %first, @up : tensor<?x64xf32>, tensor<?x2xi32>, tensor<5xi32> -> tensor<?x2x32xf32>
  // expected-error@+1 {{reads @up and @down of different images when weights that lie together need one image}}
  %y = qwen.experts_down %g, %w, %order, %first, @down : tensor<?x2x32xf32>, tensor<?x2xf32>, tensor<?x2xi32>, tensor<5xi32> -> tensor<?x64xf32>
  return %y : tensor<?x64xf32>
}

// -----

qwen.weight @w : tensor<64x64xbf16> from #qwen.source<"m"> as #qwen.format<f32>
qwen.weight @v : tensor<64x64xbf16> from #qwen.source<"m"> as #qwen.format<bf16>
func.func @forward(%x: tensor<?x64xf32>) {
  // expected-error@+1 {{reads @w in f32 and @v in bf16 when the weights of a product need one format}}
  %y, %z = qwen.linear %x, [@w, @v] : tensor<?x64xf32> -> tensor<?x64xf32>, tensor<?x64xf32>
  return
}

// -----

qwen.weight @w : tensor<64x64xbf16> from #qwen.source<"m">
func.func @forward(%x: tensor<?x64xf32>) {
  // expected-error@+1 {{reads @w, which has no format; run qwen-quantize first}}
  %y = qwen.linear %x, [@w] : tensor<?x64xf32> -> tensor<?x64xf32>
  return
}

// -----

qwen.weight @w : tensor<64xbf16> from #qwen.source<"m">
func.func @forward(%x: tensor<?x64xf32>) {
  // expected-error@+1 {{reads @w, which has no format; run qwen-quantize first}}
  %y = qwen.rms_norm %x, @w eps 1.0e-06 : tensor<?x64xf32> -> tensor<?x64xf32>
  return
}
