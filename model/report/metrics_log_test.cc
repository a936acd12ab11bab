#include "model/report/metrics_log.h"

#include <cmath>
#include <cstdio>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/report/progress.h"

namespace headwise {
namespace {

using testing::HasSubstr;

std::string FreshPath(const char* name) {
  const std::string path = testing::TempDir() + "/" + name;
  std::remove(path.c_str());
  return path;
}

StepMetrics Step(std::int64_t step) {
  StepMetrics m;
  m.step = step;
  m.loss = 5.0 / static_cast<double>(step);
  m.tokens = 512;
  m.seconds = 0.25;
  if (step % 2 == 0) m.validation_loss = 4.0;
  return m;
}

TEST(MetricsLog, WritesAndReadsBack) {
  const std::string path = FreshPath("write.jsonl");
  MetricsLog log = *MetricsLog::Open(path, 0);
  for (int i = 1; i <= 3; ++i) ASSERT_TRUE(log.Append(Step(i)).ok());
  const std::vector<StepMetrics> read = *ReadMetrics(path);
  ASSERT_EQ(read.size(), 3u);
  EXPECT_EQ(read[1].step, 2);
  EXPECT_EQ(read[1].loss, 2.5);
  EXPECT_EQ(read[1].tokens, 512);
  EXPECT_EQ(*read[1].validation_loss, 4.0);
  EXPECT_FALSE(read[2].validation_loss.has_value());
}

TEST(MetricsLog, ResumingDropsLaterStepsAndATornLine) {
  const std::string path = FreshPath("resume.jsonl");
  {
    MetricsLog log = *MetricsLog::Open(path, 0);
    for (int i = 1; i <= 5; ++i) ASSERT_TRUE(log.Append(Step(i)).ok());
  }
  std::ofstream(path, std::ios::app) << "{\"step\":6,\"lo";
  {
    MetricsLog log = *MetricsLog::Open(path, 3);
    ASSERT_TRUE(log.Append(Step(4)).ok());
  }
  std::vector<std::int64_t> steps;
  const std::vector<StepMetrics> read = *ReadMetrics(path);
  for (const StepMetrics& m : read) steps.push_back(m.step);
  EXPECT_THAT(steps, testing::ElementsAre(1, 2, 3, 4));
}

TEST(MetricsLog, ALossThatIsNotANumberIsNullAndReadsAsNan) {
  const std::string path = FreshPath("nan.jsonl");
  MetricsLog log = *MetricsLog::Open(path, 0);
  StepMetrics m = Step(1);
  m.loss = NAN;
  ASSERT_TRUE(log.Append(m).ok());
  EXPECT_TRUE(std::isnan((*ReadMetrics(path))[0].loss));
}

TEST(MetricsLog, ErrorsNameTheFileAndTheLine) {
  const std::string path = FreshPath("broken.jsonl");
  std::ofstream(path) << "{\"step\":1}\nnot json\n";
  EXPECT_THAT(std::string(ReadMetrics(path).status().message()), HasSubstr("line 2"));
  EXPECT_EQ(ReadMetrics("/nonexistent/m.jsonl").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(MetricsLog::Open("/nonexistent/m.jsonl", 0).status().message()),
              HasSubstr("/nonexistent"));
}

TEST(Format, DurationsCountsAndBytes) {
  EXPECT_EQ(FormatDuration(7.4), "0:07");
  EXPECT_EQ(FormatDuration(245), "4:05");
  EXPECT_EQ(FormatDuration(3723), "1:02:03");
  EXPECT_EQ(FormatDuration(NAN), "?");
  EXPECT_EQ(FormatCount(512), "512");
  EXPECT_EQ(FormatCount(19345), "19.3k");
  EXPECT_EQ(FormatCount(999600), "1.00M");
  EXPECT_EQ(FormatCount(17177088), "17.2M");
  EXPECT_EQ(FormatBytes(312.0 * 1024 * 1024), "312 MiB");
  EXPECT_EQ(FormatBytes(1.4 * 1024 * 1024 * 1024), "1.4 GiB");
  EXPECT_GE(PeakResidentBytes(), ResidentBytes() / 2);
  EXPECT_GT(ResidentBytes(), 1 << 20);
}

TEST(Progress, WithoutATerminalPrintsWholeLinesAndTheLastStep) {
  std::FILE* out = std::tmpfile();
  Progress progress(out, 0, 100, 1e6, 0);
  for (int i = 1; i <= 100; ++i) progress.Update(Step(i));
  progress.Message("checkpoint saved");
  progress.Finish();
  std::rewind(out);
  std::string text(1 << 16, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), out));
  std::fclose(out);
  EXPECT_THAT(text, HasSubstr("step 1/100"));
  EXPECT_THAT(text, HasSubstr("step 100/100  100%"));
  EXPECT_THAT(text, HasSubstr("2.05k tokens/s  MFU n/a"));
  EXPECT_THAT(text, HasSubstr("\ncheckpoint saved\n"));
  EXPECT_THAT(text, testing::Not(HasSubstr("\r")));
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 60);
}

}  // namespace
}  // namespace headwise
