//===- Tracer.cpp - Times at which threads begin ops and wait -------------===//

#include "engine/Tracer.h"

#include "engine/SteadyClock.h"

using namespace qwen;

void Tracer::bind(Context &context) {
  wait = context.barrier;
  waitState = context.barrierState;
  context.barrier = &Tracer::barrier;
  context.barrierState = this;
  context.trace = &Tracer::trace;
  context.traceState = this;
}

void Tracer::clear() {
  for (List &list : lists)
    list.events.clear();
  calls.clear();
}

void Tracer::trace(void *state, int32_t thread, int32_t op) {
  static_cast<Tracer *>(state)
      ->lists[static_cast<size_t>(thread)]
      .events.push_back({steadyNanoseconds(), op});
}

void Tracer::barrier(void *state, int32_t thread) {
  trace(state, thread, kBarrier);
  const auto *tracer = static_cast<Tracer *>(state);
  tracer->wait(tracer->waitState, thread);
}
