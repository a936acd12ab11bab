#include "core/io/safetensors_json.h"

#include <unordered_set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/base/printable.h"
#include "nlohmann/json.hpp"

namespace headwise::internal {
namespace {

constexpr std::size_t kMaxRank = 64;

// A state machine over the events of nlohmann's parser, which keeps its own stack: no input makes
// anything recurse, and anything nested deeper than the format is refused at its opening bracket.
class Handler final : public nlohmann::json_sax<nlohmann::json> {
 public:
  absl::Status error() const { return error_; }
  SafetensorsJson Take() { return std::move(result_); }

  bool null() override { return Unexpected("null"); }
  bool boolean(bool) override { return Unexpected("a boolean"); }
  bool binary(binary_t&) override { return Unexpected("binary data"); }

  bool number_integer(number_integer_t value) override {
    if (state_ != State::kShape && state_ != State::kOffsets) return Unexpected("a number");
    return Reject(absl::StrCat(Here(), " holds the negative number ", value));
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (state_ == State::kShape) {
      if (entry_.shape.size() == kMaxRank) {
        return Reject(absl::StrCat(Here(), " has more than ", kMaxRank, " dimensions"));
      }
      entry_.shape.push_back(value);
      return true;
    }
    if (state_ == State::kOffsets) {
      if (entry_.data_offsets.size() == 2) {
        return Reject(absl::StrCat(Here(), " holds more than two numbers"));
      }
      entry_.data_offsets.push_back(value);
      return true;
    }
    return Unexpected("a number");
  }

  // Fractions, exponents, and integers beyond 64 bits.
  bool number_float(number_float_t, const string_t& text) override {
    if (state_ != State::kShape && state_ != State::kOffsets) return Unexpected("a number");
    return Reject(absl::StrCat(Here(), " holds ", text.substr(0, 40),
                               ", which is not an integer of 64 bits"));
  }

  bool string(string_t& value) override {
    if (state_ == State::kMetadataValue) {
      result_.metadata[key_] = std::move(value);
      state_ = State::kMetadata;
      return true;
    }
    if (state_ == State::kDtype) {
      entry_.dtype = std::move(value);
      state_ = State::kTensor;
      return true;
    }
    return Unexpected("a string");
  }

  bool start_object(std::size_t) override {
    switch (state_) {
      case State::kStart:
        state_ = State::kTop;
        return true;
      case State::kMetadataObject:
        state_ = State::kMetadata;
        return true;
      case State::kTensorObject:
        state_ = State::kTensor;
        return true;
      default:
        return Unexpected("an object");
    }
  }

  bool end_object() override {
    switch (state_) {
      case State::kTop:
        state_ = State::kEnd;
        return true;
      case State::kMetadata:
        state_ = State::kTop;
        return true;
      case State::kTensor:
        for (const char* field : {"dtype", "shape", "data_offsets"}) {
          if (fields_.count(field) == 0) {
            return Reject(absl::StrCat("tensor ", QuoteName(entry_.name), " has no ", field));
          }
        }
        result_.entries.push_back(std::move(entry_));
        state_ = State::kTop;
        return true;
      default:
        return Unexpected("the end of an object");
    }
  }

  bool key(string_t& key) override {
    switch (state_) {
      case State::kTop:
        if (!names_.insert(key).second) {
          return Reject(absl::StrCat("duplicate key ", QuoteName(key)));
        }
        if (key == "__metadata__") {
          state_ = State::kMetadataObject;
        } else {
          entry_ = SafetensorsJson::Entry();
          entry_.name = key;
          fields_.clear();
          state_ = State::kTensorObject;
        }
        return true;
      case State::kMetadata:
        if (result_.metadata.count(key) != 0) {
          return Reject(absl::StrCat("duplicate key ", QuoteName(key), " in __metadata__"));
        }
        key_ = key;
        state_ = State::kMetadataValue;
        return true;
      case State::kTensor:
        return Field(key);
      default:
        return Unexpected("a key");
    }
  }

  bool start_array(std::size_t) override {
    if (state_ == State::kShapeArray) {
      state_ = State::kShape;
    } else if (state_ == State::kOffsetsArray) {
      state_ = State::kOffsets;
    } else {
      return Unexpected("an array");
    }
    return true;
  }

