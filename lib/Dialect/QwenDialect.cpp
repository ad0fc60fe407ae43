//===- QwenDialect.cpp - The qwen dialect and its attributes --------------===//

#include "qwen/Dialect/QwenDialect.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace qwen;

#include "qwen/Dialect/QwenAttrInterfaces.cpp.inc"
#include "qwen/Dialect/QwenDialect.cpp.inc"
#include "qwen/Dialect/QwenEnums.cpp.inc"

//===----------------------------------------------------------------------===//
// Types
//===----------------------------------------------------------------------===//

CountAttr qwen::countOf(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  const Attribute encoding = tensor ? tensor.getEncoding() : Attribute();
  if (auto blocks = dyn_cast_or_null<BlocksAttr>(encoding))
    return blocks.getCount();
  return dyn_cast_or_null<CountAttr>(encoding);
}

StringRef qwen::nameOf(CountAttr count) {
  return count ? count.getName().getValue() : StringRef(kAllName);
}

CountAttr qwen::countNamed(MLIRContext *context, StringRef name) {
  return name == kAllName
             ? CountAttr()
             : CountAttr::get(context, StringAttr::get(context, name));
}

/// Whether all that the type of a tensor says besides its shape and its element
/// is what it counts.
static bool hasOnlyCount(RankedTensorType tensor) {
  return !tensor.getEncoding() || isa<CountAttr>(tensor.getEncoding());
}

bool qwen::isTokenIntegers(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor && tensor.getRank() == 1 && tensor.isDynamicDim(0) &&
         tensor.getElementType().isInteger(32) && hasOnlyCount(tensor);
}

int64_t qwen::widthOf(Value activations) {
  return cast<RankedTensorType>(activations.getType()).getShape().back();
}

RankedTensorType qwen::typeLike(Value value, ArrayRef<int64_t> sizes,
                                Type element) {
  SmallVector<int64_t> shape = {ShapedType::kDynamic};
  llvm::append_range(shape, sizes);
  return RankedTensorType::get(
      shape, element ? element : Float32Type::get(value.getContext()),
      countOf(value));
}

Attribute qwen::attributeOf(Builder &builder, int64_t value) {
  return builder.getI64IntegerAttr(value);
}
Attribute qwen::attributeOf(Builder &builder, double value) {
  return builder.getF64FloatAttr(value);
}
Attribute qwen::attributeOf(Builder &builder, bool value) {
  return builder.getBoolAttr(value);
}

static bool hasTokens(RankedTensorType tensor) {
  return tensor && tensor.getRank() == 2 && tensor.isDynamicDim(0) &&
         tensor.getDimSize(1) >= 1 && tensor.getDimSize(1) <= kMaxDimension;
}

bool qwen::isIntegers(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor && tensor.getRank() == 1 && tensor.getDimSize(0) >= 1 &&
         tensor.getDimSize(0) <= kMaxDimension &&
         tensor.getElementType().isInteger(32) && !tensor.getEncoding();
}

bool qwen::isFloatActivations(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return hasTokens(tensor) && tensor.getElementType().isF32() &&
         hasOnlyCount(tensor);
}

bool qwen::isQuantizedActivations(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return hasTokens(tensor) && tensor.getElementType().isSignlessInteger(8) &&
         isa_and_nonnull<BlocksAttr>(tensor.getEncoding());
}

bool qwen::isChoiceIntegers(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return hasTokens(tensor) && tensor.getElementType().isInteger(32) &&
         hasOnlyCount(tensor);
}

bool qwen::isInBlocks(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor && isa_and_nonnull<BlocksAttr>(tensor.getEncoding());
}

bool qwen::isExpertActivations(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  if (!tensor || tensor.getRank() != 3 || !tensor.isDynamicDim(0) ||
      tensor.getDimSize(1) < 1 || tensor.getDimSize(1) > kMaxExperts ||
      tensor.getDimSize(2) < 1 || tensor.getDimSize(2) > kMaxDimension)
    return false;
  return isInBlocks(type)
             ? tensor.getElementType().isSignlessInteger(8)
             : tensor.getElementType().isF32() && hasOnlyCount(tensor);
}

