#include "core/io/safetensors_header.h"

#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headwise {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Framed(const std::string& json, std::size_t data_bytes) {
  std::string file;
  for (int i = 0; i < 8; ++i) file.push_back(static_cast<char>(json.size() >> (8 * i) & 0xff));
  return file + json + std::string(data_bytes, '\0');
}

// The error of a file with this header and `data_bytes` bytes of data.
std::string ErrorOf(const std::string& json, std::size_t data_bytes) {
  const absl::StatusOr<SafetensorsHeader> header = ParseSafetensors(Framed(json, data_bytes));
  EXPECT_EQ(header.status().code(), absl::StatusCode::kInvalidArgument) << json;
  return std::string(header.status().message());
}

// "name":{...} with the given numbers.
std::string Entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":[" + shape +
         "],\"data_offsets\":[" + offsets + "]}";
}

TEST(SafetensorsHeader, ParsesTensorsMetadataAndPadding) {
  const std::string json = "{\"__metadata__\":{\"format\":\"pt\",\"\\u00e9\":\"\"}," +
                           Entry("b", "F32", "2,3", "4,28") + "," + Entry("a", "BF16", "2", "0,4") +
                           "}   ";
  const SafetensorsHeader header = *ParseSafetensors(Framed(json, 28));
  ASSERT_EQ(header.tensors.size(), 2u);
  EXPECT_EQ(header.data_begin, 8 + static_cast<std::int64_t>(json.size()));
  const SafetensorsTensor& b = header.tensors[0];
  EXPECT_EQ(b.name, "b");
  EXPECT_EQ(b.dtype_name, "F32");
  EXPECT_EQ(b.dtype, DType::kF32);
  EXPECT_EQ(b.shape, (Shape{2, 3}));
  EXPECT_EQ(b.file_offset, header.data_begin + 4);
  EXPECT_EQ(b.bytes, 24);
  EXPECT_EQ(header.metadata.at("format"), "pt");
  EXPECT_EQ(header.metadata.at("\u00e9"), "");
}

TEST(SafetensorsHeader, ScalarsEmptyTensorsAndEmptyFiles) {
  EXPECT_TRUE(ParseSafetensors(Framed("{}", 0))->tensors.empty());
  EXPECT_TRUE(ParseSafetensors(Framed("{\"__metadata__\":{}}", 0))->tensors.empty());
  // An empty tensor may lie at the beginning, between others, and at the end.
  const SafetensorsHeader header = *ParseSafetensors(
      Framed("{" + Entry("scalar", "F64", "", "0,8") + "," + Entry("e0", "F32", "0", "0,0") + "," +
                 Entry("e1", "F32", "4,0,3", "8,8") + "," + Entry("x", "U8", "1,1", "8,9") + "," +
                 Entry("e2", "I64", "0,0", "9,9") + "}",
             9));
  EXPECT_EQ(header.tensors[0].shape, Shape{});
  EXPECT_EQ(header.tensors[0].bytes, 8);
  EXPECT_EQ(header.tensors[2].shape, (Shape{4, 0, 3}));
}

TEST(SafetensorsHeader, TypesThatNoTensorHoldsAreListed) {
  const SafetensorsHeader header = *ParseSafetensors(Framed(
      "{" + Entry("f8", "F8_E4M3", "3", "0,3") + "," + Entry("f4", "F4", "6", "3,6") + "}", 6));
  EXPECT_FALSE(header.tensors[0].dtype.has_value());
  EXPECT_EQ(header.tensors[0].bits_per_element, 8);
  EXPECT_EQ(header.tensors[1].bytes, 3);
  EXPECT_THAT(ErrorOf("{" + Entry("f4", "F4", "5", "0,3") + "}", 3),
              HasSubstr("does not fill whole bytes"));
}

