// RUN: split-file %s %t
// RUN: qwen-opt %t/layer.mlir --qwen-plan | FileCheck %t/layer.mlir
// RUN: qwen-opt %t/rules.mlir --qwen-plan -split-input-file | FileCheck %t/rules.mlir
// RUN: qwen-opt %t/programs.mlir --qwen-plan | FileCheck %t/programs.mlir
// RUN: qwen-opt %t/invalid.mlir --qwen-plan -split-input-file -verify-diagnostics

//--- layer.mlir
// One layer, 8 tokens and 2 wanted ones at most.
module {
qwen.weight @embed : tensor<250x64xbf16> from #qwen.source<"m">
qwen.weight @n : tensor<64xbf16> from #qwen.source<"m">
qwen.weight @q : tensor<64x64xbf16> from #qwen.source<"m">
qwen.weight @k : tensor<32x64xbf16> from #qwen.source<"m">
qwen.weight @g : tensor<40x64xbf16> from #qwen.source<"m">
qwen.weight @d : tensor<64x64xbf16> from #qwen.source<"m">
qwen.weight @rope.frequencies : tensor<8xf32> from #qwen.frequencies<theta = 1.0e+06>

// CHECK-LABEL: func.func @forward
// CHECK-SAME: qwen.arena_bytes = 9344 : i64
func.func @forward(%ids: tensor<?xi32>, %positions: tensor<?xi32>) -> tensor<?x250xf32, #qwen.count<wanted>> attributes {qwen.limits = {all = 8 : i64, wanted = 2 : i64}} {
  // Rows of 64: 2048 bytes for 8 tokens. Independent ops share a phase, and
  // tokens are read by the thread that wrote them.
  // CHECK: qwen.embedding {{.*}}plan = #qwen.plan<id = 0, barrier = false, buffers = [<offset = 0, stride = 64>]>
  %x = qwen.embedding %ids, @embed : tensor<?xi32> -> tensor<?x64xf32>
  // Strides are padded to 16.
  // CHECK: qwen.rope_table {{.*}}plan = #qwen.plan<id = 1, barrier = false, buffers = [<offset = 2048, stride = 16>, <offset = 2560, stride = 16>]>
  %cos, %sin = qwen.rope_table %positions, @rope.frequencies : tensor<?xi32> -> tensor<?x8xf32>
  // Tiles of 16 tokens and whole blocks: 2048 bytes of values, 64 of scales, and
  // 64 of sums of 8 tokens.
  // CHECK: qwen.rms_norm {{.*}}plan = #qwen.plan<id = 2, barrier = false, buffers = [<offset = 3072, stride = 64, scales = 5120, sums = 5184>]>
  %n = qwen.rms_norm %x, @n eps 1.0e-06 : tensor<?x64xf32> -> tensor<?x64xi8, #qwen.blocks<128>>
  // A product reads tokens of all threads. Its results are ranges of columns.
  // CHECK: qwen.linear {{.*}}plan = #qwen.plan<id = 3, barrier = true, buffers = [<offset = 5248, stride = 128>, <offset = 5504, stride = 128>, <offset = 5632, stride = 128>]>
  %q, %k, %v = qwen.linear %n, [@q, @k, @k] : tensor<?x64xi8, #qwen.blocks<128>> -> tensor<?x64xf32>, tensor<?x32xf32>, tensor<?x32xf32>
  // CHECK: qwen.append {{.*}}plan = #qwen.plan<id = 4, barrier = true>
  qwen.append %k, %v rope(%cos, %sin : tensor<?x8xf32>, tensor<?x8xf32>) layer 0 kv_heads 2 : tensor<?x32xf32>
  // Reads what others have appended. In the place of the norm, whose last reader
  // has run before the barrier.
  // CHECK: qwen.attention {{.*}}plan = #qwen.plan<id = 5, barrier = true, buffers = [<offset = 3072, stride = 64>]>
  %a = qwen.attention %q rope(%cos, %sin : tensor<?x8xf32>, tensor<?x8xf32>) layer 0 heads 4 kv_heads 2 : tensor<?x64xf32>
  // CHECK: qwen.quantize {{.*}}plan = #qwen.plan<id = 6, barrier = true, buffers = [<offset = 5120, stride = 64, scales = 7168, sums = 7232>]>
  %aq = qwen.quantize %a : tensor<?x64xf32> -> tensor<?x64xi8, #qwen.blocks<128>>
  // Over its residual.
  // CHECK: qwen.linear {{.*}}plan = #qwen.plan<id = 7, barrier = true, buffers = [<offset = 0, stride = 64>]>
  %h = qwen.linear %aq, [@d] residual(%x : tensor<?x64xf32>) : tensor<?x64xi8, #qwen.blocks<128>> -> tensor<?x64xf32>
  // CHECK: qwen.wanted_tokens
  // CHECK-NOT: plan
  %r = qwen.wanted_tokens %h : tensor<?x64xf32>
  // Two tokens have room for a tile, too.
  // CHECK: qwen.rms_norm {{.*}}plan = #qwen.plan<id = 8, barrier = true, buffers = [<offset = 2048, stride = 64, scales = 4096, sums = 4160>]>
  %m = qwen.rms_norm %r, @n eps 1.0e-06 : tensor<?x64xf32, #qwen.count<wanted>> -> tensor<?x64xi8, #qwen.blocks<128, <wanted>>>
  // CHECK: qwen.lm_head {{.*}}plan = #qwen.plan<id = 9, barrier = true, buffers = [<offset = -1, stride = 256>]>
  %l = qwen.lm_head %m, @embed : tensor<?x64xi8, #qwen.blocks<128, <wanted>>> -> tensor<?x250xf32, #qwen.count<wanted>>
  return %l : tensor<?x250xf32, #qwen.count<wanted>>
}
}

