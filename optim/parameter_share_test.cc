#include "optim/parameter_share.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "core/heads/packed_qkv.h"
#include "core/parallel/tensor_layout.h"
#include "core/parallel/testing/declare.h"
#include "gtest/gtest.h"

namespace headwise {
namespace {

using ::headwise::testing::Leaf;

const Factor kHeadDim = Factor::Whole("D", 6);
const Dim kPacked = {
    {"G", 4}, Factor::Sum("slots", {{"q", {{"M", 2}}}, {"k", {}}, {"v", {}}}), kHeadDim};
const Dim kHeads = {{"G", 4}, {"M", 2}, kHeadDim};
const Dim kWidth = {{"N", 20}};

Mesh KvReplicated() {
  return *Mesh::Parse("tp=8")->WithSubAxes("tp", {{"tp_kv", 4}, {"tp_rep", 2}});
}

Parameter OfType(const LayoutType& type, std::int64_t rank) {
  return {.name = "layers.0.w",
          .value = TensorLayout::Attach(
              Tensor::Empty(type.LocalShape(rank), type.dtype(), Device::kMeta), type)};
}

TEST(ParameterShare, SharesTileTheWhole) {
  const LayoutType type = Leaf("dp=2,tp=2", {{{"E", 4}}, {{"F", 6}}, kWidth}, "S(0)@dp, S(2)@tp");
  std::int64_t elements = 0;
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    const ParameterShare share = *ParameterShare::Create(OfType(type, rank), rank);
    const ShareBox box = share.Of(rank);
    EXPECT_EQ(box[kBatch], (Interval{rank / 2 * 2, 2}));
    EXPECT_EQ(box[kRows], (Interval{0, 6}));
    EXPECT_EQ(box[kColumns], (Interval{rank % 2 * 10, 10}));
    elements += box[kBatch].size * box[kRows].size * box[kColumns].size;
  }
  EXPECT_EQ(elements, 4 * 6 * 20);
}

TEST(ParameterShare, AVectorIsOneRowAndNothingIsCutWithoutALayout) {
  const LayoutType type = Leaf("tp=4", {kPacked}, "S(0)@tp");
  const ParameterShare share = *ParameterShare::Create(OfType(type, 3), 3);
  EXPECT_EQ(share.extent(kRows), 1);
  EXPECT_EQ(share.Of(3)[kColumns], (Interval{72, 24}));
  const Parameter plain = {.name = "w", .value = Tensor::Empty({3, 5}, DType::kF32, Device::kMeta)};
  EXPECT_TRUE(ParameterShare::Create(plain, 0)->Axes().empty());
  EXPECT_EQ(ParameterShare::Create(plain, 0)->extent(kColumns), 5);
}

// The order of the axes is the order of the shares.
TEST(ParameterShare, SharesLieInTheOrderOfTheAxes) {
  const LayoutType type = Leaf("dp=2,tp=2", {{{"V", 12}}, kWidth}, "S(0)@tp, S(0)@dp");
  const std::int64_t begins[] = {0, 6, 3, 9};
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(ParameterShare::Create(OfType(type, rank), rank)->Of(rank)[kRows].begin,
              begins[rank]);
  }
}

HeadBlocks WholeBlocks(const LayoutType& type, const HeadBlocks& local) {
  Parameter p = OfType(type, 0);
  p.head_blocks = local;
  const absl::StatusOr<ParameterShare> share = ParameterShare::Create(p, 0);
  EXPECT_TRUE(share.ok()) << share.status();
  return *share->Whole(p)->head_blocks;
}

TEST(ParameterShare, HeadBlocksOfTheWholeAreThoseOfOneRank) {
  const HeadBlocks expected = HeadBlocks::FromPacked(*PackedQkv::Interleaved({8, 4, 6}));
  for (const auto& [mesh, ranks] : {std::pair("tp=2", 2), std::pair("tp=4", 4)}) {
    const HeadBlocks local =
        HeadBlocks::FromPacked(*PackedQkv::Interleaved({8 / ranks, 4 / ranks, 6}));
    EXPECT_EQ(WholeBlocks(Leaf(mesh, {kPacked, kWidth}, "S(0)@tp"), local).blocks(),
              expected.blocks());
  }
}

