//===- LinearHeldOrder.cpp - Products in the order of their code ----------===//

#include "LinearHeldOrder.h"
#include "ProductsDot.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include <algorithm>

using namespace qwen;
using namespace mlir;

bool qwen::holdsOrder(const LinearTile &tile) {
  const KernelSchedule &schedule = tile.schedule;
  const IsaInfo &isa = isaInfo(tile.kernel.isa);
  return isa.dot.kind == DotKind::Maddubs && isa.registers == 16 &&
         schedule.inTurn == 0 && (schedule.tokens > 1 || schedule.streams > 1);
}

HeldSums::HeldSums(LinearTile &tile)
    : tile(tile), memory(tile.b.scratch(
                      std::max<int64_t>(tile.schedule.streams, 1) *
                          tile.schedule.tokens * tile.vectors * 4 * tile.lanes,
                      4 * tile.lanes)) {}

// Volatile, or LLVM would have the sums in registers.

Value HeldSums::load(VectorType type, int64_t i) {
  const int64_t bytes = 4 * tile.lanes;
  return LLVM::LoadOp::create(tile.b, type, tile.b.at(memory, i * bytes), bytes,
                              /*isVolatile=*/true);
}

void HeldSums::store(Value sum, int64_t i) {
  const int64_t bytes = 4 * tile.lanes;
  LLVM::StoreOp::create(tile.b, sum, tile.b.at(memory, i * bytes), bytes,
                        /*isVolatile=*/true);
}

Values HeldSums::load(VectorType type, size_t count) {
  Values sums;
  for (size_t i = 0; i < count; ++i)
    sums.push_back(load(type, int64_t(i)));
  return sums;
}

void HeldSums::store(ArrayRef<Value> sums) {
  for (auto [i, sum] : llvm::enumerate(sums))
    store(sum, int64_t(i));
}

/// The dots of one chunk of a group in all panels. `dots` are as heldDots has
/// them, `panels` where the panels' chunks are.
static void addChunk(LinearTile &tile, ArrayRef<Value> panels, int64_t chunk,
                     ArrayRef<Value> q,
                     ArrayRef<std::unique_ptr<GroupDot>> dots) {
  ProductBuilder &b = tile.b;
  const int64_t parts = tile.valuesPerByte();
  const int64_t count = tile.groupBytes / kChunkBytes;
  auto x = [&](size_t r, int64_t part) {
    return activations(tile, q[r], chunk + part * count);
  };
  // Those of several tokens are loaded again for each panel.
  Values shared;
  if (q.size() == 1) {
    b.keepLoadsInOrder();
    for (int64_t part = 0; part < parts; ++part)
      shared.push_back(x(0, part));
  }
  for (size_t p = 0; p < panels.size(); ++p) {
    Values packed;
    for (int64_t v = 0; v < tile.vectors; ++v)
      packed.push_back(loadChunk(tile, panels[p], chunk, v));
    for (int64_t part = 0; part < parts; ++part) {
      Values w;
      for (Value bytes : packed)
        w.push_back(unpack(tile, bytes, part));
      for (size_t r = 0; r < q.size(); ++r) {
        b.keepLoadsInOrder();
        Value of = shared.empty() ? x(r, part) : shared[part];
        for (int64_t v = 0; v < tile.vectors; ++v) {
          GroupDot &dot = *dots[(p * q.size() + r) * tile.vectors + v];
          dot.step(w[v], of, (chunk + part * count) % 4);
          dot.keepOrder();
        }
      }
    }
  }
}

void qwen::heldDots(LinearTile &tile, ArrayRef<Value> chunks, Value column,
                    ArrayRef<Value> q, UseDot use) {
  ProductBuilder &b = tile.b;
  SmallVector<std::unique_ptr<GroupDot>> dots;
  for (size_t i = 0; i < chunks.size() * q.size() * tile.vectors; ++i)
    dots.push_back(makeDot(b, tile.kernel.isa, tile.isEightBits(), nullptr));
  Values panels;
  for (Value group : chunks)
    panels.push_back(b.at(group, b.mul(column, 4)));
  for (int64_t chunk = 0; chunk < tile.groupBytes / kChunkBytes; ++chunk)
    addChunk(tile, panels, chunk, q, dots);
  b.keepLoadsInOrder();
  for (size_t i = 0; i < dots.size(); ++i)
    use(int64_t(i), dots[i]->finish());
}
