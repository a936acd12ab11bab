// What the referee finds at accesses to memory, with the words it says it in, and that a kernel
// without the mistake passes.
#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/tensor/row_span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/emulation/emulation.h"
#include "kernels/emulation/testing/find_line.h"
#include "kernels/emulation/testing/wrong_memory.h"

namespace headwise::emulation {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string Here(const char* name) {
  return FindLine("kernels/emulation/testing/wrong_memory.cu", name);
}

// The message of a failed launch, without what LaunchStatus puts before it.
std::string Message(const absl::Status& status) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  const std::string message(status.message());
  const std::string mark = "launch failed: ";
  return message.substr(message.find(mark) + mark.size());
}

// Two regions of 8 floats with 8 floats between them, and rows of 6 floats 8 apart.
class GlobalMemory : public ::testing::Test {
 protected:
  void AddRegions(Session& session) {
    session.AddRegion("in", in(), 8 * sizeof(float), Access::kRead);
    session.AddRegion("out", out(), 8 * sizeof(float), Access::kReadWrite);
    session.AddRows("rows", RowSpan<float>(rows(), 3, 6, 8));
    session.AddRows("constant_rows", RowSpan<const float>(rows() + 24, 2, 8));
  }
  float* in() { return memory_; }
  float* out() { return memory_ + 16; }
  float* rows() { return memory_ + 32; }
  unsigned* counters() { return reinterpret_cast<unsigned*>(out()); }

  alignas(64) float memory_[128] = {};
};

TEST_F(GlobalMemory, WhatLiesInARegionPasses) {
  Session session;
  AddRegions(session);
  for (const int i : {0, 7}) {
    EXPECT_EQ(cuda_emulated::LoadOne(in(), i, 3), absl::OkStatus());
    EXPECT_EQ(cuda_emulated::LoadOne(out(), i, 3), absl::OkStatus());
    EXPECT_EQ(cuda_emulated::StoreOne(out(), i, 3), absl::OkStatus());
    EXPECT_EQ(cuda_emulated::AddOne(counters(), i, 3), absl::OkStatus());
  }
  for (const int i : {0, 5, 8, 13, 16, 21}) {
    EXPECT_EQ(cuda_emulated::StoreOne(rows(), i, 3), absl::OkStatus());
  }
  for (const int i : {0, 4}) {
    EXPECT_EQ(cuda_emulated::LoadFour(in(), i, 3), absl::OkStatus());
  }
  EXPECT_EQ(cuda_emulated::LoadOne(rows(), 24 + 15, 3), absl::OkStatus());
  EXPECT_EQ(counters()[7], std::bit_cast<unsigned>(7.0f) + 1);
  EXPECT_EQ(session.launches().size(), 8 + 6 + 2 + 1u);
}

TEST_F(GlobalMemory, LoadOutOfBounds) {
  Session session;
  AddRegions(session);
  EXPECT_EQ(Message(cuda_emulated::LoadOne(in(), 8, 3)),
            "load out of bounds: 4 bytes at byte 32 of in (32 bytes): kernel LoadOneKernel, block "
            "(0, 0, 0), thread (3, 0, 0), " +
                Here("LoadOne"));
}

TEST_F(GlobalMemory, LoadBeforeTheFirstByte) {
  Session session;
  AddRegions(session);
  EXPECT_THAT(Message(cuda_emulated::LoadOne(in(), -2, 0)),
              StartsWith("load out of bounds: 4 bytes at 8 bytes before in (32 bytes)"));
}

TEST_F(GlobalMemory, WideLoadThatEndsOutside) {
  Session session;
  session.AddRegion("in", in(), 6 * sizeof(float), Access::kRead);
  EXPECT_EQ(cuda_emulated::LoadFour(in(), 0, 31), absl::OkStatus());
  EXPECT_EQ(
      Message(cuda_emulated::LoadFour(in(), 4, 31)),
      "load out of bounds: 16 bytes at byte 16 of in (24 bytes): kernel LoadFourKernel, block "
      "(0, 0, 0), thread (31, 0, 0), " +
          Here("LoadFour"));
}

