#include "core/io/atomic_file.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/io/testing/fault_injection.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headwise {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream s;
  s << in.rdbuf();
  return s.str();
}

// A fresh directory per test.
class AtomicFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = testing::TempDir() + "/atomic_file_test_" +
                 testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(directory_);
    fs::create_directory(directory_);
    path_ = directory_ + "/file";
  }

  std::vector<std::string> Entries() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory_)) {
      names.push_back(entry.path().filename());
    }
    return names;
  }

  // "new content" in writes of 4 bytes: several operations.
  absl::Status SaveNew(FileHook hook) const {
    AtomicFileOptions options;
    options.buffer_bytes = 4;
    options.hook = std::move(hook);
    return WriteFileAtomically(path_, "new content", options);
  }

  std::string directory_, path_;
};

TEST_F(AtomicFileTest, WritesAndReplaces) {
  ASSERT_TRUE(WriteFileAtomically(path_, "first").ok());
  EXPECT_EQ(ReadAll(path_), "first");
  ASSERT_TRUE(WriteFileAtomically(path_, "").ok());
  EXPECT_EQ(ReadAll(path_), "");
  EXPECT_THAT(Entries(), ElementsAre("file"));
}

TEST_F(AtomicFileTest, AnySplitOfTheBytesGivesTheSameFile) {
  std::string bytes;
  for (int i = 0; i < 1000; ++i) bytes.push_back(static_cast<char>(i * 31));
  for (const std::int64_t buffer : {1, 7, 64, 1000, 4096}) {
    for (const std::size_t piece : {1u, 6u, 63u, 64u, 65u, 999u, 1000u}) {
      AtomicFileOptions options;
      options.buffer_bytes = buffer;
      auto file = *AtomicFile::Create(path_, options);
      for (std::size_t i = 0; i < bytes.size(); i += piece) {
        ASSERT_TRUE(file->Append(bytes.data() + i, std::min(piece, bytes.size() - i)).ok());
      }
      EXPECT_EQ(file->bytes_appended(), 1000);
      ASSERT_TRUE(file->Commit().ok());
      EXPECT_EQ(ReadAll(path_), bytes) << buffer << " " << piece;
    }
  }
}

TEST_F(AtomicFileTest, SyncsTheFileBeforeTheRenameAndTheDirectoryAfterIt) {
  EXPECT_THAT(RecordOperations([&](FileHook hook) { return SaveNew(hook); }),
              ElementsAre("create", "write", "write", "write", "sync", "rename", "sync"));
}

TEST_F(AtomicFileTest, NothingAppearsBeforeCommitAndAbandonedFilesVanish) {
  {
    auto file = *AtomicFile::Create(path_);
    ASSERT_TRUE(file->Append("x", 1).ok());
    EXPECT_FALSE(fs::exists(path_));
    EXPECT_EQ(Entries().size(), 1u);
  }
  EXPECT_TRUE(Entries().empty());
}

TEST_F(AtomicFileTest, FailureOfAnyOperationLeavesTheOldFileAndNoDebris) {
  const int operations = CountOperations([&](FileHook hook) { return SaveNew(hook); });
  ASSERT_EQ(operations, 7);
  for (const int error : {ENOSPC, EIO, EDQUOT}) {
    for (int n = 0; n < operations; ++n) {
      ASSERT_TRUE(WriteFileAtomically(path_, "old").ok());
      const absl::Status status = SaveNew(FailOperation(n, error));
      EXPECT_FALSE(status.ok()) << n;
      EXPECT_THAT(status.message(), HasSubstr(path_.substr(0, path_.size() - 5)));
      EXPECT_THAT(Entries(), ElementsAre("file")) << n;
      // The last operation syncs the directory, after the rename.
      EXPECT_EQ(ReadAll(path_), n == operations - 1 ? "new content" : "old") << n;
    }
  }
}