TEST(SafetensorsHeaderHostile, SizeField) {
  const auto error = [](const std::string& file) {
    return std::string(ParseSafetensors(file).status().message());
  };
  EXPECT_THAT(error(""), AllOf(HasSubstr("truncated"), HasSubstr("found 0")));
  EXPECT_THAT(error("1234567"), AllOf(HasSubstr("truncated"), HasSubstr("found 7")));
  // 100,000,001 = 0x05f5e101
  EXPECT_THAT(error(std::string("\x01\xe1\xf5\x05\0\0\0\0{}", 10)),
              HasSubstr("header size 100000001 exceeds the bound of 100000000"));
  EXPECT_THAT(error(std::string(16, '\xff')), HasSubstr("header size 18446744073709551615"));
  EXPECT_THAT(error("<!DOCTYPE html>"), HasSubstr("is this a safetensors file?"));
  EXPECT_THAT(error(std::string("\x03\0\0\0\0\0\0\0{}", 10)),
              HasSubstr("truncated: the header needs 3 bytes after the first 8, the file has 2"));
  EXPECT_THAT(error(std::string(8, '\0')), HasSubstr("must begin with '{'"));
}

TEST(SafetensorsHeaderHostile, NotJson) {
  for (const char* json :
       {"{", "{\"a\"", "{\"a\":", "{]", "{}x", "{}{}", "{\"__metadata__\":{}", "{'a':1}",
        "{\"__metadata__\":{\"a\":\"b\",}}", "{,}", "{\"\xff\":{}}", "{\"a\tb\":{}}", "{//\n}"}) {
    EXPECT_THAT(ErrorOf(json, 0), HasSubstr("not valid JSON")) << json;
  }
  EXPECT_THAT(ErrorOf("{}x", 0), HasSubstr("at byte 3"));
  for (const char* json : {" {}", "\xef\xbb\xbf{}", "[]", "null", "3", "\"a\""}) {
    EXPECT_THAT(ErrorOf(json, 0), HasSubstr("must begin with '{'")) << json;
  }
  // A parser for C strings would stop there and never see the rest.
  EXPECT_THAT(ErrorOf(std::string("{}\0", 3), 0), HasSubstr("NUL at byte 2"));
  EXPECT_THAT(ErrorOf(std::string("{}\0{]", 5), 0), HasSubstr("not valid JSON"));
}

TEST(SafetensorsHeaderHostile, WrongForm) {
  EXPECT_THAT(ErrorOf("{\"w\":3}", 0), HasSubstr("tensor 'w' must be an object, found a number"));
  EXPECT_THAT(ErrorOf("{\"w\":[]}", 0), HasSubstr("must be an object, found an array"));
  EXPECT_THAT(ErrorOf("{\"w\":null}", 0), HasSubstr("must be an object, found null"));
  EXPECT_THAT(ErrorOf("{\"w\":{}}", 0), HasSubstr("tensor 'w' has no dtype"));
  EXPECT_THAT(ErrorOf("{\"w\":{\"dtype\":\"F32\"}}", 0), HasSubstr("has no shape"));
  EXPECT_THAT(ErrorOf("{\"w\":{\"dtype\":\"F32\",\"shape\":[1]}}", 0),
              HasSubstr("has no data_offsets"));
  EXPECT_THAT(ErrorOf("{\"w\":{\"dtype\":3}}", 0),
              HasSubstr("dtype of tensor 'w' must be a string, found a number"));
  EXPECT_THAT(ErrorOf("{\"w\":{\"shape\":3}}", 0),
              HasSubstr("shape of tensor 'w' must be an array of integers, found a number"));
  EXPECT_THAT(ErrorOf("{\"w\":{\"shape\":{}}}", 0), HasSubstr("found an object"));
  EXPECT_THAT(ErrorOf("{\"w\":{\"shape\":[true]}}", 0), HasSubstr("found a boolean"));
  EXPECT_THAT(ErrorOf("{\"w\":{\"shape\":[\"1\"]}}", 0), HasSubstr("found a string"));
  EXPECT_THAT(ErrorOf("{\"w\":{\"data_offsets\":\"0,4\"}}", 0),
              HasSubstr("must be an array of two integers, found a string"));
  EXPECT_THAT(ErrorOf("{\"w\":{\"data_offsets\":[0]}}", 0),
              HasSubstr("must hold two numbers, found 1"));
  EXPECT_THAT(ErrorOf("{\"w\":{\"data_offsets\":[]}}", 0), HasSubstr("found 0"));
  EXPECT_THAT(ErrorOf("{\"w\":{\"data_offsets\":[0,4,8]}}", 0), HasSubstr("more than two"));
  EXPECT_THAT(ErrorOf("{\"w\":{\"strides\":[1]}}", 0), HasSubstr("unknown field 'strides'"));
  EXPECT_THAT(ErrorOf("{\"__metadata__\":[]}", 0),
              HasSubstr("__metadata__ must be an object, found an array"));
  EXPECT_THAT(ErrorOf("{\"__metadata__\":{\"k\":1}}", 0),
              HasSubstr("__metadata__ value of 'k' must be a string, found a number"));
  EXPECT_THAT(ErrorOf("{\"__metadata__\":{\"k\":{}}}", 0), HasSubstr("found an object"));
}

