// RUN: qwen-opt %s --qwen-fuse-attention -split-input-file -verify-diagnostics | FileCheck %s

// CHECK-LABEL: func.func @qwen2
// CHECK-SAME: %[[Q:[a-z0-9]+]]: tensor<?x64xf32>, %[[K:[a-z0-9]+]]: tensor<?x32xf32>, %[[V:[a-z0-9]+]]: tensor<?x32xf32>, %[[COS:[a-z0-9]+]]: tensor<?x16xf32>, %[[SIN:[a-z0-9]+]]: tensor<?x16xf32>
// CHECK-NEXT: qwen.append %[[K]], %[[V]] rope(%[[COS]], %[[SIN]] : tensor<?x16xf32>, tensor<?x16xf32>) layer 2 kv_heads 1 :
// CHECK-NEXT: %[[A:.*]] = qwen.attention %[[Q]] rope(%[[COS]], %[[SIN]] : tensor<?x16xf32>, tensor<?x16xf32>) layer 2 heads 2 kv_heads 1 : tensor<?x64xf32>
// CHECK-NEXT: return %[[A]]
func.func @qwen2(%q: tensor<?x64xf32>, %k: tensor<?x32xf32>, %v: tensor<?x32xf32>, %cos: tensor<?x16xf32>, %sin: tensor<?x16xf32>) -> tensor<?x64xf32> {
  %q1 = qwen.rope %q, %cos, %sin : tensor<?x64xf32>, tensor<?x16xf32>
  %k1 = qwen.rope %k, %cos, %sin : tensor<?x32xf32>, tensor<?x16xf32>
  qwen.append %k1, %v layer 2 kv_heads 1 : tensor<?x32xf32>
  %a = qwen.attention %q1 layer 2 heads 2 kv_heads 1 : tensor<?x64xf32>
  return %a : tensor<?x64xf32>
}

// -----

qwen.weight @qn : tensor<32xbf16> from #qwen.source<"m">
qwen.weight @kn : tensor<32xbf16> from #qwen.source<"m">

// CHECK-LABEL: func.func @qwen3
// CHECK-SAME: %[[Q:[a-z0-9]+]]: tensor<?x64xf32>, %[[K:[a-z0-9]+]]: tensor<?x32xf32>
// CHECK-NEXT: qwen.append %[[K]], %{{.*}} rope({{.*}}) layer 0 kv_heads 1 norm @kn eps 1.000000e-03 :
// CHECK-NEXT: qwen.attention %[[Q]] rope({{.*}}) layer 0 heads 2 kv_heads 1 norm @qn eps 2.000000e-03 :
// CHECK-NEXT: return
func.func @qwen3(%q: tensor<?x64xf32>, %k: tensor<?x32xf32>, %v: tensor<?x32xf32>, %cos: tensor<?x16xf32>, %sin: tensor<?x16xf32>) -> tensor<?x64xf32> {
  %qn = qwen.rms_norm %q, @qn eps 2.0e-03 heads 32 : tensor<?x64xf32> -> tensor<?x64xf32>
  %kn = qwen.rms_norm %k, @kn eps 1.0e-03 heads 32 : tensor<?x32xf32> -> tensor<?x32xf32>
  %q1 = qwen.rope %qn, %cos, %sin : tensor<?x64xf32>, tensor<?x16xf32>
  %k1 = qwen.rope %kn, %cos, %sin : tensor<?x32xf32>, tensor<?x16xf32>
  qwen.append %k1, %v layer 0 kv_heads 1 : tensor<?x32xf32>
  %a = qwen.attention %q1 layer 0 heads 2 kv_heads 1 : tensor<?x64xf32>
  return %a : tensor<?x64xf32>
}

// What others read stays.
// CHECK-LABEL: func.func @another_user
// CHECK-NEXT: %[[R:.*]] = qwen.rope
// CHECK-NEXT: qwen.append
// CHECK-NEXT: %[[A:.*]] = qwen.attention
// CHECK-NEXT: return %[[A]], %[[R]]
func.func @another_user(%q: tensor<?x32xf32>, %k: tensor<?x32xf32>, %cos: tensor<?x16xf32>, %sin: tensor<?x16xf32>) -> (tensor<?x32xf32>, tensor<?x32xf32>) {
  %q1 = qwen.rope %q, %cos, %sin : tensor<?x32xf32>, tensor<?x16xf32>
  %k1 = qwen.rope %k, %cos, %sin : tensor<?x32xf32>, tensor<?x16xf32>
  qwen.append %k1, %k layer 0 kv_heads 1 : tensor<?x32xf32>
  %a = qwen.attention %q1 layer 0 heads 1 kv_heads 1 : tensor<?x32xf32>
  return %a, %k1 : tensor<?x32xf32>, tensor<?x32xf32>
}