//--- rules.mlir
// A thread reads the tokens that it wrote; independent ops need no barrier; what
// dies in a phase is not overwritten in it; what is returned never is.
module {
qwen.weight @embed : tensor<250x16xbf16> from #qwen.source<"m">
qwen.weight @n : tensor<16xbf16> from #qwen.source<"m">
// CHECK-LABEL: func.func @forward
// CHECK-SAME: qwen.arena_bytes = 192 : i64
func.func @forward(%ids: tensor<?xi32>) -> (tensor<?x16xf32>, tensor<?x16xf32>) attributes {qwen.limits = {all = 1 : i64, wanted = 1 : i64}} {
  // CHECK: qwen.embedding {{.*}}id = 0, barrier = false, buffers = [<offset = 0, stride = 16>]
  %x = qwen.embedding %ids, @embed : tensor<?xi32> -> tensor<?x16xf32>
  // CHECK: qwen.rms_norm {{.*}}id = 1, barrier = false, buffers = [<offset = 64, stride = 16>]
  %y = qwen.rms_norm %x, @n eps 1.0e-06 : tensor<?x16xf32> -> tensor<?x16xf32>
  // CHECK: qwen.rms_norm {{.*}}id = 2, barrier = false, buffers = [<offset = 128, stride = 16>]
  %z = qwen.rms_norm %y, @n eps 1.0e-06 : tensor<?x16xf32> -> tensor<?x16xf32>
  // CHECK: qwen.swiglu {{.*}}id = 3, barrier = true, buffers = [<offset = 64, stride = 16>]
  %s = qwen.swiglu %z, %z : tensor<?x16xf32> -> tensor<?x16xf32>
  // CHECK: qwen.swiglu {{.*}}id = 4, barrier = true, buffers = [<offset = 128, stride = 16>]
  %t = qwen.swiglu %s, %s : tensor<?x16xf32> -> tensor<?x16xf32>
  return %x, %t : tensor<?x16xf32>, tensor<?x16xf32>
}
}

// -----

