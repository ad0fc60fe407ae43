//===- HeldDots.cpp -- Dots in the order of their code --------------------===//
//
// GroupDots where registers are short: code runs in the order in which it is
// emitted, with the sums of a block on the stack, where a group reads and
// writes each once. A tile's sums and dots fill all registers of AVX2. LLVM
// moves loads ahead and reorders additions, so it would also keep activations
// in registers.
//
//===----------------------------------------------------------------------===//

#include "GroupDots.h"
#include <algorithm>

using namespace qwen;
using namespace mlir;

namespace {
class HeldDots final : public GroupDots {
public:
  HeldDots(const KernelInfo &kernel, const TileSchedule &schedule,
           ModuleOp module)
      : GroupDots(kernel, schedule, module) {
    heldSums = sumsMemory(std::max<int64_t>(schedule.streams, 1));
  }

private:
  void addGroup(const Group &group) override;
  void addChunk(ArrayRef<Value> panels, int64_t chunk, int64_t sub,
                ArrayRef<Value> q, ArrayRef<std::unique_ptr<Dot>> dots);
};
} // namespace

/// Adds one chunk of a group to dots `sub` of all panels. The chunks of panel p
/// begin at panels[p].
void HeldDots::addChunk(ArrayRef<Value> panels, int64_t chunk, int64_t sub,
                        ArrayRef<Value> q,
                        ArrayRef<std::unique_ptr<Dot>> dots) {
  const int64_t tokens = schedule.tokens;
  auto step = [&](int64_t part) { return chunk + part * unpack->chunks(); };
  // Those of several tokens are loaded again for each panel.
  Values shared(unpack->parts);
  if (tokens == 1) {
    b.keepLoadsInOrder();
    overParts(sub, [&](int64_t part) {
      shared[part] = activations(q[0], step(part));
    });
  }
  for (size_t p = 0; p < panels.size(); ++p) {
    if (sub == 0)
      prefetchChunk(panels[p], chunk);
    SmallVector<Values> codes;
    for (int64_t v = 0; v < vectors; ++v)
      codes.push_back(unpack->codes(b, chunk, [&](int64_t i, bool) {
        return loadVector(panels[p], i, v);
      }));
    overParts(sub, [&](int64_t part) {
      Values w;
      for (const Values &vector : codes)
        w.push_back(unpack->bytes(b, vector, chunk, part));
      for (int64_t t = 0; t < tokens; ++t) {
        b.keepLoadsInOrder();
        Value x = tokens == 1 ? shared[part] : activations(q[t], step(part));
        for (int64_t v = 0; v < vectors; ++v) {
          Dot &dot = *dots[(p * tokens + t) * vectors + v];
          dot.step(w[v], x, step(part) % 4);
          dot.keepOrder();
        }
      }
    });
  }
}

void HeldDots::addGroup(const Group &group) {
  Values panels;
  for (size_t p = 0; p < group.panels; ++p)
    panels.push_back(b.at(group.chunks(p), b.mul(group.output, 4)));
  for (int64_t sub = 0; sub < subDots; ++sub) {
    SmallVector<std::unique_ptr<Dot>> dots;
    for (size_t i = 0; i < group.panels * schedule.tokens * vectors; ++i)
      dots.push_back(dotFrom(nullptr));
    for (int64_t chunk = 0; chunk < unpack->chunks(); ++chunk)
      addChunk(panels, chunk, sub, group.q, dots);
    b.keepLoadsInOrder();
    for (auto [i, dot] : llvm::enumerate(dots)) {
      Value value = dot->finish();
      // Computed or loaded where it is first added.
      Value start = group.start(int64_t(i), sub);
      group.use(int64_t(i), sub, start ? b.add(value, start) : value);
    }
  }
}

void qwen::emitOrder(const KernelInfo &kernel, const HeldDotsSchedule &schedule,
                     ModuleOp module) {
  HeldDots(kernel,
           {schedule.tokens, schedule.vectors, schedule.unroll,
            schedule.prefetch, schedule.streams},
           module)
      .emit();
}
