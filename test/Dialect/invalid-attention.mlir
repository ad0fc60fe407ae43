// Diagnostics of the ops around attention.
// RUN: qwen-opt %s -split-input-file -verify-diagnostics

//===----------------------------------------------------------------------===//
// qwen.rope_table, qwen.rope
//===----------------------------------------------------------------------===//

// expected-error@+1 {{theta is -1.000000e+04 when a positive number is needed}}
qwen.weight @rope.frequencies : tensor<16xf32> from #qwen.frequencies<theta = -1.0e+04>

// -----

// expected-error@+1 {{has frequencies when only a vector of f32 can have them}}
qwen.weight @rope.frequencies : tensor<16xbf16> from #qwen.frequencies<theta = 1.0e+04>

// -----

qwen.weight @rope.frequencies : tensor<16xf32> from #qwen.frequencies<theta = 1.0e+06>
func.func @f(%p: tensor<?xi32>) {
  // expected-error@+1 {{weight @rope.frequencies is 'tensor<16xf32>' when 'tensor<8xf32>' is needed}}
  %c, %s = qwen.rope_table %p, @rope.frequencies : tensor<?xi32> -> tensor<?x8xf32>
  return
}

// -----

func.func @f(%x: tensor<?x64xf32>, %c: tensor<?x24xf32>) {
  // expected-error@+1 {{width is 64 when a multiple of 48 is needed}}
  %y = qwen.rope %x, %c, %c : tensor<?x64xf32>, tensor<?x24xf32>
  return
}

// -----

//===----------------------------------------------------------------------===//
// qwen.append
//===----------------------------------------------------------------------===//

qwen.weight @n : tensor<32xf32> from #qwen.source<"m">
qwen.weight @n8 : tensor<8xf32> from #qwen.source<"m">
func.func @f(%k: tensor<?x64xf32>, %c: tensor<?x16xf32>) {
  // expected-error@+1 {{width is 64 when a multiple of 3 is needed}}
  qwen.append %k, %k layer 0 kv_heads 3 : tensor<?x64xf32>
  return
}

// -----

qwen.weight @n : tensor<32xf32> from #qwen.source<"m">
qwen.weight @n8 : tensor<8xf32> from #qwen.source<"m">
func.func @f(%k: tensor<?x64xf32>, %c: tensor<?x16xf32>) {
  // expected-error@+1 {{attribute 'layer' failed to satisfy constraint: 64-bit signless integer attribute whose value is the number of a layer, 0 to 65535}}
  qwen.append %k, %k rope(%c, %c : tensor<?x16xf32>, tensor<?x16xf32>) layer -1 kv_heads 2 : tensor<?x64xf32>
  return
}

// -----

qwen.weight @n : tensor<32xf32> from #qwen.source<"m">
qwen.weight @n8 : tensor<8xf32> from #qwen.source<"m">
func.func @f(%k: tensor<?x64xf32>, %c: tensor<?x16xf32>) {
  // expected-error@+1 {{has norm without eps}}
  "qwen.append"(%k, %k, %c, %c) {operandSegmentSizes = array<i32: 1, 1, 1, 1>, layer = 0 : i64, kv_heads = 2 : i64, norm = @n} : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x16xf32>, tensor<?x16xf32>) -> ()
  return
}

// -----

qwen.weight @n : tensor<32xf32> from #qwen.source<"m">
qwen.weight @n8 : tensor<8xf32> from #qwen.source<"m">
func.func @f(%k: tensor<?x64xf32>, %c: tensor<?x16xf32>) {
  // expected-error@+1 {{has eps without norm}}
  "qwen.append"(%k, %k, %c, %c) {operandSegmentSizes = array<i32: 1, 1, 1, 1>, layer = 0 : i64, kv_heads = 2 : i64, eps = 1.0e-06 : f64} : (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x16xf32>, tensor<?x16xf32>) -> ()
  return
}

// -----

qwen.weight @n : tensor<32xf32> from #qwen.source<"m">
qwen.weight @n8 : tensor<8xf32> from #qwen.source<"m">
func.func @f(%k: tensor<?x64xf32>, %c: tensor<?x16xf32>) {
  // expected-error@+1 {{attribute 'eps' failed to satisfy constraint: 64-bit float attribute whose value is a positive number of f32}}
  qwen.append %k, %k rope(%c, %c : tensor<?x16xf32>, tensor<?x16xf32>) layer 0 kv_heads 2 norm @n eps -1.0 : tensor<?x64xf32>
  return
}

// -----