TEST_F(GlobalMemory, StoreOutOfBounds) {
  Session session;
  AddRegions(session);
  EXPECT_EQ(Message(cuda_emulated::StoreOne(out(), 8, 3)),
            "store out of bounds: 4 bytes at byte 32 of out (32 bytes): kernel StoreOneKernel, "
            "block (0, 0, 0), thread (3, 0, 0), " +
                Here("StoreOne"));
  EXPECT_EQ(out()[8], 0.0f) << "it happened nevertheless";
}

TEST_F(GlobalMemory, GapBetweenRows) {
  Session session;
  AddRegions(session);
  EXPECT_THAT(
      Message(cuda_emulated::StoreOne(rows(), 14, 0)),
      AllOf(StartsWith("store out of bounds: 4 bytes at byte 24 of row 1 of rows (3 rows of "
                       "24 bytes, 32 apart): kernel StoreOneKernel"),
            HasSubstr(Here("StoreOne"))));
}

TEST_F(GlobalMemory, GapAfterTheLastRow) {
  Session session;
  AddRegions(session);
  EXPECT_THAT(Message(cuda_emulated::StoreOne(rows(), 22, 0)), StartsWith("store out of bounds"));
}

TEST_F(GlobalMemory, AtomicOutOfBounds) {
  Session session;
  AddRegions(session);
  EXPECT_THAT(Message(cuda_emulated::AddOne(counters(), 9, 1)),
              AllOf(StartsWith("atomic operation out of bounds: 4 bytes at byte 36 of out"),
                    HasSubstr(Here("AddOne"))));
}

TEST_F(GlobalMemory, WriteToAReadOnlyRegion) {
  Session session;
  AddRegions(session);
  EXPECT_EQ(Message(cuda_emulated::StoreOne(in(), 2, 5)),
            "write to read-only region: 4 bytes at byte 8 of in (32 bytes): kernel StoreOneKernel, "
            "block (0, 0, 0), thread (5, 0, 0), " +
                Here("StoreOne"));
}

TEST_F(GlobalMemory, WriteToRowsOfConst) {
  Session session;
  AddRegions(session);
  EXPECT_THAT(Message(cuda_emulated::StoreOne(rows(), 24, 5)),
              StartsWith("write to read-only region: 4 bytes at byte 0 of constant_rows"));
}

TEST_F(GlobalMemory, AtomicOnAReadOnlyRegion) {
  Session session;
  AddRegions(session);
  EXPECT_THAT(Message(cuda_emulated::AddOne(reinterpret_cast<unsigned*>(in()), 2, 5)),
              StartsWith("write to read-only region: 4 bytes at byte 8 of in"));
}

TEST_F(GlobalMemory, OfOverlappingRegionsOneMustAllow) {
  Session session;
  session.AddRegion("all", memory_, sizeof(memory_), Access::kRead);
  session.AddRegion("part", memory_ + 8, 4 * sizeof(float), Access::kReadWrite);
  EXPECT_EQ(cuda_emulated::StoreOne(memory_, 8, 0), absl::OkStatus());
  EXPECT_EQ(cuda_emulated::StoreOne(memory_, 11, 0), absl::OkStatus());
  EXPECT_THAT(Message(cuda_emulated::StoreOne(memory_, 12, 0)),
              StartsWith("write to read-only region: 4 bytes at byte 48 of all"));
}

TEST_F(GlobalMemory, Misaligned) {
  // Without regions too.
  EXPECT_THAT(Message(cuda_emulated::LoadFour(in(), 1, 9)),
              AllOf(StartsWith("misaligned load: 16 bytes at 0x"),
                    HasSubstr(": kernel LoadFourKernel, block (0, 0, 0), thread (9, 0, 0), " +
                              Here("LoadFour"))));
  auto* odd = reinterpret_cast<float*>(reinterpret_cast<std::uintptr_t>(out()) + 2);
  EXPECT_THAT(Message(cuda_emulated::StoreOne(odd, 0, 9)),
              StartsWith("misaligned store: 4 bytes at 0x"));
  auto* odd_counter = reinterpret_cast<unsigned*>(reinterpret_cast<std::uintptr_t>(out()) + 1);
  EXPECT_THAT(Message(cuda_emulated::AddOne(odd_counter, 0, 9)),
              StartsWith("misaligned atomic operation: 4 bytes at 0x"));
}