TEST(SafetensorsHeaderHostile, DuplicateKeys) {
  const std::string w = Entry("w", "F32", "1", "0,4");
  EXPECT_THAT(ErrorOf("{" + w + "," + w + "}", 4), HasSubstr("duplicate key 'w'"));
  // The same name in another spelling.
  EXPECT_THAT(ErrorOf("{" + w + "," + Entry("\\u0077", "F32", "1", "4,8") + "}", 8),
              HasSubstr("duplicate key 'w'"));
  EXPECT_THAT(ErrorOf("{\"__metadata__\":{},\"__metadata__\":{}}", 0),
              HasSubstr("duplicate key '__metadata__'"));
  EXPECT_THAT(ErrorOf("{\"__metadata__\":{\"k\":\"a\",\"k\":\"b\"}}", 0),
              HasSubstr("duplicate key 'k' in __metadata__"));
  EXPECT_THAT(ErrorOf("{\"w\":{\"shape\":[1],\"shape\":[1]}}", 0),
              HasSubstr("duplicate key 'shape' in tensor 'w'"));
}

TEST(SafetensorsHeaderHostile, Numbers) {
  const auto shape = [](const std::string& dims) {
    return ErrorOf("{" + Entry("w", "F32", dims, "0,4") + "}", 4);
  };
  EXPECT_THAT(shape("-1"), HasSubstr("negative number -1"));
  EXPECT_THAT(shape("-9223372036854775808"), HasSubstr("negative"));
  EXPECT_THAT(shape("1.0"), HasSubstr("1.0, which is not an integer"));
  EXPECT_THAT(shape("1e0"), HasSubstr("not an integer"));
  EXPECT_THAT(shape("18446744073709551616"), HasSubstr("not an integer of 64 bits"));
  EXPECT_THAT(shape("1e999"), HasSubstr("not valid JSON"));
  EXPECT_THAT(shape("18446744073709551615"), HasSubstr("overflows"));
  EXPECT_THAT(shape("9223372036854775808,0"), HasSubstr("overflows"));
  EXPECT_THAT(shape("4294967296,4294967296"), HasSubstr("[4294967296, 4294967296] overflows"));
  // The product wraps to 1 in 64 bits.
  EXPECT_THAT(shape("3,6148914691236517206,1"), HasSubstr("overflows"));
  // A later 0 does not excuse it.
  EXPECT_THAT(shape("4294967296,4294967296,0"), HasSubstr("overflows"));
  std::string many = "1";
  for (int i = 0; i < 64; ++i) many += ",1";
  EXPECT_THAT(shape(many), HasSubstr("more than 64 dimensions"));

  const auto offsets = [](const std::string& numbers) {
    return ErrorOf("{" + Entry("w", "F32", "1", numbers) + "}", 4);
  };
  EXPECT_THAT(offsets("-1,4"), HasSubstr("data_offsets of tensor 'w' holds the negative"));
  EXPECT_THAT(offsets("0,4.0"), HasSubstr("not an integer"));
  EXPECT_THAT(offsets("4,0"), HasSubstr("[4, 0) run backwards"));
}

TEST(SafetensorsHeaderHostile, UnknownDtype) {
  EXPECT_THAT(ErrorOf("{" + Entry("w", "F33", "1", "0,4") + "}", 4),
              AllOf(HasSubstr("tensor 'w'"), HasSubstr("unknown dtype 'F33'")));
  EXPECT_THAT(ErrorOf("{" + Entry("w", "f32", "1", "0,4") + "}", 4), HasSubstr("unknown dtype"));
  EXPECT_THAT(ErrorOf("{" + Entry("w", "", "1", "0,4") + "}", 4), HasSubstr("unknown dtype ''"));
}

