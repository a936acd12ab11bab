// CUDA's vector types, dim3, bfloat16 and half for the emulation: sizes and alignments are CUDA's.
//
// __nv_bfloat16 and __half have no operators: convert, compute in float, round once.
#ifndef HEADWISE_KERNELS_EMULATION_VECTOR_TYPES_H_
#define HEADWISE_KERNELS_EMULATION_VECTOR_TYPES_H_

#include "kernels/emulation/dim3.h"

namespace headwise::emulation::device {

using dim3 = Dim3;

struct uint3 {
  unsigned x, y, z;
};

struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) int2 {
  int x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};

constexpr uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
constexpr uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
constexpr int2 make_int2(int x, int y) { return {x, y}; }
constexpr int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
constexpr float2 make_float2(float x, float y) { return {x, y}; }
constexpr float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

struct __nv_bfloat16 {
  unsigned short bits;
};
struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;  // x in the lower half of a word
};

struct __half {
  unsigned short bits;
};

}  // namespace headwise::emulation::device

#endif  // HEADWISE_KERNELS_EMULATION_VECTOR_TYPES_H_
