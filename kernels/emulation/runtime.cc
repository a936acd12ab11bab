#include "kernels/emulation/runtime.h"

#include "core/base/check.h"
#include "kernels/emulation/block_runner.h"

namespace headwise::emulation {
namespace {

BlockRunner& Runner() {
  BlockRunner* const runner = BlockRunner::Running();
  HW_CHECK(runner != nullptr) << "device code called outside of a launch";
  return *runner;
}

}  // namespace

void TouchGlobal(const void* p, int bytes, Use use, Site site) {
  Runner().TouchGlobal(p, bytes, use, site);
}

SharedRange StaticShared(const void* key, std::int64_t bytes, Site site) {
  return Runner().StaticShared(key, bytes, site);
}

SharedRange DynamicShared(std::int64_t byte_offset, int alignment, Site site) {
  return Runner().DynamicShared(byte_offset, alignment, site);
}

void TouchShared(const SharedRange& range, std::int64_t offset, int bytes, Use use, Site site) {
  Runner().TouchShared(range, offset, bytes, use, site);
}

void Barrier(Site site) { Runner().Barrier(site); }

std::uint64_t WarpWait(WarpOperation operation, unsigned mask, std::uint64_t value, int source,
                       Site site) {
  return Runner().WarpWait(operation, mask, value, source, site);
}

void WarpMultiply(const MmaOperands& operands, Site site) {
  Runner().WarpWait(WarpOperation::kMultiply, 0xffffffffu,
                    reinterpret_cast<std::uintptr_t>(&operands), 0, site);
}

int Lane() { return Runner().lane(); }

void BadWidth(int width, Site site) {
  Finding finding = Runner().Broken(Rule::kBadWidth, site);
  finding.value = width;
  Runner().Fail(finding);
}

}  // namespace headwise::emulation
