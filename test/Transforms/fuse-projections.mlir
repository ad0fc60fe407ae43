// RUN: qwen-opt %s --qwen-fuse-projections | FileCheck %s

qwen.weight @q : tensor<64x64xbf16> from #qwen.source<"m">
qwen.weight @k : tensor<32x64xbf16> from #qwen.source<"m">
qwen.weight @v : tensor<32x64xbf16> from #qwen.source<"m">
qwen.weight @qb : tensor<64xbf16> from #qwen.source<"m">
qwen.weight @kb : tensor<32xbf16> from #qwen.source<"m">

// CHECK-LABEL: func.func @plain
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<?x64xf32>
// CHECK-NEXT: %[[Y:.*]]:3 = qwen.linear %[[X]], [@q, @k, @v] : tensor<?x64xf32> -> tensor<?x64xf32>, tensor<?x32xf32>, tensor<?x32xf32>
// CHECK-NEXT: return %[[Y]]#0, %[[Y]]#1, %[[Y]]#2
func.func @plain(%x: tensor<?x64xf32>) -> (tensor<?x64xf32>, tensor<?x32xf32>, tensor<?x32xf32>) {
  %q = qwen.linear %x, [@q] : tensor<?x64xf32> -> tensor<?x64xf32>
  %k = qwen.linear %x, [@k] : tensor<?x64xf32> -> tensor<?x32xf32>
  %v = qwen.linear %x, [@v] : tensor<?x64xf32> -> tensor<?x32xf32>
  return %q, %k, %v : tensor<?x64xf32>, tensor<?x32xf32>, tensor<?x32xf32>
}

// Users between the products still come after them.
// CHECK-LABEL: func.func @biases
// CHECK-NEXT: %[[Y:.*]]:2 = qwen.linear %{{.*}}, [@q, @k] bias [@qb, @kb] :
// CHECK-NEXT: qwen.rms_norm %[[Y]]#0
func.func @biases(%x: tensor<?x64xf32>) -> (tensor<?x64xf32>, tensor<?x32xf32>) {
  %q = qwen.linear %x, [@q] bias [@qb] : tensor<?x64xf32> -> tensor<?x64xf32>
  %n = qwen.rms_norm %q, @qb eps 1.0e-06 : tensor<?x64xf32> -> tensor<?x64xf32>
  %k = qwen.linear %x, [@k] bias [@kb] : tensor<?x64xf32> -> tensor<?x32xf32>
  return %n, %k : tensor<?x64xf32>, tensor<?x32xf32>
}

// What is fused already takes more.
// CHECK-LABEL: func.func @fused_already
// CHECK: qwen.linear %{{.*}}, [@q, @k, @v] :
func.func @fused_already(%x: tensor<?x64xf32>) -> (tensor<?x64xf32>, tensor<?x32xf32>, tensor<?x32xf32>) {
  %q:2 = qwen.linear %x, [@q, @k] : tensor<?x64xf32> -> tensor<?x64xf32>, tensor<?x32xf32>
  %v = qwen.linear %x, [@v] : tensor<?x64xf32> -> tensor<?x32xf32>
  return %q#0, %q#1, %v : tensor<?x64xf32>, tensor<?x32xf32>, tensor<?x32xf32>
}

// CHECK-LABEL: func.func @some_biases
// CHECK-NEXT: qwen.linear %{{.*}}, [@q, @k] bias [@qb, @kb] :
// CHECK-NEXT: qwen.linear %{{.*}}, [@v] :
func.func @some_biases(%x: tensor<?x64xf32>) -> (tensor<?x64xf32>, tensor<?x32xf32>, tensor<?x32xf32>) {
  %q = qwen.linear %x, [@q] bias [@qb] : tensor<?x64xf32> -> tensor<?x64xf32>
  %k = qwen.linear %x, [@k] bias [@kb] : tensor<?x64xf32> -> tensor<?x32xf32>
  %v = qwen.linear %x, [@v] : tensor<?x64xf32> -> tensor<?x32xf32>
  return %q, %k, %v : tensor<?x64xf32>, tensor<?x32xf32>, tensor<?x32xf32>
}