// A norm over the row is not a norm of heads.
// CHECK-LABEL: func.func @row_norm
// CHECK-NEXT: %[[N:.*]] = qwen.rms_norm
// CHECK-NEXT: qwen.append %{{.*}} rope({{.*}}) layer 0 kv_heads 1 :
// CHECK-NEXT: qwen.attention %[[N]] rope({{.*}}) layer 0 heads 1 kv_heads 1 :
func.func @row_norm(%q: tensor<?x32xf32>, %k: tensor<?x32xf32>, %cos: tensor<?x16xf32>, %sin: tensor<?x16xf32>) -> tensor<?x32xf32> {
  %qn = qwen.rms_norm %q, @qn eps 1.0e-03 : tensor<?x32xf32> -> tensor<?x32xf32>
  %q1 = qwen.rope %qn, %cos, %sin : tensor<?x32xf32>, tensor<?x16xf32>
  %k1 = qwen.rope %k, %cos, %sin : tensor<?x32xf32>, tensor<?x16xf32>
  qwen.append %k1, %k layer 0 kv_heads 1 : tensor<?x32xf32>
  %a = qwen.attention %q1 layer 0 heads 1 kv_heads 1 : tensor<?x32xf32>
  return %a : tensor<?x32xf32>
}

// Without a rotation, a norm of heads stays as well.
// CHECK-LABEL: func.func @not_rotated
// CHECK-NEXT: %[[K:.*]] = qwen.rms_norm
// CHECK-NEXT: qwen.append %[[K]], %{{.*}} layer 0 kv_heads 2 :
// CHECK-NEXT: qwen.attention %{{.*}} layer 0 heads 2 kv_heads 2 :
func.func @not_rotated(%q: tensor<?x64xf32>, %k: tensor<?x64xf32>) -> tensor<?x64xf32> {
  %k1 = qwen.rms_norm %k, @kn eps 1.0e-03 heads 32 : tensor<?x64xf32> -> tensor<?x64xf32>
  qwen.append %k1, %k layer 0 kv_heads 2 : tensor<?x64xf32>
  %a = qwen.attention %q layer 0 heads 2 kv_heads 2 : tensor<?x64xf32>
  return %a : tensor<?x64xf32>
}

// Attention over the call rotates queries and keys, and leaves norms. A second
// one reads the same keys.
// CHECK-LABEL: func.func @over_call
// CHECK-SAME: %[[Q:[a-z0-9]+]]: tensor<?x64xf32>, %[[K:[a-z0-9]+]]: tensor<?x32xf32>, %[[V:[a-z0-9]+]]: tensor<?x32xf32>, %[[COS:[a-z0-9]+]]: tensor<?x16xf32>, %[[SIN:[a-z0-9]+]]: tensor<?x16xf32>, %[[W:[a-z0-9]+]]: tensor<?xi32>
// CHECK-NEXT: %[[QN:.*]] = qwen.rms_norm %[[Q]], @qn eps 1.000000e-03 heads 32
// CHECK-NEXT: %[[A:.*]] = qwen.attention %[[QN]] over(%[[K]], %[[V]] : tensor<?x32xf32>, tensor<?x32xf32>) rope(%[[COS]], %[[SIN]] : tensor<?x16xf32>, tensor<?x16xf32>) heads 2 kv_heads 1 mask <windows> of(%[[W]] : tensor<?xi32>) :
// CHECK-NEXT: %[[B:.*]] = qwen.attention %[[QN]] over(%[[K]], %[[V]] : tensor<?x32xf32>, tensor<?x32xf32>) rope(%[[COS]], %[[SIN]] : tensor<?x16xf32>, tensor<?x16xf32>) heads 2 kv_heads 1 mask <all> :
// CHECK-NEXT: %[[C:.*]] = qwen.attention %[[Q]] over(%[[K]], %[[V]] : tensor<?x32xf32>, tensor<?x32xf32>) heads 2 kv_heads 1 :
// CHECK-NEXT: return
func.func @over_call(%q: tensor<?x64xf32>, %k: tensor<?x32xf32>, %v: tensor<?x32xf32>, %cos: tensor<?x16xf32>, %sin: tensor<?x16xf32>, %w: tensor<?xi32>) -> (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) {
  %qn = qwen.rms_norm %q, @qn eps 1.0e-03 heads 32 : tensor<?x64xf32> -> tensor<?x64xf32>
  %q1 = qwen.rope %qn, %cos, %sin : tensor<?x64xf32>, tensor<?x16xf32>
  %k1 = qwen.rope %k, %cos, %sin : tensor<?x32xf32>, tensor<?x16xf32>
  %a = qwen.attention %q1 over(%k1, %v : tensor<?x32xf32>, tensor<?x32xf32>) heads 2 kv_heads 1 mask <windows> of(%w : tensor<?xi32>) : tensor<?x64xf32>
  %b = qwen.attention %q1 over(%k1, %v : tensor<?x32xf32>, tensor<?x32xf32>) heads 2 kv_heads 1 mask <all> : tensor<?x64xf32>
  %c = qwen.attention %q over(%k, %v : tensor<?x32xf32>, tensor<?x32xf32>) heads 2 kv_heads 1 : tensor<?x64xf32>
  return %a, %b, %c : tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>
}

