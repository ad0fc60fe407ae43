// RUN: qwen-opt %s --qwen-lower | FileCheck %s
//
// Kernels of AMX keep sums of two tiles of tokens on the stack, for at most 32,768 values along K. VNNI's kernels multiply all
// tokens of a longer product, and the quantizer writes one token behind the other.

module {
qwen.weight @short_w : tensor<64x32768xf32> from #qwen.source<"m"> as #qwen.format<q4_0>
qwen.weight @long_w : tensor<64x32896xf32> from #qwen.source<"m"> as #qwen.format<q4_0>
qwen.packed @short [@short_w] : tensor<64x32768xf32> in #qwen.layout<q4_0, panel = 16, chunk = 4> at 0
qwen.packed @long [@long_w] : tensor<64x32896xf32> in #qwen.layout<q4_0, panel = 16, chunk = 4> at 1179648

// CHECK-LABEL: func.func @forward
func.func @forward(%x: tensor<?x32768xf32> {qwen.name = "x", qwen.place = #qwen.buffer<offset = 0, stride = 32768>}, %y: tensor<?x32896xf32> {qwen.name = "y", qwen.place = #qwen.buffer<offset = 1048576, stride = 32896>}) {
  // CHECK: call @[[TILED:quantize[^(]*]](
  %s = qwen.quantize %x kernels [#qwen.kernel<quantize_q8_avx512>] {plan = #qwen.plan<id = 0, barrier = false, buffers = [#qwen.buffer<offset = 4194304, stride = 32768, scales = 8388608, sums = 8454144>]>} : tensor<?x32768xf32> -> tensor<?x32768xi8, #qwen.blocks<128>>
  // CHECK: call @[[SHORT:linear[^(]*]](
  %a = qwen.linear %s, [@short_w] packed [@short] kernels [#qwen.kernel<linear_q4_0_1x16x4_avx512vnni>, #qwen.kernel<linear_q4_0_16x16x4_amx_int8>] {plan = #qwen.plan<id = 1, barrier = true, buffers = [#qwen.buffer<offset = 16777216, stride = 64>]>} : tensor<?x32768xi8, #qwen.blocks<128>> -> tensor<?x64xf32>
  // CHECK: call @[[PLAIN:quantize[^(]*]](
  %l = qwen.quantize %y kernels [#qwen.kernel<quantize_q8_avx512>] {plan = #qwen.plan<id = 2, barrier = false, buffers = [#qwen.buffer<offset = 4194304, stride = 32896, scales = 8388608, sums = 8454144>]>} : tensor<?x32896xf32> -> tensor<?x32896xi8, #qwen.blocks<128>>
  // CHECK: call @[[LONG:linear[^(]*]](
  %b = qwen.linear %l, [@long_w] packed [@long] kernels [#qwen.kernel<linear_q4_0_1x16x4_avx512vnni>, #qwen.kernel<linear_q4_0_16x16x4_amx_int8>] {plan = #qwen.plan<id = 3, barrier = true, buffers = [#qwen.buffer<offset = 16777216, stride = 64>]>} : tensor<?x32896xi8, #qwen.blocks<128>> -> tensor<?x64xf32>
  return
}
}
// CHECK: func.func private @[[TILED]](
// CHECK-NEXT: qwen.struct {{.*}}tiles.layout = 1
// CHECK: func.func private @[[SHORT]](
// CHECK-NEXT: qwen.struct {{.*}}[#qwen.kernel<linear_q4_0_16x16x4_amx_int8>, 1, 16,
// CHECK: func.func private @[[PLAIN]](
// CHECK-NEXT: qwen.struct {{.*}}tiles.layout = 0
// CHECK: func.func private @[[LONG]](
// A kernel that needs more tokens than any call has multiplies none.
// CHECK-NEXT: qwen.struct {{.*}}[#qwen.kernel<linear_q4_0_16x16x4_amx_int8>, 0, 1, 9223372036854775807, 0]
