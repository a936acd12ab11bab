#include "core/proto/message_fields.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "core/base/nearest_name.h"
#include "core/base/status_macros.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/descriptor.pb.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/text_format.h"

namespace headwise {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using google::protobuf::TextFormat;

std::vector<std::string> FieldNames(const Descriptor& descriptor) {
  std::vector<std::string> names;
  for (int i = 0; i < descriptor.field_count(); ++i) names.push_back(descriptor.field(i)->name());
  return names;
}

std::vector<std::string> EnumNames(const EnumDescriptor& type) {
  std::vector<std::string> names;
  for (int i = 0; i < type.value_count(); ++i) names.push_back(type.value(i)->name());
  return names;
}

std::string TypeName(const FieldDescriptor& field) {
  std::string name = field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM
                         ? absl::StrJoin(EnumNames(*field.enum_type()), "|")
                         : field.type_name();
  return field.is_repeated() ? absl::StrCat(name, " list") : name;
}

absl::Status BadValue(const std::string& path, const FieldDescriptor& field,
                      const std::string& value) {
  std::string hint;
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
    hint = DidYouMean(value, EnumNames(*field.enum_type()));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": expected ", TypeName(field), ", found '", value, "'", hint));
}

// One value in the text format; the parser of the text format checks it.
std::string Literal(const FieldDescriptor& field, const std::string& value) {
  if (field.cpp_type() != FieldDescriptor::CPPTYPE_STRING) return value;
  return absl::StrCat(
      "\"", absl::StrReplaceAll(value, {{"\\", "\\\\"}, {"\"", "\\\""}, {"\n", "\\n"}}), "\"");
}

// Keeps the first error instead of logging it.
class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, int column, const std::string& message) override {
    if (message_.empty()) line_ = line, column_ = column, message_ = message;
  }
  void AddWarning(int, int, const std::string&) override {}

  bool empty() const { return message_.empty(); }
  int line() const { return line_ + 1; }
  int column() const { return column_ + 1; }
  const std::string& message() const { return message_; }

 private:
  int line_ = 0, column_ = 0;
  std::string message_;
};

// The parser's wording for an unknown field holds the type and the field's name in quotes.
std::string UnknownFieldHint(const Descriptor& root, const std::string& message) {
  const std::vector<std::string> parts = absl::StrSplit(message, '"');
  if (parts.size() < 4 || message.find("has no field named") == std::string::npos) return "";
  const Descriptor* type = root.file()->pool()->FindMessageTypeByName(parts[1]);
  return type == nullptr ? "" : DidYouMean(parts[3], FieldNames(*type));
}

// The printed value of one leaf field.
std::string PrintValue(const Message& message, const FieldDescriptor* field) {
  const bool repeated = field->is_repeated();
  std::vector<std::string> values(repeated ? message.GetReflection()->FieldSize(message, field)
                                           : 1);
  for (std::size_t k = 0; k < values.size(); ++k) {
    TextFormat::PrintFieldValueToString(message, field, repeated ? static_cast<int>(k) : -1,
                                        &values[k]);
  }
  return repeated ? absl::StrCat("[", absl::StrJoin(values, ", "), "]") : values[0];
}

bool IsGroup(const FieldDescriptor* field) {
  return field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && !field->is_repeated();
}

void PrintFields(const Message& message, int indent, std::string* out) {
  const std::string margin(indent, ' ');
  const Descriptor& descriptor = *message.GetDescriptor();
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const FieldDescriptor* field = descriptor.field(i);
    if (IsGroup(field)) {
      absl::StrAppend(out, margin, field->name(), " {\n");
      PrintFields(message.GetReflection()->GetMessage(message, field), indent + 2, out);
      absl::StrAppend(out, margin, "}\n");
    } else {
      absl::StrAppend(out, margin, field->name(), ": ", PrintValue(message, field), "\n");
    }
  }
}

void AppendValues(const Message& message, const std::string& prefix,
                  std::vector<std::pair<std::string, std::string>>* out) {
  const Descriptor& descriptor = *message.GetDescriptor();
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const FieldDescriptor* field = descriptor.field(i);
    const std::string path = absl::StrCat(prefix, field->name());
    if (IsGroup(field)) {
      AppendValues(message.GetReflection()->GetMessage(message, field), path + ".", out);
    } else {
      out->emplace_back(path, PrintValue(message, field));
    }
  }
}