TEST_F(GlobalMemory, Null) {
  EXPECT_THAT(Message(cuda_emulated::LoadOne(nullptr, 0, 4)),
              AllOf(StartsWith("null pointer: load of 4 bytes at "),
                    HasSubstr(": kernel LoadOneKernel, block (0, 0, 0), thread (4, 0, 0), " +
                              Here("LoadOne"))));
  EXPECT_THAT(Message(cuda_emulated::StoreOne(nullptr, 100, 4)),
              StartsWith("null pointer: store of 4 bytes at 0x190"));
}

// --- Shared memory --------------------------------------------------------------------------------

TEST(SharedMemory, WhatWasWrittenMayBeRead) {
  EXPECT_EQ(cuda_emulated::ReadShared(8, 7), absl::OkStatus());
  EXPECT_EQ(cuda_emulated::WriteShared(7), absl::OkStatus());
  EXPECT_EQ(cuda_emulated::AddShared(3, 2), absl::OkStatus());
  EXPECT_EQ(cuda_emulated::ReadSharedFour(8, 4), absl::OkStatus());
  EXPECT_EQ(cuda_emulated::ReadDynamic(64, 32, 8, 7), absl::OkStatus());
}

TEST(SharedMemory, OutOfBounds) {
  EXPECT_EQ(
      Message(cuda_emulated::ReadShared(8, 8)),
      "shared memory out of bounds: load of 4 bytes at byte 32 of 32: kernel ReadSharedKernel, "
      "block (0, 0, 0), thread (0, 0, 0), " +
          Here("ReadShared"));
  EXPECT_THAT(Message(cuda_emulated::WriteShared(-1)),
              AllOf(StartsWith("shared memory out of bounds: store of 4 bytes at byte -4 of 32"),
                    HasSubstr(Here("WriteShared"))));
  EXPECT_THAT(Message(cuda_emulated::AddShared(8, 8)),
              AllOf(StartsWith("shared memory out of bounds: atomic operation of 4 bytes"),
                    HasSubstr(Here("AddShared"))));
  EXPECT_THAT(Message(cuda_emulated::ReadSharedFour(8, 8)),
              AllOf(StartsWith("shared memory out of bounds: load of 16 bytes at byte 32 of 32"),
                    HasSubstr(Here("ReadSharedFour"))));
}

TEST(SharedMemory, DynamicOutOfBounds) {
  EXPECT_THAT(Message(cuda_emulated::ReadDynamic(64, 32, 8, 8)),
              AllOf(StartsWith("shared memory out of bounds: load of 4 bytes at byte 32 of 32"),
                    HasSubstr(Here("ReadDynamic"))));
  EXPECT_THAT(Message(cuda_emulated::ReadDynamic(64, 68, 0, 0)),
              AllOf(StartsWith("shared memory out of bounds"), HasSubstr("at byte 68 of 64"),
                    HasSubstr(Here("offset of ReadDynamic"))));
  EXPECT_THAT(
      Message(cuda_emulated::ReadDynamic(64, 2, 0, 0)),
      AllOf(StartsWith("misaligned shared memory"), HasSubstr(Here("offset of ReadDynamic"))));
}

TEST(SharedMemory, ReadButNeverWritten) {
  EXPECT_EQ(Message(cuda_emulated::ReadShared(5, 5)),
            "shared memory read but never written: 4 bytes at byte 20 of 32: kernel "
            "ReadSharedKernel, block (0, 0, 0), thread (0, 0, 0), " +
                Here("ReadShared"));
  EXPECT_THAT(Message(cuda_emulated::ReadDynamic(64, 0, 3, 3)),
              StartsWith("shared memory read but never written: 4 bytes at byte 12 of 64"));
  EXPECT_THAT(
      Message(cuda_emulated::AddShared(2, 2)),
      AllOf(StartsWith("shared memory read but never written"), HasSubstr(Here("AddShared"))));
  // A part of a wide value suffices.
  EXPECT_THAT(Message(cuda_emulated::ReadSharedFour(7, 4)),
              StartsWith("shared memory read but never written: 16 bytes at byte 16 of 32"));
}

