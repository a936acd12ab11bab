#include "core/tensor/tensor.h"

#include <cstdint>

#include "gtest/gtest.h"

namespace headwise {
namespace {

TEST(Tensor, StorageIsAlignedAndCopiesShareIt) {
  Tensor a = Tensor::Zeros({3, 5}, DType::kF32, Device::kCpu);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a.raw_data()) % 64, 0u);
  Tensor b = a;
  Tensor c = a.Clone();
  a.data<float>()[4] = 7;
  EXPECT_EQ(b.data<float>()[4], 7);
  EXPECT_EQ(c.data<float>()[4], 0);
}

TEST(Tensor, ViewsAndSlicesShareStorage) {
  Tensor a = Tensor::Zeros({4, 6}, DType::kBF16, Device::kCpu);
  Tensor row = a.Slice(2, 1);
  row.data<BFloat16>()[1] = BFloat16{0x3f80};
  EXPECT_EQ(a.View({24}).data<BFloat16>()[13].bits, 0x3f80);
  EXPECT_EQ(a.View({2, 2, 6}).Rows<const BFloat16>().row(2)[1].bits, 0x3f80);
  EXPECT_EQ(a.Slice(4, 0).size(), 0);
}

TEST(Tensor, MetaHasShapesAndNoStorage) {
  const Tensor big = Tensor::Empty({1 << 20, 1 << 20}, DType::kF32, Device::kMeta);
  EXPECT_EQ(big.size(), std::int64_t{1} << 40);
  EXPECT_EQ(big.Slice(5, 10).shape(), (Shape{10, 1 << 20}));
  EXPECT_EQ(big.Clone().device(), Device::kMeta);
  EXPECT_DEATH(big.data<float>(), "on device meta");
}

TEST(Tensor, EmptyDimensions) {
  const Tensor none = Tensor::Zeros({0, 8}, DType::kF32, Device::kCpu);
  EXPECT_EQ(none.size(), 0);
  EXPECT_EQ(none.Rows<float>().rows, 0);
  EXPECT_EQ(none.Rows<float>().width, 8);
  EXPECT_EQ(Tensor::Zeros({}, DType::kF32, Device::kCpu).size(), 1);
  EXPECT_FALSE(Tensor().defined());
}

TEST(TensorDeathTest, ProgrammerErrorsSayWhatWasWrong) {
  const Tensor a = Tensor::Zeros({4, 6}, DType::kF32, Device::kCpu);
  EXPECT_DEATH(a.data<double>(), "F32 vs F64");
  EXPECT_DEATH(a.View({5, 5}), "view of \\[4, 6\\] as \\[5, 5\\]");
  EXPECT_DEATH(a.Slice(3, 2), "rows \\[3, 5\\)");
  EXPECT_DEATH(a.dim(2), "dim 2 of shape");
}

TEST(RowSpan, RowOffsetsAre64Bit) {
  float* const base = nullptr;
  const RowSpan<float> s(base, 100000, 64, 50000);
  const std::uintptr_t offset = reinterpret_cast<std::uintptr_t>(s.data) + 99999 * s.stride * 4;
  EXPECT_EQ(offset, 4999950000ull * 4);
  EXPECT_EQ((s.Rows(99999, 1).stride), 50000);
  EXPECT_EQ(s.stride * (s.rows - 1), 4999950000ll);
}

}  // namespace
}  // namespace headwise
