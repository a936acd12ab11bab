#include "core/io/atomic_directory.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "core/base/status_macros.h"
#include "core/io/atomic_file.h"
#include "core/io/testing/fault_injection.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headwise {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

using Files = std::map<std::string, std::string>;

// Relative name -> content of every file under `directory`.
Files ReadTree(const std::string& directory) {
  Files files;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream in(entry.path(), std::ios::binary);
    std::ostringstream s;
    s << in.rdbuf();
    files[fs::relative(entry.path(), directory)] = s.str();
  }
  return files;
}

const Files kOld = {{"weights", "old weights"}, {"state", "old state"}, {"extra", "e"}};
const Files kNew = {{"weights", "new weights!"}, {"state", "new"}, {"deep/more", "m"}};

class AtomicDirectoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "/atomic_directory_test_" +
            testing::UnitTest::GetInstance()->current_test_info()->name();
    Reset(false);
  }

  void Reset(bool with_old) {
    fs::remove_all(root_);
    fs::create_directory(root_);
    path_ = root_ + "/step-1";
    if (!with_old) return;
    fs::create_directory(path_);
    for (const auto& [name, content] : kOld) std::ofstream(path_ + "/" + name) << content;
  }

  absl::Status Save(const Files& files, FileHook hook) const {
    HW_ASSIGN_OR_RETURN(const auto directory, AtomicDirectory::Create(path_, hook));
    AtomicFileOptions options;
    options.hook = hook;
    for (const auto& [name, content] : files) {
      const std::string file = directory->PathOf(name);
      fs::create_directories(fs::path(file).parent_path());
      HW_RETURN_IF_ERROR(WriteFileAtomically(file, content, options));
    }
    return directory->Commit();
  }

  int EntriesOfRoot() const {
    return static_cast<int>(std::distance(fs::directory_iterator(root_), fs::directory_iterator()));
  }

  std::string root_, path_;
};

TEST_F(AtomicDirectoryTest, AppearsWholeAndReplacesWhole) {
  ASSERT_TRUE(Save(kOld, nullptr).ok());
  EXPECT_EQ(ReadTree(path_), kOld);
  ASSERT_TRUE(Save(kNew, nullptr).ok());
  EXPECT_EQ(ReadTree(path_), kNew);
  EXPECT_EQ(EntriesOfRoot(), 1);
}

TEST_F(AtomicDirectoryTest, AbandonedDirectoriesVanish) {
  {
    const auto directory = *AtomicDirectory::Create(path_);
    ASSERT_TRUE(WriteFileAtomically(directory->PathOf("x"), "x").ok());
    EXPECT_FALSE(fs::exists(path_));
  }
  EXPECT_EQ(EntriesOfRoot(), 0);
}

TEST_F(AtomicDirectoryTest, EverythingIsSyncedBeforeTheRename) {
  std::string log;
  ASSERT_TRUE(Save(kNew, [&](FileOperation operation, const std::string& path) {
                if (operation == FileOperation::kRename && path == path_) log += "RENAME ";
                if (operation == FileOperation::kSync) {
                  log += fs::path(path).filename().string() + " ";
                }
                return 0;
              }).ok());
  const std::size_t rename = log.find("RENAME");
  ASSERT_NE(rename, std::string::npos) << log;
  // Commit() syncs in this order: files and subdirectories by name, then the directory itself.
  const std::string before = log.substr(0, rename);
  EXPECT_THAT(before, HasSubstr("more deep state weights .step-1.tmp-"));
  EXPECT_THAT(log.substr(rename), HasSubstr(fs::path(root_).filename().string()));
}