TEST(SafetensorsHeaderHostile, OffsetsAndSizes) {
  EXPECT_THAT(
      ErrorOf("{" + Entry("w", "F32", "1", "0,4") + "}", 3),
      AllOf(HasSubstr("out of bounds: the file has 3 bytes of data"), HasSubstr("truncated?")));
  EXPECT_THAT(
      ErrorOf("{" + Entry("w", "F32", "1", "18446744073709551612,18446744073709551615") + "}", 4),
      HasSubstr("out of bounds"));
  EXPECT_THAT(
      ErrorOf("{" + Entry("w", "F32", "2", "0,4") + "}", 4),
      AllOf(HasSubstr("hold 4 bytes, but shape [2] of F32 needs 8"), HasSubstr("size mismatch")));
  EXPECT_THAT(ErrorOf("{" + Entry("w", "F32", "0", "0,4") + "}", 4), HasSubstr("size mismatch"));
}

TEST(SafetensorsHeaderHostile, Tiling) {
  const std::string a = Entry("a", "U8", "4", "0,4");
  EXPECT_THAT(ErrorOf("{" + a + "," + Entry("b", "U8", "4", "3,7") + "}", 7),
              AllOf(HasSubstr("tensors 'a' and 'b' overlap"), HasSubstr("begins at 3")));
  EXPECT_THAT(ErrorOf("{" + a + "," + Entry("b", "U8", "4", "0,4") + "}", 4), HasSubstr("overlap"));
  EXPECT_THAT(ErrorOf("{" + a + "," + Entry("b", "U8", "0", "2,2") + "}", 4), HasSubstr("overlap"));
  EXPECT_THAT(ErrorOf("{" + a + "," + Entry("b", "U8", "2", "6,8") + "}", 8),
              HasSubstr("hole in the data: bytes [4, 6) before tensor 'b'"));
  EXPECT_THAT(ErrorOf("{" + Entry("b", "U8", "2", "1,3") + "}", 3), HasSubstr("bytes [0, 1)"));
  EXPECT_THAT(ErrorOf("{" + a + "}", 6), HasSubstr("2 trailing bytes belong to no tensor"));
  EXPECT_THAT(ErrorOf("{}", 1), HasSubstr("1 trailing bytes"));
}

TEST(SafetensorsHeaderHostile, DeepNestingAndLongNamesCostNothing) {
  const std::string deep(1'000'000, '[');
  EXPECT_THAT(ErrorOf("{\"w\":" + deep, 0), HasSubstr("found an array"));
  EXPECT_THAT(ErrorOf("{\"w\":{\"shape\":" + deep, 0), HasSubstr("found an array"));
  EXPECT_THAT(ErrorOf("{\"w\":{\"x\":" + deep, 0), HasSubstr("unknown field"));
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  EXPECT_THAT(ErrorOf(objects, 0), HasSubstr("unknown field 'a'"));

  const std::string error =
      ErrorOf("{" + Entry(std::string(1'000'000, 'n') + "\\n", "F33", "1", "0,4") + "}", 4);
  EXPECT_THAT(error, HasSubstr("(1000001 bytes)"));
  EXPECT_LT(error.size(), 300u);
  // Control characters do not reach the terminal.
  EXPECT_THAT(ErrorOf("{" + Entry("a\\u001b[2J", "F33", "1", "0,4") + "}", 4),
              HasSubstr("'a\\033[2J'"));
}

TEST(SafetensorsHeader, ManyTensors) {
  std::string json = "{";
  for (int i = 19'999; i >= 0; --i) {  // stored backwards
    json += Entry("t" + std::to_string(i), "U8", "2",
                  std::to_string(2 * i) + "," + std::to_string(2 * i + 2)) +
            (i > 0 ? "," : "}");
  }
  const SafetensorsHeader header = *ParseSafetensors(Framed(json, 40'000));
  EXPECT_EQ(header.tensors.size(), 20'000u);
  EXPECT_EQ(header.tensors.back().name, "t0");
}

}  // namespace
}  // namespace headwise