int64_t qwen::choicesOfToken(Value value) {
  return isExpertActivations(value.getType())
             ? cast<RankedTensorType>(value.getType()).getDimSize(1)
             : 1;
}

//===----------------------------------------------------------------------===//
// Attributes
//===----------------------------------------------------------------------===//

/// Parses a name that `find` knows.
template <typename T>
static FailureOr<T> parseName(AsmParser &parser, StringRef what,
                              std::optional<T> (*find)(std::string_view)) {
  SMLoc location = parser.getCurrentLocation();
  std::string name;
  if (parser.parseKeywordOrString(&name))
    return failure();
  if (std::optional<T> found = find(name))
    return *found;
  return parser.emitError(location)
         << "unknown " << what << " '" << name << "'";
}

/// Parses an attribute that is only a name, `<name>`.
template <typename Named, typename T>
static Attribute parseNamed(AsmParser &parser, StringRef what,
                            std::optional<T> (*find)(std::string_view)) {
  if (parser.parseLess())
    return {};
  FailureOr<T> value = parseName(parser, what, find);
  if (failed(value) || parser.parseGreater())
    return {};
  return Named::get(parser.getContext(), *value);
}

static ParseResult parseFloat(AsmParser &parser, FailureOr<APFloat> &value) {
  double number;
  if (parser.parseFloat(number))
    return failure();
  value = APFloat(number);
  return success();
}

static void printFloat(AsmPrinter &printer, const APFloat &value) {
  printer.printFloat(value);
}

llvm::hash_code qwen::hash_value(CpuFeatureSet features) {
  return llvm::hash_value(toString(features));
}

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
                                 int64_t size, CountAttr) {
  if (size != kActivationBlock)
    return emitError() << "block is " << size << " when " << kActivationBlock
                       << " is needed";
  return success();
}

/// Whether `name` is a word of lower-case letters, digits and '_'.
static bool isCountName(StringRef name) {
  return !name.empty() && name.size() <= kMaxCountName &&
         llvm::isLower(name.front()) && llvm::all_of(name, [](char c) {
           return llvm::isLower(c) || llvm::isDigit(c) || c == '_';
         });
}

LogicalResult CountAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                StringAttr word) {
  if (word.getValue() == kAllName)
    return emitError() << "a type without #qwen.count counts all";
  if (!isCountName(word.getValue()))
    return emitError() << "count is " << word
                       << " when a word of up to 32 lower-case letters, digits "
                          "and '_' is needed";
  return success();
}

Attribute CountAttr::parse(AsmParser &parser, Type) {
  SMLoc location = parser.getCurrentLocation();
  std::string word;
  if (parser.parseLess() || parser.parseKeywordOrString(&word) ||
      parser.parseGreater())
    return {};
  return getChecked([&] { return parser.emitError(location); },
                    parser.getContext(),
                    StringAttr::get(parser.getContext(), word));
}

void CountAttr::print(AsmPrinter &printer) const {
  printer << '<' << getName().getValue() << '>';
}

// ODS declares the parameters by value.
// NOLINTBEGIN(performance-unnecessary-value-param)
bool qwen::isPositive(const APFloat &value) {
  const auto number = static_cast<float>(value.convertToDouble());
  return std::isfinite(number) && number > 0;
}

LogicalResult YarnAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                               APFloat factor, int64_t positions, APFloat fast,
                               APFloat slow) {
  // NOLINTEND(performance-unnecessary-value-param)
  const double least = slow.convertToDouble(), most = fast.convertToDouble();
  if (!factor.isFinite() || factor.convertToDouble() < 1)
    return emitError() << "factor is " << factor.convertToDouble()
                       << " when a number from 1 on is needed";
  if (positions < 1)
    return emitError() << "positions is " << positions
                       << " when 1 or more is needed";
  if (!std::isfinite(most) || !(least > 0) || least > most)
    return emitError() << "fast is " << most << " and slow is " << least
                       << " when fast >= slow > 0 is needed";
  return success();
}