TEST_F(AtomicDirectoryTest, FailureOfAnyOperationLeavesOldOrNewAndNoDebris) {
  for (const bool with_old : {false, true}) {
    Reset(with_old);
    const int operations = CountOperations([&](FileHook hook) { return Save(kNew, hook); });
    EXPECT_GT(operations, 15);
    int old_seen = 0, new_seen = 0;
    for (int n = 0; n < operations; ++n) {
      Reset(with_old);
      const absl::Status status = Save(kNew, FailOperation(n, ENOSPC));
      EXPECT_THAT(status.message(), HasSubstr("No space left on device")) << n;
      EXPECT_THAT(status.message(), HasSubstr(root_)) << n;
      const bool is_old = with_old ? ReadTree(path_) == kOld : !fs::exists(path_);
      const bool is_new = fs::exists(path_) && ReadTree(path_) == kNew;
      EXPECT_TRUE(is_old || is_new) << n;
      old_seen += is_old;
      new_seen += is_new;
      // What may stay behind is the old version, after the new one has taken its place.
      if (EntriesOfRoot() != (is_old && !with_old ? 0 : 1)) {
        EXPECT_TRUE(is_new && with_old);
        EXPECT_THAT(std::string(status.message()), HasSubstr("complete"));
      }
    }
    EXPECT_GT(old_seen, 10);
    EXPECT_GT(new_seen, 0);
  }
}

TEST_F(AtomicDirectoryTest, KilledAtAnyOperationTheDirectoryIsOldOrNewAndWhole) {
  for (const bool with_old : {false, true}) {
    int old_seen = 0, new_seen = 0;
    for (int n = 0;; ++n) {
      Reset(with_old);
      const bool killed = KilledAtOperation(n, [&](FileHook hook) { return Save(kNew, hook); });
      const bool is_old = with_old ? ReadTree(path_) == kOld : !fs::exists(path_);
      const bool is_new = fs::exists(path_) && ReadTree(path_) == kNew;
      EXPECT_TRUE(is_old || is_new) << n;
      old_seen += is_old;
      new_seen += is_new;
      ASSERT_TRUE(RemoveTemporaries(root_).ok());
      EXPECT_EQ(EntriesOfRoot(), is_old && !with_old ? 0 : 1) << n;
      ASSERT_TRUE(Save(kNew, nullptr).ok());
      EXPECT_EQ(ReadTree(path_), kNew);
      if (!killed) break;
    }
    EXPECT_GT(old_seen, 15);
    EXPECT_GT(new_seen, with_old ? 3 : 1);
  }
}

TEST_F(AtomicDirectoryTest, FileSystemsWithoutExchangeKeepTheOldDirectory) {
  Reset(true);
  int renames = 0;
  const absl::Status status = Save(kNew, [&](FileOperation operation, const std::string& path) {
    return operation == FileOperation::kRename && path == path_ && ++renames == 2 ? EINVAL : 0;
  });
  EXPECT_EQ(renames, 2);
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(status.message(), HasSubstr("cannot exchange two directories; remove it first"));
  EXPECT_EQ(ReadTree(path_), kOld);
  EXPECT_EQ(EntriesOfRoot(), 1);
}

TEST_F(AtomicDirectoryTest, RefusesWhatHasAppearedMeanwhile) {
  const auto directory = *AtomicDirectory::Create(path_);
  ASSERT_TRUE(Save(kOld, nullptr).ok());
  const absl::Status status = directory->Commit(AtomicDirectory::Existing::kRefuse);
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(status.message(), HasSubstr("has appeared meanwhile"));
  EXPECT_EQ(ReadTree(path_), kOld);
  EXPECT_EQ(EntriesOfRoot(), 1);
}

TEST_F(AtomicDirectoryTest, NamesAndErrors) {
  path_ += "/";  // a trailing slash means nothing
  ASSERT_TRUE(Save(kNew, nullptr).ok());
  EXPECT_EQ(ReadTree(root_ + "/step-1"), kNew);
  EXPECT_EQ(AtomicDirectory::Create("").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(AtomicDirectory::Create("/").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(AtomicDirectory::Create(root_ + "/no/step").status().message(),
              HasSubstr(root_ + "/no/step: No such file or directory"));
  path_ = root_ + "/step-1/weights";  // a file
  EXPECT_THAT(Save(kNew, nullptr).message(), HasSubstr("Not a directory"));
  EXPECT_EQ(ReadTree(root_ + "/step-1"), kNew);
}

}  // namespace
}  // namespace headwise
