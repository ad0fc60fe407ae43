// RUN: qwen-opt %s --qwen-fuse-quantize | FileCheck %s

qwen.weight @norm : tensor<64xbf16> from #qwen.source<"m">

// CHECK-LABEL: func.func @row_norm
// CHECK-NEXT: %[[Q:.*]] = qwen.rms_norm %{{.*}}, @norm eps {{.*}} : tensor<?x64xf32> -> tensor<?x64xi8, #qwen.blocks<128>>
// CHECK-NEXT: return %[[Q]]
func.func @row_norm(%x: tensor<?x64xf32>) -> tensor<?x64xi8, #qwen.blocks<128>> {
  %n = qwen.rms_norm %x, @norm eps 1.0e-06 : tensor<?x64xf32> -> tensor<?x64xf32>
  %q = qwen.quantize %n : tensor<?x64xf32> -> tensor<?x64xi8, #qwen.blocks<128>>
  return %q : tensor<?x64xi8, #qwen.blocks<128>>
}

// CHECK-LABEL: func.func @swiglu
// CHECK-NEXT: qwen.swiglu %{{.*}}, %{{.*}} : tensor<?x64xf32> -> tensor<?x64xi8, #qwen.blocks<128>>
// CHECK-NEXT: return
func.func @swiglu(%x: tensor<?x64xf32>) -> tensor<?x64xi8, #qwen.blocks<128>> {
  %n = qwen.swiglu %x, %x : tensor<?x64xf32> -> tensor<?x64xf32>
  %q = qwen.quantize %n : tensor<?x64xf32> -> tensor<?x64xi8, #qwen.blocks<128>>
  return %q : tensor<?x64xi8, #qwen.blocks<128>>
}

// CHECK-LABEL: func.func @transformed
// CHECK-NEXT: qwen.swiglu %{{.*}}, %{{.*}} hadamard : tensor<?x64xf32> -> tensor<?x64xi8, #qwen.blocks<128>>
// CHECK-NEXT: return
func.func @transformed(%x: tensor<?x64xf32>) -> tensor<?x64xi8, #qwen.blocks<128>> {
  %n = qwen.swiglu %x, %x : tensor<?x64xf32> -> tensor<?x64xf32>
  %h = qwen.hadamard %n : tensor<?x64xf32>
  %q = qwen.quantize %h : tensor<?x64xf32> -> tensor<?x64xi8, #qwen.blocks<128>>
  return %q : tensor<?x64xi8, #qwen.blocks<128>>
}

// Of another op, read by two, or not quantized.
// CHECK-LABEL: func.func @only_transformed
// CHECK-NEXT: qwen.hadamard %arg0
// CHECK-NEXT: qwen.quantize
// CHECK-NEXT: qwen.swiglu %arg0, %arg0 : tensor<?x64xf32> -> tensor<?x64xf32>
// CHECK-NEXT: qwen.hadamard
// CHECK-NEXT: qwen.quantize
// CHECK-NEXT: return
func.func @only_transformed(%x: tensor<?x64xf32>) -> (tensor<?x64xi8, #qwen.blocks<128>>, tensor<?x64xf32>, tensor<?x64xi8, #qwen.blocks<128>>) {
  %h = qwen.hadamard %x : tensor<?x64xf32>
  %q = qwen.quantize %h : tensor<?x64xf32> -> tensor<?x64xi8, #qwen.blocks<128>>
  %n = qwen.swiglu %x, %x : tensor<?x64xf32> -> tensor<?x64xf32>
  %i = qwen.hadamard %n : tensor<?x64xf32>
  %p = qwen.quantize %i : tensor<?x64xf32> -> tensor<?x64xi8, #qwen.blocks<128>>
  return %q, %n, %p : tensor<?x64xi8, #qwen.blocks<128>>, tensor<?x64xf32>, tensor<?x64xi8, #qwen.blocks<128>>
}

// Somebody needs the f32 activations.
// CHECK-LABEL: func.func @another_user
// CHECK: qwen.rms_norm
// CHECK-NEXT: qwen.quantize
func.func @another_user(%x: tensor<?x64xf32>) -> (tensor<?x64xf32>, tensor<?x64xi8, #qwen.blocks<128>>) {
  %n = qwen.rms_norm %x, @norm eps 1.0e-06 : tensor<?x64xf32> -> tensor<?x64xf32>
  %q = qwen.quantize %n : tensor<?x64xf32> -> tensor<?x64xi8, #qwen.blocks<128>>
  return %n, %q : tensor<?x64xf32>, tensor<?x64xi8, #qwen.blocks<128>>
}

// A block of 128 can span heads.
// CHECK-LABEL: func.func @heads
// CHECK: qwen.rms_norm
// CHECK-NEXT: qwen.quantize
func.func @heads(%x: tensor<?x128xf32>) -> tensor<?x128xi8, #qwen.blocks<128>> {
  %n = qwen.rms_norm %x, @norm eps 1.0e-06 heads 64 : tensor<?x128xf32> -> tensor<?x128xf32>
  %q = qwen.quantize %n : tensor<?x128xf32> -> tensor<?x128xi8, #qwen.blocks<128>>
  return %q : tensor<?x128xi8, #qwen.blocks<128>>
}

// CHECK-LABEL: func.func @other_ops
// CHECK: qwen.hadamard
// CHECK-NEXT: qwen.quantize
// CHECK-NEXT: qwen.quantize
func.func @other_ops(%x: tensor<?x64xf32>) -> (tensor<?x64xi8, #qwen.blocks<128>>, tensor<?x64xi8, #qwen.blocks<128>>) {
  %r = qwen.hadamard %x : tensor<?x64xf32>
  %q = qwen.quantize %r : tensor<?x64xf32> -> tensor<?x64xi8, #qwen.blocks<128>>
  %p = qwen.quantize %x : tensor<?x64xf32> -> tensor<?x64xi8, #qwen.blocks<128>>
  return %q, %p : tensor<?x64xi8, #qwen.blocks<128>>, tensor<?x64xi8, #qwen.blocks<128>>
}
