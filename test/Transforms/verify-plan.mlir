// The plans of plan.mlir are valid. Each edit of one is refused with the error
// below it; all edited plans are parts of one file.
// RUN: rm -rf %t
// RUN: split-file %S/plan.mlir %t
// RUN: split-file %s %t
// RUN: qwen-opt %t/layer.mlir --qwen-plan --qwen-verify-plan -o %t/planned.mlir
// RUN: qwen-opt %t/rules.mlir --qwen-plan --qwen-verify-plan -split-input-file -o %t/rules-planned.mlir
// RUN: qwen-opt %t/programs.mlir --qwen-plan --qwen-verify-plan -o %t/programs-planned.mlir
// RUN: qwen-opt %t/invalid-plans.mlir --qwen-verify-plan -split-input-file -verify-diagnostics
// DEFINE: %{edit} = sed -e '$a// -----' -e

// The barrier before a product, before the norm of gathered tokens, before an op
// that reads its number of units, between append and attention, and between
// attention and append.
// RUN: %{edit} 's/id = 3, barrier = true/id = 3, barrier = false/' %t/planned.mlir >> %t/edits.mlir
// CHECK: error: 'qwen.linear' op reads the result of 'qwen.rms_norm', which other threads write in phase 0, too; a barrier is needed between them
// CHECK: note: written here
// RUN: %{edit} 's/id = 1, barrier = true/id = 1, barrier = false/' %t/rules-planned.mlir >> %t/edits.mlir
// CHECK: error: 'qwen.rms_norm' op reads the result of 'qwen.embedding', which other threads write in phase 0, too
// CHECK: error: 'qwen.count' op reads the result of 'qwen.count', which other threads write in phase 0, too
// CHECK: error: 'qwen.experts_up' op reads the result of 'qwen.route', which other threads write in phase 0, too
// RUN: %{edit} 's/id = 5, barrier = true/id = 5, barrier = false/' %t/planned.mlir >> %t/edits.mlir
// CHECK: error: 'qwen.attention' op reads the kv cache of layer 0 in phase 2, in which 'qwen.append' writes it; a barrier is needed between them
// CHECK: note: written here
// RUN: %{edit} 's/id = 6, barrier = true>/id = 6, barrier = false>/' %t/rules-planned.mlir >> %t/edits.mlir
// CHECK: error: 'qwen.append' op writes the kv cache of layer 1 in phase 2, in which 'qwen.attention' reads it; a barrier is needed between them
// CHECK: note: read here

// Append after attention.
// RUN: %{edit} '/qwen.append/{h;d};/qwen.attention/G' %t/planned.mlir >> %t/edits.mlir
// CHECK: error: 'qwen.attention' op reads the kv cache of layer 0, to which no op before it appends

// A lifetime that ends a phase early: attention writes over its queries.
// RUN: %{edit} 's/offset = 3072, stride = 64>/offset = 5248, stride = 64>/' %t/planned.mlir >> %t/edits.mlir
// CHECK: error: 'qwen.attention' op buffer [5248, 7296) overlaps [5248, 9344) of 'qwen.linear' and both are alive in phase 3
// CHECK: note: alive from phase 1 to 3

// A buffer below another one, sums over values, and a value that is returned.
// RUN: %{edit} 's/offset = 3072, stride = 64>/offset = 5312, stride = 64>/' %t/planned.mlir >> %t/edits.mlir
// CHECK: error: 'qwen.attention' op buffer [5312, 7360) overlaps [5248, 9344) of 'qwen.linear'
// RUN: %{edit} 's/sums = 5184/sums = 4992/' %t/planned.mlir >> %t/edits.mlir
// CHECK: error: 'qwen.rms_norm' op buffer [4992, 5056) overlaps [3072, 5120) of 'qwen.rms_norm' and both are alive in phase 0
// RUN: %{edit} 's/id = 3, barrier = true, buffers = \[<offset = 64/id = 3, barrier = true, buffers = [<offset = 0/' %t/rules-planned.mlir >> %t/edits.mlir
// CHECK: error: 'qwen.swiglu' op buffer [0, 64) overlaps [0, 64) of 'qwen.embedding' and both are alive in phase 1
// CHECK: note: alive from phase 0 to the end

// A product over its residual, which is read in a later phase, by another op of
// the same phase, by the product's input, or is one of several results.
// RUN: %{edit} 's/id = 2, barrier = true, buffers = \[<offset = 256/id = 2, barrier = true, buffers = [<offset = 0/' %t/rules-planned.mlir >> %t/edits.mlir
// CHECK: error: 'qwen.linear' op buffer [0, 128) overlaps [0, 128) of 'qwen.embedding' and both are alive in phase 1
// RUN: %{edit} 's/id = 3, barrier = true, buffers = \[<offset = 128/id = 3, barrier = true, buffers = [<offset = 0/' %t/rules-planned.mlir >> %t/edits.mlir
// CHECK: error: 'qwen.linear' op buffer [0, 128) overlaps [0, 128) of 'qwen.embedding' and both are alive in phase 2
// RUN: %{edit} 's/id = 5, barrier = true, buffers = \[<offset = 0/id = 5, barrier = true, buffers = [<offset = 384/' %t/rules-planned.mlir >> %t/edits.mlir
// CHECK: error: 'qwen.linear' op buffer [384, 512) overlaps [384, 512) of 'qwen.swiglu' and both are alive in phase 3
// RUN: %{edit} 's/id = 7, barrier = true, buffers = \[<offset = 512/id = 7, barrier = true, buffers = [<offset = 256/' %t/rules-planned.mlir >> %t/edits.mlir
// CHECK: error: 'qwen.linear' op buffer [256, 512) overlaps [256, 512) of 'qwen.linear' and both are alive in phase 5

