// The safetensors header parser on arbitrary bytes. Whatever comes in: no crash, no over-read, an
// error message fit for a terminal; and what is accepted is consistent, and survives being written
// and parsed again.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/base/check.h"
#include "core/dtype/dtype.h"
#include "core/io/safetensors_header.h"
#include "core/io/safetensors_writer.h"
#include "core/tensor/tensor.h"
#include "tests/fuzz/fuzz_driver.h"

namespace headwise {
namespace {

long g_accepted = 0;
long g_rejected_by_header = 0;  // valid size field, JSON refused or inconsistent
long g_rejected_by_size = 0;

std::string Framed(const std::string& json, std::size_t data_bytes) {
  std::string file(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) {
    file[i] = static_cast<char>(static_cast<std::uint64_t>(json.size()) >> (8 * i) & 0xff);
  }
  return file + json + std::string(data_bytes, 'd');
}

// An error message goes to a terminal and a log: short, one line, printable.
void CheckMessage(absl::string_view message) {
  HW_CHECK(!message.empty());
  HW_CHECK_LE(message.size(), 2000u);
  for (const char c : message) HW_CHECK(c >= ' ' && c <= '~') << static_cast<int>(c);
}

// Every byte of the data belongs to one tensor, and every tensor has the bytes of its shape.
void CheckAccepted(const SafetensorsHeader& header, std::int64_t file_bytes) {
  std::vector<std::pair<std::int64_t, std::int64_t>> pieces;
  for (const SafetensorsTensor& tensor : header.tensors) {
    // NumElements() itself checks for overflow.
    HW_CHECK_EQ(NumElements(tensor.shape) * tensor.bits_per_element, tensor.bytes * 8);
    if (tensor.dtype.has_value()) HW_CHECK_EQ(SizeOf(*tensor.dtype) * 8, tensor.bits_per_element);
    pieces.emplace_back(tensor.file_offset, tensor.bytes);
  }
  std::sort(pieces.begin(), pieces.end());
  std::int64_t next = header.data_begin;
  for (const auto& [offset, bytes] : pieces) {
    HW_CHECK_EQ(offset, next);
    next += bytes;
  }
  HW_CHECK_EQ(next, file_bytes);
}

// Written by our writer and parsed again, it is the same.
void CheckRoundTrip(const SafetensorsHeader& header) {
  std::vector<SafetensorsTensor> tensors = header.tensors;
  std::stable_sort(tensors.begin(), tensors.end(),
                   [](const SafetensorsTensor& a, const SafetensorsTensor& b) {
                     return std::pair(a.file_offset, a.bytes) < std::pair(b.file_offset, b.bytes);
                   });
  std::vector<SafetensorsEntry> entries;
  std::size_t data_bytes = 0;
  for (const SafetensorsTensor& tensor : tensors) {
    if (!tensor.dtype.has_value()) return;
    entries.push_back({tensor.name, *tensor.dtype, tensor.shape});
    data_bytes += static_cast<std::size_t>(tensor.bytes);
  }
  const absl::StatusOr<std::string> bytes = SafetensorsHeaderBytes(entries, header.metadata);
  HW_CHECK(bytes.ok()) << bytes.status();
  const absl::StatusOr<SafetensorsHeader> again =
      ParseSafetensors(*bytes + std::string(data_bytes, 'd'));
  HW_CHECK(again.ok()) << again.status();
  HW_CHECK(again->metadata == header.metadata);
  HW_CHECK_EQ(again->tensors.size(), tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    HW_CHECK_EQ(again->tensors[i].name, tensors[i].name);
    HW_CHECK(again->tensors[i].shape == tensors[i].shape) << tensors[i].name;
    HW_CHECK_EQ(again->tensors[i].file_offset - again->data_begin,
                tensors[i].file_offset - header.data_begin);
  }
}

}  // namespace

FuzzTarget MakeFuzzTarget() {
  FuzzTarget target;
  target.seeds = {
      Framed("{}", 0),
      Framed(R"({"__metadata__":{"format":"pt"},)"
             R"("w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}  )",
             24),
      Framed(R"({"a":{"dtype":"BF16","shape":[4],"data_offsets":[0,8]},)"
             R"("b":{"dtype":"I64","shape":[],"data_offsets":[8,16]},)"
             R"("e":{"dtype":"U8","shape":[0,7],"data_offsets":[16,16]},)"
             R"("c":{"data_offsets":[16,19],"shape":[3],"dtype":"U8"}})",
             19),
      Framed(R"({"__metadata__":{"k\u00e9y":"v\n","":""},)"
             R"("f8":{"dtype":"F8_E4M3","shape":[1,1,2],"data_offsets":[4,6]},)"
             R"("f4":{"dtype":"F4","shape":[8],"data_offsets":[0,4]}})",
             6),
      Framed(R"({"w":{"shape":[[[[[[[[[[[[]]]]]]]]]]]]}})", 0),
      // One step from being accepted: an overlap that a gap makes up for, products that wrap.
      Framed(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
             R"("b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
             8),
      Framed(R"({"w":{"dtype":"U8","shape":[4294967296,4294967296,0],"data_offsets":[0,0]}})", 0),
      Framed(R"({"w":{"dtype":"U8","shape":[3,6148914691236517206],"data_offsets":[0,2]}})", 2),
      std::string("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10),
  };
  target.dictionary = {"0",  "1",       "-1",      "4294967296", "9223372036854775807",
                       "24", "1e999",   "0.5",     "-0",         "9223372036854775808",
                       "16", "[",       "]",       "{",          "18446744073709551615",
                       "}",  ":",       ",",       "\"",         "18446744073709551616",
                       "\\", "null",    "true",    "\"dtype\"",  "\"shape\"",
                       "F4", "\"F64\"", "\"U16\"", "\\u0000",    "\"data_offsets\"",
                       "w",  "[0,0]",   "{}",      "\\ud800",    "\"__metadata__\""};
  // The size field says how long the JSON is: up to its last closing bracket.
  target.repair = [](std::string* input) {
    const std::size_t last = input->rfind('}');
    if (input->size() < 8 || last == std::string::npos || last < 8) return;
    *input = Framed(input->substr(8, last - 7), 0) + input->substr(last + 1);
  };
  target.finish = [] {
    std::printf("safetensors_fuzz: %ld accepted, %ld rejected by header, %ld by size field\n",
                g_accepted, g_rejected_by_header, g_rejected_by_size);
    HW_CHECK_GT(g_accepted, 100);
    HW_CHECK_GT(g_rejected_by_header, g_rejected_by_size);
  };
  return target;
}

}  // namespace headwise

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace headwise;
  const absl::string_view file(reinterpret_cast<const char*>(data), size);
  const auto file_bytes = static_cast<std::int64_t>(size);
  const absl::StatusOr<std::int64_t> end = SafetensorsHeaderEnd(file, file_bytes);
  const absl::StatusOr<SafetensorsHeader> header = ParseSafetensors(file);
  if (!header.ok()) {
    CheckMessage(header.status().message());
    ++(end.ok() ? g_rejected_by_header : g_rejected_by_size);
    return 0;
  }
  HW_CHECK(end.ok());
  ++g_accepted;
  CheckAccepted(*header, file_bytes);
  CheckRoundTrip(*header);
  return 0;
}
