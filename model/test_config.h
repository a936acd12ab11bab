// Small model configurations for tests.
#ifndef HEADWISE_MODEL_TEST_CONFIG_H_
#define HEADWISE_MODEL_TEST_CONFIG_H_

#include <vector>

#include "core/proto/config.pb.h"

namespace headwise {

// Every part of the decoder on: gain-centred, plain and scaleless norms at all six sites, packed
// projection with bias, weighted q/k norms, query scale, output gate, windows shorter than the
// sequences of the tests, NoPE layers, partial rotary dim, multiplier and soft cap. 4 layers, 4/2
// heads of 8, dim 24, vocabulary 19, up to 64 positions.
ModelConfig EverythingConfig();

// The same decoder with the other choices: sectioned packing, gain-centred q/k norms, interleaved
// pairing, no bias, and no embedding, post-attention or post-ffn norm.
ModelConfig OtherwiseConfig();

// Plain: RMS norms, RoPE on every layer, no q/k norm, no windows, no gate, no cap.
ModelConfig PlainConfig();

// Experts of GPT-OSS's kind: softmax over the chosen, biases everywhere, clamped SwiGLU, a shared
// expert, an auxiliary loss, one dense layer; attention sinks; YaRN; head tied to the embedding.
ModelConfig ExpertsConfig();

// Muse Spark's parts: sigmoid router with a balancing bias, experts at a width of their own between
// norms, residual gates, a norm of each head's output.
ModelConfig SparkConfig();

// The same with heads of 64 and unfused QKV, which CUDA kernels take.
ModelConfig UnfusedSparkConfig();

// All of the above but the last.
std::vector<ModelConfig> AllTestConfigs();

}  // namespace headwise

#endif  // HEADWISE_MODEL_TEST_CONFIG_H_
