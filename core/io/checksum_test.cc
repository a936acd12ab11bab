#include "core/io/checksum.h"

#include <cstdint>
#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headwise {
namespace {

std::uint64_t Of(const std::string& s) { return Checksum(s.data(), s.size()); }

// Published test vectors of FNV-1a, 64 bit.
TEST(Checksum, TestVectors) {
  EXPECT_EQ(Of(""), 0xcbf29ce484222325u);
  EXPECT_EQ(Of("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(Of("foobar"), 0x85944171f73967e8u);
}

TEST(Checksum, SplittingTheInputChangesNothing) {
  Fnv1a64 sum;
  sum.Update("foo", 3);
  sum.Update("", 0);
  sum.UpdateValue('b');
  sum.Update("ar", 2);
  EXPECT_EQ(sum.value(), Of("foobar"));
}

TEST(Checksum, FilesOfEverySizeAroundTheBuffer) {
  const std::string path = testing::TempDir() + "/checksum_test_file";
  for (const std::size_t size : {0u, 1u, 65535u, 65536u, 65537u, 200000u}) {
    std::string bytes(size, '\0');
    for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 7 + i / 251);
    std::ofstream(path, std::ios::binary) << bytes;
    EXPECT_EQ(ChecksumFile(path).value(), Of(bytes)) << size;
  }
}

TEST(Checksum, FileErrorsNameThePath) {
  const absl::Status missing = ChecksumFile("/nonexistent/file").status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(missing.message(), testing::HasSubstr("/nonexistent/file"));
  EXPECT_FALSE(ChecksumFile(testing::TempDir()).ok());  // a directory
}

TEST(Checksum, HexHasSixteenDigits) { EXPECT_EQ(ChecksumToHex(0x1f), "000000000000001f"); }

}  // namespace
}  // namespace headwise
