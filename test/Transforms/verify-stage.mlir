// RUN: split-file %s %t
// RUN: qwen-opt %t/graph.mlir --qwen-verify-stage | FileCheck %s --check-prefix=GRAPH
// RUN: qwen-opt %t/calls.mlir --qwen-verify-stage=stage=calls | FileCheck %s --check-prefix=CALLS
// RUN: qwen-opt %t/not-graph.mlir --qwen-verify-stage=stage=graph -split-input-file -verify-diagnostics
// RUN: qwen-opt %t/not-quantized.mlir --qwen-verify-stage=stage=quantized -split-input-file -verify-diagnostics
// RUN: qwen-opt %t/not-packed.mlir --qwen-verify-stage=stage=packed -split-input-file -verify-diagnostics
// RUN: qwen-opt %t/not-calls.mlir --qwen-verify-stage=stage=calls -split-input-file -verify-diagnostics
// pipeline.mlir shows modules that have reached the stages between.

// GRAPH: module attributes {qwen.stage = "graph"}
// CALLS: qwen.stage = "calls"

//--- graph.mlir
qwen.weight @w : tensor<64x64xbf16> from #qwen.source<"m">
func.func @forward(%x: tensor<?x64xf32>) -> tensor<?x64xf32> {
  %y = qwen.linear %x, [@w] : tensor<?x64xf32> -> tensor<?x64xf32>
  %z = qwen.add %x, %y : tensor<?x64xf32>
  return %z : tensor<?x64xf32>
}

//--- calls.mlir
module attributes {qwen.weight_bytes = 0 : i64} {
qwen.weight @w : tensor<64xbf16> from #qwen.source<"m"> as #qwen.format<f32>
qwen.packed @p [@w] : tensor<64xf32> at 0
func.func @forward() attributes {qwen.arena_bytes = 0 : i64} {
  return
}
}

//--- not-graph.mlir
// expected-error@+1 {{the module has no program, which is a function with a body}}
module {
func.func private @declared()
}

// -----

func.func @forward(%x: tensor<?x64xf32>) {
  // expected-error@+1 {{'qwen.quantize' op belongs to a later stage than graph; start from an imported module}}
  %q = qwen.quantize %x : tensor<?x64xf32> -> tensor<?x64xi8, #qwen.blocks<128>>
  return
}

// -----

qwen.weight @w : tensor<64xbf16> from #qwen.source<"m"> as #qwen.format<f32>
// expected-error@+1 {{belongs to a later stage than graph; start from an imported module}}
qwen.packed @p [@w] : tensor<64xf32> at 0
func.func @forward() {
  return
}

// -----

func.func @forward(%k: tensor<?x32xf32>, %c: tensor<?x16xf32>) {
  // expected-error@+1 {{belongs to a later stage than graph; start from an imported module}}
  qwen.append %k, %k rope(%c, %c : tensor<?x16xf32>, tensor<?x16xf32>) layer 0 kv_heads 1 format <f16> : tensor<?x32xf32>
  return
}

// -----

