#include "optim/defaults.h"

namespace headwise {

OptimizerConfig DefaultOptimizerConfig() {
  OptimizerConfig config;
  MuonConfig& muon = *config.mutable_muon();
  muon.set_learning_rate(0.02);
  muon.set_momentum(0.95);
  muon.set_disable_nesterov(false);
  muon.set_weight_decay(0);
  muon.set_granularity(HEAD);
  muon.set_head_group_size(0);
  muon.set_scale(ASPECT);
  muon.set_coefficients(QUINTIC5);
  muon.set_compute_mode(CONTRACT_FP32);
  AdamWConfig& adamw = *config.mutable_adamw();
  adamw.set_learning_rate(3e-3);
  adamw.set_beta1(0.9);
  adamw.set_beta2(0.95);
  adamw.set_epsilon(1e-8);
  adamw.set_weight_decay(0);
  ScheduleConfig& schedule = *config.mutable_schedule();
  schedule.set_kind(CONSTANT);
  schedule.set_warmup_steps(0);
  schedule.set_decay_steps(0);
  schedule.set_final_fraction(0);
  config.set_clip_norm(1.0);
  config.set_clip_scope(CLIP_ADAMW);
  return config;
}

}  // namespace headwise
