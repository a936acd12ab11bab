// DType: the element types of tensors and files, and the mapping between C++ types and them.
//
// Also the three functions every templated kernel is written with. For a storage type T in {float,
// BFloat16, double}:
//
//   Compute<T>      the type of the arithmetic: float for float and BFloat16, double for double
//   Widen(x)        T -> Compute<T>, exact
//   Narrow<T>(y)    Compute<T> -> T, one rounding (the identity for float and double)
#ifndef HEADWISE_CORE_DTYPE_DTYPE_H_
#define HEADWISE_CORE_DTYPE_DTYPE_H_

#include <cstdint>
#include <ostream>
#include <type_traits>

#include "core/dtype/bf16.h"

namespace headwise {

// Names follow the safetensors format.
enum class DType { kF32, kBF16, kF64, kF16, kI32, kI64, kU8, kU16 };

// Bytes of one element.
int SizeOf(DType dtype);

// "F32", "BF16", ...: the names of the safetensors format.
const char* Name(DType dtype);

std::ostream& operator<<(std::ostream& out, DType dtype);

// kDType<float> is DType::kF32, and so on.
template <typename T>
inline constexpr DType kDType = [] {
  if constexpr (std::is_same_v<T, float>)
    return DType::kF32;
  else if constexpr (std::is_same_v<T, BFloat16>)
    return DType::kBF16;
  else if constexpr (std::is_same_v<T, double>)
    return DType::kF64;
  else if constexpr (std::is_same_v<T, std::int32_t>)
    return DType::kI32;
  else if constexpr (std::is_same_v<T, std::int64_t>)
    return DType::kI64;
  else if constexpr (std::is_same_v<T, std::uint8_t>)
    return DType::kU8;
  else {
    static_assert(std::is_same_v<T, std::uint16_t>, "no DType for this C++ type");
    return DType::kU16;
  }
}();

template <typename T>
using Compute = std::conditional_t<std::is_same_v<T, double>, double, float>;

constexpr float Widen(float x) { return x; }
constexpr double Widen(double x) { return x; }
constexpr float Widen(BFloat16 x) { return ToFloat(x); }

template <typename T>
constexpr T Narrow(Compute<T> y) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return RoundToBFloat16(y);
  } else {
    return y;
  }
}

}  // namespace headwise

#endif  // HEADWISE_CORE_DTYPE_DTYPE_H_