func.func @forward(%x: tensor<?x64xf32>) {
  // expected-error@+1 {{belongs to a later stage than graph; start from an imported module}}
  %s = qwen.swiglu %x, %x {plan = #qwen.plan<id = 0, barrier = false, buffers = [#qwen.buffer<offset = 0, stride = 64>]>} : tensor<?x64xf32> -> tensor<?x64xf32>
  return
}

//--- not-quantized.mlir
func.func @forward(%x: tensor<?x64xf32>, %c: tensor<?x16xf32>) {
  // expected-error@+1 {{'qwen.append' op has no format in stage quantized; run qwen-quantize first}}
  qwen.append %x, %x rope(%c, %c : tensor<?x16xf32>, tensor<?x16xf32>) layer 0 kv_heads 2 : tensor<?x64xf32>
  return
}

// -----

func.func @forward(%x: tensor<?x64xf32>, %c: tensor<?x16xf32>) {
  // expected-error@+1 {{'qwen.attention' op has no format in stage quantized; run qwen-quantize first}}
  %y = qwen.attention %x rope(%c, %c : tensor<?x16xf32>, tensor<?x16xf32>) layer 0 heads 2 kv_heads 2 : tensor<?x64xf32>
  return
}

// -----

// expected-error@+1 {{'qwen.weight' op has no format in stage quantized; run qwen-quantize first}}
qwen.weight @w : tensor<64xbf16> from #qwen.source<"m">
func.func @forward() {
  return
}

// -----

func.func @forward(%x: tensor<?x64xf32>) {
  // expected-error@+1 {{'qwen.add' op is not a part of stage quantized; run qwen-fuse-epilogues first}}
  %y = qwen.add %x, %x : tensor<?x64xf32>
  return
}

// -----

qwen.weight @w : tensor<64xbf16> from #qwen.source<"m"> as #qwen.format<f32>
func.func @forward(%x: tensor<?x64xf32>) {
  // expected-error@+1 {{'qwen.add_bias' op is not a part of stage quantized; run qwen-fuse-epilogues first}}
  %y = qwen.add_bias %x, @w : tensor<?x64xf32>
  return
}

// -----

func.func @forward(%x: tensor<?x64xf32>, %c: tensor<?x16xf32>) {
  // expected-error@+1 {{'qwen.rope' op is not a part of stage quantized; run qwen-fuse-attention first}}
  %y = qwen.rope %x, %c, %c : tensor<?x64xf32>, tensor<?x16xf32>
  return
}

// -----

qwen.weight @w : tensor<64x64xbf16> from #qwen.source<"m"> as #qwen.format<q4_0>
func.func @forward(%x: tensor<?x64xf32>) {
  // expected-error@+1 {{'qwen.linear' op reads f32 activations when weight @w is q4_0; run qwen-quantize first}}
  %y = qwen.linear %x, [@w] : tensor<?x64xf32> -> tensor<?x64xf32>
  return
}

// -----

qwen.weight @w : tensor<64x64xbf16> from #qwen.source<"m"> as #qwen.format<f32>
func.func @forward(%x: tensor<?x64xi8, #qwen.blocks<128>>) {
  // expected-error@+1 {{'qwen.lm_head' op reads quantized activations when weight @w is f32; run qwen-quantize first}}
  %y = qwen.lm_head %x, @w : tensor<?x64xi8, #qwen.blocks<128>> -> tensor<?x64xf32>
  return
}

//--- not-packed.mlir
// The promises of the stage before hold, too.
func.func @forward(%x: tensor<?x64xf32>) {
  // expected-error@+1 {{'qwen.add' op is not a part of stage packed; run qwen-fuse-epilogues first}}
  %y = qwen.add %x, %x : tensor<?x64xf32>
  return
}

// -----

// expected-error@+1 {{the module has no qwen.weight_bytes; run qwen-pack first}}
module {
func.func @forward() {
  return
}
}

// -----

module attributes {qwen.weight_bytes = 0 : i64} {
func.func @forward() attributes {qwen.arena_bytes = 0 : i64} {
  return
}
// expected-error@+1 {{program @second has no qwen.arena_bytes; run qwen-plan first}}
func.func @second() {
  return
}
}

// -----

func.func @forward(%x: tensor<?x64xf32>) {
  // expected-error@+1 {{'qwen.swiglu' op has no kernels in stage packed; run qwen-select-kernels first}}
  %s = qwen.swiglu %x, %x : tensor<?x64xf32> -> tensor<?x64xf32>
  return
}

// -----

qwen.weight @w : tensor<64x64xbf16> from #qwen.source<"m"> as #qwen.format<f32>
func.func @forward(%x: tensor<?x64xf32>) {
  // expected-error@+1 {{'qwen.linear' op has no kernels in stage packed; run qwen-select-kernels first}}
  %y = qwen.linear %x, [@w] : tensor<?x64xf32> -> tensor<?x64xf32>
  return
}

// -----

qwen.weight @w : tensor<64x64xbf16> from #qwen.source<"m"> as #qwen.format<f32>
func.func @forward(%x: tensor<?x64xf32>) {
  // expected-error@+1 {{'qwen.linear' op has no packed weights in stage packed; run qwen-pack first}}
  %y = qwen.linear %x, [@w] kernels [#qwen.kernel<linear_f32_1x16_avx2>, #qwen.kernel<linear_f32_4x16_avx2>] : tensor<?x64xf32> -> tensor<?x64xf32>
  return
}

// -----

qwen.weight @w : tensor<64xbf16> from #qwen.source<"m"> as #qwen.format<f32>
func.func @forward(%x: tensor<?x64xf32>) {
  // expected-error@+1 {{'qwen.rms_norm' op has no packed weights in stage packed; run qwen-pack first}}
  %y = qwen.rms_norm %x, @w eps 1.0e-06 kernels [#qwen.kernel<rms_norm_f32_avx2>] : tensor<?x64xf32> -> tensor<?x64xf32>
  return
}

// -----

qwen.weight @rope.frequencies : tensor<16xf32> from #qwen.frequencies<theta = 1.0e+06> as #qwen.format<f32>
func.func @forward(%p: tensor<?xi32>) {
  // expected-error@+1 {{'qwen.rope_table' op has no packed weights in stage packed; run qwen-pack first}}
  %cos, %sin = qwen.rope_table %p, @rope.frequencies kernels [#qwen.kernel<rope_table_avx2>] : tensor<?xi32> -> tensor<?x16xf32>
  return
}

// -----

func.func @forward(%x: tensor<?x64xf32>) {
  // expected-error@+1 {{'qwen.swiglu' op has no plan in stage packed; run qwen-plan first}}
  %s = qwen.swiglu %x, %x kernels [#qwen.kernel<swiglu_f32_avx2>] : tensor<?x64xf32> -> tensor<?x64xf32>
  return
}

//--- not-calls.mlir
module attributes {qwen.weight_bytes = 0 : i64} {
func.func @forward(%x: tensor<?x64xf32>) attributes {qwen.arena_bytes = 0 : i64} {
  // expected-error@+1 {{'qwen.swiglu' op is not a part of stage calls; run qwen-lower first}}
  %s = qwen.swiglu %x, %x : tensor<?x64xf32> -> tensor<?x64xf32>
  return
}
}
