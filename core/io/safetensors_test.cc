// Reader and writer together: round trips, bytes on disk, errors of both.
#include "core/io/safetensors.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "core/io/safetensors_writer.h"
#include "core/io/testing/fault_injection.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headwise {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr DType kAllTypes[] = {DType::kF32, DType::kBF16, DType::kF64, DType::kF16,
                               DType::kI32, DType::kI64,  DType::kU8,  DType::kU16};

std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream s;
  s << in.rdbuf();
  return s.str();
}

// Every bit pattern is as good as another: NaNs and subnormals are among them.
Tensor RandomTensor(const Shape& shape, DType dtype, unsigned seed) {
  Tensor tensor = Tensor::Empty(shape, dtype, Device::kCpu);
  std::mt19937 rng(seed);
  auto* bytes = static_cast<unsigned char*>(tensor.raw_data());
  for (std::int64_t i = 0; i < tensor.bytes(); ++i) bytes[i] = static_cast<unsigned char>(rng());
  return tensor;
}

bool SameBits(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         std::memcmp(a.raw_data(), b.raw_data(), static_cast<std::size_t>(a.bytes())) == 0;
}

class SafetensorsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = testing::TempDir() + "/safetensors_test_" +
                 testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(directory_);
    fs::create_directory(directory_);
    path_ = directory_ + "/model.safetensors";
  }

  std::string directory_, path_;
};

TEST_F(SafetensorsTest, RoundTripOfEveryDtypeAndShapeIsBitExact) {
  std::vector<std::pair<std::string, Tensor>> tensors;
  const std::vector<Shape> shapes = {{}, {0}, {3, 0, 5}, {1}, {7}, {3, 5}, {2, 3, 5, 7}};
  unsigned seed = 0;
  for (const DType dtype : kAllTypes) {
    for (const Shape& shape : shapes) {
      tensors.emplace_back(std::string(Name(dtype)) + ToString(shape),
                           RandomTensor(shape, dtype, ++seed));
    }
  }
  tensors.emplace_back("name \"with\" \\ \u00fc\u6f22 and \n", RandomTensor({2}, DType::kF32, 99));
  SafetensorsWriteOptions options;
  options.metadata = {{"format", "headwise"}, {"quote\"", "\u00e9\t"}};
  options.file.buffer_bytes = 13;  // pieces that end anywhere
  ASSERT_TRUE(WriteSafetensors(path_, tensors, options).ok());

  const SafetensorsFile file = *SafetensorsFile::Open(path_);
  EXPECT_EQ(file.tensors().size(), tensors.size());
  EXPECT_EQ(file.metadata(), options.metadata);
  const std::vector<std::string> names = file.Names();
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  for (const auto& [name, tensor] : tensors) {
    const absl::StatusOr<Tensor> read = file.Read(name);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(SameBits(*read, tensor)) << name;
    const Tensor destination = Tensor::Zeros(tensor.shape(), tensor.dtype(), Device::kCpu);
    ASSERT_TRUE(file.ReadInto(name, destination).ok());
    EXPECT_TRUE(SameBits(destination, tensor)) << name;
  }
}

TEST_F(SafetensorsTest, BytesOnDiskArePinned) {
  const Tensor a = Tensor::Zeros({2}, DType::kF32, Device::kCpu);
  a.data<float>()[0] = 1.0f;
  a.data<float>()[1] = -2.0f;
  const Tensor b = Tensor::Zeros({1, 3}, DType::kU8, Device::kCpu);
  for (int i = 0; i < 3; ++i) b.data<std::uint8_t>()[i] = static_cast<std::uint8_t>('x' + i);
  SafetensorsWriteOptions options;
  options.metadata = {{"z", "1"}, {"k", "v"}};
  ASSERT_TRUE(WriteSafetensors(path_, {{"b", b}, {"a", a}}, options).ok());

  const std::string json =
      "{\"__metadata__\":{\"k\":\"v\",\"z\":\"1\"},"
      "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
      "\"b\":{\"dtype\":\"U8\",\"shape\":[1,3],\"data_offsets\":[8,11]}}";
  const std::string bytes = ReadAll(path_);
  const std::size_t padded = (json.size() + 7) / 8 * 8;
  ASSERT_EQ(bytes.size(), 8 + padded + 11);
  EXPECT_EQ(bytes.substr(0, 8), std::string(1, static_cast<char>(padded)) + std::string(7, '\0'));
  EXPECT_EQ(bytes.substr(8, padded), json + std::string(padded - json.size(), ' '));
  EXPECT_EQ(bytes.substr(8 + padded), std::string("\0\0\x80\x3f\0\0\0\xc0xyz", 11));

  // Any order of the arguments gives the same bytes.
  ASSERT_TRUE(WriteSafetensors(path_, {{"a", a}, {"b", b}}, options).ok());
  EXPECT_EQ(ReadAll(path_), bytes);
}