void AppendFields(const Descriptor& descriptor, const Descriptor& commented,
                  const std::string& prefix, std::vector<FieldHelp>* out) {
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const FieldDescriptor& field = *descriptor.field(i);
    const std::string path = absl::StrCat(prefix, field.name());
    const FieldDescriptor* source = commented.FindFieldByName(field.name());
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      AppendFields(*field.message_type(),
                   source == nullptr ? *field.message_type() : *source->message_type(), path + ".",
                   out);
      continue;
    }
    google::protobuf::SourceLocation location;
    std::string comment;
    if (source != nullptr && source->GetSourceLocation(&location)) {
      const std::vector<std::string> words =
          absl::StrSplit(location.leading_comments, absl::ByAnyChar(" \n"), absl::SkipEmpty());
      comment = absl::StrJoin(words, " ");
    }
    out->push_back({path, TypeName(field), comment});
  }
}

}  // namespace

absl::Status SetField(const std::string& path, const std::string& value, Message* message) {
  const std::vector<std::string> parts = absl::StrSplit(path, '.');
  Message* parent = message;
  const FieldDescriptor* field = nullptr;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Descriptor& descriptor = *parent->GetDescriptor();
    field = descriptor.FindFieldByName(parts[i]);
    if (field == nullptr) {
      const std::vector<std::string> names = FieldNames(descriptor);
      const std::string where =
          i == 0 ? "" : absl::StrCat(" in ", absl::StrJoin(parts.begin(), parts.begin() + i, "."));
      const std::string hint = DidYouMean(parts[i], names);
      return absl::InvalidArgumentError(absl::StrCat(
          "unknown field '", parts[i], "'", where,
          hint.empty() ? absl::StrCat("; fields: ", absl::StrJoin(names, ", ")) : hint));
    }
    const bool is_message = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    if (is_message && i + 1 == parts.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": is a group of fields; set one of ",
                       absl::StrJoin(FieldNames(*field->message_type()), ", ")));
    }
    if (!is_message && i + 1 < parts.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": ", absl::StrJoin(parts.begin(), parts.begin() + i + 1, "."),
                       " has no fields; it is ", TypeName(*field)));
    }
    if (is_message) parent = parent->GetReflection()->MutableMessage(parent, field);
  }
  std::vector<std::string> values;
  if (field->is_repeated()) {
    // As printed, "[16, 0]", or without the brackets.
    const bool brackets = value.size() >= 2 && value.front() == '[' && value.back() == ']';
    const std::string list = brackets ? value.substr(1, value.size() - 2) : value;
    if (!list.empty()) values = absl::StrSplit(list, ',');
  } else {
    values = {value};
  }
  const std::unique_ptr<Message> parsed(parent->New());
  for (std::string& v : values) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_STRING) absl::StripAsciiWhitespace(&v);
    // A value is one token: whatever else it holds must not become further fields.
    const bool one_token =
        field->cpp_type() == FieldDescriptor::CPPTYPE_STRING ||
        (!v.empty() && v.find_first_of(" \t\n:{}<>[]#,;\"'") == std::string::npos);
    FirstError error;
    TextFormat::Parser parser;
    parser.RecordErrorsTo(&error);
    if (!one_token || !parser.MergeFromString(absl::StrCat(field->name(), ": ", Literal(*field, v)),
                                              parsed.get())) {
      return BadValue(path, *field, v);
    }
  }
  parent->GetReflection()->ClearField(parent, field);
  parent->MergeFrom(*parsed);
  return absl::OkStatus();
}

absl::Status ApplySetting(const std::string& setting, Message* message) {
  const std::size_t equals = setting.find('=');
  if (equals == std::string::npos || equals == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected path=value, found '", setting, "'; try training.steps=100"));
  }
  return SetField(setting.substr(0, equals), setting.substr(equals + 1), message);
}

std::string PrintAllFields(const Message& message) {
  std::string out;
  PrintFields(message, 0, &out);
  return out;
}

std::vector<std::pair<std::string, std::string>> FieldValues(const Message& message) {
  std::vector<std::pair<std::string, std::string>> values;
  AppendValues(message, "", &values);
  return values;
}

absl::Status ParseTextProto(const std::string& source, const std::string& text, Message* message) {
  FirstError error;
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  if (parser.ParseFromString(text, message)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(source, ":", error.line(), ":", error.column(), ": ", error.message(),
                   UnknownFieldHint(*message->GetDescriptor(), error.message())));
}

std::vector<FieldHelp> ListFields(const Message& message, const std::string& descriptor_set) {
  google::protobuf::FileDescriptorSet set;
  google::protobuf::DescriptorPool pool;
  const Descriptor* commented = message.GetDescriptor();
  if (set.ParseFromString(descriptor_set)) {
    for (const auto& file : set.file()) pool.BuildFile(file);
    const Descriptor* found = pool.FindMessageTypeByName(message.GetDescriptor()->full_name());
    if (found != nullptr) commented = found;
  }
  std::vector<FieldHelp> fields;
  AppendFields(*message.GetDescriptor(), *commented, "", &fields);
  return fields;
}

}  // namespace headwise
