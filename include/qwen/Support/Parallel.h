//===- Parallel.h - Work on several threads ---------------------*- C++ -*-===//

#ifndef QWEN_SUPPORT_PARALLEL_H
#define QWEN_SUPPORT_PARALLEL_H

#include <cstddef>
#include <functional>

namespace qwen {

/// Calls `work(i, thread)` for each i below `count`, in order, on `threads`
/// threads: the calling one, which is thread 0, and others. No call starts
/// after an exception, and started calls end. The exception of the least i is
/// thrown again.
void parallelFor(size_t count, unsigned threads,
                 const std::function<void(size_t i, unsigned thread)> &work);

/// The threads of this machine, at least 1.
unsigned machineThreads();

} // namespace qwen

#endif // QWEN_SUPPORT_PARALLEL_H