qwen.weight @n : tensor<32xf32> from #qwen.source<"m">
qwen.weight @n8 : tensor<8xf32> from #qwen.source<"m">
func.func @f(%k: tensor<?x64xf32>, %c: tensor<?x16xf32>) {
  // expected-error@+1 {{weight @n8 is 'tensor<8xf32>' when 'tensor<32xf32>' is needed}}
  qwen.append %k, %k rope(%c, %c : tensor<?x16xf32>, tensor<?x16xf32>) layer 0 kv_heads 2 norm @n8 eps 1.0e-06 : tensor<?x64xf32>
  return
}

// -----

qwen.weight @n : tensor<32xf32> from #qwen.source<"m">
qwen.weight @n8 : tensor<8xf32> from #qwen.source<"m">
func.func @f(%k: tensor<?x64xf32>, %c: tensor<?x16xf32>) {
  // expected-error@+1 {{attribute 'kv_heads' failed to satisfy constraint: 64-bit signless integer attribute whose value is positive}}
  qwen.append %k, %k layer 0 kv_heads 0 : tensor<?x64xf32>
  return
}

// -----

func.func @f(%k: tensor<?x64xf32>) {
  // expected-error@+1 {{has kernels without rope; run qwen-fuse-attention first}}
  qwen.append %k, %k layer 0 kv_heads 2 kernels [#qwen.kernel<rope_neon>, #qwen.kernel<append_k_f16_neon>, #qwen.kernel<append_v_f16_neon>] : tensor<?x64xf32>
  return
}

// -----

//===----------------------------------------------------------------------===//
// qwen.attention
//===----------------------------------------------------------------------===//

qwen.weight @n : tensor<32xf32> from #qwen.source<"m">
qwen.weight @n8 : tensor<8xf32> from #qwen.source<"m">
func.func @f(%q: tensor<?x64xf32>, %k: tensor<?x32xf32>, %c: tensor<?x16xf32>, %q24: tensor<?x24xf32>, %k12: tensor<?x12xf32>) {
  // expected-error@+1 {{attribute 'heads' failed to satisfy constraint: 64-bit signless integer attribute whose value is positive}}
  %a = qwen.attention %q layer 0 heads 0 kv_heads 1 : tensor<?x64xf32>
  return
}

// -----

qwen.weight @n : tensor<32xf32> from #qwen.source<"m">
qwen.weight @n8 : tensor<8xf32> from #qwen.source<"m">
func.func @f(%q: tensor<?x64xf32>, %k: tensor<?x32xf32>, %c: tensor<?x16xf32>, %q24: tensor<?x24xf32>, %k12: tensor<?x12xf32>) {
  // expected-error@+1 {{attribute 'kv_heads' failed to satisfy constraint: 64-bit signless integer attribute whose value is positive}}
  %a = qwen.attention %q layer 0 heads 2 kv_heads -1 : tensor<?x64xf32>
  return
}

// -----

qwen.weight @n : tensor<32xf32> from #qwen.source<"m">
qwen.weight @n8 : tensor<8xf32> from #qwen.source<"m">
func.func @f(%q: tensor<?x64xf32>, %k: tensor<?x32xf32>, %c: tensor<?x16xf32>, %q24: tensor<?x24xf32>, %k12: tensor<?x12xf32>) {
  // expected-error@+1 {{heads is 4 when a multiple of 3 is needed}}
  %a = qwen.attention %q layer 0 heads 4 kv_heads 3 : tensor<?x64xf32>
  return
}

// -----

qwen.weight @n : tensor<32xf32> from #qwen.source<"m">
qwen.weight @n8 : tensor<8xf32> from #qwen.source<"m">
func.func @f(%q: tensor<?x64xf32>, %k: tensor<?x32xf32>, %c: tensor<?x16xf32>, %q24: tensor<?x24xf32>, %k12: tensor<?x12xf32>) {
  // expected-error@+1 {{width is 64 when a multiple of 3 is needed}}
  %a = qwen.attention %q layer 0 heads 3 kv_heads 1 : tensor<?x64xf32>
  return
}

// -----

qwen.weight @n : tensor<32xf32> from #qwen.source<"m">
qwen.weight @n8 : tensor<8xf32> from #qwen.source<"m">
func.func @f(%q: tensor<?x64xf32>, %k: tensor<?x32xf32>, %c: tensor<?x16xf32>, %q24: tensor<?x24xf32>, %k12: tensor<?x12xf32>) {
  // expected-error@+1 {{width of a head is 12 when a multiple of 8 is needed}}
  %a = qwen.attention %q24 layer 0 heads 2 kv_heads 1 : tensor<?x24xf32>
  return
}

// -----

qwen.weight @n : tensor<32xf32> from #qwen.source<"m">
qwen.weight @n8 : tensor<8xf32> from #qwen.source<"m">
func.func @f(%q: tensor<?x64xf32>, %k: tensor<?x32xf32>, %c: tensor<?x16xf32>, %q24: tensor<?x24xf32>, %k12: tensor<?x12xf32>) {
  // expected-error@+1 {{attribute 'layer' failed to satisfy constraint: 64-bit signless integer attribute whose value is the number of a layer, 0 to 65535}}
  %a = qwen.attention %q layer 65536 heads 2 kv_heads 1 : tensor<?x64xf32>
  return
}

// -----

qwen.weight @n : tensor<32xf32> from #qwen.source<"m">
qwen.weight @n8 : tensor<8xf32> from #qwen.source<"m">
func.func @f(%q: tensor<?x64xf32>, %k: tensor<?x32xf32>, %c: tensor<?x16xf32>, %q24: tensor<?x24xf32>, %k12: tensor<?x12xf32>) {
  // expected-error@+1 {{needs both of rope(cos, sin)}}
  %a = "qwen.attention"(%q, %c) {layer = 0 : i64, heads = 2 : i64, kv_heads = 1 : i64, operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<?x64xf32>, tensor<?x16xf32>) -> tensor<?x64xf32>
  return
}

// -----

qwen.weight @n : tensor<32xf32> from #qwen.source<"m">
qwen.weight @n8 : tensor<8xf32> from #qwen.source<"m">
func.func @f(%q: tensor<?x64xf32>, %k: tensor<?x32xf32>, %c: tensor<?x16xf32>, %q24: tensor<?x24xf32>, %k12: tensor<?x12xf32>) {
  // expected-error@+1 {{head is 16 wide when 32 or more is needed}}
  %a = qwen.attention %q rope(%c, %c : tensor<?x16xf32>, tensor<?x16xf32>) layer 0 heads 4 kv_heads 1 : tensor<?x64xf32>
  return
}

// -----

qwen.weight @n : tensor<32xf32> from #qwen.source<"m">
qwen.weight @n8 : tensor<8xf32> from #qwen.source<"m">
func.func @f(%q: tensor<?x64xf32>, %k: tensor<?x32xf32>, %c: tensor<?x16xf32>, %q24: tensor<?x24xf32>, %k12: tensor<?x12xf32>) {
  // expected-error@+1 {{sin is 32 wide when 16 is needed}}
  %a = qwen.attention %q rope(%c, %k : tensor<?x16xf32>, tensor<?x32xf32>) layer 0 heads 2 kv_heads 1 : tensor<?x64xf32>
  return
}

// -----

qwen.weight @n : tensor<32xf32> from #qwen.source<"m">
qwen.weight @n8 : tensor<8xf32> from #qwen.source<"m">
func.func @f(%q: tensor<?x64xf32>, %k: tensor<?x32xf32>, %c: tensor<?x16xf32>, %q24: tensor<?x24xf32>, %k12: tensor<?x12xf32>) {
  // expected-error@+1 {{has norm without rope}}
  %a = qwen.attention %q layer 0 heads 2 kv_heads 1 norm @n eps 1.0e-06 : tensor<?x64xf32>
  return
}

// -----

qwen.weight @n : tensor<32xf32> from #qwen.source<"m">
qwen.weight @n8 : tensor<8xf32> from #qwen.source<"m">
func.func @f(%q: tensor<?x64xf32>, %k: tensor<?x32xf32>, %c: tensor<?x16xf32>, %q24: tensor<?x24xf32>, %k12: tensor<?x12xf32>) {
  // expected-error@+1 {{attribute 'eps' failed to satisfy constraint: 64-bit float attribute whose value is a positive number of f32}}
  %a = qwen.attention %q rope(%c, %c : tensor<?x16xf32>, tensor<?x16xf32>) layer 0 heads 2 kv_heads 1 norm @n eps -1.0 : tensor<?x64xf32>
  return
}

// -----

qwen.weight @n : tensor<32xf32> from #qwen.source<"m">
qwen.weight @n8 : tensor<8xf32> from #qwen.source<"m">
func.func @f(%q: tensor<?x64xf32>, %k: tensor<?x32xf32>, %c: tensor<?x16xf32>, %q24: tensor<?x24xf32>, %k12: tensor<?x12xf32>) {
  // expected-error@+1 {{weight @n8 is 'tensor<8xf32>' when 'tensor<32xf32>' is needed}}
  %a = qwen.attention %q rope(%c, %c : tensor<?x16xf32>, tensor<?x16xf32>) layer 0 heads 2 kv_heads 1 norm @n8 eps 1.0e-06 : tensor<?x64xf32>
  return
}

// -----

//===----------------------------------------------------------------------===//
// Partial rotation, linear attention
//===----------------------------------------------------------------------===//
func.func @f(%u: tensor<?x256xf32>, %a: tensor<?x4xf32>, %x: tensor<?x64xf32>, %c: tensor<?x8xf32>) {
  // expected-error@+1 {{head is 8 wide when 16 or more is needed}}
  %y = qwen.rope %x, %c, %c heads 8 : tensor<?x64xf32>, tensor<?x8xf32>
  return
}

// -----

func.func @f(%u: tensor<?x256xf32>, %a: tensor<?x4xf32>, %x: tensor<?x64xf32>, %c: tensor<?x8xf32>) {
  // expected-error@+1 {{width is 64 when a multiple of 24 is needed}}
  %y = qwen.rope %x, %c, %c heads 24 : tensor<?x64xf32>, tensor<?x8xf32>
  return
}

// -----

func.func @f(%u: tensor<?x256xf32>, %a: tensor<?x4xf32>, %x: tensor<?x64xf32>, %c: tensor<?x8xf32>) {
  // expected-error@+1 {{head is 8 wide when 16 or more is needed}}
  qwen.append %x, %x rope(%c, %c : tensor<?x8xf32>, tensor<?x8xf32>) layer 0 kv_heads 8 : tensor<?x64xf32>
  return
}

// -----

func.func @f(%u: tensor<?x256xf32>, %a: tensor<?x4xf32>, %x: tensor<?x64xf32>, %c: tensor<?x8xf32>) {
  // expected-error@+1 {{head is 8 wide when 16 or more is needed}}
  %y = qwen.attention %x rope(%c, %c : tensor<?x8xf32>, tensor<?x8xf32>) layer 0 heads 8 kv_heads 1 : tensor<?x64xf32>
  return
}

// -----

func.func @f(%u: tensor<?x256xf32>, %a: tensor<?x4xf32>, %x: tensor<?x64xf32>, %c: tensor<?x8xf32>) {
  // expected-error@+1 {{attribute 'key_heads' failed to satisfy constraint: 64-bit signless integer attribute whose value is positive}}
  %o = qwen.delta_rule %u, %a, %a layer 0 key_heads 0 : tensor<?x256xf32>, tensor<?x4xf32> -> tensor<?x128xf32>
  return
}

// -----

func.func @f(%u: tensor<?x256xf32>, %a: tensor<?x4xf32>, %x: tensor<?x64xf32>, %c: tensor<?x8xf32>) {
  // expected-error@+1 {{heads of values is 4 when a multiple of 3 is needed}}
  %o = qwen.delta_rule %u, %a, %a layer 0 key_heads 3 : tensor<?x256xf32>, tensor<?x4xf32> -> tensor<?x128xf32>
  return
}

// -----

func.func @f(%u: tensor<?x256xf32>, %a: tensor<?x4xf32>, %x: tensor<?x64xf32>, %c: tensor<?x8xf32>) {
  // expected-error@+1 {{input is 256 wide when more than the result's 256 is needed}}
  %o = qwen.delta_rule %u, %a, %a layer 0 key_heads 2 : tensor<?x256xf32>, tensor<?x4xf32> -> tensor<?x256xf32>
  return
}

// -----

func.func @f(%u: tensor<?x256xf32>, %a: tensor<?x4xf32>, %x: tensor<?x64xf32>, %c: tensor<?x8xf32>) {
  // expected-error@+1 {{result is 64 when a multiple of 128 is needed}}
  %o = qwen.delta_rule %u, %a, %a layer 0 key_heads 2 : tensor<?x256xf32>, tensor<?x4xf32> -> tensor<?x64xf32>
  return
}

// -----

func.func @f(%u: tensor<?x256xf32>, %a: tensor<?x4xf32>, %x: tensor<?x64xf32>, %c: tensor<?x8xf32>) {
  // expected-error@+1 {{width of q and k is 128 when a multiple of 256 is needed}}
  %o = qwen.delta_rule %u, %a, %a layer 0 key_heads 4 : tensor<?x256xf32>, tensor<?x4xf32> -> tensor<?x128xf32>
  return
}

// -----

func.func @f(%u: tensor<?x256xf32>, %a: tensor<?x4xf32>, %x: tensor<?x64xf32>, %c: tensor<?x8xf32>) {
  // expected-error@+1 {{attribute 'layer' failed to satisfy constraint: 64-bit signless integer attribute whose value is the number of a layer, 0 to 65535}}
  %o = qwen.delta_rule %u, %a, %a layer 65536 key_heads 2 : tensor<?x256xf32>, tensor<?x4xf32> -> tensor<?x128xf32>
  return
}

// -----

qwen.weight @t : tensor<512xf32> from #qwen.source<"m">
func.func @f(%u: tensor<?x256xf32>, %a: tensor<?x4xf32>, %x: tensor<?x64xf32>, %c: tensor<?x8xf32>) {
  // expected-error@+1 {{weight @t is 'tensor<512xf32>' when 'tensor<1024xf32>' is needed}}
  %y = qwen.short_convolution %u, @t layer 0 : tensor<?x256xf32>
  return
}
