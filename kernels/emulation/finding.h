// Finding: a rule that a kernel broke, as the running thread notes it; Describe makes it a sentence
// when the launch has stopped. Internal to kernels/emulation.
#ifndef HEADWISE_KERNELS_EMULATION_FINDING_H_
#define HEADWISE_KERNELS_EMULATION_FINDING_H_

#include <cstdint>
#include <string>

#include "kernels/emulation/dim3.h"
#include "kernels/emulation/region.h"
#include "kernels/emulation/runtime.h"

namespace headwise::emulation {

enum class Rule {
  kNone,
  // Barriers and warp operations.
  kBarrierMissing,     // `value` threads returned
  kDifferentBarriers,  // the other is at other_site
  kMaskWithoutCaller,
  kMaskAbsent,
  kMaskExited,
  kDifferentOperations,  // the other is at other_site, with other_mask
  kShuffleOutside,       // from lane `value`
  kBadWidth,             // `value`
  kDeadlock,             // `value` threads at barriers, other_value at warp operations
  // Memory.
  kNotAllowed,  // Regions::Explain says why
  kMisaligned,
  kNull,
  kSharedBounds,      // bytes at `offset` of an array of `value` bytes
  kSharedUnwritten,   // the same
  kSharedMisaligned,  // the same
  kSharedTooLarge,    // `value` static bytes, `other_value` dynamic ones
  kStackOverflow,     // `value` bytes
};

struct Finding {
  Rule rule = Rule::kNone;
  int thread = 0;  // in the block
  Site site;
  Use use = Use::kLoad;
  const void* address = nullptr;
  int bytes = 0;
  std::int64_t offset = 0;
  std::int64_t value = 0;
  unsigned mask = 0;
  int other_thread = 0;
  Site other_site;
  unsigned other_mask = 0;
  std::int64_t other_value = 0;
};

// "WHAT: kernel NAME, block (X, Y, Z), thread (X, Y, Z), FILE:LINE".
std::string Describe(const Finding& finding, const char* kernel, const Dim3& block,
                     const Dim3& block_extents, const Regions& regions);

}  // namespace headwise::emulation

#endif  // HEADWISE_KERNELS_EMULATION_FINDING_H_
