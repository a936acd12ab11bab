// How the fast path moves a block: every element is loaded once, and after all loads stored once,
// whatever the shape, the number of threads and the restarts. So a step that is built on it touches
// gradient, momentum and weight once each.
#include "kernels/newton_schulz/orthogonalize.h"

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace headwise::newton_schulz {
namespace {

class CountingBlock final : public BlockAccess {
 public:
  CountingBlock(std::int64_t rows, std::int64_t cols, float scale)
      : rows_(rows), cols_(cols), scale_(scale), loads_(rows * cols), stores_(rows * cols) {}

  std::int64_t rows() const override { return rows_; }
  std::int64_t cols() const override { return cols_; }

  void Load(std::int64_t row, std::int64_t col, std::int64_t count, float* x) override {
    for (std::int64_t i = 0; i < count; ++i) {
      ++loads_[row * cols_ + col + i];
      x[i] = scale_ * static_cast<float>((row * 7 + (col + i) * 13) % 29 - 14);
    }
    loaded_ += count;
  }
  void Store(std::int64_t row, std::int64_t col, std::int64_t count, const float*) override {
    for (std::int64_t i = 0; i < count; ++i) ++stores_[row * cols_ + col + i];
    if (loaded_ != rows_ * cols_) stored_early_ = true;
  }

  void ExpectEachOnce() const {
    EXPECT_FALSE(stored_early_);
    for (std::int64_t i = 0; i < rows_ * cols_; ++i) {
      ASSERT_EQ(loads_[i], 1) << "loads of element " << i;
      ASSERT_EQ(stores_[i], 1) << "stores of element " << i;
    }
  }

 private:
  std::int64_t rows_, cols_;
  float scale_;
  std::vector<std::atomic<int>> loads_, stores_;
  std::atomic<std::int64_t> loaded_{0};
  std::atomic<bool> stored_early_{false};
};

TEST(Orthogonalize, LoadsAndStoresEveryElementOnce) {
  struct Shape {
    std::int64_t rows, cols;
  };
  const NewtonSchulzCoefficients restarting = {
      .name = "restarting",
      .steps = std::vector<QuinticStep>(3, {3.0f, -3.2f, 1.2f}),
      .restarts_after = {1, 2}};
  for (const NewtonSchulzCoefficients* set : {&Quintic5(), &restarting}) {
    for (const Shape shape : {Shape{1, 1}, Shape{5, 700}, Shape{700, 5}, Shape{64, 512},
                              Shape{100, 97}, Shape{240, 300}, Shape{530, 250}}) {
      // 2^-100: the rare block that is scaled after it has been loaded. 0: the zero block.
      for (const float scale : {1.0f, 0x1p-100f, 0.0f}) {
        SCOPED_TRACE(absl::StrCat(set->name, ", ", shape.rows, " x ", shape.cols, ", ", scale));
        CountingBlock block(shape.rows, shape.cols, scale), other(3, 40, scale);
        BlockAccess* const blocks[] = {&other, &block};
        ThreadPool pool(2);
        Orthogonalize(*set, blocks, pool);
        block.ExpectEachOnce();
        other.ExpectEachOnce();
      }
    }
  }
}

}  // namespace
}  // namespace headwise::newton_schulz