TEST_F(AtomicFileTest, FullDiskSaysHowMuchWasToBeWrittenAndWhatToTry) {
  const absl::Status status = SaveNew(FailOperation(2, ENOSPC));  // the second write
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("cannot write 4 bytes after the first 4 (of 11 in all)"),
                    HasSubstr(path_), HasSubstr("No space left on device"),
                    HasSubstr("free space on that file system or choose another directory")));
  EXPECT_EQ(SaveNew(FailOperation(1, EDQUOT)).code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(AtomicFileTest, FirstErrorIsKept) {
  AtomicFileOptions options;
  options.buffer_bytes = 1;
  options.hook = FailOperation(1, EIO);
  auto file = *AtomicFile::Create(path_, options);
  const absl::Status first = file->Append("abc", 3);
  EXPECT_FALSE(first.ok());
  EXPECT_EQ(file->Append("d", 1), first);
  EXPECT_EQ(file->Commit(), first);
  EXPECT_TRUE(Entries().empty());
}

// A real short write: the kernel takes part of the bytes, then refuses.
TEST_F(AtomicFileTest, LimitReachedInTheMiddleOfAWrite) {
  ASSERT_TRUE(WriteFileAtomically(path_, "old").ok());
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit limit = before;
  limit.rlim_cur = 100000;
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  const absl::Status status = WriteFileAtomically(path_, std::string(300000, 'x'));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("300000"), HasSubstr("File too large")));
  EXPECT_EQ(ReadAll(path_), "old");
  EXPECT_THAT(Entries(), ElementsAre("file"));
}

TEST_F(AtomicFileTest, KilledAtAnyOperationTheFileIsOldOrNewAndWhole) {
  const SaveFunction save = [&](FileHook hook) { return SaveNew(hook); };
  int old_seen = 0, new_seen = 0;
  int n = 0;
  for (;; ++n) {
    ASSERT_TRUE(WriteFileAtomically(path_, "old").ok());
    const bool killed = KilledAtOperation(n, save);
    const std::string content = ReadAll(path_);
    EXPECT_TRUE(content == "old" || content == "new content") << n << ": " << content;
    (content == "old" ? old_seen : new_seen)++;
    // The next start clears the debris, and saving works again.
    const absl::StatusOr<int> removed = RemoveTemporaries(directory_);
    ASSERT_TRUE(removed.ok()) << removed.status();
    EXPECT_EQ(*removed, killed && n > 0 && content == "old" ? 1 : 0) << n;
    EXPECT_THAT(Entries(), ElementsAre("file"));
    if (!killed) break;
  }
  EXPECT_EQ(n, 7);
  EXPECT_EQ(old_seen, 6);  // killed at create, 3 writes, sync, rename
  EXPECT_EQ(new_seen, 2);  // killed at the sync of the directory, and not at all
}

TEST_F(AtomicFileTest, LeftoversOfTheSameProcessIdAreNoObstacle) {
  std::ofstream(TemporaryPathFor(path_, 0)) << "debris";
  ASSERT_TRUE(WriteFileAtomically(path_, "x").ok());
  EXPECT_EQ(ReadAll(path_), "x");
  EXPECT_EQ(*RemoveTemporaries(directory_), 1);
}

TEST_F(AtomicFileTest, RemoveTemporariesTouchesNothingElse) {
  for (const char* name :
       {".file.tmp-12-0", ".tmp-1-2", "file.tmp-12-0", ".file.tmp-12", ".file.tmp-12-x",
        ".file.tmp--1", ".file.tmp-12-", ".file.tmp-1-2-3", ".hidden", "plain"}) {
    std::ofstream(directory_ + "/" + name) << "x";
  }
  fs::create_directories(directory_ + "/.step-7.tmp-12-3/nested");
  EXPECT_EQ(*RemoveTemporaries(directory_), 3);
  EXPECT_EQ(Entries().size(), 8u);
  EXPECT_FALSE(fs::exists(directory_ + "/.file.tmp-12-0"));
  EXPECT_FALSE(fs::exists(directory_ + "/.step-7.tmp-12-3"));
}

TEST_F(AtomicFileTest, ErrorsNameThePathAndWhatToCheck) {
  const std::string missing = directory_ + "/no/such/file";
  const absl::Status status = WriteFileAtomically(missing, "x");
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(status.message(), AllOf(HasSubstr(missing), HasSubstr("No such file or directory"),
                                      HasSubstr("its directory exists")));
  EXPECT_EQ(WriteFileAtomically("", "x").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(WriteFileAtomically(directory_ + "/", "x").code(), absl::StatusCode::kInvalidArgument);
  fs::create_directory(path_);
  EXPECT_THAT(WriteFileAtomically(path_, "x").message(), HasSubstr("Is a directory"));
  EXPECT_THAT(Entries(), ElementsAre("file"));
  EXPECT_FALSE(RemoveTemporaries(missing).ok());
}

TEST_F(AtomicFileTest, ParentDirectories) {
  EXPECT_EQ(ParentDirectory("a/b"), "a");
  EXPECT_EQ(ParentDirectory("a"), ".");
  EXPECT_EQ(ParentDirectory("/a"), "/");
}

}  // namespace
}  // namespace headwise
