#include <mpi.h>

#include <string>

#include "gtest/gtest.h"

namespace headwise {
namespace {

// What may be called before MPI_Init: the test needs no mpirun.
TEST(MpiTest, AnswersWithItsVersion) {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  ASSERT_EQ(MPI_Get_library_version(text, &length), MPI_SUCCESS);
  EXPECT_NE(std::string(text, length).find("Open MPI"), std::string::npos) << text;
  int initialized = -1;
  ASSERT_EQ(MPI_Initialized(&initialized), MPI_SUCCESS);
  EXPECT_EQ(initialized, 0);
}

}  // namespace
}  // namespace headwise
