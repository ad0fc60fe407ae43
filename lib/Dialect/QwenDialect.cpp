//===- QwenDialect.cpp - The qwen dialect and its attributes --------------===//

#include "qwen/Dialect/QwenDialect.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace qwen;

#include "qwen/Dialect/QwenDialect.cpp.inc"

//===----------------------------------------------------------------------===//
// Types
//===----------------------------------------------------------------------===//

bool qwen::isTokenIntegers(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor && tensor.getRank() == 1 && tensor.isDynamicDim(0) &&
         tensor.getElementType().isInteger(32) && !tensor.getEncoding();
}

static bool isRows(RankedTensorType tensor) {
  return tensor && tensor.getRank() == 2 && tensor.isDynamicDim(0) &&
         tensor.getDimSize(1) >= 1 && tensor.getDimSize(1) <= kMaxDimension;
}

bool qwen::isFloatActivations(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return isRows(tensor) && tensor.getElementType().isF32() &&
         !tensor.getEncoding();
}

bool qwen::isQuantizedActivations(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return isRows(tensor) && tensor.getElementType().isSignlessInteger(8) &&
         isa_and_nonnull<BlocksAttr>(tensor.getEncoding());
}

//===----------------------------------------------------------------------===//
// Attributes
//===----------------------------------------------------------------------===//

#define GET_ATTRDEF_CLASSES
#include "qwen/Dialect/QwenAttributes.cpp.inc"

void QwenDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "qwen/Dialect/QwenAttributes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "qwen/Dialect/QwenOps.cpp.inc"
      >();
}

LogicalResult BlocksAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                 int64_t size) {
  if (size != kActivationBlock)
    return emitError() << "block is " << size << " when " << kActivationBlock
                       << " is needed";
  return success();
}

/// Parses the name of a number format with `parseName`.
template <typename T>
static FailureOr<T>
parseFormatName(AsmParser &parser,
                std::optional<T> (*parseName)(std::string_view)) {
  SMLoc location = parser.getCurrentLocation();
  StringRef name;
  if (failed(parser.parseKeyword(&name)))
    return failure();
  if (std::optional<T> format = parseName({name.data(), name.size()}))
    return *format;
  return parser.emitError(location) << "unknown format '" << name << "'";
}

Attribute FormatAttr::parse(AsmParser &parser, Type) {
  if (parser.parseLess())
    return {};
  FailureOr<WeightFormat> format = parseFormatName(parser, parseWeightFormat);
  if (failed(format) || parser.parseGreater())
    return {};
  return get(parser.getContext(), *format);
}

void FormatAttr::print(AsmPrinter &printer) const {
  printer << '<' << weightFormatName(getValue()) << '>';
}

Attribute KvFormatAttr::parse(AsmParser &parser, Type) {
  if (parser.parseLess())
    return {};
  FailureOr<KvFormat> format = parseFormatName(parser, parseKvFormat);
  if (failed(format) || parser.parseGreater())
    return {};
  return get(parser.getContext(), *format);
}

void KvFormatAttr::print(AsmPrinter &printer) const {
  printer << '<' << kvFormatName(getValue()) << '>';
}

Attribute LayoutAttr::parse(AsmParser &parser, Type) {
  SMLoc location = parser.getCurrentLocation();
  int64_t panel, chunk;
  if (parser.parseLess())
    return {};
  FailureOr<WeightFormat> format = parseFormatName(parser, parseWeightFormat);
  if (failed(format) || parser.parseComma() || parser.parseKeyword("panel") ||
      parser.parseEqual() || parser.parseInteger(panel) ||
      parser.parseComma() || parser.parseKeyword("chunk") ||
      parser.parseEqual() || parser.parseInteger(chunk) ||
      parser.parseGreater())
    return {};
  return getChecked(
      [&] { return parser.emitError(location); }, parser.getContext(),
      FormatAttr::get(parser.getContext(), *format), panel, chunk);
}

void LayoutAttr::print(AsmPrinter &printer) const {
  printer << '<' << weightFormatName(getFormat().getValue())
          << ", panel = " << getPanel() << ", chunk = " << getChunk() << '>';
}

LogicalResult LayoutAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                 FormatAttr format, int64_t panel,
                                 int64_t chunk) {
  const int64_t needed = chunkValues(format.getValue());
  if (panel != kPanelOutputs)
    return emitError() << "panel is " << panel << " when " << kPanelOutputs
                       << " is needed";
  if (chunk != needed)
    return emitError() << "chunk is " << chunk << " when " << needed
                       << " is needed for "
                       << weightFormatName(format.getValue());
  return success();
}