// A SwiGLU over what the product before it reads.
// RUN: %{edit} 's/<offset = 2560, stride = 32, scales = 4608/<offset = 128, stride = 32, scales = 4608/' %t/rules-planned.mlir >> %t/edits.mlir
// CHECK: error: 'qwen.swiglu' op buffer [128, 2176) overlaps [128, 2176) of 'qwen.rms_norm' and both are alive in phase 1
// CHECK: note: alive from phase 0 to 1

// A norm over the product that it reads, which lies over its residual.
// RUN: %{edit} 's/id = 8, barrier = true, buffers = \[<offset = 2048/id = 8, barrier = true, buffers = [<offset = 0/' %t/planned.mlir >> %t/edits.mlir
// CHECK: error: 'qwen.rms_norm' op buffer [0, 2048) overlaps [0, 2048) of 'qwen.linear' and both are alive in phase 6

// Past the arena by one byte, and by more than 64 bits can count; not aligned;
// no room for whole panels.
// RUN: %{edit} 's/arena_bytes = 9344/arena_bytes = 9343/' %t/planned.mlir >> %t/edits.mlir
// CHECK: error: 'qwen.linear' op buffer [5248, 9344) ends past the arena, which has 9343 bytes
// RUN: %{edit} 's/<offset = 2560, stride = 16>/<offset = 2560, stride = 9223372036854775807>/' %t/planned.mlir >> %t/edits.mlir
// CHECK: error: 'qwen.rope_table' op buffer [2560, 18446744073709551615) ends past the arena, which has 9344 bytes
// RUN: %{edit} 's/scales = 5120/scales = 5124/' %t/planned.mlir >> %t/edits.mlir
// CHECK: error: 'qwen.rms_norm' op buffer starts at byte 5124 when a multiple of 64 is needed
// RUN: %{edit} 's/<offset = 5248, stride = 128>/<offset = 5248, stride = 127>/' %t/planned.mlir >> %t/edits.mlir
// CHECK: error: 'qwen.linear' op stride is 127 when 128 or more is needed for whole panels

// An argument at another place than the one where its activations lie; an op that
// writes over such activations in a later phase; one that writes over the caller's
// as it reads them.
// RUN: %{edit} 's/qwen.place = #qwen.buffer<offset = 128/qwen.place = #qwen.buffer<offset = 64/' %t/programs-planned.mlir >> %t/edits.mlir
// CHECK: error: argument 0 of program @second lies at #qwen.buffer<offset = 64, stride = 16> when the other program leaves it at #qwen.buffer<offset = 128, stride = 16>
// RUN: %{edit} 's/offset = 192/offset = 128/' %t/programs-planned.mlir >> %t/edits.mlir
// CHECK: error: 'qwen.swiglu' op buffer [128, 192) overlaps [128, 192) of argument 0 and both are alive in phase 3
// CHECK: note: alive from phase 0 to the end
// RUN: %{edit} 's/id = 0, barrier = false, buffers = \[<offset = 64/id = 0, barrier = false, buffers = [<offset = 0/' %t/programs-planned.mlir >> %t/edits.mlir
// CHECK: error: 'qwen.swiglu' op buffer [0, 64) overlaps [0, 64) of argument 1 and both are alive in phase 0

// An op after lm_head, and a program that was not planned.
// RUN: %{edit} '/qwen.rope_table/h;/qwen.lm_head/{G;s/%%cos, %%sin = qwen/%%c, %%s = qwen/}' %t/planned.mlir >> %t/edits.mlir
// CHECK: error: 'qwen.rope_table' op follows 'qwen.lm_head', whose barrier is skipped where hidden values are wanted
// CHECK: note: this must be the last op
// RUN: %{edit} 's/qwen.arena_bytes = 9344 : i64, //' %t/planned.mlir >> %t/edits.mlir
// CHECK: error: program @forward has no qwen.arena_bytes; run qwen-plan first
// RUN: not qwen-opt %t/edits.mlir --qwen-verify-plan -split-input-file -o /dev/null 2>&1 | FileCheck %s --implicit-check-not=error:

//--- invalid-plans.mlir
module {
qwen.weight @rope.frequencies : tensor<16xf32> from #qwen.frequencies<theta = 1.0e+06>
func.func @forward(%positions: tensor<?xi32>) attributes {qwen.limits = {all = 8 : i64, wanted = 8 : i64}, qwen.arena_bytes = 4096 : i64} {
  // expected-error@+1 {{has no plan; run qwen-plan first}}
  %c, %s = qwen.rope_table %positions, @rope.frequencies : tensor<?xi32> -> tensor<?x16xf32>
  return
}
}

