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

qwen.weight @rope.frequencies : tensor<16xf32> from #qwen.frequencies<theta = 1.0e+06>
func.func @f(%p: tensor<?xi32>) {
  // expected-error@+1 {{has 1 positions of a token when 3 are needed}}
  %c, %s = "qwen.rope_table"(%p) {frequencies = @rope.frequencies, sections = #qwen.sections<4, 6, 6>} : (tensor<?xi32>) -> (tensor<?x16xf32>, tensor<?x16xf32>)
  return
}

// -----

qwen.weight @rope.frequencies : tensor<16xf32> from #qwen.frequencies<theta = 1.0e+06>
func.func @f(%p: tensor<?xi32>) {
  // expected-error@+1 {{has 2 positions of a token when 3 are needed}}
  %c, %s = qwen.rope_table %p, @rope.frequencies sections(%p : tensor<?xi32>) <4, 6, 6> : tensor<?xi32> -> tensor<?x16xf32>
  return
}

// -----

qwen.weight @rope.frequencies : tensor<16xf32> from #qwen.frequencies<theta = 1.0e+06>
func.func @f(%p: tensor<?xi32>) {
  // expected-error@+1 {{has 3 positions of a token when 1 is needed}}
  %c, %s = "qwen.rope_table"(%p, %p, %p) {frequencies = @rope.frequencies} : (tensor<?xi32>, tensor<?xi32>, tensor<?xi32>) -> (tensor<?x16xf32>, tensor<?x16xf32>)
  return
}

// -----

qwen.weight @rope.frequencies : tensor<16xf32> from #qwen.frequencies<theta = 1.0e+06>
func.func @f(%p: tensor<?xi32>) {
  // expected-error@+1 {{cos is 16 wide when 17 is needed}}
  %c, %s = qwen.rope_table %p, @rope.frequencies sections(%p, %p : tensor<?xi32>, tensor<?xi32>) <5, 6, 6> : tensor<?xi32> -> tensor<?x16xf32>
  return
}

// -----

// expected-error@+1 {{section is -1 when 0 to 268435456 is needed}}
module attributes {a = #qwen.sections<8, -1, 8>} {}

// -----

// expected-error@+1 {{sections of 7 and 4 cannot be interleaved with one of 5}}
module attributes {a = #qwen.sections<5, 7, 4, interleaved = true>} {}

// -----

// expected-error@+1 {{sections of 5 and 6 cannot be interleaved with one of 5}}
module attributes {a = #qwen.sections<5, 5, 6, interleaved = true>} {}

// -----

// expected-error@+1 {{has 16 frequencies of 3 axes when as many of each are needed}}
qwen.weight @rope.frequencies : tensor<16xf32> from #qwen.frequencies<theta = 1.0e+04, axes = 3>

// -----

// expected-error@+1 {{has 16 frequencies of 0 axes when as many of each are needed}}
qwen.weight @rope.frequencies : tensor<16xf32> from #qwen.frequencies<theta = 1.0e+04, axes = 0>

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

func.func @f(%k: tensor<?x64xf32>, %c: tensor<?x16xf32>) {
  // expected-error@+1 {{has kernel 'append_k_f32_neon' when keys and values are f16}}
  qwen.append %k, %k rope(%c, %c : tensor<?x16xf32>, tensor<?x16xf32>) layer 0 kv_heads 2 format <f16> kernels [#qwen.kernel<rope_neon>, #qwen.kernel<append_k_f32_neon>, #qwen.kernel<append_v_f16_neon>] : tensor<?x64xf32>
  return
}

// -----

func.func @f(%k: tensor<?x64xf32>) {
  // expected-error@+1 {{has 3 kernels when 2 is needed}}
  qwen.append %k, %k layer 0 kv_heads 2 format <f16> kernels [#qwen.kernel<rope_neon>, #qwen.kernel<append_k_f16_neon>, #qwen.kernel<append_v_f16_neon>] : tensor<?x64xf32>
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
  %a = "qwen.attention"(%q, %c) {layer = 0 : i64, heads = 2 : i64, kv_heads = 1 : i64, operandSegmentSizes = array<i32: 1, 0, 0, 1, 0, 0>} : (tensor<?x64xf32>, tensor<?x16xf32>) -> tensor<?x64xf32>
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

func.func @f(%q: tensor<?x64xf32>, %k: tensor<?x32xf32>, %w: tensor<?xi32>, %n: tensor<32xi32>) {
  // expected-error@+1 {{needs both of over(keys, values)}}
  %a = "qwen.attention"(%q, %k) {heads = 2 : i64, kv_heads = 1 : i64, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0>} : (tensor<?x64xf32>, tensor<?x32xf32>) -> tensor<?x64xf32>
  return
}

// -----

func.func @f(%q: tensor<?x64xf32>, %k: tensor<?x32xf32>, %w: tensor<?xi32>, %n: tensor<32xi32>) {
  // expected-error@+1 {{needs either a layer of the cache or over(keys, values)}}
  %a = qwen.attention %q heads 2 kv_heads 1 : tensor<?x64xf32>
  return
}

// -----

func.func @f(%q: tensor<?x64xf32>, %k: tensor<?x32xf32>, %w: tensor<?xi32>, %n: tensor<32xi32>) {
  // expected-error@+1 {{needs either a layer of the cache or over(keys, values)}}
  %a = qwen.attention %q over(%k, %k : tensor<?x32xf32>, tensor<?x32xf32>) layer 0 heads 2 kv_heads 1 : tensor<?x64xf32>
  return
}

// -----

func.func @f(%q: tensor<?x64xf32>, %k: tensor<?x32xf32>, %w: tensor<?xi32>, %n: tensor<32xi32>) {
  // expected-error@+1 {{has mask windows without windows of tokens}}
  %a = qwen.attention %q over(%k, %k : tensor<?x32xf32>, tensor<?x32xf32>) heads 2 kv_heads 1 mask <windows> : tensor<?x64xf32>
  return
}

// -----

func.func @f(%q: tensor<?x64xf32>, %k: tensor<?x32xf32>, %w: tensor<?xi32>, %n: tensor<32xi32>) {
  // expected-error@+1 {{has mask all with windows of tokens}}
  %a = qwen.attention %q over(%k, %k : tensor<?x32xf32>, tensor<?x32xf32>) heads 2 kv_heads 1 mask <all> of(%w : tensor<?xi32>) : tensor<?x64xf32>
  return
}

// -----

func.func @f(%q: tensor<?x64xf32>, %k: tensor<?x32xf32>, %w: tensor<?xi32>, %n: tensor<32xi32>) {
  // expected-error@+1 {{has mask all over the cache, of which later calls see more; only causal can be}}
  %a = qwen.attention %q layer 0 heads 2 kv_heads 1 mask <all> : tensor<?x64xf32>
  return
}

// -----

func.func @f(%q: tensor<?x64xf32>, %k: tensor<?x32xf32>, %w: tensor<?xi32>, %n: tensor<32xi32>) {
  // expected-error@+1 {{has mask windows over the cache, of which later calls see more; only causal can be}}
  %a = qwen.attention %q layer 0 heads 2 kv_heads 1 mask <windows> of(%w : tensor<?xi32>) : tensor<?x64xf32>
  return
}

// -----

func.func @f(%q: tensor<?x64xf32>, %k: tensor<?x32xf32>, %w: tensor<?xi32>, %n: tensor<32xi32>) {
  // expected-error@+1 {{keys is 64 wide when 32 is needed}}
  %a = qwen.attention %q over(%q, %k : tensor<?x64xf32>, tensor<?x32xf32>) heads 2 kv_heads 1 : tensor<?x64xf32>
  return
}

// -----

func.func @f(%q: tensor<?x64xf32>, %k: tensor<?x32xf32>, %w: tensor<?xi32>, %n: tensor<32xi32>) {
  // expected-error@+1 {{values is 64 wide when 32 is needed}}
  %a = qwen.attention %q over(%k, %q : tensor<?x32xf32>, tensor<?x64xf32>) heads 2 kv_heads 1 : tensor<?x64xf32>
  return
}

// -----

func.func @f(%q: tensor<?x64xf32>, %k: tensor<?x32xf32>, %w: tensor<?xi32>, %n: tensor<32xi32>) {
  // expected-error@+1 {{operand #3 must be one i32 for each token}}
  %a = qwen.attention %q over(%k, %k : tensor<?x32xf32>, tensor<?x32xf32>) heads 2 kv_heads 1 mask <windows> of(%n : tensor<32xi32>) : tensor<?x64xf32>
  return
}

// -----

func.func @f(%q: tensor<?x64xf32>, %k: tensor<?x32xf32>, %w: tensor<?xi32>, %n: tensor<32xi32>) {
  // expected-error@+2 {{expected ::qwen::Mask to be one of: causal, windows, all}}
  // expected-error@+1 {{failed to parse Qwen_MaskAttr parameter 'value'}}
  %a = qwen.attention %q layer 0 heads 2 kv_heads 1 mask <some> : tensor<?x64xf32>
  return
}

// -----

qwen.weight @n : tensor<32xf32> from #qwen.source<"m">
func.func @f(%q: tensor<?x64xf32>, %k: tensor<?x32xf32>, %c: tensor<?x16xf32>) {
  // expected-error@+1 {{norms queries without a cache; a qwen.rms_norm before it does}}
  %a = qwen.attention %q over(%k, %k : tensor<?x32xf32>, tensor<?x32xf32>) rope(%c, %c : tensor<?x16xf32>, tensor<?x16xf32>) heads 2 kv_heads 1 norm @n eps 1.0e-06 : tensor<?x64xf32>
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

// -----

func.func @f(%k: tensor<?x1032xf32>) {
  // expected-error@+1 {{has heads of 1032 values when a cache in q8 has at most 1024; --kv f16 has no such limit}}
  qwen.append %k, %k layer 0 kv_heads 1 format <q8> : tensor<?x1032xf32>
  return
}
