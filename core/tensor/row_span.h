// RowSpan<T>: a matrix somebody else owns, as rows of equal width with a stride between them. What
// kernels take.
//
//   RowSpan<const float> x(data, /*rows=*/tokens, /*width=*/dim);            // contiguous
//   RowSpan<const float> k(qkv + k_offset, tokens, head_dim, /*stride=*/slots * head_dim);
//
// Offsets are 64-bit: row(i) is right past 2^31 elements.
#ifndef HEADWISE_CORE_TENSOR_ROW_SPAN_H_
#define HEADWISE_CORE_TENSOR_ROW_SPAN_H_

#include <cstdint>
#include <type_traits>

namespace headwise {

template <typename T>
struct RowSpan {
  T* data = nullptr;  // not owned
  std::int64_t rows = 0;
  std::int64_t width = 0;   // elements of a row that may be touched
  std::int64_t stride = 0;  // elements from the start of one row to the start of the next

  constexpr RowSpan() = default;
  constexpr RowSpan(T* data, std::int64_t rows, std::int64_t width)
      : RowSpan(data, rows, width, width) {}
  constexpr RowSpan(T* data, std::int64_t rows, std::int64_t width, std::int64_t stride)
      : data(data), rows(rows), width(width), stride(stride) {}
  // A span of T is a span of const T.
  template <typename U>
  requires(std::is_same_v<const U, T> && !std::is_same_v<U, T>) constexpr RowSpan(
      const RowSpan<U>& other)  // NOLINT(google-explicit-constructor)
      : data(other.data), rows(other.rows), width(other.width), stride(other.stride) {}

  constexpr T* row(std::int64_t i) const { return data + i * stride; }
  constexpr std::int64_t size() const { return rows * width; }
  constexpr bool empty() const { return data == nullptr || rows == 0 || width == 0; }
  constexpr bool contiguous() const { return stride == width || rows <= 1; }
  // Rows [begin, begin + count).
  constexpr RowSpan Rows(std::int64_t begin, std::int64_t count) const {
    return RowSpan(row(begin), count, width, stride);
  }
};

}  // namespace headwise

#endif  // HEADWISE_CORE_TENSOR_ROW_SPAN_H_
