#include "model/cli/window_logits.h"

#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/io/safetensors_writer.h"
#include "core/tensor/tensor.h"
#include "model/kv_cache.h"

namespace headwise {

absl::Status CheckNewFile(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::exists(fs::symlink_status(path, error))) {
    return absl::FailedPreconditionError(
        absl::StrCat("--logits: expected a new file, found ", path, "; try another name"));
  }
  const std::string parent = fs::path(path).parent_path().string();
  if (!parent.empty() && !fs::is_directory(parent, error)) {
    return absl::NotFoundError(
        absl::StrCat("--logits: expected a directory at ", parent, ", found none"));
  }
  return absl::OkStatus();
}

absl::Status WriteWindowLogits(const TokenFile& tokens, std::int64_t count, Decoder& decoder,
                               ThreadPool& pool, const std::string& path) {
  const std::int64_t vocab = decoder.config().vocab_size();
  const Tensor ids = Tensor::Empty({count}, DType::kI32, Device::kCpu);
  const Tensor logits = Tensor::Empty({count, vocab}, DType::kF32, Device::kCpu);
  HW_ASSIGN_OR_RETURN(const std::unique_ptr<KvCache> cache, decoder.NewCache(1, count));
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int32_t token = tokens[i];
    ids.data<std::int32_t>()[i] = token;
    const std::vector<std::vector<std::int32_t>> next = {{token}};
    const Tensor row = decoder.Extend(*cache, next, pool);
    std::memcpy(logits.data<float>() + i * vocab, row.data<float>(),
                static_cast<std::size_t>(row.bytes()));
  }
  return WriteSafetensors(path, {{"tokens.0", ids}, {"logits.0", logits}});
}

}  // namespace headwise