// The residual is read later; in the same phase; by the product itself; is one
// of several results; is a view: the product has a place of its own.
module {
qwen.weight @embed : tensor<250x32xbf16> from #qwen.source<"m">
qwen.weight @w : tensor<32x32xbf16> from #qwen.source<"m">
// CHECK-LABEL: func.func @forward
func.func @forward(%ids: tensor<?xi32>) -> (tensor<?x32xf32>, tensor<?x32xf32>) attributes {qwen.limits = {all = 1 : i64, wanted = 1 : i64}} {
  // CHECK: qwen.embedding {{.*}}buffers = [<offset = 0, stride = 32>]
  %x = qwen.embedding %ids, @embed : tensor<?xi32> -> tensor<?x32xf32>
  // CHECK: qwen.embedding {{.*}}buffers = [<offset = 128, stride = 32>]
  %y = qwen.embedding %ids, @embed : tensor<?xi32> -> tensor<?x32xf32>
  // CHECK: qwen.linear {{.*}}id = 2, barrier = true, buffers = [<offset = 256, stride = 32>]
  %later = qwen.linear %y, [@w] residual(%x : tensor<?x32xf32>) : tensor<?x32xf32> -> tensor<?x32xf32>
  // CHECK: qwen.linear {{.*}}id = 3, barrier = true, buffers = [<offset = 128, stride = 32>]
  %same_phase = qwen.linear %later, [@w] residual(%x : tensor<?x32xf32>) : tensor<?x32xf32> -> tensor<?x32xf32>
  // CHECK: qwen.swiglu {{.*}}id = 4, barrier = false, buffers = [<offset = 384, stride = 32>]
  %s = qwen.swiglu %x, %x : tensor<?x32xf32> -> tensor<?x32xf32>
  // CHECK: qwen.linear {{.*}}id = 5, barrier = true, buffers = [<offset = 0, stride = 32>]
  %itself = qwen.linear %s, [@w] residual(%s : tensor<?x32xf32>) : tensor<?x32xf32> -> tensor<?x32xf32>
  // CHECK: qwen.linear {{.*}}id = 6, barrier = true, buffers = [<offset = 256, stride = 64>, <offset = 384, stride = 64>]
  %several:2 = qwen.linear %itself, [@w, @w] : tensor<?x32xf32> -> tensor<?x32xf32>, tensor<?x32xf32>
  // With the stride of its residual.
  // CHECK: qwen.linear {{.*}}id = 7, barrier = true, buffers = [<offset = 512, stride = 64>]
  %one = qwen.linear %itself, [@w] residual(%several#1 : tensor<?x32xf32>) : tensor<?x32xf32> -> tensor<?x32xf32>
  return %same_phase, %one : tensor<?x32xf32>, tensor<?x32xf32>
}
}

// -----

// A product may compute the SwiGLU behind it, whose result then has a place of
// its own beside what the product reads.
module {
qwen.weight @embed : tensor<250x32xbf16> from #qwen.source<"m">
qwen.weight @n : tensor<32xbf16> from #qwen.source<"m">
qwen.weight @w : tensor<32x32xbf16> from #qwen.source<"m">
// CHECK-LABEL: func.func @forward
func.func @forward(%ids: tensor<?xi32>) -> tensor<?x32xf32> attributes {qwen.limits = {all = 1 : i64, wanted = 1 : i64}} {
  %x = qwen.embedding %ids, @embed : tensor<?xi32> -> tensor<?x32xf32>
  // CHECK: qwen.rms_norm {{.*}}buffers = [<offset = 128, stride = 32, scales = 2176, sums = 2240>]
  %q = qwen.rms_norm %x, @n eps 1.0e-06 : tensor<?x32xf32> -> tensor<?x32xi8, #qwen.blocks<128>>
  // CHECK: qwen.linear {{.*}}buffers = [<offset = 2304, stride = 64>, <offset = 2432, stride = 64>]
  %gate, %up = qwen.linear %q, [@w, @w] : tensor<?x32xi8, #qwen.blocks<128>> -> tensor<?x32xf32>, tensor<?x32xf32>
  // CHECK: qwen.swiglu {{.*}}buffers = [<offset = 2560, stride = 32, scales = 4608, sums = 4672>]
  %s = qwen.swiglu %gate, %up : tensor<?x32xf32> -> tensor<?x32xi8, #qwen.blocks<128>>
  %y = qwen.linear %s, [@w] residual(%x : tensor<?x32xf32>) : tensor<?x32xi8, #qwen.blocks<128>> -> tensor<?x32xf32>
  return %y : tensor<?x32xf32>
}
}

// -----

// Appends of other layers need no barrier; an append after attention to the
// same layer does.
module {
qwen.weight @embed : tensor<250x32xbf16> from #qwen.source<"m">
qwen.weight @rope.frequencies : tensor<16xf32> from #qwen.frequencies<theta = 1.0e+06>
// CHECK-LABEL: func.func @forward
func.func @forward(%ids: tensor<?xi32>, %positions: tensor<?xi32>) -> (tensor<?x32xf32>, tensor<?x32xf32>) attributes {qwen.limits = {all = 1 : i64, wanted = 1 : i64}} {
  %x = qwen.embedding %ids, @embed : tensor<?xi32> -> tensor<?x32xf32>
  %cos, %sin = qwen.rope_table %positions, @rope.frequencies : tensor<?xi32> -> tensor<?x16xf32>
  // CHECK: qwen.append {{.*}}id = 2, barrier = true>
  qwen.append %x, %x rope(%cos, %sin : tensor<?x16xf32>, tensor<?x16xf32>) layer 0 kv_heads 1 : tensor<?x32xf32>
  // CHECK: qwen.append {{.*}}id = 3, barrier = false>
  qwen.append %x, %x rope(%cos, %sin : tensor<?x16xf32>, tensor<?x16xf32>) layer 1 kv_heads 1 : tensor<?x32xf32>
  // CHECK: qwen.attention {{.*}}id = 4, barrier = true,
  %a = qwen.attention %x rope(%cos, %sin : tensor<?x16xf32>, tensor<?x16xf32>) layer 0 heads 1 kv_heads 1 : tensor<?x32xf32>
  // CHECK: qwen.attention {{.*}}id = 5, barrier = false,
  %b = qwen.attention %x rope(%cos, %sin : tensor<?x16xf32>, tensor<?x16xf32>) layer 1 heads 1 kv_heads 1 : tensor<?x32xf32>
  // CHECK: qwen.append {{.*}}id = 6, barrier = true>
  qwen.append %x, %x rope(%cos, %sin : tensor<?x16xf32>, tensor<?x16xf32>) layer 1 kv_heads 1 : tensor<?x32xf32>
  return %a, %b : tensor<?x32xf32>, tensor<?x32xf32>
}
}

// -----

// Gathered tokens are another thread's, though both ops work on tokens.
module {
qwen.weight @embed : tensor<250x16xbf16> from #qwen.source<"m">
qwen.weight @n : tensor<16xbf16> from #qwen.source<"m">
// CHECK-LABEL: func.func @forward
func.func @forward(%ids: tensor<?xi32>) -> tensor<?x16xf32, #qwen.count<wanted>> attributes {qwen.limits = {all = 1 : i64, wanted = 1 : i64}} {
  %x = qwen.embedding %ids, @embed : tensor<?xi32> -> tensor<?x16xf32>
  %r = qwen.wanted_tokens %x : tensor<?x16xf32>
  // CHECK: qwen.rms_norm {{.*}}id = 1, barrier = true,
  %y = qwen.rms_norm %r, @n eps 1.0e-06 : tensor<?x16xf32, #qwen.count<wanted>> -> tensor<?x16xf32, #qwen.count<wanted>>
  return %y : tensor<?x16xf32, #qwen.count<wanted>>
}
}

