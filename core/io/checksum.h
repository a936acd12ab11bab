// Fnv1a64: a 64-bit checksum against accidents (a torn write, a flipped bit, two ranks with
// different tables).
//
//   Fnv1a64 sum;
//   sum.Update(data, bytes);
//   sum.UpdateValue(length);       // the bytes of a trivially copyable value, little-endian here
//   sum.value();
//
// hash = (hash ^ byte) * 0x100000001b3 from 0xcbf29ce484222325, per byte: FNV-1a as its authors
// publish it. Splitting the input between calls changes nothing. Not a defence against an
// adversary.
#ifndef HEADWISE_CORE_IO_CHECKSUM_H_
#define HEADWISE_CORE_IO_CHECKSUM_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "absl/status/statusor.h"

namespace headwise {

class Fnv1a64 {
 public:
  void Update(const void* data, std::size_t bytes) {
    const auto* p = static_cast<const unsigned char*>(data);
    std::uint64_t hash = hash_;
    for (std::size_t i = 0; i < bytes; ++i) hash = (hash ^ p[i]) * 0x100000001b3u;
    hash_ = hash;
  }

  // Types without padding bytes only, so that equal values have equal checksums.
  template <typename T>
  requires(std::has_unique_object_representations_v<T>) void UpdateValue(const T& value) {
    Update(&value, sizeof(value));
  }

  std::uint64_t value() const { return hash_; }

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325u;
};

// Of a buffer.
std::uint64_t Checksum(const void* data, std::size_t bytes);

// Of a whole file, read in pieces. kNotFound or another status naming the path if it cannot be
// read.
absl::StatusOr<std::uint64_t> ChecksumFile(const std::string& path);

// 16 lower-case hexadecimal digits, as checkpoints write it.
std::string ChecksumToHex(std::uint64_t checksum);

}  // namespace headwise

#endif  // HEADWISE_CORE_IO_CHECKSUM_H_
