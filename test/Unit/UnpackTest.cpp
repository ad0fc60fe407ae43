//===- UnpackTest.cpp - Codes of any width to the bytes of products -------===//
//
// The operations that Unpack emits fold where the chunks are constants: so
// their bytes are known without machine code. Formats have codes of 4, 5, 6 and
// 8 bits, whose products KernelTest runs; a coding of 2 bits is one that a
// format may have.
//
//===----------------------------------------------------------------------===//

#include "Unpack.h"

#include "qwen/ABI/KernelTable.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/OwningOpRef.h"

#include <gtest/gtest.h>

#include <random>

using namespace qwen;

namespace {
constexpr int64_t kChunk = kStepValues * kPanelOutputs;
using Codes = std::array<std::array<uint8_t, kGroup>, kPanelOutputs>;

class UnpackTest : public testing::Test {
protected:
  UnpackTest() {
    context.loadDialect<arith::ArithDialect, mlir::func::FuncDialect,
                        LLVM::LLVMDialect, mlir::vector::VectorDialect>();
    module = mlir::ModuleOp::create(mlir::UnknownLoc::get(&context));
  }

  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
};

/// Bytes of all outputs in each chunk of a group with these codes, as packing
/// writes them.
template <int64_t Bits>
std::vector<std::array<int8_t, kChunk>> packed(const Codes &codes) {
  std::vector<std::array<int8_t, kChunk>> chunks(Bits);
  for (size_t output = 0; output < codes.size(); ++output) {
    const auto own = chunksOf<Bits>(codes[output].data());
    for (size_t chunk = 0; chunk < own.size(); ++chunk)
      for (size_t j = 0; j < kStepValues; ++j)
        chunks[chunk][output * kStepValues + j] =
            static_cast<int8_t>(own[chunk][j]);
  }
  return chunks;
}

/// Compares all bytes of a group with factor * value + bias.
template <int64_t Bits>
void expectBytes(ProductBuilder &b, const CodingInfo &coding, ByteForm form,
                 bool isUnsigned) {
  std::mt19937 random(Bits);
  Codes codes;
  for (auto &output : codes)
    for (uint8_t &code : output)
      code = static_cast<uint8_t>(random() & ((1 << Bits) - 1));
  const auto chunks = packed<Bits>(codes);
  const Unpack unpack(
      coding, /*hasSubBlocks=*/false, form,
      DotInfo{DotKind::Maddubs, 1, isUnsigned, ActivationLayout::Rows});
  ASSERT_EQ(unpack.parts * unpack.chunks() * kStepValues, kGroup);
  const auto type = b.vector(kChunk, b.i8);
  const auto load = [&](int64_t chunk, bool) -> Value {
    return arith::ConstantOp::create(
        b, mlir::DenseElementsAttr::get(type, ArrayRef(chunks.at(chunk))));
  };
  for (int64_t chunk = 0; chunk < unpack.chunks(); ++chunk) {
    const Values loaded = unpack.codes(b, chunk, load);
    for (int64_t part = 0; part < unpack.parts; ++part) {
      mlir::DenseElementsAttr bytes;
      ASSERT_TRUE(mlir::matchPattern(unpack.bytes(b, loaded, chunk, part),
                                     mlir::m_Constant(&bytes)));
      const int64_t step = chunk + part * unpack.chunks();
      auto at = bytes.getValues<int8_t>().begin();
      for (const auto &output : codes)
        for (int64_t j = 0; j < kStepValues; ++j) {
          const int64_t value =
              coding.integerOf(output[kStepValues * step + j]);
          const int64_t byte = unpack.range.factor * value + unpack.range.bias;
          ASSERT_GE(byte, unpack.range.least);
          ASSERT_LE(byte, unpack.range.most);
          ASSERT_EQ(*at++, static_cast<int8_t>(byte))
              << Bits << " bits, step " << step << ", value " << j;
        }
    }
  }
}
} // namespace

TEST_F(UnpackTest, BytesAreThoseOfTheCodes) {
  // Any kernel of x86, whose operations fold.
  const KernelInfo *kernel = findKernel("linear_q4_0_1x16x4_avx2");
  ASSERT_NE(kernel, nullptr);
  ProductBuilder b(*kernel, *module);
  for (ByteForm form : {ByteForm::Biased, ByteForm::Scaled, ByteForm::Exact})
    for (bool isUnsigned : {false, true}) {
      expectBytes<2>(b, {2, false, 2}, form, isUnsigned);
      expectBytes<2>(b, {2, false, 0}, form, isUnsigned);
      expectBytes<4>(b, {4, false, 8}, form, isUnsigned);
      expectBytes<4>(b, {4, false, 0}, form, isUnsigned);
      expectBytes<5>(b, {5, false, 16}, form, isUnsigned);
      expectBytes<6>(b, {6, false, 32}, form, isUnsigned);
      expectBytes<8>(b, {8, false, 0}, form, isUnsigned);
    }
}

// A coding whose products no order can make does not compile.
static_assert(isUnpacked(2) && isUnpacked(4) && isUnpacked(5) &&
              isUnpacked(6) && isUnpacked(8));
static_assert(!isUnpacked(1) && !isUnpacked(3) && !isUnpacked(7));