// -----

module {
// expected-error@+1 {{argument 0 of program @forward has no qwen.place; run qwen-plan first}}
func.func @forward(%x: tensor<?x64xf32>) attributes {qwen.limits = {all = 8 : i64, wanted = 8 : i64}, qwen.arena_bytes = 4096 : i64} {
  %s = qwen.swiglu %x, %x {plan = #qwen.plan<id = 0, barrier = false, buffers = [<offset = 0, stride = 64>]>} : tensor<?x64xf32> -> tensor<?x64xf32>
  return
}
}

// -----

// Tokens that a norm gathers are other threads' tokens.
module {
qwen.weight @embed : tensor<250x16xbf16> from #qwen.source<"m">
qwen.weight @n : tensor<16xbf16> from #qwen.source<"m">
func.func @forward(%ids: tensor<?xi32>) attributes {qwen.limits = {all = 8 : i64, wanted = 2 : i64}, qwen.arena_bytes = 4096 : i64} {
  // expected-note@+1 {{written here}}
  %x = qwen.embedding %ids, @embed {plan = #qwen.plan<id = 0, barrier = false, buffers = [<offset = 0, stride = 16>]>} : tensor<?xi32> -> tensor<?x16xf32>
  %r = qwen.wanted_tokens %x : tensor<?x16xf32>
  // expected-error@+1 {{reads the result of 'qwen.embedding', which other threads write in phase 0, too}}
  %y = qwen.rms_norm %r, @n eps 1.0e-06 {plan = #qwen.plan<id = 1, barrier = false, buffers = [<offset = 512, stride = 16>]>} : tensor<?x16xf32, #qwen.count<wanted>> -> tensor<?x16xf32, #qwen.count<wanted>>
  return
}
}

// -----

// A buffer has room for the limit of what its value counts.
module {
qwen.weight @embed : tensor<250x16xbf16> from #qwen.source<"m">
qwen.weight @n : tensor<16xbf16> from #qwen.source<"m">
func.func @forward(%ids: tensor<?xi32>) attributes {qwen.limits = {all = 8 : i64, wanted = 2 : i64}, qwen.arena_bytes = 640 : i64} {
  %x = qwen.embedding %ids, @embed {plan = #qwen.plan<id = 0, barrier = false, buffers = [<offset = 0, stride = 16>]>} : tensor<?xi32> -> tensor<?x16xf32>
  %r = qwen.wanted_tokens %x : tensor<?x16xf32>
  %y = qwen.rms_norm %r, @n eps 1.0e-06 {plan = #qwen.plan<id = 1, barrier = true, buffers = [<offset = 512, stride = 16>]>} : tensor<?x16xf32, #qwen.count<wanted>> -> tensor<?x16xf32, #qwen.count<wanted>>
  // expected-error@+1 {{buffer [512, 1024) ends past the arena, which has 640 bytes}}
  %z = qwen.rms_norm %x, @n eps 1.0e-06 {plan = #qwen.plan<id = 2, barrier = true, buffers = [<offset = 512, stride = 16>]>} : tensor<?x16xf32> -> tensor<?x16xf32>
  return
}
}

// -----

// A product over its residual, which a norm reads a phase later.
module {
qwen.weight @embed : tensor<250x32xbf16> from #qwen.source<"m">
qwen.weight @w : tensor<32x32xbf16> from #qwen.source<"m">
qwen.weight @n : tensor<32xbf16> from #qwen.source<"m">
func.func @forward(%ids: tensor<?xi32>) attributes {qwen.limits = {all = 8 : i64, wanted = 2 : i64}, qwen.arena_bytes = 4096 : i64} {
  // expected-note@+1 {{alive from phase 0 to 2}}
  %x = qwen.embedding %ids, @embed {plan = #qwen.plan<id = 0, barrier = false, buffers = [<offset = 0, stride = 32>]>} : tensor<?xi32> -> tensor<?x32xf32>
  %y = qwen.rms_norm %x, @n eps 1.0e-06 {plan = #qwen.plan<id = 1, barrier = false, buffers = [<offset = 1024, stride = 32>]>} : tensor<?x32xf32> -> tensor<?x32xf32>
  // expected-error@+1 {{buffer [0, 1024) overlaps [0, 1024) of 'qwen.embedding' and both are alive in phase 1}}
  %h = qwen.linear %y, [@w] residual(%x : tensor<?x32xf32>) {plan = #qwen.plan<id = 2, barrier = true, buffers = [<offset = 0, stride = 32>]>} : tensor<?x32xf32> -> tensor<?x32xf32>
  %z = qwen.rms_norm %x, @n eps 1.0e-06 {plan = #qwen.plan<id = 3, barrier = true, buffers = [<offset = 2048, stride = 32>]>} : tensor<?x32xf32> -> tensor<?x32xf32>
  return
}
}