// Weights of one product have one format.
// CHECK-LABEL: func.func @formats
// CHECK-NEXT: %[[A:.*]]:2 = qwen.linear %{{.*}}, [@q4, @k4] :
// CHECK-NEXT: %[[B:.*]] = qwen.linear %{{.*}}, [@k8] :
// CHECK-NEXT: return %[[A]]#0, %[[B]], %[[A]]#1
qwen.weight @q4 : tensor<64x64xbf16> from #qwen.source<"m"> as <q4_0>
qwen.weight @k8 : tensor<32x64xbf16> from #qwen.source<"m"> as <q8_0>
qwen.weight @k4 : tensor<32x64xbf16> from #qwen.source<"m"> as <q4_0>
func.func @formats(%x: tensor<?x64xi8, #qwen.blocks<128>>) -> (tensor<?x64xf32>, tensor<?x32xf32>, tensor<?x32xf32>) {
  %q = qwen.linear %x, [@q4] : tensor<?x64xi8, #qwen.blocks<128>> -> tensor<?x64xf32>
  %k = qwen.linear %x, [@k8] : tensor<?x64xi8, #qwen.blocks<128>> -> tensor<?x32xf32>
  %v = qwen.linear %x, [@k4] : tensor<?x64xi8, #qwen.blocks<128>> -> tensor<?x32xf32>
  return %q, %k, %v : tensor<?x64xf32>, tensor<?x32xf32>, tensor<?x32xf32>
}

// And they lie in one image.
// CHECK-LABEL: func.func @images
// CHECK-NEXT: %[[A:.*]]:2 = qwen.linear %{{.*}}, [@q4, @k4] :
// CHECK-NEXT: %[[B:.*]] = qwen.linear %{{.*}}, [@draft.k4] :
// CHECK-NEXT: return %[[A]]#0, %[[B]], %[[A]]#1
qwen.image @draft
qwen.weight @draft.k4 : tensor<32x64xbf16> from #qwen.source<"m"> as <q4_0> of @draft
func.func @images(%x: tensor<?x64xi8, #qwen.blocks<128>>) -> (tensor<?x64xf32>, tensor<?x32xf32>, tensor<?x32xf32>) {
  %q = qwen.linear %x, [@q4] : tensor<?x64xi8, #qwen.blocks<128>> -> tensor<?x64xf32>
  %k = qwen.linear %x, [@draft.k4] : tensor<?x64xi8, #qwen.blocks<128>> -> tensor<?x32xf32>
  %v = qwen.linear %x, [@k4] : tensor<?x64xi8, #qwen.blocks<128>> -> tensor<?x32xf32>
  return %q, %k, %v : tensor<?x64xf32>, tensor<?x32xf32>, tensor<?x32xf32>
}

// CHECK-LABEL: func.func @residual
// CHECK: qwen.linear %{{.*}}, [@q] :
// CHECK: qwen.linear %{{.*}}, [@q] residual(
func.func @residual(%x: tensor<?x64xf32>) -> (tensor<?x64xf32>, tensor<?x64xf32>) {
  %q = qwen.linear %x, [@q] : tensor<?x64xf32> -> tensor<?x64xf32>
  %r = qwen.linear %x, [@q] residual(%x : tensor<?x64xf32>) : tensor<?x64xf32> -> tensor<?x64xf32>
  return %q, %r : tensor<?x64xf32>, tensor<?x64xf32>
}

// CHECK-LABEL: func.func @other_input
// CHECK: qwen.linear %{{.*}}, [@q] :
// CHECK: qwen.linear %{{.*}}, [@k] :
func.func @other_input(%x: tensor<?x64xf32>, %z: tensor<?x64xf32>) -> (tensor<?x64xf32>, tensor<?x32xf32>) {
  %q = qwen.linear %x, [@q] : tensor<?x64xf32> -> tensor<?x64xf32>
  %k = qwen.linear %z, [@k] : tensor<?x64xf32> -> tensor<?x32xf32>
  return %q, %k : tensor<?x64xf32>, tensor<?x32xf32>
}
