// Diagnostics of the dialect, but for those around attention.
// RUN: qwen-opt %s -split-input-file -verify-diagnostics

//===----------------------------------------------------------------------===//
// Attributes
//===----------------------------------------------------------------------===//

// expected-error@+1 {{block is 64 when 128 is needed}}
func.func private @f(tensor<?x64xi8, #qwen.blocks<64>>)

// -----

// expected-error@+1 {{unknown format 'q5'}}
module attributes {test = #qwen.format<q5>} {}

// -----

// expected-error@+1 {{unknown format 'q4_0'}}
module attributes {test = #qwen.kv_format<q4_0>} {}

// -----

// expected-error@+1 {{unknown format 'f64'}}
module attributes {test = #qwen.layout<f64, panel = 16, chunk = 1>} {}

// -----

// expected-error@+1 {{panel is 8 when 16 is needed}}
module attributes {test = #qwen.layout<f32, panel = 8, chunk = 1>} {}

// -----

// expected-error@+1 {{chunk is 4 when 1 is needed for f32}}
module attributes {test = #qwen.layout<f32, panel = 16, chunk = 4>} {}

// -----

// expected-error@+1 {{chunk is 4 when 1 is needed for bf16}}
module attributes {test = #qwen.layout<bf16, panel = 16, chunk = 4>} {}

// -----

// expected-error@+1 {{chunk is 1 when 4 is needed for q4_0}}
module attributes {test = #qwen.layout<q4_0, panel = 16, chunk = 1>} {}

// -----

// expected-error@+1 {{chunk is 1 when 4 is needed for q8_0}}
module attributes {test = #qwen.layout<q8_0, panel = 16, chunk = 1>} {}

// -----

// expected-error@+1 {{unknown CPU feature 'sse9'}}
module attributes {test = #qwen.features<avx2, sse9>} {}

// -----

//===----------------------------------------------------------------------===//
// Attributes of modules and programs
//===----------------------------------------------------------------------===//

// expected-error@+1 {{"qwen.tokens" is not an attribute of 'builtin.module'}}
module attributes {qwen.tokens = 1 : i64} {}

// -----

// expected-error@+1 {{"qwen.arena_bytes" is not an attribute of 'builtin.module'}}
module attributes {qwen.arena_bytes = 0 : i64} {}

// -----

// expected-error@+1 {{"qwen.stage" is not an attribute of 'func.func'}}
func.func private @f() attributes {qwen.stage = "graph"}

// -----

// expected-error@+1 {{"qwen.stage" is "done" when a stage is needed}}
module attributes {qwen.stage = "done"} {}

// -----

// expected-error@+1 {{"qwen.limits" is {all = 0 : i64} when a dictionary with an i64 from 1 to 1048576 for each of up to 6 counts is needed}}
func.func private @f() attributes {qwen.limits = {all = 0 : i64}}

// -----

// expected-error@+1 {{"qwen.limits" is {wanted = 1048577 : i64} when}}
func.func private @f() attributes {qwen.limits = {wanted = 1048577 : i64}}

// -----

// expected-error@+1 {{"qwen.limits" is {Patches = 1 : i64} when}}
func.func private @f() attributes {qwen.limits = {Patches = 1 : i64}}

// -----

// expected-error@+1 {{"qwen.limits" is {a = 1 : i64, b = 1 : i64, c = 1 : i64, d = 1 : i64, e = 1 : i64, f = 1 : i64, g = 1 : i64} when}}
func.func private @f() attributes {qwen.limits = {a = 1, b = 1, c = 1, d = 1, e = 1, f = 1, g = 1}}

// -----

// expected-error@+1 {{"qwen.step_back" is 1025 : i64 when an i64 from 0 to 1024 is needed}}
func.func private @f() attributes {qwen.step_back = 1025 : i64}

// -----

// expected-error@+1 {{"qwen.arena_bytes" is 1267650600228229401496703205376 : i128 when an i64 of 0 or more is needed}}
func.func private @f() attributes {qwen.arena_bytes = 1267650600228229401496703205376 : i128}

// -----

// expected-error@+1 {{"qwen.target_features" is ["avx2"] when a #qwen.features is needed}}
module attributes {qwen.target_features = ["avx2"]} {}

// -----

// expected-error@+1 {{"qwen.name" is 1 : i64 when a string is needed}}
func.func private @f(tensor<?x64xf32> {qwen.name = 1})

// -----

// expected-error@+1 {{"qwen.from" is not an attribute of a result}}
func.func private @f() -> (tensor<?x64xf32> {qwen.from = @g})

// -----

// expected-error@+1 {{"qwen.ops" is [1] when an array of strings is needed}}
func.func private @f() attributes {qwen.ops = [1]}

// -----

//===----------------------------------------------------------------------===//
// Types of activations
//===----------------------------------------------------------------------===//

func.func @f(%x: tensor<?x?xf32>) {
  // expected-error@+1 {{operand #0 must be activations in f32, tensor<?xNxf32>}}
  %y = qwen.wanted_tokens %x : tensor<?x?xf32>
  return
}

// -----

func.func @f(%x: tensor<4x64xf32>) {
  // expected-error@+1 {{operand #0 must be activations in f32, tensor<?xNxf32>}}
  %y = qwen.wanted_tokens %x : tensor<4x64xf32>
  return
}

// -----

//===----------------------------------------------------------------------===//
// Counts
//===----------------------------------------------------------------------===//

// expected-error@+1 {{a type without #qwen.count counts all}}
func.func private @f(tensor<?x64xf32, #qwen.count<all>>)

// -----

// expected-error@+1 {{count is "a-b" when a word of up to 32 lower-case letters, digits and '_' is needed}}
func.func private @f(tensor<?x64xf32, #qwen.count<"a-b">>)

// -----

qwen.weight @w : tensor<32x64xf32> from #qwen.source<"m">
func.func @f(%x: tensor<?x64xf32>, %y: tensor<?x32xf32, #qwen.count<wanted>>) {
  // expected-error@+1 {{has values that count all and wanted when one count is needed}}
  %z = qwen.linear %x, [@w] residual(%y : tensor<?x32xf32, #qwen.count<wanted>>) : tensor<?x64xf32> -> tensor<?x32xf32>
  return
}

// -----

qwen.weight @n : tensor<64xf32> from #qwen.source<"m">
func.func @f(%x: tensor<?x64xf32, #qwen.count<patches>>) {
  // expected-error@+1 {{has values that count patches and merged when one count is needed}}
  %y = qwen.rms_norm %x, @n eps 1.0e-06 : tensor<?x64xf32, #qwen.count<patches>> -> tensor<?x64xi8, #qwen.blocks<128, <merged>>>
  return
}

// -----

func.func @f(%x: tensor<?x64xf32, #qwen.count<patches>>, %cos: tensor<?x32xf32>, %sin: tensor<?x32xf32>) {
  // expected-error@+1 {{has values that count patches and all when one count is needed}}
  %y = qwen.rope %x, %cos, %sin : tensor<?x64xf32, #qwen.count<patches>>, tensor<?x32xf32>
  return
}

// -----

func.func @f(%x: tensor<?x64xf32>, %y: tensor<?x64xf32, #qwen.count<merged>>) {
  // expected-error@+1 {{selects wanted of merged when wanted of all is needed}}
  %w = qwen.wanted_tokens %y : tensor<?x64xf32, #qwen.count<merged>>
  return
}

// -----

func.func @f(%x: tensor<?x64xf32>) {
  %w = qwen.wanted_tokens %x : tensor<?x64xf32>
  // expected-error@+1 {{selects wanted of wanted when wanted of all is needed}}
  %v = qwen.wanted_tokens %w : tensor<?x64xf32, #qwen.count<wanted>>
  return
}

// -----

qwen.weight @w : tensor<32x64xf32> from #qwen.source<"m">
func.func @f(%x: tensor<?x64xf32>) {
  %r = qwen.wanted_tokens %x : tensor<?x64xf32>
  // expected-error@+1 {{gathers no wanted tokens; a norm does}}
  %y = qwen.linear %r, [@w] : tensor<?x64xf32, #qwen.count<wanted>> -> tensor<?x32xf32, #qwen.count<wanted>>
  return
}

// -----

qwen.weight @embed : tensor<32x64xf32> from #qwen.source<"m">
func.func @f(%x: tensor<?x64xf32>, %ids: tensor<?xi32, #qwen.count<patches>>) {
  // expected-error@+1 {{runs on patches when only the tokens of the call, all, have ids, positions and sequences}}
  %y = qwen.embedding %ids, @embed : tensor<?xi32, #qwen.count<patches>> -> tensor<?x64xf32, #qwen.count<patches>>
  return
}

// -----

func.func @f(%x: tensor<?x64xf32>, %k: tensor<?x32xf32, #qwen.count<wanted>>) {
  // expected-error@+1 {{runs on wanted when only the tokens of the call, all, have ids, positions and sequences}}
  qwen.append %k, %k layer 0 kv_heads 1 : tensor<?x32xf32, #qwen.count<wanted>>
  return
}

// -----

func.func @f(%x: tensor<?x64xf32>) {
  // expected-error@+1 {{result #0 must be activations in blocks, tensor<?xNxi8, #qwen.blocks<128>>}}
  %y = qwen.quantize %x : tensor<?x64xf32> -> tensor<?x64xi8>
  return
}

// -----

qwen.weight @rope.frequencies : tensor<16xf32> from #qwen.frequencies<theta = 1.0e+06>
func.func @f(%p: tensor<?xi64>) {
  // expected-error@+1 {{operand #0 must be one i32 for each token, tensor<?xi32>}}
  %c, %s = qwen.rope_table %p, @rope.frequencies : tensor<?xi64> -> tensor<?x16xf32>
  return
}

// -----

// expected-error@+1 {{factor is 5.000000e-01 when a number from 1 on is needed}}
module attributes {a = #qwen.yarn<factor = 0.5, positions = 32768, fast = 32.0, slow = 1.0>} {}

// -----

// expected-error@+1 {{positions is 0 when 1 or more is needed}}
module attributes {a = #qwen.yarn<factor = 4.0, positions = 0, fast = 32.0, slow = 1.0>} {}

// -----

// expected-error@+1 {{fast is 1.000000e+00 and slow is 2.000000e+00 when fast >= slow > 0 is needed}}
module attributes {a = #qwen.yarn<factor = 4.0, positions = 1, fast = 1.0, slow = 2.0>} {}

// -----

//===----------------------------------------------------------------------===//
// qwen.weight
//===----------------------------------------------------------------------===//

// expected-error@+1 {{has rank 3 when 1 or 2 is needed}}
qwen.weight @w : tensor<2x2x2xf32> from #qwen.source<"m">

// -----

// expected-error@+1 {{has a dynamic dimension}}
qwen.weight @w : tensor<?xf32> from #qwen.source<"m">

// -----

// expected-error@+1 {{has a dimension of 0 when 1 to 268435456 is needed}}
qwen.weight @w : tensor<0xf32> from #qwen.source<"m">

// -----

// expected-error@+1 {{has a dimension of 268435457 when 1 to 268435456 is needed}}
qwen.weight @w : tensor<268435457xf32> from #qwen.source<"m">

// -----

// expected-error@+1 {{has values of 'f16' when f32 or bf16 is needed}}
qwen.weight @w : tensor<2xf16> from #qwen.source<"m">

// -----

// expected-error@+1 {{has a source without a name}}
qwen.weight @w : tensor<2xf32> from #qwen.source<"">

// -----

// expected-error@+1 {{invalid kind of attribute specified}}
qwen.weight @w : tensor<2xf32> from #qwen.format<q4_0>

// -----

// expected-error@+1 {{has format q4_0 when f32 is needed for a vector}}
qwen.weight @w : tensor<64xf32> from #qwen.source<"m"> as #qwen.format<q4_0>

// -----

// expected-error@+1 {{keeps integers when only a matrix of f32 can have them}}
qwen.weight @w : tensor<2x64xbf16> from #qwen.source<"m", keeps = <q4_0>>

// -----

// expected-error@+1 {{keeps integers when only a matrix of f32 can have them}}
qwen.weight @w : tensor<64xf32> from #qwen.source<"m", keeps = <q4_0>>

// -----

// expected-error@+1 {{keeps integers in bf16 when a format of integers is needed}}
qwen.weight @w : tensor<2x64xf32> from #qwen.source<"m", keeps = <bf16>>

// -----

// expected-error@+1 {{keeps integers in bf16 when a format of integers is needed}}
qwen.weight @w : tensor<2x64xf32> from #qwen.source<"m", nearest = <bf16>>

// -----

//===----------------------------------------------------------------------===//
// qwen.image
//===----------------------------------------------------------------------===//

// expected-error@+1 {{attribute 'bytes' failed to satisfy constraint: 64-bit signless integer attribute whose value is non-negative}}
qwen.image @draft bytes -1

// -----

// expected-error@+1 {{is in @draft, which is not a qwen.image}}
qwen.weight @v : tensor<64xf32> from #qwen.source<"m"> of @draft

// -----

qwen.weight @v : tensor<64xf32> from #qwen.source<"m"> as #qwen.format<f32>
// expected-error@+1 {{is in @v, which is not a qwen.image}}
qwen.packed @p [@v] : tensor<64xf32> at 0 of @v

// -----

qwen.image @draft
qwen.weight @v : tensor<64xf32> from #qwen.source<"m"> as #qwen.format<f32> of @draft
// expected-error@+1 {{segment @v is in another image than the part}}
qwen.packed @p [@v] : tensor<64xf32> at 0

// -----

//===----------------------------------------------------------------------===//
// qwen.packed
//===----------------------------------------------------------------------===//

qwen.weight @v : tensor<64xf32> from #qwen.source<"m"> as #qwen.format<f32>
// expected-error@+1 {{has rank 1 when 2 is needed}}
qwen.packed @p [@v] : tensor<64xf32> in #qwen.layout<f32, panel = 16, chunk = 1> at 0

// -----

qwen.weight @w : tensor<64x32xf32> from #qwen.source<"m"> as #qwen.format<f32>
// expected-error@+1 {{has rank 2 when 1 is needed}}
qwen.packed @p [@w] : tensor<64x32xf32> at 0

// -----

qwen.weight @v : tensor<64xf32> from #qwen.source<"m"> as #qwen.format<f32>
// expected-error@+1 {{has values of 'f16' when f32 is needed}}
qwen.packed @p [@v] : tensor<64xf16> at 0

// -----

qwen.weight @w : tensor<64x32xf32> from #qwen.source<"m"> as #qwen.format<f32>
// expected-error@+1 {{has K = 33 when a multiple of 32 is needed}}
qwen.packed @p [@w] : tensor<64x33xf32> in #qwen.layout<f32, panel = 16, chunk = 1> at 0

// -----

qwen.weight @v : tensor<64xf32> from #qwen.source<"m"> as #qwen.format<f32>
// expected-error@+1 {{attribute 'offset' failed to satisfy constraint: 64-bit signless integer attribute whose value is a multiple of 64, 0 or more}}
qwen.packed @p [@v] : tensor<64xf32> at 32

// -----

qwen.weight @v : tensor<64xf32> from #qwen.source<"m"> as #qwen.format<f32>
// expected-error@+1 {{attribute 'offset' failed to satisfy constraint: 64-bit signless integer attribute whose value is a multiple of 64, 0 or more}}
qwen.packed @p [@v] : tensor<64xf32> at -64

// -----

// expected-error@+1 {{segment @none is not a qwen.weight}}
qwen.packed @p [@none] : tensor<64xf32> at 0

// -----

qwen.weight @w : tensor<64x32xf32> from #qwen.source<"m"> as #qwen.format<f32>
// expected-error@+1 {{segment @w is 'tensor<64x32xf32>' in a part that is 'tensor<64x64xf32>'}}
qwen.packed @p [@w] : tensor<64x64xf32> in #qwen.layout<f32, panel = 16, chunk = 1> at 0

// -----

qwen.weight @v : tensor<64xf32> from #qwen.source<"m">
// expected-error@+1 {{segment @v has no format}}
qwen.packed @p [@v] : tensor<64xf32> at 0

// -----

qwen.weight @w : tensor<64x32xf32> from #qwen.source<"m"> as #qwen.format<f32>
// expected-error@+1 {{segment @w is f32 when q4_0 is needed}}
qwen.packed @p [@w] : tensor<64x32xf32> in #qwen.layout<q4_0, panel = 16, chunk = 4> at 0

// -----

qwen.weight @v : tensor<64xf32> from #qwen.source<"m"> as #qwen.format<f32>
// expected-error@+1 {{segments have 64 outputs when 128 is needed}}
qwen.packed @p [@v] : tensor<128xf32> at 0

// -----

//===----------------------------------------------------------------------===//
// Weights that ops refer to
//===----------------------------------------------------------------------===//

func.func @f(%ids: tensor<?xi32>) {
  // expected-error@+1 {{names @none, which is not a qwen.weight}}
  %x = qwen.embedding %ids, @none : tensor<?xi32> -> tensor<?x64xf32>
  return
}

// -----

qwen.weight @v : tensor<64xf32> from #qwen.source<"m"> as #qwen.format<f32>
func.func @f(%ids: tensor<?xi32>) {
  // expected-error@+1 {{weight @v is 'tensor<64xf32>' when 'tensor<?x64xf32>' is needed}}
  %x = qwen.embedding %ids, @v : tensor<?xi32> -> tensor<?x64xf32>
  return
}

// -----

qwen.weight @w : tensor<64x32xf32> from #qwen.source<"m"> as #qwen.format<f32>
func.func @f(%ids: tensor<?xi32>) {
  // expected-error@+1 {{weight @w is 'tensor<64x32xf32>' when 'tensor<?x64xf32>' is needed}}
  %x = qwen.embedding %ids, @w : tensor<?xi32> -> tensor<?x64xf32>
  return
}

// -----

qwen.weight @v : tensor<64xf32> from #qwen.source<"m"> as #qwen.format<f32>
func.func @f(%x: tensor<?x32xf32>) {
  // expected-error@+1 {{weight @v is 'tensor<64xf32>' when 'tensor<32xf32>' is needed}}
  %y = qwen.add_bias %x, @v : tensor<?x32xf32>
  return
}

// -----

//===----------------------------------------------------------------------===//
// qwen.rms_norm
//===----------------------------------------------------------------------===//

qwen.weight @v : tensor<64xf32> from #qwen.source<"m"> as #qwen.format<f32>
func.func @f(%x: tensor<?x64xf32>) {
  // expected-error@+1 {{attribute 'eps' failed to satisfy constraint: 64-bit float attribute whose value is a positive number of f32}}
  %y = qwen.rms_norm %x, @v eps 0.0 : tensor<?x64xf32> -> tensor<?x64xf32>
  return
}

// -----

qwen.weight @v : tensor<64xf32> from #qwen.source<"m"> as #qwen.format<f32>
func.func @f(%x: tensor<?x64xf32>) {
  // expected-error@+1 {{result is 32 wide when 64 is needed}}
  %y = qwen.rms_norm %x, @v eps 1.0e-06 : tensor<?x64xf32> -> tensor<?x32xf32>
  return
}

// -----

qwen.weight @v : tensor<64xf32> from #qwen.source<"m"> as #qwen.format<f32>
func.func @f(%x: tensor<?x64xf32>) {
  // expected-error@+1 {{attribute 'head_dim' failed to satisfy constraint: 64-bit signless integer attribute whose value is positive}}
  %y = qwen.rms_norm %x, @v eps 1.0e-06 heads 0 : tensor<?x64xf32> -> tensor<?x64xf32>
  return
}

// -----

qwen.weight @v : tensor<64xf32> from #qwen.source<"m"> as #qwen.format<f32>
func.func @f(%x: tensor<?x64xf32>) {
  // expected-error@+1 {{width is 64 when a multiple of 48 is needed}}
  %y = qwen.rms_norm %x, @v eps 1.0e-06 heads 48 : tensor<?x64xf32> -> tensor<?x64xf32>
  return
}

// -----

qwen.weight @v : tensor<64xf32> from #qwen.source<"m"> as #qwen.format<f32>
func.func @f(%x: tensor<?x64xf32>) {
  // expected-error@+1 {{quantizes normed heads when only normed tokens can be quantized}}
  %y = qwen.rms_norm %x, @v eps 1.0e-06 heads 64 : tensor<?x64xf32> -> tensor<?x64xi8, #qwen.blocks<128>>
  return
}

// -----

qwen.weight @v : tensor<64xf32> from #qwen.source<"m"> as #qwen.format<f32>
func.func @f(%x: tensor<?x64xf32>) {
  // expected-error@+1 {{weight @v is 'tensor<64xf32>' when 'tensor<32xf32>' is needed}}
  %y = qwen.rms_norm %x, @v eps 1.0e-06 heads 32 : tensor<?x64xf32> -> tensor<?x64xf32>
  return
}

// -----

//===----------------------------------------------------------------------===//
// qwen.linear
//===----------------------------------------------------------------------===//

qwen.weight @w : tensor<32x64xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.weight @b : tensor<32xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.packed @p [@w] : tensor<32x64xf32> in #qwen.layout<f32, panel = 16, chunk = 1> at 0
qwen.packed @pb [@b] : tensor<32xf32> at 8192
func.func @f(%x: tensor<?x64xf32>, %r: tensor<?x32xf32>, %r64: tensor<?x64xf32>) {
  // expected-error@+1 {{attribute 'weights' failed to satisfy constraint: flat symbol ref array attribute with at least 1 elements}}
  "qwen.linear"(%x) {weights = []} : (tensor<?x64xf32>) -> ()
  return
}

// -----

qwen.weight @w : tensor<32x64xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.weight @b : tensor<32xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.packed @p [@w] : tensor<32x64xf32> in #qwen.layout<f32, panel = 16, chunk = 1> at 0
qwen.packed @pb [@b] : tensor<32xf32> at 8192
func.func @f(%x: tensor<?x64xf32>, %r: tensor<?x32xf32>, %r64: tensor<?x64xf32>) {
  // expected-error@+1 {{has 1 results when 2 is needed, one for each weight}}
  %y = qwen.linear %x, [@w, @w] : tensor<?x64xf32> -> tensor<?x32xf32>
  return
}

// -----

qwen.weight @w : tensor<32x64xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.weight @b : tensor<32xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.packed @p [@w] : tensor<32x64xf32> in #qwen.layout<f32, panel = 16, chunk = 1> at 0
qwen.packed @pb [@b] : tensor<32xf32> at 8192
func.func @f(%x: tensor<?x64xf32>, %r: tensor<?x32xf32>, %r64: tensor<?x64xf32>) {
  // expected-error@+1 {{has 2 biases when 1 is needed, one for each weight}}
  %y = qwen.linear %x, [@w] bias [@b, @b] : tensor<?x64xf32> -> tensor<?x32xf32>
  return
}

// -----

qwen.weight @w : tensor<32x64xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.weight @b : tensor<32xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.packed @p [@w] : tensor<32x64xf32> in #qwen.layout<f32, panel = 16, chunk = 1> at 0
qwen.packed @pb [@b] : tensor<32xf32> at 8192
func.func @f(%x: tensor<?x48xf32>) {
  // expected-error@+1 {{reads @w with K = 48 when a multiple of 32 is needed}}
  %y = qwen.linear %x, [@w] : tensor<?x48xf32> -> tensor<?x32xf32>
  return
}

// -----

qwen.weight @w : tensor<32x64xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.weight @b : tensor<32xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.packed @p [@w] : tensor<32x64xf32> in #qwen.layout<f32, panel = 16, chunk = 1> at 0
qwen.packed @pb [@b] : tensor<32xf32> at 8192
func.func @f(%x: tensor<?x64xf32>, %r: tensor<?x32xf32>, %r64: tensor<?x64xf32>) {
  // expected-error@+1 {{has a residual with 2 weights when 1 is needed}}
  %y:2 = qwen.linear %x, [@w, @w] residual(%r : tensor<?x32xf32>) : tensor<?x64xf32> -> tensor<?x32xf32>, tensor<?x32xf32>
  return
}

// -----

qwen.weight @w : tensor<32x64xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.weight @b : tensor<32xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.packed @p [@w] : tensor<32x64xf32> in #qwen.layout<f32, panel = 16, chunk = 1> at 0
qwen.packed @pb [@b] : tensor<32xf32> at 8192
func.func @f(%x: tensor<?x64xf32>, %r: tensor<?x32xf32>, %r64: tensor<?x64xf32>) {
  // expected-error@+1 {{residual is 64 wide when 32 is needed}}
  %y = qwen.linear %x, [@w] residual(%r64 : tensor<?x64xf32>) : tensor<?x64xf32> -> tensor<?x32xf32>
  return
}

// -----

qwen.weight @w : tensor<32x64xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.weight @b : tensor<32xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.packed @p [@w] : tensor<32x64xf32> in #qwen.layout<f32, panel = 16, chunk = 1> at 0
qwen.packed @pb [@b] : tensor<32xf32> at 8192
func.func @f(%x: tensor<?x64xf32>, %r: tensor<?x32xf32>, %r64: tensor<?x64xf32>) {
  // expected-error@+1 {{has 2 parts when 1 is needed}}
  %y = qwen.linear %x, [@w] packed [@p, @pb] : tensor<?x64xf32> -> tensor<?x32xf32>
  return
}

// -----

qwen.weight @w : tensor<32x64xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.weight @b : tensor<32xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.packed @p [@w] : tensor<32x64xf32> in #qwen.layout<f32, panel = 16, chunk = 1> at 0
qwen.packed @pb [@b] : tensor<32xf32> at 8192
func.func @f(%x: tensor<?x64xf32>, %r: tensor<?x32xf32>, %r64: tensor<?x64xf32>) {
  // expected-error@+1 {{weight @w is 'tensor<32x64xf32>' when 'tensor<64x64xf32>' is needed}}
  %y = qwen.linear %x, [@w] : tensor<?x64xf32> -> tensor<?x64xf32>
  return
}

// -----

qwen.weight @w : tensor<32x64xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.weight @b : tensor<32xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.packed @p [@w] : tensor<32x64xf32> in #qwen.layout<f32, panel = 16, chunk = 1> at 0
qwen.packed @pb [@b] : tensor<32xf32> at 8192
func.func @f(%x: tensor<?x64xf32>, %r: tensor<?x32xf32>, %r64: tensor<?x64xf32>) {
  // expected-error@+1 {{weight @w is 'tensor<32x64xf32>' when 'tensor<32xf32>' is needed}}
  %y = qwen.linear %x, [@w] bias [@w] : tensor<?x64xf32> -> tensor<?x32xf32>
  return
}

// -----

qwen.weight @w : tensor<32x64xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.weight @b : tensor<32xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.packed @p [@w] : tensor<32x64xf32> in #qwen.layout<f32, panel = 16, chunk = 1> at 0
qwen.packed @pb [@b] : tensor<32xf32> at 8192
func.func @f(%x: tensor<?x64xf32>, %r: tensor<?x32xf32>, %r64: tensor<?x64xf32>) {
  // expected-error@+1 {{names @w, which is not a qwen.packed}}
  %y = qwen.linear %x, [@w] packed [@w] : tensor<?x64xf32> -> tensor<?x32xf32>
  return
}

// -----

qwen.weight @w : tensor<32x64xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.weight @b : tensor<32xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.packed @p [@w] : tensor<32x64xf32> in #qwen.layout<f32, panel = 16, chunk = 1> at 0
qwen.packed @pb [@b] : tensor<32xf32> at 8192
func.func @f(%x: tensor<?x64xf32>, %r: tensor<?x32xf32>, %r64: tensor<?x64xf32>) {
  // expected-error@+1 {{@p has other segments than the op}}
  %y:2 = qwen.linear %x, [@w, @w] packed [@p] : tensor<?x64xf32> -> tensor<?x32xf32>, tensor<?x32xf32>
  return
}

// -----

qwen.weight @w : tensor<32x64xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.weight @b : tensor<32xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.packed @p [@w] : tensor<32x64xf32> in #qwen.layout<f32, panel = 16, chunk = 1> at 0
qwen.packed @pb [@b] : tensor<32xf32> at 8192
func.func @f(%x: tensor<?x64xf32>, %r: tensor<?x32xf32>, %r64: tensor<?x64xf32>) {
  // expected-error@+1 {{@p has other segments than the op}}
  %y = qwen.linear %x, [@w] bias [@b] packed [@p, @p] : tensor<?x64xf32> -> tensor<?x32xf32>
  return
}

// -----

//===----------------------------------------------------------------------===//
// qwen.swiglu, qwen.hadamard, qwen.quantize
//===----------------------------------------------------------------------===//

func.func @f(%x: tensor<?x64xf32>) {
  // expected-error@+1 {{result is 32 wide when 64 is needed}}
  %y = qwen.swiglu %x, %x : tensor<?x64xf32> -> tensor<?x32xf32>
  return
}

// -----

func.func @f(%x: tensor<?x64xf32>) {
  // expected-error@+1 {{has f32 results with hadamard when only quantized ones can be transformed}}
  %y = qwen.swiglu %x, %x hadamard : tensor<?x64xf32> -> tensor<?x64xf32>
  return
}

// -----

func.func @f(%x: tensor<?x48xf32>) {
  // expected-error@+1 {{width is 48 when a multiple of 32 is needed}}
  %y = qwen.hadamard %x : tensor<?x48xf32>
  return
}

// -----

func.func @f(%x: tensor<?x48xf32>) {
  // expected-error@+1 {{width of quantized activations is 48 when a multiple of 32 is needed}}
  %y = qwen.quantize %x : tensor<?x48xf32> -> tensor<?x48xi8, #qwen.blocks<128>>
  return
}

// -----

//===----------------------------------------------------------------------===//
// qwen.lm_head
//===----------------------------------------------------------------------===//

qwen.weight @w : tensor<32x64xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.weight @b : tensor<32xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.packed @p [@w] : tensor<32x64xf32> in #qwen.layout<f32, panel = 16, chunk = 1> at 0
qwen.packed @pb [@b] : tensor<32xf32> at 8192
func.func @f(%x: tensor<?x48xf32>) {
  // expected-error@+1 {{reads @w with K = 48 when a multiple of 32 is needed}}
  %y = qwen.lm_head %x, @w : tensor<?x48xf32> -> tensor<?x32xf32>
  return
}

// -----

qwen.weight @w : tensor<32x64xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.weight @b : tensor<32xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.packed @p [@w] : tensor<32x64xf32> in #qwen.layout<f32, panel = 16, chunk = 1> at 0
qwen.packed @pb [@b] : tensor<32xf32> at 8192
func.func @f(%x: tensor<?x64xf32>) {
  // expected-error@+1 {{weight @w is 'tensor<32x64xf32>' when 'tensor<64x64xf32>' is needed}}
  %y = qwen.lm_head %x, @w : tensor<?x64xf32> -> tensor<?x64xf32>
  return
}

// -----

qwen.weight @w : tensor<32x64xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.weight @b : tensor<32xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.packed @p [@w] : tensor<32x64xf32> in #qwen.layout<f32, panel = 16, chunk = 1> at 0
qwen.packed @pb [@b] : tensor<32xf32> at 8192
func.func @f(%x: tensor<?x64xf32>) {
  // expected-error@+1 {{@pb has other segments than the op}}
  %y = qwen.lm_head %x, @w packed [@pb] : tensor<?x64xf32> -> tensor<?x32xf32>
  return
}

// -----

//===----------------------------------------------------------------------===//
// Kernels and plans
//===----------------------------------------------------------------------===//

func.func @f(%x: tensor<?x64xf32>) {
  // expected-error@+1 {{unknown kernel 'quantize'}}
  %y = qwen.quantize %x kernels [#qwen.kernel<quantize>] : tensor<?x64xf32> -> tensor<?x64xi8, #qwen.blocks<128>>
  return
}

// -----

func.func @f(%x: tensor<?x64xf32>) {
  // expected-error@+1 {{has kernel 'rope_avx2', which computes something else}}
  %y = qwen.quantize %x kernels [#qwen.kernel<rope_avx2>] : tensor<?x64xf32> -> tensor<?x64xi8, #qwen.blocks<128>>
  return
}

// -----

qwen.weight @w : tensor<32x64xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.weight @b : tensor<32xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.packed @p [@w] : tensor<32x64xf32> in #qwen.layout<f32, panel = 16, chunk = 1> at 0
qwen.packed @pb [@b] : tensor<32xf32> at 8192
func.func @f(%x: tensor<?x64xf32>) {
  // expected-error@+1 {{has kernel 'linear_f32_4x16_avx2', which computes something else}}
  %y = qwen.linear %x, [@w] kernels [#qwen.kernel<linear_f32_4x16_avx2>, #qwen.kernel<linear_f32_1x16_avx2>] : tensor<?x64xf32> -> tensor<?x32xf32>
  return
}

// -----

qwen.weight @w : tensor<32x64xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.weight @b : tensor<32xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.packed @p [@w] : tensor<32x64xf32> in #qwen.layout<f32, panel = 16, chunk = 1> at 0
qwen.packed @pb [@b] : tensor<32xf32> at 8192
func.func @f(%x: tensor<?x64xf32>) {
  // expected-error@+1 {{has kernel 'linear_f32_1x16_avx2', which computes something else}}
  %y = qwen.linear %x, [@w] kernels [#qwen.kernel<linear_f32_1x16_avx2>, #qwen.kernel<linear_f32_1x16_avx2>] : tensor<?x64xf32> -> tensor<?x32xf32>
  return
}

// -----

func.func @f(%x: tensor<?x64xf32>) {
  // expected-error@+1 {{has kernel 'linear_q4_0_1x16x4_avx2', which computes something else}}
  %y = qwen.linear %x, [@w] kernels [#qwen.kernel<linear_q4_0_1x16x4_avx2>, #qwen.kernel<linear_q4_0_2x16x4_avx2>] : tensor<?x64xf32> -> tensor<?x32xf32>
  return
}

// -----

func.func @f(%x: tensor<?x64xf32>) {
  // expected-error@+1 {{has 2 kernels when 1 is needed}}
  %y = qwen.quantize %x kernels [#qwen.kernel<quantize_q8_avx2>, #qwen.kernel<quantize_q8_avx2>] : tensor<?x64xf32> -> tensor<?x64xi8, #qwen.blocks<128>>
  return
}

// -----

qwen.weight @w : tensor<32x64xf32> from #qwen.source<"m"> as #qwen.format<bf16>
func.func @f(%x: tensor<?x64xf32>) {
  // expected-error@+1 {{has kernel 'linear_f32_1x16_avx2' when weight @w is bf16}}
  %y = qwen.linear %x, [@w] kernels [#qwen.kernel<linear_f32_1x16_avx2>, #qwen.kernel<linear_f32_4x16_avx2>] : tensor<?x64xf32> -> tensor<?x32xf32>
  return
}

// -----

func.func @f(%x: tensor<?x64xf32>) {
  // expected-error@+1 {{id is -1 when 0 or more is needed}}
  %y = qwen.quantize %x {plan = #qwen.plan<id = -1, barrier = false>} : tensor<?x64xf32> -> tensor<?x64xi8, #qwen.blocks<128>>
  return
}

// -----

func.func @f(%x: tensor<?x64xf32>) {
  // expected-error@+1 {{has 0 buffers when 1 is needed, one for each result}}
  %y = qwen.quantize %x {plan = #qwen.plan<id = 0, barrier = false>} : tensor<?x64xf32> -> tensor<?x64xi8, #qwen.blocks<128>>
  return
}

// -----

func.func @f(%x: tensor<?x64xf32>) {
  // expected-error@+1 {{offset is -64 when 0 or more is needed}}
  %y = qwen.quantize %x {plan = #qwen.plan<id = 0, barrier = false, buffers = [#qwen.buffer<offset = -64, stride = 64, scales = 64, sums = 128>]>} : tensor<?x64xf32> -> tensor<?x64xi8, #qwen.blocks<128>>
  return
}

// -----

func.func @f(%x: tensor<?x64xf32>) {
  // expected-error@+1 {{stride is 32 when 64 or more is needed}}
  %y = qwen.quantize %x {plan = #qwen.plan<id = 0, barrier = false, buffers = [#qwen.buffer<offset = 0, stride = 32, scales = 64, sums = 128>]>} : tensor<?x64xf32> -> tensor<?x64xi8, #qwen.blocks<128>>
  return
}

// -----

func.func @f(%x: tensor<?x64xf32>) {
  // expected-error@+1 {{has a buffer with scales = -1 and sums = 128 for quantized activations}}
  %y = qwen.quantize %x {plan = #qwen.plan<id = 0, barrier = false, buffers = [#qwen.buffer<offset = 0, stride = 64, sums = 128>]>} : tensor<?x64xf32> -> tensor<?x64xi8, #qwen.blocks<128>>
  return
}

// -----

func.func @f(%x: tensor<?x64xf32>) {
  // expected-error@+1 {{has a buffer with scales = 64 and sums = -1 for quantized activations}}
  %y = qwen.quantize %x {plan = #qwen.plan<id = 0, barrier = false, buffers = [#qwen.buffer<offset = 0, stride = 64, scales = 64>]>} : tensor<?x64xf32> -> tensor<?x64xi8, #qwen.blocks<128>>
  return
}

// -----

func.func @f(%x: tensor<?x64xf32>) {
  // expected-error@+1 {{has a buffer with scales = 64 and sums = -1 for f32 activations}}
  %y = qwen.swiglu %x, %x {plan = #qwen.plan<id = 0, barrier = false, buffers = [#qwen.buffer<offset = 0, stride = 64, scales = 64>]>} : tensor<?x64xf32> -> tensor<?x64xf32>
  return
}

// -----

qwen.weight @w : tensor<32x64xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.weight @b : tensor<32xf32> from #qwen.source<"m"> as #qwen.format<f32>
qwen.packed @p [@w] : tensor<32x64xf32> in #qwen.layout<f32, panel = 16, chunk = 1> at 0
qwen.packed @pb [@b] : tensor<32xf32> at 8192
func.func @f(%x: tensor<?x64xf32>) {
  // expected-error@+1 {{offset of logits is 0 when -1 is needed: they are not in the arena}}
  %y = qwen.lm_head %x, @w {plan = #qwen.plan<id = 0, barrier = false, buffers = [#qwen.buffer<offset = 0, stride = 32>]>} : tensor<?x64xf32> -> tensor<?x32xf32>
  return
}

// -----

// expected-error@+1 {{has exact when only a matrix can have it}}
qwen.weight @w : tensor<32xf32> from #qwen.source<"m"> exact

// -----

// expected-error@+1 {{has 2 names for 1 values}}
%0 = "qwen.struct"() {names = ["in", "out"], values = [0]} : () -> !llvm.ptr

// -----

func.func @f(%ids: tensor<?xi32>) {
  // expected-error@+1 {{result #0 must be integers, tensor<Nxi32>, but got 'tensor<0xi32>'}}
  %n = qwen.count %ids : tensor<?xi32> -> tensor<0xi32>
  return
}

// -----

//===----------------------------------------------------------------------===//
// Experts
//===----------------------------------------------------------------------===//

func.func @f(%l: tensor<?x4xf32>) {
  // expected-error@+1 {{chooses 5 experts when 1 to 4 is needed}}
  %w, %ids, %order, %first = qwen.route %l : tensor<?x4xf32> -> tensor<?x5xf32>, tensor<?x5xi32>, tensor<5xi32>
  return
}

// -----

func.func @f(%l: tensor<?x1025xf32>) {
  // expected-error@+1 {{chooses of 1025 experts when up to 1024 is supported}}
  %w, %ids, %order, %first = qwen.route %l : tensor<?x1025xf32> -> tensor<?x2xf32>, tensor<?x2xi32>, tensor<1026xi32>
  return
}

// -----

func.func @f(%l: tensor<?x4xf32>) {
  // expected-error@+1 {{weights is 3 wide when 2 is needed}}
  %w, %ids, %order, %first = qwen.route %l : tensor<?x4xf32> -> tensor<?x3xf32>, tensor<?x2xi32>, tensor<5xi32>
  return
}

// -----

func.func @f(%l: tensor<?x4xf32>) {
  // expected-error@+1 {{first is 4 wide when 5 is needed}}
  %w, %ids, %order, %first = qwen.route %l : tensor<?x4xf32> -> tensor<?x2xf32>, tensor<?x2xi32>, tensor<4xi32>
  return
}

// -----

func.func @f(%l: tensor<?x4xf32>, %s: tensor<?x2xf32>) {
  // expected-error@+1 {{logit of the shared expert is 2 wide when 1 is needed}}
  %w, %ids, %order, %first = qwen.route %l shared(%s : tensor<?x2xf32>) : tensor<?x4xf32> -> tensor<?x3xf32>, tensor<?x2xi32>, tensor<5xi32>
  return
}

// -----

qwen.weight @w : tensor<128x64xf32> from #qwen.source<"m">
func.func @f(%x: tensor<?x64xf32>, %order: tensor<?x2xi32>, %first: tensor<5xi32>) {
  // expected-error@+1 {{order has 2 experts of a token when 3 is needed}}
  %h = qwen.experts_up %x, %order, %first, @w, @w : tensor<?x64xf32>, tensor<?x2xi32>, tensor<5xi32> -> tensor<?x3x32xf32>
  return
}

// -----

qwen.weight @w : tensor<128x64xf32> from #qwen.source<"m">
func.func @f(%x: tensor<?x64xf32>, %order: tensor<?x2xi32>, %first: tensor<5xi32>, %g: tensor<?x3x32xf32>) {
  // expected-error@+1 {{has gates of 'tensor<?x3x32xf32>' when f32 of the shape of 'tensor<?x2x32xf32>' is needed}}
  %h = qwen.experts_up %x, %order, %first, gates(%g : tensor<?x3x32xf32>), @w : tensor<?x64xf32>, tensor<?x2xi32>, tensor<5xi32> -> tensor<?x2x32xf32>
  return
}

// -----

qwen.weight @w : tensor<128x64xf32> from #qwen.source<"m">
func.func @f(%x: tensor<?x64xf32>, %order: tensor<?x2xi32>, %first: tensor<5xi32>) {
  // expected-error@+1 {{needs either a gate or gates}}
  %h = "qwen.experts_up"(%x, %order, %first) {up = @w} : (tensor<?x64xf32>, tensor<?x2xi32>, tensor<5xi32>) -> tensor<?x2x32xf32>
  return
}

// -----

qwen.weight @w : tensor<128x64xf32> from #qwen.source<"m">
func.func @f(%x: tensor<?x64xf32>, %order: tensor<?x2xi32>, %first: tensor<5xi32>) {
  // expected-error@+1 {{has a quantized result}}
  %g = qwen.experts_gate %x, %order, %first, @w : tensor<?x64xf32>, tensor<?x2xi32>, tensor<5xi32> -> tensor<?x2x32xi8, #qwen.blocks<128>>
  return
}

// -----

qwen.weight @w : tensor<128x64xf32> from #qwen.source<"m">
func.func @f(%x: tensor<?x64xf32>, %order: tensor<?x5xi32>, %first: tensor<5xi32>) {
  // expected-error@+1 {{has 5 experts of a token when 1 to 4 is needed}}
  %h = qwen.experts_up %x, %order, %first, @w, @w : tensor<?x64xf32>, tensor<?x5xi32>, tensor<5xi32> -> tensor<?x5x32xf32>
  return
}

// -----

qwen.weight @w : tensor<64x64xf32> from #qwen.source<"m">
func.func @f(%x: tensor<?x64xf32>, %order: tensor<?x2xi32>, %first: tensor<5xi32>) {
  // expected-error@+1 {{weight @w is 'tensor<64x64xf32>' when 'tensor<128x64xf32>' is needed}}
  %h = qwen.experts_up %x, %order, %first, @w, @w : tensor<?x64xf32>, tensor<?x2xi32>, tensor<5xi32> -> tensor<?x2x32xf32>
  return
}

// -----

qwen.weight @w : tensor<64x64xf32> from #qwen.source<"m">
func.func @f(%x: tensor<?x64xf32>, %order: tensor<?x2xi32>, %first: tensor<5xi32>) {
  // expected-error@+1 {{width of the result is 16 when a multiple of 32 is needed}}
  %h = qwen.experts_up %x, %order, %first, @w, @w : tensor<?x64xf32>, tensor<?x2xi32>, tensor<5xi32> -> tensor<?x2x16xf32>
  return
}

// -----

qwen.weight @w : tensor<256x32xf32> from #qwen.source<"m">
func.func @f(%h: tensor<?x2x32xf32>, %w: tensor<?x3xf32>, %order: tensor<?x2xi32>, %first: tensor<5xi32>) {
  // expected-error@+1 {{has a weight of a shared expert, but no addend}}
  %y = qwen.experts_down %h, %w, %order, %first, @w : tensor<?x2x32xf32>, tensor<?x3xf32>, tensor<?x2xi32>, tensor<5xi32> -> tensor<?x64xf32>
  return
}

// -----

qwen.weight @w : tensor<256x32xf32> from #qwen.source<"m">
func.func @f(%h: tensor<?x2x32xf32>, %w: tensor<?x2xf32>, %order: tensor<?x2xi32>, %first: tensor<5xi32>, %x: tensor<?x64xf32>) {
  // expected-error@+1 {{has 3 addends when 2 is the most}}
  %y = qwen.experts_down %h, %w, %order, %first, @w plus(%x, %x, %x : tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) : tensor<?x2x32xf32>, tensor<?x2xf32>, tensor<?x2xi32>, tensor<5xi32> -> tensor<?x64xf32>
  return
}

// -----

qwen.weight @w : tensor<256x32xf32> from #qwen.source<"m">
func.func @f(%h: tensor<?x2x32xf32>, %w: tensor<?x2xf32>, %order: tensor<?x2xi32>, %first: tensor<5xi32>, %x: tensor<?x32xf32>) {
  // expected-error@+1 {{addend is 32 wide when 64 is needed}}
  %y = qwen.experts_down %h, %w, %order, %first, @w plus(%x : tensor<?x32xf32>) : tensor<?x2x32xf32>, tensor<?x2xf32>, tensor<?x2xi32>, tensor<5xi32> -> tensor<?x64xf32>
  return
}

// -----

qwen.weight @w : tensor<96x32xf32> from #qwen.source<"m"> as #qwen.format<f32>
// expected-error@+1 {{has 96 outputs of 4 experts when whole panels of 1 to 1024 experts are needed}}
qwen.packed @p [@w] : tensor<96x32xf32> in #qwen.layout<f32, panel = 16, chunk = 1> at 0 experts 4 stride 4096

// -----

qwen.weight @w : tensor<128x32xf32> from #qwen.source<"m"> as #qwen.format<f32>
// expected-error@+1 {{stride is 4032 when a multiple of 64 from 4096 on is needed}}
qwen.packed @p [@w] : tensor<128x32xf32> in #qwen.layout<f32, panel = 16, chunk = 1> at 0 experts 4 stride 4032

// -----

qwen.weight @w : tensor<128xf32> from #qwen.source<"m"> as #qwen.format<f32>
// expected-error@+1 {{has experts or stride when a matrix with a layout needs both}}
qwen.packed @p [@w] : tensor<128xf32> at 0 experts 4 stride 4096

// -----

//===----------------------------------------------------------------------===//
// Rotations
//===----------------------------------------------------------------------===//

// expected-error@+1 {{is turned when only f32 can be}}
qwen.weight @w : tensor<64x32xbf16> from #qwen.turned<#qwen.source<"m">, columns = 32>

// -----

// expected-error@+1 {{is turned in blocks of 32 columns and 48 outputs, which do not divide 'tensor<64x32xf32>'}}
qwen.weight @w : tensor<64x32xf32> from #qwen.turned<#qwen.source<"m">, columns = 32, outputs = 48>

// -----

// expected-error@+1 {{is turned in blocks of 32 columns and 0 outputs, which do not divide 'tensor<64xf32>'}}
qwen.weight @w : tensor<64xf32> from #qwen.turned<#qwen.source<"m">, columns = 32>

// -----

// expected-error@+1 {{columns is -1 and outputs is 0 when 0 or more is needed}}
qwen.weight @w : tensor<64x32xf32> from #qwen.turned<#qwen.source<"m">, columns = -1>

// -----

// expected-error@+1 {{has columns and hadamard when one is needed}}
qwen.weight @w : tensor<64x32xf32> from #qwen.turned<#qwen.source<"m">, columns = 32, hadamard = true>

// -----

// expected-error@+1 {{size is 0 when 1 to 268435456 is needed}}
qwen.weight @w : tensor<64xf32> from #qwen.rotation<0>

// -----

// expected-error@+1 {{has 96 values of a rotation when 99 is needed}}
qwen.weight @w : tensor<96xf32> from #qwen.rotation<96>

// -----

// expected-error@+1 {{has a rotation's values when only a vector of f32 can have them}}
qwen.weight @w : tensor<1x65xf32> from #qwen.rotation<64>

// -----

// expected-error@+1 {{has ones when only a vector of f32 can have them}}
qwen.weight @w : tensor<64xbf16> from #qwen.ones

// -----

qwen.weight @r : tensor<65xf32> from #qwen.rotation<64>
func.func @turn_view(%x: tensor<?x64xf32>) {
  %w = qwen.wanted_tokens %x : tensor<?x64xf32>
  // expected-error@+1 {{gathers no wanted tokens; a norm does}}
  %y = qwen.turn %w, @r : tensor<?x64xf32, #qwen.count<wanted>> -> tensor<?x64xf32, #qwen.count<wanted>>
  return
}

// -----

qwen.weight @r : tensor<65xf32> from #qwen.rotation<64>
func.func @turn_width(%x: tensor<?x96xf32>) {
  // expected-error@+1 {{weight @r is 'tensor<65xf32>' when 'tensor<99xf32>' is needed}}
  %y = qwen.turn %x, @r : tensor<?x96xf32> -> tensor<?x96xf32>
  return
}

// -----

qwen.weight @r : tensor<65xf32> from #qwen.rotation<64>
func.func @turn_result(%x: tensor<?x64xf32>) {
  // expected-error@+1 {{result is 32 wide when 64 is needed}}
  %y = qwen.turn %x, @r : tensor<?x64xf32> -> tensor<?x32xf32>
  return
}

// -----

qwen.weight @r : tensor<51xf32> from #qwen.rotation<48>
func.func @turn_groups(%x: tensor<?x48xf32>) {
  // expected-error@+1 {{reads @r with K = 48 when a multiple of 32 is needed}}
  %y = qwen.turn %x, @r : tensor<?x48xf32> -> tensor<?x48xf32>
  return
}