TEST(SharedMemory, IsFreshInEveryBlock) {
  EXPECT_THAT(Message(cuda_emulated::ReadsTheLastBlocksShared()),
              AllOf(StartsWith("shared memory read but never written"),
                    HasSubstr("block (1, 0, 0)"), HasSubstr(Here("ReadsTheLastBlocksShared"))));
  // And in every launch: the last one left its marks in larger arrays.
  EXPECT_EQ(cuda_emulated::LargeShared(1000, false), absl::OkStatus());
  EXPECT_THAT(Message(cuda_emulated::ReadShared(0, 0)),
              StartsWith("shared memory read but never written"));
}

TEST(SharedMemory, MisalignedWideValue) {
  EXPECT_THAT(Message(cuda_emulated::ReadSharedFour(8, 2)),
              AllOf(StartsWith("misaligned shared memory: load of 16 bytes at byte 8 of 32"),
                    HasSubstr(Here("ReadSharedFour"))));
}

TEST(SharedMemory, NoMoreThanAGpuHas) {
  constexpr int kStatic = 48 << 10, kMost = 227 << 10;
  EXPECT_THAT(Message(cuda_emulated::LargeShared((48 << 10) + 1, false)),
              StartsWith("block has 49153 bytes of dynamic shared memory; cudaFuncSetAttribute "
                         "allowed the kernel 49152: kernel LargeSharedKernel"));
  EXPECT_EQ(cuda_emulated::LargeShared(48 << 10, false), absl::OkStatus());
  EXPECT_EQ(cuda_emulated::LargeShared(kMost - kStatic, true), absl::OkStatus());
  EXPECT_THAT(Message(cuda_emulated::LargeShared(kMost - kStatic + 16, true)),
              AllOf(StartsWith("block has 49152 bytes of static and 183312 of dynamic shared "
                               "memory; a GPU has 232448, of them static at most 49152: kernel"),
                    HasSubstr(Here("LargeShared"))));
  EXPECT_THAT(Message(cuda_emulated::LargeShared(kMost + 1, true)),
              StartsWith("block has 232449 bytes of dynamic shared memory; a GPU has 232448"));
}

// --- Stacks ---------------------------------------------------------------------------------------

TEST(Stack, OverflowIsFoundWhereMemoryIsTouched) {
  const float value = 1.0f;
  EXPECT_EQ(cuda_emulated::Recurse(&value, 20, true), absl::OkStatus());
  for (int i = 0; i < 2; ++i) {  // again, on the same stacks
    EXPECT_THAT(Message(cuda_emulated::Recurse(&value, 200, true)),
                AllOf(StartsWith("stack overflow: the emulation gives a thread "),
                      HasSubstr("kernel RecurseKernel, block (0, 0, 0), thread (0, 0, 0), " +
                                Here("Recurse"))));
  }
  EXPECT_THAT(Message(cuda_emulated::LargeFrame(&value)),
              AllOf(StartsWith("stack overflow"), HasSubstr(Here("LargeFrame"))));
  EXPECT_EQ(cuda_emulated::Recurse(&value, 20, true), absl::OkStatus());
}

TEST(Stack, OverflowIsFoundWhenTheThreadReturns) {
  EXPECT_EQ(cuda_emulated::Recurse(nullptr, 20, false), absl::OkStatus());
  EXPECT_THAT(Message(cuda_emulated::Recurse(nullptr, 200, false)),
              AllOf(StartsWith("stack overflow"), HasSubstr("kernel RecurseKernel")));
}

}  // namespace
}  // namespace headwise::emulation