TEST_F(SafetensorsTest, DataBeginAtAMultipleOfEightBytes) {
  const Tensor t = Tensor::Zeros({1}, DType::kF32, Device::kCpu);
  for (std::size_t length = 1; length <= 9; ++length) {
    ASSERT_TRUE(WriteSafetensors(path_, {{std::string(length, 'n'), t}}).ok());
    EXPECT_EQ(SafetensorsFile::Open(path_)->tensors()[0].file_offset % 8, 0);
  }
  ASSERT_TRUE(WriteSafetensors(path_, {}).ok());
  EXPECT_EQ(ReadAll(path_), std::string("\x08\0\0\0\0\0\0\0{}      ", 16));
}

TEST_F(SafetensorsTest, OrderAsGiven) {
  const Tensor t = Tensor::Zeros({1}, DType::kF32, Device::kCpu);
  SafetensorsWriteOptions options;
  options.order = SafetensorsOrder::kAsGiven;
  ASSERT_TRUE(WriteSafetensors(path_, {{"b", t}, {"a", t}, {"c", t}}, options).ok());
  EXPECT_THAT(SafetensorsFile::Open(path_)->Names(), ElementsAre("b", "a", "c"));
}

TEST_F(SafetensorsTest, StreamingWritesTheSameFile) {
  std::vector<std::pair<std::string, Tensor>> tensors;
  std::vector<SafetensorsEntry> entries;
  for (const char* name : {"q", "w", "a"}) {
    tensors.emplace_back(name, RandomTensor({5, 3}, DType::kBF16, *name));
    entries.push_back({name, DType::kBF16, {5, 3}});
  }
  ASSERT_TRUE(WriteSafetensors(path_, tensors).ok());
  const std::string at_once = ReadAll(path_);

  const auto writer = *SafetensorsWriter::Create(path_, entries);
  for (const SafetensorsEntry& entry : writer->entries()) {
    ASSERT_TRUE(writer->Append(RandomTensor({5, 3}, DType::kBF16, entry.name[0])).ok());
  }
  ASSERT_TRUE(writer->Commit().ok());
  EXPECT_EQ(ReadAll(path_), at_once);
}

TEST_F(SafetensorsTest, StreamingChecksItsCaller) {
  const auto writer = *SafetensorsWriter::Create(path_, {{"a", DType::kF32, {2}}});
  EXPECT_DEATH((void)writer->Commit(), "tensors are missing");
  EXPECT_DEATH((void)writer->Append(Tensor::Zeros({2}, DType::kF64, Device::kCpu)), "F64 vs F32");
  EXPECT_DEATH((void)writer->Append(Tensor::Zeros({3}, DType::kF32, Device::kCpu)),
               "a: \\[3\\] vs \\[2\\]");
}

TEST_F(SafetensorsTest, WriterRefusesNamesThatTheFormatCannotHold) {
  const Tensor t = Tensor::Zeros({1}, DType::kF32, Device::kCpu);
  EXPECT_THAT(WriteSafetensors(path_, {{"w", t}, {"w", t}}).message(),
              AllOf(HasSubstr(path_), HasSubstr("'w' occurs twice")));
  EXPECT_THAT(WriteSafetensors(path_, {{"__metadata__", t}}).message(), HasSubstr("reserved"));
  EXPECT_THAT(WriteSafetensors(path_, {{"\xff", t}}).message(), HasSubstr("not UTF-8"));
  SafetensorsWriteOptions options;
  options.metadata["k"] = "\xc0";
  EXPECT_THAT(WriteSafetensors(path_, {{"w", t}}, options).message(), HasSubstr("not UTF-8"));
  EXPECT_THAT(WriteSafetensors(directory_ + "/no/file", {{"w", t}}).message(),
              HasSubstr("No such file or directory"));
  EXPECT_TRUE(fs::is_empty(directory_));
}

TEST_F(SafetensorsTest, FailedWriteLeavesTheOldFile) {
  const Tensor old_weights = RandomTensor({100}, DType::kF32, 1);
  const auto save = [&](FileHook hook) {
    SafetensorsWriteOptions options;
    options.file.buffer_bytes = 128;
    options.file.hook = std::move(hook);
    return WriteSafetensors(path_, {{"w", RandomTensor({100}, DType::kF32, 2)}}, options);
  };
  ASSERT_TRUE(WriteSafetensors(path_, {{"w", old_weights}}).ok());
  const absl::Status status = save(FailOperation(2, ENOSPC));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("write 128 bytes after the first 128 (of "), HasSubstr(path_)));
  EXPECT_TRUE(SameBits(*SafetensorsFile::Open(path_)->Read("w"), old_weights));
  EXPECT_TRUE(KilledAtOperation(3, save));
  EXPECT_TRUE(SameBits(*SafetensorsFile::Open(path_)->Read("w"), old_weights));
}

