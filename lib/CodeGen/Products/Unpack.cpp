//===- Unpack.cpp - Codes to the bytes that dots take ---------------------===//

#include "Unpack.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace qwen;
using namespace mlir;

/// The low nibbles of bytes, or the high ones.
static Value nibbles(ProductBuilder &b, Value codes, int64_t part) {
  if (part == 0)
    return arith::AndIOp::create(b, codes, b.constant(codes.getType(), 15));
  return arith::ShRUIOp::create(b, codes, b.constant(codes.getType(), 4));
}

namespace {
struct Signed8 final : Unpack {
  explicit Signed8(bool isUnsigned)
      : Unpack(1, isUnsigned ? ByteRange{1, 128, 0, 255}
                             : ByteRange{1, 0, -128, 127}) {}

  Value bytes(ProductBuilder &b, Value codes, int64_t) const override {
    if (range.bias == 0)
      return codes;
    // w + 128 is w with its sign bit flipped.
    return arith::XOrIOp::create(b, codes, b.constant(codes.getType(), -128));
  }
};

/// Nibbles are stored plus 8. With the highest bit flipped they are their
/// values in two's complement, which are 16 times as much in the upper half of
/// a byte.
struct Offset4 final : Unpack {
  explicit Offset4(ByteForm form)
      : Unpack(2, form == ByteForm::Biased   ? ByteRange{1, 8, 0, 15}
                  : form == ByteForm::Scaled ? ByteRange{16, 0, -128, 112}
                                             : ByteRange{1, 0, -8, 7}),
        form(form) {}

  Value bytes(ProductBuilder &b, Value codes, int64_t part) const override {
    auto constant = [&](int64_t value) {
      return b.constant(codes.getType(), value);
    };
    if (form == ByteForm::Scaled) {
      Value w = arith::XOrIOp::create(b, codes, constant(int8_t(0x88)));
      if (part == 0)
        return arith::ShLIOp::create(b, w, constant(4));
      return arith::AndIOp::create(b, w, constant(int8_t(0xF0)));
    }
    Value nibble = nibbles(b, codes, part);
    if (form == ByteForm::Biased)
      return nibble;
    return arith::SubIOp::create(b, nibble, constant(8));
  }

  const ByteForm form;
};

struct Unsigned4 final : Unpack {
  Unsigned4() : Unpack(2, {1, 0, 0, 15}) {}

  Value bytes(ProductBuilder &b, Value codes, int64_t part) const override {
    return nibbles(b, codes, part);
  }
};

/// Nibbles are places in a codebook.
struct Nonlinear4 final : Unpack {
  Nonlinear4(ArrayRef<int8_t> codebook, bool isUnsigned)
      : Unpack(2, isUnsigned
                      ? ByteRange{1, 128, codebook.front() + 128,
                                  codebook.back() + 128}
                      : ByteRange{1, 0, codebook.front(), codebook.back()}) {
    for (int8_t value : codebook)
      table.push_back(int8_t(value + range.bias));
  }

  Value bytes(ProductBuilder &b, Value codes, int64_t part) const override {
    return b.lookUp(table, nibbles(b, codes, part));
  }

  SmallVector<int8_t> table;
};
} // namespace

std::unique_ptr<Unpack> qwen::makeUnpack(WeightFormat format, ByteForm form,
                                         const DotInfo &dot) {
  const bool isUnsigned = form == ByteForm::Biased && dot.isUnsigned;
  switch (infoOf(format).coding) {
  case Coding::Signed8:
    return std::make_unique<Signed8>(isUnsigned);
  case Coding::Offset4:
    return std::make_unique<Offset4>(form);
  case Coding::Unsigned4:
    return std::make_unique<Unsigned4>();
  case Coding::Nonlinear4:
    return std::make_unique<Nonlinear4>(codingOf(format).codebook, isUnsigned);
  case Coding::Float32:
  case Coding::BFloat16:
    break;
  }
  return nullptr;
}
