// RUN: qwen-opt %s | qwen-opt | FileCheck %s

// CHECK-LABEL: func.func @forward
func.func @forward(%positions: tensor<?xi32>) -> tensor<?x32xf32> {
  // CHECK: qwen.rope_table %{{.*}} theta 1.000000e+06 : tensor<?xi32> -> tensor<?x32xf32>
  %cos, %sin = qwen.rope_table %positions theta 1.0e+06 : tensor<?xi32> -> tensor<?x32xf32>
  return %cos : tensor<?x32xf32>
}
