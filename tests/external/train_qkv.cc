// Trains a packed QKV weight with Muon, one block per head, and prints the loss on the way.

#include <cstdio>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "core/heads/head_blocks.h"
#include "kernels/common/thread_pool.h"
#include "optim/muon.h"
#include "qkv_layer.h"

namespace headwise_example {
namespace {

absl::Status Train(int steps) {
  absl::StatusOr<QkvLayer> layer = QkvLayer::Create();
  if (!layer.ok()) return layer.status();
  headwise::ThreadPool pool(2);
  absl::StatusOr<QkvActivations> target = layer->Forward(layer->RandomWeight(/*seed=*/2), pool);
  if (!target.ok()) return target.status();

  std::vector<float> weight = layer->RandomWeight(/*seed=*/3), gradient(weight.size());
  const std::int64_t rows = layer->layout().row_width(), width = layer->width();
  absl::StatusOr<headwise::Muon> muon = headwise::Muon::Create(
      {.learning_rate = 0.1}, {{.name = "wqkv",
                                .value = {weight.data(), rows, width},
                                .gradient = {gradient.data(), rows, width},
                                .blocks = headwise::HeadBlocks::FromPacked(layer->layout())}});
  if (!muon.ok()) return muon.status();

  for (int step = 0; step <= steps; ++step) {
    absl::StatusOr<double> loss = layer->LossAndGradient(weight, *target, gradient, pool);
    if (!loss.ok()) return loss.status();
    if (step % 10 == 0) absl::PrintF("step %3d  loss %.4f\n", step, *loss);
    muon->Step(pool);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace headwise_example

int main() {
  const absl::Status status = headwise_example::Train(/*steps=*/60);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