// -----

// Integers in the arena are those of a call, not of a token. The op that reads
// its number of units there waits for it. Lives end as those of activations do.
module {
// CHECK-LABEL: func.func @forward
// CHECK-SAME: qwen.arena_bytes = 384 : i64
func.func @forward(%ids: tensor<?xi32>) -> tensor<4xi32> attributes {qwen.limits = {all = 8 : i64, wanted = 1 : i64}} {
  // CHECK: qwen.count {{.*}}id = 0, barrier = false, buffers = [<offset = 0, stride = 16>]
  %limit = qwen.count %ids : tensor<?xi32> -> tensor<3xi32>
  // CHECK: qwen.count {{.*}}id = 1, barrier = true, buffers = [<offset = 64, stride = 80>]
  %counts = qwen.count %ids below(%limit : tensor<3xi32>) : tensor<?xi32> -> tensor<70xi32>
  // CHECK: qwen.count {{.*}}id = 2, barrier = true, buffers = [<offset = 0, stride = 16>]
  %of_counts = qwen.count %counts : tensor<70xi32> -> tensor<4xi32>
  return %of_counts : tensor<4xi32>
}
}

// -----

// Activations of choices are as many as a token has, in whole; integers of choices
// have a place for each. Products of experts wait for the choice, and the sum for
// all of the first products.
module {
qwen.weight @up : tensor<128x64xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.weight @down : tensor<256x32xf32> from #qwen.source<"m"> as #qwen.format<q8_0>
// CHECK-LABEL: func.func @forward
func.func @forward(%x: tensor<?x64xf32> {qwen.name = "x"}, %l: tensor<?x4xf32> {qwen.name = "l"}) -> tensor<?x64xf32> attributes {qwen.limits = {all = 8 : i64, wanted = 1 : i64}} {
  // CHECK: qwen.route {{.*}}id = 0, barrier = false, buffers = [<offset = 2560, stride = 16>, <offset = 3072, stride = 16>, <offset = 3584, stride = 16>, <offset = 4096, stride = 16>]
  %w, %ids, %order, %first = qwen.route %l : tensor<?x4xf32> -> tensor<?x2xf32>, tensor<?x2xi32>, tensor<5xi32>
  // 16 choices.
  // CHECK: qwen.experts_up {{.*}}id = 1, barrier = true, buffers = [<offset = 4160, stride = 32, scales = 6208, sums = 6272>]
  %h = qwen.experts_up %x, %order, %first, @up, @up : tensor<?x64xf32>, tensor<?x2xi32>, tensor<5xi32> -> tensor<?x2x32xi8, #qwen.blocks<128>>
  // CHECK: qwen.experts_down {{.*}}id = 2, barrier = true
  %y = qwen.experts_down %h, %w, %order, %first, @down : tensor<?x2x32xi8, #qwen.blocks<128>>, tensor<?x2xf32>, tensor<?x2xi32>, tensor<5xi32> -> tensor<?x64xf32>
  return %y : tensor<?x64xf32>
}
}

