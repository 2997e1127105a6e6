#include "weights/mapped_file.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "weights/checkpoint_files.h"

namespace tutti::weights {
namespace {

using ::testing::HasSubstr;
using testing::load_error;
using testing::TempFolder;

TEST(MappedFileTest, ShowsTheBytes) {
  TempFolder folder;
  folder.write("f", "hello");
  MappedFile first(folder.path() / "f");
  const MappedFile file(std::move(first));
  ASSERT_EQ(file.bytes().size(), 5u);
  EXPECT_EQ(static_cast<char>(file.bytes()[4]), 'o');
  EXPECT_TRUE(first.bytes().empty());
}

TEST(MappedFileTest, FollowsLinksAndTakesEmptyFiles) {
  TempFolder folder;
  folder.write("f", "");
  std::filesystem::create_symlink(folder.path() / "f", folder.path() / "link");
  EXPECT_TRUE(MappedFile(folder.path() / "link").bytes().empty());
}

TEST(MappedFileTest, RefusesWhatIsNoFile) {
  TempFolder folder;
  ASSERT_EQ(::mkfifo((folder.path() / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(load_error([&] { MappedFile file(folder.path() / "pipe"); }), HasSubstr("pipe: is not a regular file"));
  EXPECT_THAT(load_error([&] { MappedFile file(folder.path()); }), HasSubstr("is not a regular file"));
  EXPECT_THAT(load_error([&] { MappedFile file(folder.path() / "none"); }), HasSubstr("none: can't be opened"));
}

}  // namespace
}  // namespace tutti::weights
