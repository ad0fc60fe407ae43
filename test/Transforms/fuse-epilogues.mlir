// RUN: qwen-opt %s --qwen-fuse-epilogues | FileCheck %s

qwen.weight @w : tensor<64x64xbf16> from #qwen.source<"m">
qwen.weight @b : tensor<64xbf16> from #qwen.source<"m">

// CHECK-LABEL: func.func @bias
// CHECK-NEXT: %[[Y:.*]] = qwen.linear %{{.*}}, [@w] bias [@b] : tensor<?x64xf32> -> tensor<?x64xf32>
// CHECK-NEXT: return %[[Y]]
func.func @bias(%x: tensor<?x64xf32>) -> tensor<?x64xf32> {
  %y = qwen.linear %x, [@w] : tensor<?x64xf32> -> tensor<?x64xf32>
  %z = qwen.add_bias %y, @b : tensor<?x64xf32>
  return %z : tensor<?x64xf32>
}

// CHECK-LABEL: func.func @residual
// CHECK-SAME: %[[R:[a-z0-9]+]]: tensor<?x64xf32>, %[[X:[a-z0-9]+]]: tensor<?x64xf32>
// CHECK-NEXT: %[[Y:.*]] = qwen.linear %[[X]], [@w] residual(%[[R]] : tensor<?x64xf32>) :
// CHECK-NEXT: return %[[Y]]
func.func @residual(%r: tensor<?x64xf32>, %x: tensor<?x64xf32>) -> tensor<?x64xf32> {
  %y = qwen.linear %x, [@w] : tensor<?x64xf32> -> tensor<?x64xf32>
  %z = qwen.add %r, %y : tensor<?x64xf32>
  return %z : tensor<?x64xf32>
}

// CHECK-LABEL: func.func @product_on_the_left
// CHECK: qwen.linear %{{.*}}, [@w] residual(
// CHECK-NOT: qwen.add
func.func @product_on_the_left(%r: tensor<?x64xf32>, %x: tensor<?x64xf32>) -> tensor<?x64xf32> {
  %y = qwen.linear %x, [@w] : tensor<?x64xf32> -> tensor<?x64xf32>
  %z = qwen.add %y, %r : tensor<?x64xf32>
  return %z : tensor<?x64xf32>
}

// CHECK-LABEL: func.func @bias_then_residual
// CHECK: qwen.linear %{{.*}}, [@w] bias [@b] residual(
// CHECK-NEXT: return
func.func @bias_then_residual(%r: tensor<?x64xf32>, %x: tensor<?x64xf32>) -> tensor<?x64xf32> {
  %y = qwen.linear %x, [@w] : tensor<?x64xf32> -> tensor<?x64xf32>
  %z = qwen.add_bias %y, @b : tensor<?x64xf32>
  %a = qwen.add %r, %z : tensor<?x64xf32>
  return %a : tensor<?x64xf32>
}

// The bias would be added first.
// CHECK-LABEL: func.func @residual_then_bias
// CHECK: qwen.linear %{{.*}}, [@w] residual(
// CHECK-NEXT: qwen.add_bias
func.func @residual_then_bias(%r: tensor<?x64xf32>, %x: tensor<?x64xf32>) -> tensor<?x64xf32> {
  %y = qwen.linear %x, [@w] : tensor<?x64xf32> -> tensor<?x64xf32>
  %z = qwen.add %r, %y : tensor<?x64xf32>
  %a = qwen.add_bias %z, @b : tensor<?x64xf32>
  return %a : tensor<?x64xf32>
}

// A product has one bias and one residual.
// CHECK-LABEL: func.func @only_one
// CHECK: qwen.linear %{{.*}}, [@w] bias [@b] residual(
// CHECK-NEXT: qwen.add %
func.func @only_one(%r: tensor<?x64xf32>, %x: tensor<?x64xf32>) -> tensor<?x64xf32> {
  %y = qwen.linear %x, [@w] : tensor<?x64xf32> -> tensor<?x64xf32>
  %z = qwen.add_bias %y, @b : tensor<?x64xf32>
  %a = qwen.add %r, %z : tensor<?x64xf32>
  %c = qwen.add %r, %a : tensor<?x64xf32>
  return %c : tensor<?x64xf32>
}