TEST_F(SafetensorsTest, ReadErrorsNameWhatIsThere) {
  const Tensor t = Tensor::Zeros({2, 3}, DType::kF32, Device::kCpu);
  ASSERT_TRUE(WriteSafetensors(path_, {{"layers.0.wqkv", t}, {"layers.0.wo", t}}).ok());
  const SafetensorsFile file = *SafetensorsFile::Open(path_);
  EXPECT_EQ(file.Find("layers.0.wkqv"), nullptr);
  EXPECT_EQ(file.Find("layers.0.wo")->shape, (Shape{2, 3}));
  const absl::Status missing = file.Read("layers.0.wkqv").status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(missing.message(),
              AllOf(HasSubstr(path_), HasSubstr("no tensor 'layers.0.wkqv' among its 2"),
                    HasSubstr("did you mean 'layers.0.wqkv'")));
  EXPECT_THAT(
      file.ReadInto("layers.0.wo", Tensor::Zeros({3, 2}, DType::kF32, Device::kCpu)).message(),
      HasSubstr("'layers.0.wo' is F32 [2, 3], expected F32 [3, 2]"));
  EXPECT_THAT(
      file.ReadInto("layers.0.wo", Tensor::Zeros({2, 3}, DType::kBF16, Device::kCpu)).message(),
      HasSubstr("expected BF16 [2, 3]"));
}

TEST_F(SafetensorsTest, OpenErrorsNameThePath) {
  const absl::Status missing = SafetensorsFile::Open(directory_ + "/nothing").status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(missing.message(), HasSubstr(directory_ + "/nothing: No such file or directory"));
  EXPECT_THAT(SafetensorsFile::Open(directory_).status().message(),
              HasSubstr("not a regular file"));
  ASSERT_EQ(::mkfifo((directory_ + "/pipe").c_str(), 0600), 0);
  EXPECT_THAT(SafetensorsFile::Open(directory_ + "/pipe").status().message(),
              HasSubstr("not a regular file"));

  const Tensor t = RandomTensor({1000}, DType::kF32, 1);
  ASSERT_TRUE(WriteSafetensors(path_, {{"w", t}}).ok());
  const auto whole = static_cast<std::int64_t>(fs::file_size(path_));
  for (const std::int64_t size : {std::int64_t{0}, std::int64_t{7}, std::int64_t{8},
                                  std::int64_t{40}, whole - 4000, whole - 1, whole + 1}) {
    fs::resize_file(path_, static_cast<std::uintmax_t>(size));
    const absl::Status status = SafetensorsFile::Open(path_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << size;
    EXPECT_THAT(status.message(), HasSubstr(path_ + ": ")) << size;
    EXPECT_THAT(status.message(), HasSubstr(size > whole ? "trailing" : "truncated")) << size;
    ASSERT_TRUE(WriteSafetensors(path_, {{"w", t}}).ok());
  }
}

TEST_F(SafetensorsTest, FileThatShrinksAfterOpeningIsAnErrorNotASignal) {
  ASSERT_TRUE(WriteSafetensors(path_, {{"w", RandomTensor({1000}, DType::kF32, 1)}}).ok());
  const SafetensorsFile file = *SafetensorsFile::Open(path_);
  fs::resize_file(path_, 200);
  const absl::Status status = file.Read("w").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), AllOf(HasSubstr(path_), HasSubstr("ends at byte 200")));
}

TEST_F(SafetensorsTest, DtypesThatNoTensorHoldsAreListedButNotRead) {
  const std::string json = "{\"w\":{\"dtype\":\"F8_E4M3\",\"shape\":[4],\"data_offsets\":[0,4]}}";
  std::ofstream(path_, std::ios::binary)
      << static_cast<char>(json.size()) << std::string(7, '\0') << json << "abcd";
  const SafetensorsFile file = *SafetensorsFile::Open(path_);
  EXPECT_EQ(file.Find("w")->dtype_name, "F8_E4M3");
  const absl::Status status = file.Read("w").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(status.message(), HasSubstr("'w' has dtype F8_E4M3"));
}

// A sparse file of 1 TiB: reading its data would take minutes.
TEST_F(SafetensorsTest, OpeningNeverTouchesTheData) {
  const std::string json =
      "{\"w\":{\"dtype\":\"F32\",\"shape\":[274877906943],\"data_offsets\":[0,1099511627772]},"
      "\"last\":{\"dtype\":\"I32\",\"shape\":[],\"data_offsets\":[1099511627772,1099511627776]}}";
  std::ofstream(path_, std::ios::binary)
      << static_cast<char>(json.size()) << std::string(7, '\0') << json;
  if (::truncate(path_.c_str(), (std::int64_t{1} << 40) + 8 + static_cast<off_t>(json.size())) !=
      0) {
    GTEST_SKIP() << "this file system holds no sparse file of 1 TiB";
  }
  const SafetensorsFile file = *SafetensorsFile::Open(path_);
  EXPECT_EQ(file.Find("w")->bytes, 1099511627772);
  EXPECT_EQ(file.Read("last")->data<std::int32_t>()[0], 0);  // beyond 2^32 elements
}

}  // namespace
}  // namespace headwise
