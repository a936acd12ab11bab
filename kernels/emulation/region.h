// Regions: where the kernels of a session may read and write. Internal to kernels/emulation.
#ifndef HEADWISE_KERNELS_EMULATION_REGION_H_
#define HEADWISE_KERNELS_EMULATION_REGION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/emulation/emulation.h"
#include "kernels/emulation/runtime.h"

namespace headwise::emulation {

struct Region {
  std::string name;
  std::uintptr_t data = 0;
  std::int64_t rows = 0, width = 0, stride = 0;  // bytes
  std::int64_t extent = 0;                       // bytes from the first to the last
  bool writable = false;

  bool Contains(std::uintptr_t address, std::int64_t bytes) const {
    const std::int64_t offset = static_cast<std::int64_t>(address - data);
    if (offset < 0 || offset + bytes > extent) return false;
    return width == stride || offset % stride + bytes <= width;
  }
  bool Allows(std::uintptr_t address, std::int64_t bytes, Use use) const {
    return (writable || use == Use::kLoad) && Contains(address, bytes);
  }
};

class Regions {
 public:
  void Add(std::string name, const void* data, std::int64_t rows, std::int64_t width,
           std::int64_t stride, Access access);

  bool empty() const { return regions_.empty(); }
  int size() const { return static_cast<int>(regions_.size()); }
  const Region& operator[](int i) const { return regions_[i]; }
  // -1 if there is none.
  int Find(const std::string& name) const;

  // The first region that allows the access, -1 if none does.
  int Allowing(std::uintptr_t address, std::int64_t bytes, Use use) const;
  // Why none allows it.
  std::string Explain(std::uintptr_t address, std::int64_t bytes, Use use) const;

 private:
  std::vector<Region> regions_;
};

}  // namespace headwise::emulation

#endif  // HEADWISE_KERNELS_EMULATION_REGION_H_