// A kv group of query heads that lies on two ranks is one group of the whole.
TEST(ParameterShare, KvGroupsThatAreCutAreOneInTheWhole) {
  const HeadBlocks gate = *HeadBlocks::Separate(HeadRole::kGate, 1, 6, 1);
  EXPECT_EQ(WholeBlocks(Leaf(KvReplicated(), {kHeads, kWidth}, "S(0)@tp"), gate).blocks(),
            HeadBlocks::Separate(HeadRole::kGate, 8, 6, 2)->blocks());
  const Dim one_group = {{"G", 1}, {"M", 8}, kHeadDim};
  EXPECT_EQ(WholeBlocks(Leaf("tp=8", {one_group, kWidth}, "S(0)@tp"), gate).blocks(),
            HeadBlocks::Separate(HeadRole::kGate, 8, 6, 8)->blocks());
}

TEST(ParameterShare, AWholeBlockIsOneBlockOfTheWhole) {
  const HeadBlocks whole =
      WholeBlocks(Leaf("tp=2", {{{"F", 12}}, kWidth}, "S(0)@tp"), HeadBlocks::Whole(6));
  EXPECT_EQ(whole.size(), 1);
  EXPECT_EQ(whole.axis_size(), 12);
  EXPECT_EQ(whole.granularity(), Granularity::kWholeMatrix);
}

std::string ErrorOf(const Parameter& parameter, std::int64_t rank = 0) {
  const absl::Status status = ParameterShare::Create(parameter, rank).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), parameter.name)) << status;
  return std::string(status.message());
}

TEST(ParameterShare, ValuesThatVaryOrArePartialAreRefused) {
  for (const char* spec : {"P@tp", "V@tp"}) {
    const std::string error = ErrorOf(OfType(Leaf("dp=2,tp=2", {kWidth, kWidth}, spec), 0));
    EXPECT_TRUE(absl::StrContains(error, std::string(1, spec[0]) + " on axis tp")) << error;
    EXPECT_TRUE(absl::StrContains(error, "declare it R, I or S")) << error;
  }
}

TEST(ParameterShare, UnequalSharesAreRefused) {
  const std::string error = ErrorOf(OfType(Leaf("tp=2", {{{"V", 12}}, kWidth}, "S(0: 5 7)@tp"), 0));
  EXPECT_TRUE(absl::StrContains(error, "equal share")) << error;
}

TEST(ParameterShare, AValueThatIsNotTheShareIsRefused) {
  const LayoutType type = Leaf("tp=2", {{{"V", 12}}, kWidth}, "S(0)@tp");
  const Parameter whole = {
      .name = "w",
      .value = TensorLayout::Attach(Tensor::Empty({12, 20}, DType::kF32, Device::kMeta), type)};
  EXPECT_TRUE(absl::StrContains(ErrorOf(whole), "F32[12, 20], rank 0's share"));
}

TEST(ParameterShare, ALayoutThatCutsHeadsIsRefused) {
  // 4 heads of 6 rows in 24 rows of which a rank might have any multiple of one.
  Parameter p = OfType(Leaf("tp=2", {{{"rows", 48}}, kWidth}, "S(0)@tp"), 0);
  p.head_blocks = *HeadBlocks::Separate(HeadRole::kQuery, 4, 6, 1);
  const std::string error = ErrorOf(p);
  EXPECT_TRUE(absl::StrContains(error, "factor rows=48 is sharded in units of 1 rows")) << error;
  EXPECT_TRUE(absl::StrContains(error, "query head 0 is rows 0 to 5")) << error;
  // The blocks of all ranks instead of the share's.
  p = OfType(Leaf("tp=2", {kPacked, kWidth}, "S(0)@tp"), 0);
  p.head_blocks = HeadBlocks::FromPacked(*PackedQkv::Interleaved({8, 4, 6}));
  EXPECT_TRUE(absl::StrContains(ErrorOf(p), "declare the blocks of the share"));
}

}  // namespace
}  // namespace headwise
