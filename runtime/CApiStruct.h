//===- CApiStruct.h - Structs of programs of other versions -----*- C++ -*-===//
//
// A struct of the C interface that may grow begins with its size. Programs are
// compiled with the header of an older or a newer library.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_CAPISTRUCT_H
#define QWEN_RUNTIME_CAPISTRUCT_H

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

namespace qwen::capi {

/// Throws Error if no struct has this size. `what` names the struct.
void checkSize(const std::string &what, uint32_t size);

/// Throws Error if a struct at `from` has values that the library does not know
/// in the bytes from `known` on.
void checkTail(const std::string &what, const void *from, uint32_t size,
               size_t known);

/// Reads a program's struct, which may have fewer or more members than the
/// library's. `values` gives the missing members, and all members if the size
/// is 0. Throws Error if members that the library does not know are set.
template <typename StructType>
StructType readStruct(const std::string &what, const StructType &from,
                      StructType values = {}) {
  checkTail(what, &from, from.size, sizeof(from));
  std::memcpy(&values, &from, std::min<size_t>(from.size, sizeof(from)));
  values.size = sizeof(from);
  return values;
}

/// Fills a program's struct, which may have fewer or more members than the
/// library's. Members that the library does not know become 0.
template <typename StructType>
void writeStruct(const std::string &what, const StructType &values,
                 StructType *to) {
  const uint32_t size = to->size;
  checkSize(what, size);
  std::memset(static_cast<void *>(to), 0, size);
  std::memcpy(to, &values, std::min<size_t>(size, sizeof(values)));
  to->size = size;
}

} // namespace qwen::capi

#endif // QWEN_RUNTIME_CAPISTRUCT_H
