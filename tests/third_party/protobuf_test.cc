#include <string>

#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tests/third_party/sample.pb.h"

namespace headwise::testing {
namespace {

TEST(ProtobufTest, TextAndBytesRoundTrip) {
  Sample sample;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      "kind: KIND_SMALL rate: 0.5 parts { name: 'wq' size: 64 } parts { name: 'wk' }", &sample));
  std::string bytes;
  ASSERT_TRUE(sample.SerializeToString(&bytes));
  Sample read;
  ASSERT_TRUE(read.ParseFromString(bytes));
  EXPECT_EQ(read.kind(), Sample::KIND_SMALL);
  EXPECT_EQ(read.rate(), 0.5);
  ASSERT_EQ(read.parts_size(), 2);
  EXPECT_EQ(read.parts(0).size(), 64);
  EXPECT_EQ(read.parts(1).name(), "wk");
}

TEST(ProtobufTest, AnUnknownFieldIsRejected) {
  Sample sample;
  google::protobuf::TextFormat::Parser parser;
  class Quiet : public google::protobuf::io::ErrorCollector {
    void AddError(int, int, const std::string&) override {}
  } quiet;
  parser.RecordErrorsTo(&quiet);
  EXPECT_FALSE(parser.ParseFromString("no_such_field: 1", &sample));
}

}  // namespace
}  // namespace headwise::testing