LogicalResult SectionsAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                   int64_t times, int64_t heights,
                                   int64_t widths, bool interleaved) {
  for (int64_t section : {times, heights, widths})
    if (section < 0 || section > kMaxDimension)
      return emitError() << "section is " << section << " when 0 to "
                         << kMaxDimension << " is needed";
  // The last frequencies of height and width, 3 apart, must be there.
  const int64_t all = times + heights + widths;
  if (interleaved && (3 * heights > all + 1 || 3 * widths > all))
    return emitError() << "sections of " << heights << " and " << widths
                       << " cannot be interleaved with one of " << times;
  return success();
}

Attribute FormatAttr::parse(AsmParser &parser, Type) {
  return parseNamed<FormatAttr>(parser, "format", parseWeightFormat);
}

void FormatAttr::print(AsmPrinter &printer) const {
  printer << '<' << weightFormatName(getValue()) << '>';
}

Attribute KvFormatAttr::parse(AsmParser &parser, Type) {
  return parseNamed<KvFormatAttr>(parser, "format", parseKvFormat);
}

void KvFormatAttr::print(AsmPrinter &printer) const {
  printer << '<' << kvFormatName(getValue()) << '>';
}

Attribute ElementMapAttr::parse(AsmParser &parser, Type) {
  return parseNamed<ElementMapAttr>(parser, "map", parseElementMap);
}

void ElementMapAttr::print(AsmPrinter &printer) const {
  printer << '<' << infoOf(getValue()).name << '>';
}

/// As parseName takes it.
static std::optional<const KernelInfo *> parseKernel(std::string_view name) {
  const KernelInfo *kernel = findKernel(name);
  return kernel ? std::optional(kernel) : std::nullopt;
}

Attribute KernelAttr::parse(AsmParser &parser, Type) {
  return parseNamed<KernelAttr>(parser, "kernel", parseKernel);
}

void KernelAttr::print(AsmPrinter &printer) const {
  printer << '<' << getInfo()->name << '>';
}

Attribute LayoutAttr::parse(AsmParser &parser, Type) {
  SMLoc location = parser.getCurrentLocation();
  int64_t panel, chunk;
  if (parser.parseLess())
    return {};
  FailureOr<WeightFormat> format =
      parseName(parser, "format", parseWeightFormat);
  if (failed(format) || parser.parseComma() || parser.parseKeyword("panel") ||
      parser.parseEqual() || parser.parseInteger(panel) ||
      parser.parseComma() || parser.parseKeyword("chunk") ||
      parser.parseEqual() || parser.parseInteger(chunk) ||
      parser.parseGreater())
    return {};
  return getChecked([&] { return parser.emitError(location); },
                    parser.getContext(), *format, panel, chunk);
}

void LayoutAttr::print(AsmPrinter &printer) const {
  printer << '<' << weightFormatName(getFormat()) << ", panel = " << getPanel()
          << ", chunk = " << getChunk() << '>';
}

Attribute FeaturesAttr::parse(AsmParser &parser, Type) {
  CpuFeatureSet features;
  const auto parseOne = [&]() -> ParseResult {
    FailureOr<CpuFeature> feature =
        parseName(parser, "CPU feature", parseFeature);
    if (succeeded(feature))
      features.insert(*feature);
    return LogicalResult(feature);
  };
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::LessGreater,
                                     parseOne))
    return {};
  return get(parser.getContext(), features);
}

void FeaturesAttr::print(AsmPrinter &printer) const {
  printer << '<';
  llvm::interleaveComma(getValue().names(), printer, [&](StringRef name) {
    printer.printKeywordOrString(name);
  });
  printer << '>';
}

LogicalResult LayoutAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                 WeightFormat format, int64_t panel,
                                 int64_t chunk) {
  const int64_t needed = chunkValues(format);
  if (panel != kPanelOutputs)
    return emitError() << "panel is " << panel << " when " << kPanelOutputs
                       << " is needed";
  if (chunk != needed)
    return emitError() << "chunk is " << chunk << " when " << needed
                       << " is needed for " << weightFormatName(format);
  return success();
}

