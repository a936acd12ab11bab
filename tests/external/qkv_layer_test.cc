#include "qkv_layer.h"

#include <vector>

#include "absl/status/statusor.h"
#include "core/heads/head_blocks.h"
#include "gtest/gtest.h"
#include "kernels/common/thread_pool.h"
#include "kernels/newton_schulz/newton_schulz.h"
#include "kernels/prepare_qkv/reference.h"
#include "optim/muon.h"

namespace headwise_example {
namespace {

using headwise::HeadBlocks;
using headwise::Muon;
using headwise::RowSpan;
using headwise::ThreadPool;

class QkvLayerTest : public testing::Test {
 protected:
  QkvLayer layer_ = *QkvLayer::Create();
  ThreadPool pool_{2};
  std::int64_t rows_ = layer_.layout().row_width(), width_ = layer_.width();
};

TEST_F(QkvLayerTest, PrepareQkvHasTheBitsOfTheReference) {
  const QkvActivations fast = *layer_.Forward(layer_.RandomWeight(2), pool_);
  QkvActivations reference = fast;
  const std::int64_t t = layer_.tokens(), q = reference.q.size() / t, k = reference.k.size() / t;
  reference.q.assign(reference.q.size(), 0);
  ASSERT_TRUE(headwise::PrepareQkvReference<float>(
                  layer_.Op(),
                  {.packed = {fast.packed.data(), t, rows_}, .positions = layer_.positions()},
                  {.q = {reference.q.data(), t, q},
                   .k = {reference.k.data(), t, k},
                   .v = {reference.v.data(), t, k}})
                  .ok());
  EXPECT_EQ(fast.q, reference.q);
  EXPECT_EQ(fast.k, reference.k);
  EXPECT_EQ(fast.v, reference.v);
}

TEST_F(QkvLayerTest, NewtonSchulzHasTheBitsOfTheReference) {
  const std::vector<float> input = layer_.RandomWeight(2);
  std::vector<float> fast(input.size()), reference(input.size());
  const HeadBlocks heads = HeadBlocks::FromPacked(layer_.layout());
  const RowSpan<const float> in(input.data(), rows_, width_);
  ASSERT_TRUE(headwise::NewtonSchulz(headwise::Quintic5(),
                                     {{in, {fast.data(), rows_, width_}, &heads}}, pool_)
                  .ok());
  ASSERT_TRUE(headwise::NewtonSchulzReference(headwise::Quintic5(),
                                              {{in, {reference.data(), rows_, width_}, &heads}})
                  .ok());
  EXPECT_EQ(fast, reference);
  EXPECT_NE(fast, input);
}

TEST_F(QkvLayerTest, MuonLearnsTheTarget) {
  const QkvActivations target = *layer_.Forward(layer_.RandomWeight(2), pool_);
  std::vector<float> weight = layer_.RandomWeight(3), gradient(weight.size());
  absl::StatusOr<Muon> muon =
      Muon::Create({.learning_rate = 0.1}, {{.name = "wqkv",
                                             .value = {weight.data(), rows_, width_},
                                             .gradient = {gradient.data(), rows_, width_},
                                             .blocks = HeadBlocks::FromPacked(layer_.layout())}});
  ASSERT_TRUE(muon.ok()) << muon.status();
  const double first = *layer_.LossAndGradient(weight, target, gradient, pool_);
  for (int step = 0; step < 60; ++step) {
    ASSERT_FALSE(muon->Step(pool_).skipped);
    ASSERT_TRUE(layer_.LossAndGradient(weight, target, gradient, pool_).ok());
  }
  EXPECT_LT(*layer_.LossAndGradient(weight, target, gradient, pool_), 0.25 * first);
}

}  // namespace
}  // namespace headwise_example
