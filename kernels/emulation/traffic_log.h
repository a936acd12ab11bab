// TrafficLog: the accesses of one block, folded into requests and sectors when the block is done.
// Internal to kernels/emulation.
#ifndef HEADWISE_KERNELS_EMULATION_TRAFFIC_LOG_H_
#define HEADWISE_KERNELS_EMULATION_TRAFFIC_LOG_H_

#include <cstdint>
#include <vector>

#include "kernels/emulation/emulation.h"
#include "kernels/emulation/runtime.h"

namespace headwise::emulation {

class TrafficLog {
 public:
  void StartLaunch(int regions, int threads);

  // region < 0: an access that no region counts.
  void Add(int thread, int region, std::uintptr_t address, int bytes, Use use, const Site& site);
  // The block is done.
  void Fold();

  const std::vector<Traffic>& by_region() const { return traffic_; }

 private:
  struct Entry {
    int warp;
    const void* site;
    int round;  // the how-manieth access of its thread at the site
    int region;
    std::uintptr_t address;
    int bytes;
    Use use;
  };
  struct Visits {
    const void* site;
    int count;
  };

  void FoldRequest(const Entry* begin, const Entry* end);

  std::vector<Traffic> traffic_;
  std::vector<std::vector<Visits>> visits_;  // by thread
  std::vector<Entry> entries_;
};

// Adds what `part` counted.
void Accumulate(const Traffic& part, Traffic& total);

}  // namespace headwise::emulation

#endif  // HEADWISE_KERNELS_EMULATION_TRAFFIC_LOG_H_