//===----------------------------------------------------------------------===//
// Attributes of modules and programs
//===----------------------------------------------------------------------===//

static bool isProgram(func::FuncOp function) {
  return function.isPublic() && !function.isExternal();
}

SmallVector<func::FuncOp> qwen::programsOf(ModuleOp module) {
  return llvm::filter_to_vector(module.getOps<func::FuncOp>(), isProgram);
}

std::optional<int64_t> qwen::limitOf(func::FuncOp program, StringRef name) {
  const auto limits = program->getAttrOfType<DictionaryAttr>(kLimitsAttr);
  const auto limit = limits ? limits.getAs<IntegerAttr>(name) : IntegerAttr();
  return limit ? std::optional(limit.getInt()) : std::nullopt;
}

void qwen::setLimit(func::FuncOp program, StringRef name, int64_t most) {
  NamedAttrList limits(program->getAttrOfType<DictionaryAttr>(kLimitsAttr));
  limits.set(name, Builder(program).getI64IntegerAttr(most));
  program->setAttr(kLimitsAttr, limits.getDictionary(program.getContext()));
}

CountAttr qwen::tokensOfCall(func::FuncOp program) {
  const ArrayRef<Type> arguments = program.getArgumentTypes();
  return arguments.empty() ? CountAttr() : countOf(arguments.front());
}

SmallVector<StringAttr> qwen::ownCounts(func::FuncOp program) {
  SmallVector<StringAttr> names;
  if (auto limits = program->getAttrOfType<DictionaryAttr>(kLimitsAttr))
    for (const NamedAttribute limit : limits)
      if (limit.getName() != nameOf(tokensOfCall(program)) &&
          limit.getName() != kWantedName)
        names.push_back(limit.getName());
  return names;
}

std::optional<int64_t> qwen::indexOf(func::FuncOp program, CountAttr count) {
  if (count == tokensOfCall(program))
    return kTokensOfCall;
  if (nameOf(count) == kWantedName)
    return kWantedTokens;
  const SmallVector<StringAttr> own = ownCounts(program);
  const auto *found = llvm::find_if(
      own, [&](StringAttr name) { return name == nameOf(count); });
  if (found == own.end())
    return std::nullopt;
  return kFirstOwnCount + (found - own.begin());
}

/// Whether `attribute` is an i64 from `least` to `most`.
static bool isI64(Attribute attribute, int64_t least,
                  int64_t most = INT64_MAX) {
  auto integer = dyn_cast<IntegerAttr>(attribute);
  return integer && integer.getType().isSignlessInteger(64) &&
         integer.getInt() >= least && integer.getInt() <= most;
}

template <typename Kind> static bool isA(Attribute attribute) {
  return isa<Kind>(attribute);
}

template <typename Element> static bool isArrayOf(Attribute attribute) {
  auto array = dyn_cast<ArrayAttr>(attribute);
  return array && llvm::all_of(array, isA<Element>);
}

namespace {
/// What has an attribute; Value: an argument or a result of a program.
enum class Owner : uint8_t { Module, Program, Argument, Value };

struct KnownAttribute {
  StringRef name;
  Owner owner;
  bool (*isValid)(Attribute);
  StringRef needed;
};
} // namespace

static bool isStage(Attribute attribute) {
  auto name = dyn_cast<StringAttr>(attribute);
  return name && symbolizeStage(name.getValue());
}
/// The most limits of a program: of the tokens of a call, and of others.
static constexpr size_t kMostLimits = 1 + kMostCounts - kFirstOwnCount;

static bool isLimits(Attribute attribute) {
  auto limits = dyn_cast<DictionaryAttr>(attribute);
  return limits && limits.size() <= kMostLimits &&
         llvm::all_of(limits, [](NamedAttribute limit) {
           return isCountName(limit.getName()) &&
                  isI64(limit.getValue(), 1, kMostTokens);
         });
}
static bool isStepBack(Attribute attribute) {
  return isI64(attribute, 0, kMostStepBack);
}
static bool isSize(Attribute attribute) { return isI64(attribute, 0); }

