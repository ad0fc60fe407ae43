//===- CountAllocations.cpp - Counts a program's calls of malloc ----------===//
//
// A library to preload. It makes a program print the number of its allocations
// on standard error at the end; test/Integration/memory_use.py compares them.
//
//===----------------------------------------------------------------------===//

#include <atomic>
#include <cstddef>
#include <cstdio>

extern "C" {
// glibc's own names of the functions defined below.
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);
void *__libc_memalign(size_t align, size_t size);
}

static std::atomic<long> allocations;

extern "C" {
void *malloc(size_t size) {
  ++allocations;
  return __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
  ++allocations;
  return __libc_calloc(count, size);
}

void *realloc(void *memory, size_t size) {
  ++allocations;
  return __libc_realloc(memory, size);
}

// operator new of over-aligned types.
void *aligned_alloc(size_t align, size_t size) {
  ++allocations;
  return __libc_memalign(align, size);
}
}

__attribute__((destructor)) static void print() {
  fprintf(stderr, "allocations %ld\n", allocations.load());
}
