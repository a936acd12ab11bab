#include "core/io/safetensors_writer.h"

#include <algorithm>
#include <bit>
#include <unordered_map>
#include <unordered_set>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/io/safetensors_header.h"
#include "nlohmann/json.hpp"

namespace headwise {

// Elements are written as they are in memory.
static_assert(std::endian::native == std::endian::little);

namespace {

// Appends `text` as a JSON string.
absl::Status AppendQuoted(const std::string& text, std::string* json) {
  try {
    *json += nlohmann::json(text).dump();
  } catch (const nlohmann::json::type_error&) {
    return absl::InvalidArgumentError(
        absl::StrCat("not UTF-8, as safetensors demands: '", absl::CEscape(text), "'"));
  }
  return absl::OkStatus();
}

std::int64_t BytesOf(const SafetensorsEntry& entry) {
  return NumElements(entry.shape) * SizeOf(entry.dtype);
}

}  // namespace

absl::StatusOr<std::string> SafetensorsHeaderBytes(
    const std::vector<SafetensorsEntry>& entries,
    const std::map<std::string, std::string>& metadata) {
  std::string json = "{";
  if (!metadata.empty()) {
    json += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      if (json.back() != '{') json += ",";
      HW_RETURN_IF_ERROR(AppendQuoted(key, &json));
      json += ":";
      HW_RETURN_IF_ERROR(AppendQuoted(value, &json));
    }
    json += "}";
  }
  std::unordered_set<std::string> names;
  std::int64_t offset = 0;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.name == "__metadata__" || !names.insert(entry.name).second) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor name '", absl::CEscape(entry.name),
          entry.name == "__metadata__" ? "' is reserved by the format" : "' occurs twice"));
    }
    if (json.size() > 1) json += ",";
    HW_RETURN_IF_ERROR(AppendQuoted(entry.name, &json));
    absl::StrAppend(&json, ":{\"dtype\":\"", Name(entry.dtype), "\",\"shape\":[");
    for (std::size_t i = 0; i < entry.shape.size(); ++i) {
      absl::StrAppend(&json, i == 0 ? "" : ",", entry.shape[i]);
    }
    const std::int64_t end = offset + BytesOf(entry);
    absl::StrAppend(&json, "],\"data_offsets\":[", offset, ",", end, "]}");
    offset = end;
  }
  json += "}";
  json.resize((json.size() + 7) / 8 * 8, ' ');
  if (static_cast<std::int64_t>(json.size()) > kMaxSafetensorsHeaderBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the safetensors header of ", entries.size(), " tensors has ", json.size(),
                     " bytes; the format allows ", kMaxSafetensorsHeaderBytes));
  }
  std::string bytes;
  for (int i = 0; i < 8; ++i) {
    bytes.push_back(static_cast<char>(static_cast<std::uint64_t>(json.size()) >> (8 * i) & 0xff));
  }
  return bytes + json;
}

absl::StatusOr<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::Create(
    const std::string& path, std::vector<SafetensorsEntry> entries,
    SafetensorsWriteOptions options) {
  if (options.order == SafetensorsOrder::kAlphabetical) {
    std::sort(entries.begin(), entries.end(),
              [](const SafetensorsEntry& a, const SafetensorsEntry& b) { return a.name < b.name; });
  }
  absl::StatusOr<std::string> header = SafetensorsHeaderBytes(entries, options.metadata);
  if (!header.ok()) {
    return absl::Status(header.status().code(),
                        absl::StrCat("cannot write ", path, ": ", header.status().message()));
  }
  options.file.expected_bytes = static_cast<std::int64_t>(header->size());
  for (const SafetensorsEntry& entry : entries) options.file.expected_bytes += BytesOf(entry);
  HW_ASSIGN_OR_RETURN(std::unique_ptr<AtomicFile> file,
                      AtomicFile::Create(path, std::move(options.file)));
  HW_RETURN_IF_ERROR(file->Append(header->data(), header->size()));
  return std::unique_ptr<SafetensorsWriter>(
      new SafetensorsWriter(std::move(entries), std::move(file)));
}

SafetensorsWriter::SafetensorsWriter(std::vector<SafetensorsEntry> entries,
                                     std::unique_ptr<AtomicFile> file)
    : entries_(std::move(entries)), file_(std::move(file)) {}

absl::Status SafetensorsWriter::Append(const Tensor& tensor) {
  HW_CHECK_LT(next_, entries_.size()) << "more tensors than entries";
  const SafetensorsEntry& entry = entries_[next_++];
  HW_CHECK(tensor.defined() && tensor.device() == Device::kCpu) << entry.name;
  HW_CHECK_EQ(tensor.dtype(), entry.dtype) << entry.name;
  HW_CHECK(tensor.shape() == entry.shape)
      << entry.name << ": " << ToString(tensor.shape()) << " vs " << ToString(entry.shape);
  return file_->Append(tensor.raw_data(), static_cast<std::size_t>(tensor.bytes()));
}

absl::Status SafetensorsWriter::Commit() {
  HW_CHECK_EQ(next_, entries_.size()) << "tensors are missing";
  return file_->Commit();
}

absl::Status WriteSafetensors(const std::string& path,
                              const std::vector<std::pair<std::string, Tensor>>& tensors,
                              SafetensorsWriteOptions options) {
  std::vector<SafetensorsEntry> entries;
  std::unordered_map<std::string, const Tensor*> by_name;
  for (const auto& [name, tensor] : tensors) {
    HW_CHECK(tensor.defined()) << name;
    entries.push_back({name, tensor.dtype(), tensor.shape()});
    by_name[name] = &tensor;
  }
  HW_ASSIGN_OR_RETURN(const std::unique_ptr<SafetensorsWriter> writer,
                      SafetensorsWriter::Create(path, std::move(entries), std::move(options)));
  for (const SafetensorsEntry& entry : writer->entries()) {
    HW_RETURN_IF_ERROR(writer->Append(*by_name.at(entry.name)));
  }
  return writer->Commit();
}

}  // namespace headwise