static constexpr StringRef kLimits =
    "a dictionary with an i64 from 1 to 1048576 for each of up to 6 counts";
static_assert(kMostTokens == 1048576 && kMostLimits == 6);
static constexpr StringRef kStepBack = "an i64 from 0 to 1024";
static_assert(kMostStepBack == 1024);
static constexpr StringRef kSize = "an i64 of 0 or more";

static constexpr KnownAttribute kKnownAttributes[] = {
    {kStageAttr, Owner::Module, isStage, "a stage"},
    {kWeightBytesAttr, Owner::Module, isSize, kSize},
    {kTargetFeaturesAttr, Owner::Module, isA<FeaturesAttr>, "a #qwen.features"},
    {kModelAttr, Owner::Program, isA<DictionaryAttr>, "a dictionary"},
    {kLimitsAttr, Owner::Program, isLimits, kLimits},
    {kStepBackAttr, Owner::Program, isStepBack, kStepBack},
    {kOwnCachesAttr, Owner::Program, isA<UnitAttr>, "a unit"},
    {kArenaBytesAttr, Owner::Program, isSize, kSize},
    {kOpsAttr, Owner::Program, isArrayOf<StringAttr>, "an array of strings"},
    {kCountsAttr, Owner::Program, isArrayOf<StringAttr>, "an array of strings"},
    {kCachesAttr, Owner::Program, isArrayOf<DictionaryAttr>,
     "an array of dictionaries"},
    {kWorkAttr, Owner::Program, isArrayOf<DictionaryAttr>,
     "an array of dictionaries"},
    {kOpKernelsAttr, Owner::Program, isArrayOf<ArrayAttr>,
     "an array of arrays"},
    {kInputsAttr, Owner::Program, isArrayOf<DictionaryAttr>,
     "an array of dictionaries"},
    {kOutputsAttr, Owner::Program, isArrayOf<DictionaryAttr>,
     "an array of dictionaries"},
    {kNameAttr, Owner::Value, isA<StringAttr>, "a string"},
    {kFromAttr, Owner::Argument, isA<FlatSymbolRefAttr>, "a symbol"},
    {kPlaceAttr, Owner::Argument, isA<BufferAttr>, "a #qwen.buffer"},
};

/// Checks an attribute of `what`, which one of `owners` may have.
static LogicalResult verifyAttribute(Operation *op, NamedAttribute attribute,
                                     ArrayRef<Owner> owners,
                                     const Twine &what) {
  const auto *known =
      llvm::find_if(kKnownAttributes, [&](const KnownAttribute &row) {
        return row.name == attribute.getName() &&
               llvm::is_contained(owners, row.owner);
      });
  if (known == std::end(kKnownAttributes))
    return op->emitError() << attribute.getName() << " is not an attribute of "
                           << what;
  if (known->isValid(attribute.getValue()))
    return success();
  return op->emitError() << attribute.getName() << " is "
                         << attribute.getValue() << " when " << known->needed
                         << " is needed";
}

LogicalResult QwenDialect::verifyOperationAttribute(Operation *op,
                                                    NamedAttribute attribute) {
  SmallVector<Owner> owners;
  if (isa<ModuleOp>(op))
    owners.push_back(Owner::Module);
  else if (isa<FunctionOpInterface>(op))
    owners.push_back(Owner::Program);
  return verifyAttribute(op, attribute, owners,
                         "'" + op->getName().getStringRef() + "'");
}

LogicalResult QwenDialect::verifyRegionArgAttribute(Operation *op, unsigned,
                                                    unsigned,
                                                    NamedAttribute attribute) {
  return verifyAttribute(op, attribute, {Owner::Argument, Owner::Value},
                         "an argument");
}

LogicalResult
QwenDialect::verifyRegionResultAttribute(Operation *op, unsigned, unsigned,
                                         NamedAttribute attribute) {
  return verifyAttribute(op, attribute, Owner::Value, "a result");
}