  bool end_array() override {
    if (state_ == State::kOffsets && entry_.data_offsets.size() != 2) {
      return Reject(
          absl::StrCat(Here(), " must hold two numbers, found ", entry_.data_offsets.size()));
    }
    state_ = State::kTensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& e) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error ..."
    const std::string what = e.what();
    const std::size_t colon = what.find(": ");
    return Reject(absl::StrCat(
        "not valid JSON at byte ", position, " of the header: ",
        Printable(what.substr(colon == std::string::npos ? 0 : colon + 2).substr(0, 160))));
  }

 private:
  // What may come next.
  enum class State {
    kStart,           // the object that is the header
    kTop,             // a key, or the end of the header
    kMetadataObject,  // the value of __metadata__
    kMetadata,        // a key of the metadata, or its end
    kMetadataValue,
    kTensorObject,  // the value of a name
    kTensor,        // a field of a tensor, or its end
    kDtype,
    kShapeArray,
    kShape,  // a dimension, or the end of the shape
    kOffsetsArray,
    kOffsets,
    kEnd,
  };

  bool Reject(const std::string& message) {
    error_ = absl::InvalidArgumentError(message);
    return false;
  }

  bool Unexpected(const char* found) {
    return Reject(absl::StrCat(Here(), " must be ", Expected(), ", found ", found));
  }

  bool Field(const std::string& key) {
    if (!fields_.insert(key).second) {
      return Reject(
          absl::StrCat("duplicate key ", QuoteName(key), " in tensor ", QuoteName(entry_.name)));
    }
    if (key == "dtype") {
      state_ = State::kDtype;
    } else if (key == "shape") {
      state_ = State::kShapeArray;
    } else if (key == "data_offsets") {
      state_ = State::kOffsetsArray;
    } else {
      return Reject(absl::StrCat("tensor ", QuoteName(entry_.name), " has the unknown field ",
                                 QuoteName(key), "; expected dtype, shape and data_offsets"));
    }
    return true;
  }

  std::string Here() const {
    switch (state_) {
      case State::kMetadataObject:
      case State::kMetadata:
        return "__metadata__";
      case State::kMetadataValue:
        return absl::StrCat("__metadata__ value of ", QuoteName(key_));
      case State::kTensorObject:
      case State::kTensor:
        return absl::StrCat("tensor ", QuoteName(entry_.name));
      case State::kDtype:
        return absl::StrCat("dtype of tensor ", QuoteName(entry_.name));
      case State::kShapeArray:
      case State::kShape:
        return absl::StrCat("shape of tensor ", QuoteName(entry_.name));
      case State::kOffsetsArray:
      case State::kOffsets:
        return absl::StrCat("data_offsets of tensor ", QuoteName(entry_.name));
      default:
        return "the header";
    }
  }

  const char* Expected() const {
    switch (state_) {
      case State::kMetadataValue:
      case State::kDtype:
        return "a string";
      case State::kShapeArray:
      case State::kShape:
        return "an array of integers";
      case State::kOffsetsArray:
      case State::kOffsets:
        return "an array of two integers";
      default:
        return "an object";
    }
  }

  State state_ = State::kStart;
  SafetensorsJson result_;
  SafetensorsJson::Entry entry_;            // being read
  std::unordered_set<std::string> fields_;  // of entry_, seen so far
  std::unordered_set<std::string> names_;
  std::string key_;  // of the metadata value being read
  absl::Status error_;
};

}  // namespace

std::string QuoteName(absl::string_view name) {
  constexpr std::size_t kMax = 80;
  if (name.size() <= kMax) return absl::StrCat("'", absl::CEscape(name), "'");
  return absl::StrCat("'", absl::CEscape(name.substr(0, kMax)), "...' (", name.size(), " bytes)");
}

absl::StatusOr<SafetensorsJson> ParseSafetensorsJson(absl::string_view text) {
  // The format demands it; nlohmann would skip white space and a byte order mark.
  if (text.empty() || text.front() != '{') {
    return absl::InvalidArgumentError("not valid JSON: the header must begin with '{'");
  }
  // nlohmann takes a NUL for the end of the text and would accept anything after it.
  if (const std::size_t nul = text.find('\0'); nul != absl::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("not valid JSON: NUL at byte ", nul, " of the header"));
  }
  Handler handler;
  const bool complete = nlohmann::json::sax_parse(text.begin(), text.end(), &handler);
  if (!handler.error().ok()) return handler.error();
  if (!complete) return absl::InvalidArgumentError("not valid JSON: the header is incomplete");
  return handler.Take();
}

}  // namespace headwise::internal
