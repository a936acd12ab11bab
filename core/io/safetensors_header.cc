#include "core/io/safetensors_header.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/io/safetensors_json.h"

namespace headwise {
namespace {

using internal::QuoteName;
using internal::SafetensorsJson;

struct FormatType {
  const char* name;
  int bits;
  std::optional<DType> dtype;
};

constexpr FormatType kFormatTypes[] = {
    {"F32", 32, DType::kF32},     {"BF16", 16, DType::kBF16},   {"F64", 64, DType::kF64},
    {"F16", 16, DType::kF16},     {"I32", 32, DType::kI32},     {"I64", 64, DType::kI64},
    {"U8", 8, DType::kU8},        {"U16", 16, DType::kU16},     {"BOOL", 8, std::nullopt},
    {"I8", 8, std::nullopt},      {"I16", 16, std::nullopt},    {"U32", 32, std::nullopt},
    {"U64", 64, std::nullopt},    {"C64", 64, std::nullopt},    {"F8_E4M3", 8, std::nullopt},
    {"F8_E5M2", 8, std::nullopt}, {"F8_E8M0", 8, std::nullopt}, {"F6_E2M3", 6, std::nullopt},
    {"F6_E3M2", 6, std::nullopt}, {"F4", 4, std::nullopt},
};

const FormatType* FindType(const std::string& name) {
  for (const FormatType& type : kFormatTypes) {
    if (name == type.name) return &type;
  }
  return nullptr;
}

absl::Status Error(const SafetensorsJson::Entry& entry, const std::string& message) {
  return absl::InvalidArgumentError(absl::StrCat("tensor ", QuoteName(entry.name), ": ", message));
}

std::string ShapeText(const std::vector<std::uint64_t>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", shape[i]);
  }
  return text + "]";
}

// The bytes of shape x type. Dimensions are multiplied in order, and no partial product may
// overflow, not even when a later dimension is 0. The bound is that of NumElements() in tensor.h,
// so that no accepted shape trips its check.
absl::StatusOr<std::int64_t> BytesOf(const SafetensorsJson::Entry& entry, const FormatType& type) {
  constexpr std::uint64_t kMaxElements = std::numeric_limits<std::int64_t>::max() / 16;
  std::uint64_t elements = 1;
  for (const std::uint64_t dim : entry.shape) {
    if (dim > std::numeric_limits<std::int64_t>::max() ||
        (dim != 0 && elements > kMaxElements / dim)) {
      return Error(entry, absl::StrCat("shape ", ShapeText(entry.shape), " overflows"));
    }
    elements *= dim;
  }
  if (type.bits >= 8) return static_cast<std::int64_t>(elements) * (type.bits / 8);
  const std::uint64_t bits = elements * static_cast<std::uint64_t>(type.bits);
  if (bits % 8 != 0) {
    return Error(entry, absl::StrCat("shape ", ShapeText(entry.shape), " of ", type.name,
                                     " does not fill whole bytes"));
  }
  return static_cast<std::int64_t>(bits / 8);
}

// One tensor on its own.
absl::StatusOr<SafetensorsTensor> CheckTensor(SafetensorsJson::Entry entry, std::int64_t data_begin,
                                              std::int64_t data_bytes) {
  const FormatType* type = FindType(entry.dtype);
  if (type == nullptr) {
    return Error(entry, absl::StrCat("unknown dtype ", QuoteName(entry.dtype)));
  }
  HW_ASSIGN_OR_RETURN(const std::int64_t bytes, BytesOf(entry, *type));
  const std::uint64_t begin = entry.data_offsets[0];
  const std::uint64_t end = entry.data_offsets[1];
  const std::string offsets = absl::StrCat("data_offsets [", begin, ", ", end, ")");
  if (begin > end) return Error(entry, absl::StrCat(offsets, " run backwards"));
  if (end > static_cast<std::uint64_t>(data_bytes)) {
    return Error(entry, absl::StrCat(offsets, " are out of bounds: the file has ", data_bytes,
                                     " bytes of data; is it truncated?"));
  }
  if (end - begin != static_cast<std::uint64_t>(bytes)) {
    return Error(entry, absl::StrCat(offsets, " hold ", end - begin, " bytes, but shape ",
                                     ShapeText(entry.shape), " of ", entry.dtype, " needs ", bytes,
                                     ": size mismatch"));
  }
  SafetensorsTensor tensor;
  tensor.name = std::move(entry.name);
  tensor.dtype_name = std::move(entry.dtype);
  tensor.bits_per_element = type->bits;
  tensor.dtype = type->dtype;
  tensor.shape.assign(entry.shape.begin(), entry.shape.end());
  tensor.file_offset = data_begin + static_cast<std::int64_t>(begin);
  tensor.bytes = bytes;
  return tensor;
}

// All tensors together: every byte of the data once.
absl::Status CheckTiling(const std::vector<SafetensorsTensor>& tensors, std::int64_t data_begin,
                         std::int64_t file_bytes) {
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  // An empty tensor comes before the one that begins where it lies.
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::pair(tensors[a].file_offset, tensors[a].bytes) <
           std::pair(tensors[b].file_offset, tensors[b].bytes);
  });
  std::int64_t next = data_begin;
  const SafetensorsTensor* before = nullptr;
  for (const std::size_t i : order) {
    const SafetensorsTensor& tensor = tensors[i];
    if (tensor.file_offset < next) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensors ", QuoteName(before->name), " and ", QuoteName(tensor.name),
                       " overlap: data up to ", next - data_begin,
                       " is taken, but the second begins at ", tensor.file_offset - data_begin));
    }
    if (tensor.file_offset > next) {
      return absl::InvalidArgumentError(absl::StrCat(
          "hole in the data: bytes [", next - data_begin, ", ", tensor.file_offset - data_begin,
          ") before tensor ", QuoteName(tensor.name), " belong to no tensor"));
    }
    next += tensor.bytes;
    before = &tensor;
  }
  if (next != file_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(file_bytes - next,
                                                   " trailing bytes belong to no tensor: the data "
                                                   "end at file offset ",
                                                   next, ", the file has ", file_bytes, " bytes"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::int64_t> SafetensorsHeaderEnd(absl::string_view first_bytes,
                                                  std::int64_t file_bytes) {
  if (first_bytes.size() < 8 || file_bytes < 8) {
    return absl::InvalidArgumentError(
        absl::StrCat("truncated: a safetensors file has at least 8 bytes, found ",
                     std::min<std::int64_t>(file_bytes, first_bytes.size())));
  }
  std::uint64_t n = 0;
  for (int i = 7; i >= 0; --i) {
    n = n << 8 | static_cast<unsigned char>(first_bytes[static_cast<std::size_t>(i)]);
  }
  if (n > static_cast<std::uint64_t>(kMaxSafetensorsHeaderBytes)) {
    return absl::InvalidArgumentError(absl::StrCat("header size ", n, " exceeds the bound of ",
                                                   kMaxSafetensorsHeaderBytes,
                                                   " bytes; is this a safetensors file?"));
  }
  if (static_cast<std::int64_t>(n) > file_bytes - 8) {
    return absl::InvalidArgumentError(absl::StrCat("truncated: the header needs ", n,
                                                   " bytes after the first 8, the file has ",
                                                   file_bytes - 8));
  }
  return 8 + static_cast<std::int64_t>(n);
}

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view prefix,
                                                         std::int64_t file_bytes) {
  HW_CHECK_LE(static_cast<std::int64_t>(prefix.size()), file_bytes);
  HW_ASSIGN_OR_RETURN(const std::int64_t header_end, SafetensorsHeaderEnd(prefix, file_bytes));
  HW_CHECK_GE(static_cast<std::int64_t>(prefix.size()), header_end);
  HW_ASSIGN_OR_RETURN(SafetensorsJson json, internal::ParseSafetensorsJson(prefix.substr(
                                                8, static_cast<std::size_t>(header_end) - 8)));

  SafetensorsHeader header;
  header.data_begin = header_end;
  header.metadata = std::move(json.metadata);
  header.tensors.reserve(json.entries.size());
  for (SafetensorsJson::Entry& entry : json.entries) {
    HW_ASSIGN_OR_RETURN(SafetensorsTensor tensor,
                        CheckTensor(std::move(entry), header_end, file_bytes - header_end));
    header.tensors.push_back(std::move(tensor));
  }
  HW_RETURN_IF_ERROR(CheckTiling(header.tensors, header_end, file_bytes));
  return header;
}

absl::StatusOr<SafetensorsHeader> ParseSafetensors(absl::string_view file) {
  return ParseSafetensorsHeader(file, static_cast<std::int64_t>(file.size()));
}

}  // namespace headwise