// CHECK-LABEL: func.func @another_user
// CHECK: qwen.linear %{{.*}}, [@w] : tensor
// CHECK: qwen.add_bias
// CHECK: qwen.linear %{{.*}}, [@w] : tensor
// CHECK: qwen.add %
func.func @another_user(%r: tensor<?x64xf32>, %x: tensor<?x64xf32>)
    -> (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) {
  %y = qwen.linear %x, [@w] : tensor<?x64xf32> -> tensor<?x64xf32>
  %z = qwen.add_bias %y, @b : tensor<?x64xf32>
  %y1 = qwen.linear %x, [@w] : tensor<?x64xf32> -> tensor<?x64xf32>
  %z1 = qwen.add %r, %y1 : tensor<?x64xf32>
  return %y, %z, %y1, %z1 : tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>
}

// CHECK-LABEL: func.func @several_weights
// CHECK: qwen.linear %{{.*}}, [@w, @w] : tensor
// CHECK: qwen.add %
func.func @several_weights(%r: tensor<?x64xf32>, %x: tensor<?x64xf32>) -> (tensor<?x64xf32>, tensor<?x64xf32>) {
  %y:2 = qwen.linear %x, [@w, @w] : tensor<?x64xf32> -> tensor<?x64xf32>, tensor<?x64xf32>
  %z = qwen.add %r, %y#0 : tensor<?x64xf32>
  return %z, %y#1 : tensor<?x64xf32>, tensor<?x64xf32>
}

// CHECK-LABEL: func.func @residual_comes_later
// CHECK: qwen.linear %{{.*}}, [@w] : tensor
// CHECK: qwen.rms_norm
// CHECK: qwen.add %
func.func @residual_comes_later(%x: tensor<?x64xf32>) -> tensor<?x64xf32> {
  %y = qwen.linear %x, [@w] : tensor<?x64xf32> -> tensor<?x64xf32>
  %r = qwen.rms_norm %x, @b eps 1.0e-06 : tensor<?x64xf32> -> tensor<?x64xf32>
  %z = qwen.add %r, %y : tensor<?x64xf32>
  return %z : tensor<?x64xf32>
}

// The sum of experts takes two addends, in their order.
// CHECK-LABEL: func.func @experts
// CHECK-SAME: %[[R:[a-z0-9]+]]: tensor<?x64xf32>, %[[S:[a-z0-9]+]]: tensor<?x64xf32>
// CHECK: %[[Y:.*]] = qwen.experts_down {{.*}} plus(%[[S]], %[[R]] : tensor<?x64xf32>, tensor<?x64xf32>)
// CHECK-NEXT: %[[Z:.*]] = qwen.add %[[R]], %[[Y]]
// CHECK-NEXT: return %[[Z]]
qwen.weight @down : tensor<256x32xf32> from #qwen.source<"m">
func.func @experts(%r: tensor<?x64xf32>, %s: tensor<?x64xf32>, %h: tensor<?x2x32xf32>, %w: tensor<?x2xf32>, %order: tensor<?x2xi32>, %first: tensor<5xi32>) -> tensor<?x64xf32> {
  %y = qwen.experts_down %h, %w, %order, %first, @down : tensor<?x2x32xf32>, tensor<?x2xf32>, tensor<?x2xi32>, tensor<5xi32> -> tensor<?x64xf32>
  %a = qwen.add %y, %s : tensor<?x64xf32>
  %b = qwen.add %r, %a : tensor<?x64xf32>
  %c = qwen.add %r, %b : tensor<?x64xf32>
  return %c : tensor<?x64xf32>
}