// -----

// A buffer has room for the limit of what its value counts.
module {
// CHECK-LABEL: func.func @forward
// CHECK-SAME: qwen.place = #qwen.buffer<offset = 0, stride = 16>
// CHECK-SAME: qwen.arena_bytes = 768 : i64
func.func @forward(%x: tensor<?x16xf32, #qwen.count<patches>> {qwen.name = "x"}, %y: tensor<?x16xf32, #qwen.count<merged>> {qwen.name = "y"})
    -> (tensor<?x16xf32, #qwen.count<patches>> {qwen.name = "a"}, tensor<?x16xf32, #qwen.count<merged>> {qwen.name = "b"})
    attributes {qwen.limits = {patches = 5 : i64, merged = 1 : i64}} {
  %a = qwen.swiglu %x, %x : tensor<?x16xf32, #qwen.count<patches>> -> tensor<?x16xf32, #qwen.count<patches>>
  %b = qwen.swiglu %y, %y : tensor<?x16xf32, #qwen.count<merged>> -> tensor<?x16xf32, #qwen.count<merged>>
  return %a, %b : tensor<?x16xf32, #qwen.count<patches>>, tensor<?x16xf32, #qwen.count<merged>>
}
}

//--- programs.mlir
// Activations of another program stay where they lie, to the end; those of the caller
// have a buffer until they are read.
qwen.weight @embed : tensor<250x16xbf16> from #qwen.source<"m">
qwen.weight @n : tensor<16xbf16> from #qwen.source<"m">
// CHECK-LABEL: func.func @forward
func.func @forward(%ids: tensor<?xi32>) -> (tensor<?x16xf32> {qwen.name = "normed"}) attributes {qwen.limits = {all = 2 : i64, wanted = 1 : i64}} {
  %x = qwen.embedding %ids, @embed : tensor<?xi32> -> tensor<?x16xf32>
  // CHECK: qwen.rms_norm {{.*}}buffers = [<offset = 128, stride = 16>]
  %y = qwen.rms_norm %x, @n eps 1.0e-06 : tensor<?x16xf32> -> tensor<?x16xf32>
  return %y : tensor<?x16xf32>
}
// CHECK-LABEL: func.func @second
// CHECK-SAME: {qwen.from = @forward, qwen.name = "normed", qwen.place = #qwen.buffer<offset = 128, stride = 16>}
// CHECK-SAME: {qwen.name = "given", qwen.place = #qwen.buffer<offset = 0, stride = 16>}
// CHECK-SAME: qwen.arena_bytes = 256
func.func @second(%n: tensor<?x16xf32> {qwen.name = "normed", qwen.from = @forward}, %g: tensor<?x16xf32> {qwen.name = "given"})
    -> (tensor<?x16xf32> {qwen.name = "last"}) attributes {qwen.limits = {all = 1 : i64, wanted = 1 : i64}} {
  // CHECK: qwen.swiglu {{.*}}id = 0, barrier = false, buffers = [<offset = 64, stride = 16>]
  %a = qwen.swiglu %n, %g : tensor<?x16xf32> -> tensor<?x16xf32>
  // CHECK: qwen.swiglu {{.*}}id = 1, barrier = true, buffers = [<offset = 0, stride = 16>]
  %b = qwen.swiglu %a, %a : tensor<?x16xf32> -> tensor<?x16xf32>
  // CHECK: qwen.swiglu {{.*}}id = 2, barrier = true, buffers = [<offset = 64, stride = 16>]
  %c = qwen.swiglu %b, %b : tensor<?x16xf32> -> tensor<?x16xf32>
  // CHECK: qwen.swiglu {{.*}}id = 3, barrier = true, buffers = [<offset = 0, stride = 16>]
  %d = qwen.swiglu %c, %c : tensor<?x16xf32> -> tensor<?x16xf32>
  // CHECK: qwen.swiglu {{.*}}id = 4, barrier = false, buffers = [<offset = 192, stride = 16>]
  %e = qwen.swiglu %c, %c : tensor<?x16xf32> -> tensor<?x16xf32>
  return %d : tensor<?x16xf32>
}

//--- invalid.mlir
// expected-error@+1 {{program @forward has no limit of all in qwen.limits}}
func.func @forward() attributes {qwen.limits = {wanted = 1 : i64}} {
  return
}

// -----

// The first argument says which tokens a call has, and every count has a limit.
// expected-error@+1 {{program @forward has no limit of patches in qwen.limits}}
func.func @forward(%x: tensor<?x64xf32, #qwen.count<patches>> {qwen.name = "x"}) attributes {qwen.limits = {all = 1 : i64}} {
  return
}

// -----

// expected-error@+1 {{program @forward has no limit of wanted in qwen.limits}}
func.func @forward(%x: tensor<?x64xf32> {qwen.name = "x"}) attributes {qwen.limits = {all = 1 : i64}} {
  %r = qwen.wanted_tokens %x : tensor<?x64xf32>
  return
}

// -----

// Every program has a plan.
func.func @forward() attributes {qwen.limits = {all = 8 : i64, wanted = 8 : i64}} {
  return
}
func.func @second(%x: tensor<?x64xf32> {qwen.name = "x"}) attributes {qwen.limits = {all = 8 : i64, wanted = 9 : i64}} {
  // expected-error@+1 {{needs 9 all for the limit of wanted when 8 is the limit}}
  %r = qwen.wanted_tokens %x : tensor<?x64xf32>
  return
}

// -----

module {
// expected-error@+1 {{argument 0 of program @forward is no activations in f32 with a qwen.name}}
func.func @forward(%x: tensor<?x64xf32>) attributes {qwen.limits = {all = 8 : i64, wanted = 8 : i64}} {
  %s = qwen.swiglu %x, %x : tensor<?x64xf32> -> tensor<?x64xf32>
  return
}
}

// -----

module {
func.func @forward(%x: tensor<?x64xf32>) attributes {qwen.limits = {all = 8 : i64, wanted = 8 : i64}} {
  %y = qwen.add %x, %x : tensor<?x64xf32>
  // expected-error@+1 {{reads the result of 'qwen.add', which is not planned; run the fusion passes first}}
  %s = qwen.swiglu %y, %y : tensor<?x64xf32> -> tensor<?x64xf32>
  return
}
}

// -----

// expected-error@+1 {{argument 0 of program @second reads "normed" of @forward, which has no such result}}
func.func @second(%x: tensor<?x64xf32> {qwen.name = "normed", qwen.from = @forward}) attributes {qwen.limits = {all = 8 : i64, wanted = 8 : i64}} {
  return
}

// -----

func.func @forward(%x: tensor<?x64xf32> {qwen.name = "x"}) -> (tensor<?x64xf32> {qwen.name = "s"}) attributes {qwen.limits = {all = 4 : i64, wanted = 4 : i64}} {
  %s = qwen.swiglu %x, %x : tensor<?x64xf32> -> tensor<?x64xf32>
  return %s : tensor<?x64xf32>
}
// expected-error@+1 {{argument 0 of program @second reads "s" of @forward, which has the limit 4 of all when 8 or more is needed}}
func.func @second(%x: tensor<?x64xf32> {qwen.name = "s", qwen.from = @forward}) attributes {qwen.limits = {all = 8 : i64, wanted = 8 : i64}} {
  return
}

// -----

// expected-error@+1 {{result 0 of program @forward has a name when only activations in f32 and choices that an op computes can have one}}
func.func @forward(%x: tensor<?x64xf32> {qwen.name = "x"}) -> (tensor<?x64xf32, #qwen.count<wanted>> {qwen.name = "s"}) attributes {qwen.limits = {all = 8 : i64, wanted = 8 : i64}} {
  %r = qwen.wanted_tokens %x : tensor<?x64xf32>
  return %r : tensor<?x64xf32, #qwen.count<wanted>>
}
