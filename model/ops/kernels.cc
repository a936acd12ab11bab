#include "model/ops/kernels.h"

#include <cstddef>
#include <cstring>

#include "kernels/emulation/emulation.h"

namespace headwise::ops::kernels {

void Launch(const OpContext& ctx, absl::FunctionRef<absl::Status()> launch) {
  if (ctx.gpu != nullptr) {
    const absl::Status launched = launch();
    HW_CHECK(launched.ok()) << launched;
    return;
  }
  const emulation::Session session({.os_threads = ctx.pool->num_threads()});
  const absl::Status launched = launch();
  HW_CHECK(launched.ok()) << launched;
  HW_CHECK(session.status().ok()) << session.status();
}

void CopyBytes(const OpContext& ctx, void* to, const void* from, std::int64_t bytes) {
  if (ctx.gpu == nullptr) {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
    return;
  }
  const absl::Status copied = ctx.gpu->Copy(to, from, bytes);
  HW_CHECK(copied.ok()) << copied;
}

void ClearBytes(const OpContext& ctx, void* to, std::int64_t bytes) {
  if (ctx.gpu == nullptr) {
    std::memset(to, 0, static_cast<std::size_t>(bytes));
    return;
  }
  const absl::Status cleared = ctx.gpu->Fill(to, 0, bytes);
  HW_CHECK(cleared.ok()) << cleared;
}

}  // namespace headwise::ops::kernels