// -----

func.func @keys_not_rotated(%q: tensor<?x32xf32>, %k: tensor<?x32xf32>, %cos: tensor<?x16xf32>, %sin: tensor<?x16xf32>) -> tensor<?x32xf32> {
  %q1 = qwen.rope %q, %cos, %sin : tensor<?x32xf32>, tensor<?x16xf32>
  // expected-error@+1 {{takes queries and keys with other rotations when one of both is needed}}
  %a = qwen.attention %q1 over(%k, %k : tensor<?x32xf32>, tensor<?x32xf32>) heads 1 kv_heads 1 : tensor<?x32xf32>
  return %a : tensor<?x32xf32>
}

// -----

func.func @keys_rotated_otherwise(%q: tensor<?x32xf32>, %k: tensor<?x32xf32>, %cos: tensor<?x16xf32>, %sin: tensor<?x16xf32>) -> tensor<?x32xf32> {
  %q1 = qwen.rope %q, %cos, %sin : tensor<?x32xf32>, tensor<?x16xf32>
  %k1 = qwen.rope %k, %sin, %cos : tensor<?x32xf32>, tensor<?x16xf32>
  // expected-error@+1 {{takes queries and keys with other rotations when one of both is needed}}
  %a = qwen.attention %q1 over(%k1, %k : tensor<?x32xf32>, tensor<?x32xf32>) heads 1 kv_heads 1 : tensor<?x32xf32>
  return %a : tensor<?x32xf32>
}

// -----

func.func @other_heads_over_call(%q: tensor<?x32xf32>, %k: tensor<?x32xf32>, %cos: tensor<?x8xf32>, %sin: tensor<?x8xf32>) -> tensor<?x32xf32> {
  %q1 = qwen.rope %q, %cos, %sin heads 32 : tensor<?x32xf32>, tensor<?x8xf32>
  %k1 = qwen.rope %k, %cos, %sin : tensor<?x32xf32>, tensor<?x8xf32>
  // expected-error@+1 {{takes keys rotated over heads of 16 when heads are 32 wide}}
  %a = qwen.attention %q1 over(%k1, %k : tensor<?x32xf32>, tensor<?x32xf32>) heads 1 kv_heads 1 : tensor<?x32xf32>
  return %a : tensor<?x32xf32>
}

// -----

qwen.weight @n : tensor<16xbf16> from #qwen.source<"m">
func.func @other_heads(%q: tensor<?x32xf32>, %k: tensor<?x32xf32>, %cos: tensor<?x16xf32>, %sin: tensor<?x16xf32>) -> tensor<?x32xf32> {
  %kn = qwen.rms_norm %k, @n eps 1.0e-03 heads 16 : tensor<?x32xf32> -> tensor<?x32xf32>
  %q1 = qwen.rope %q, %cos, %sin : tensor<?x32xf32>, tensor<?x16xf32>
  %k1 = qwen.rope %kn, %cos, %sin : tensor<?x32xf32>, tensor<?x16xf32>
  // expected-error@+1 {{takes keys normed over heads of 16 when heads are 32 wide}}
  qwen.append %k1, %k layer 0 kv_heads 1 : tensor<?x32xf32>
  %a = qwen.attention %q1 layer 0 heads 1 kv_heads 1 : tensor<?x32xf32>
  return %a : tensor<?x32xf32>
}

// -----

func.func @other_rotation(%q: tensor<?x32xf32>, %k: tensor<?x32xf32>, %cos: tensor<?x8xf32>, %sin: tensor<?x8xf32>) -> tensor<?x32xf32> {
  %q1 = qwen.rope %q, %cos, %sin : tensor<?x32xf32>, tensor<?x8xf32>
  %k1 = qwen.rope %k, %cos, %sin heads 32 : tensor<?x32xf32>, tensor<?x8xf32>
  qwen.append %k1, %k layer 0 kv_heads 1 : tensor<?x32xf32>
  // expected-error@+1 {{takes queries rotated over heads of 16 when heads are 32 wide}}
  %a = qwen.attention %q1 layer 0 heads 1 kv_heads 1 : tensor<?x32xf32>
  return %a : tensor<?x32xf32>
}
