//===- Driver.h - The functions between forward and kernels -----*- C++ -*-===//
//
// The driver has one function for each kind of op. `forward` calls it through
// an instance (decision 0017): a function that gets the op's arguments and adds
// what it fixes. A driver function gives the calling thread its units of the
// op's work, computes addresses and calls kernels. DriverABI.def lists the
// functions and the structs that they read.
//
// The sources are compiled twice: to bitcode, which qwen-opt links with the
// kernels, and natively, for tests and sanitizers.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_CODEGEN_DRIVER_DRIVER_H
#define QWEN_CODEGEN_DRIVER_DRIVER_H

#include "qwen/ABI/DriverABI.h"

namespace qwen {

extern "C" {

/// Waits until all threads of the call have arrived.
void qwenDriverBarrier(const Context *context, int32_t thread);

/// Says that the thread begins op `op`, where the call is traced.
void qwenDriverTrace(const Context *context, int32_t thread, int32_t op);

#define QWEN_ARGUMENTS(...)
#define QWEN_DRIVER(Function, Reads, ...)                                      \
  void qwenDriver##Function(const Context *context, int32_t thread,            \
                            const Reads##Arguments &arguments,                 \
                            const Function##Instance &fixed);
#include "qwen/ABI/DriverABI.def"

} // extern "C"

} // namespace qwen

#endif // QWEN_CODEGEN_DRIVER_DRIVER_H
