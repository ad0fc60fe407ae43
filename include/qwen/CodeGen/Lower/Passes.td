//===- Passes.td - The pass from the qwen dialect to calls -*- tablegen -*-===//

#ifndef QWEN_CODEGEN_LOWER_PASSES
#define QWEN_CODEGEN_LOWER_PASSES

include "mlir/Pass/PassBase.td"

def Lower : Pass<"qwen-lower", "::mlir::ModuleOp"> {
  let summary = "Lowers planned ops to calls of kernels in SPMD functions";
  let description = [{
    Takes a module from stage packed to stage calls. Each program becomes a
    function with the C signature of `ForwardFn` (qwen/ABI/KernelABI.h), which
    all threads run. For each op, a thread waits at the barrier, if the plan has
    one, and calls a function that runs the thread's units of the op. Its argument
    is the address of a `qwen.struct` with what differs from op to op. There is one
    such function for each combination of kernels and sizes, which another
    `qwen.struct` in it names; layers share it. A thread that has finished its static share of a product or of attention
    steals units from the shared tail, the last eighth.

    A product calls the kernels that the op names and, for numbers of tokens
    between theirs, other kernels of the table. If the caller wants hidden
    values, the last norm writes them to the result of the call, and
    `qwen.lm_head` neither waits nor computes.

    The module declares kernels and does not define them. `qwen.weight` and
    `qwen.packed` stay for the packer of weights. Sets `qwen.ops`, `qwen.caches`,
    `qwen.work`, `qwen.op_kernels`, `qwen.inputs` and `qwen.outputs` of each
    program. The caches of all programs lie together: layers of the same name and number are
    the same bytes.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect",
                           "::mlir::func::FuncDialect",
                           "::mlir::LLVM::LLVMDialect",
                           "::mlir::scf::SCFDialect"];
}

#endif // QWEN_CODEGEN_LOWER_PASSES
