#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "http/server.h"

namespace tutti::http {
namespace {

TEST(ServerOptions, DefaultsAreGood) {
  EXPECT_THAT(ServerOptions{}.validate(), testing::IsEmpty());
}

TEST(ServerOptions, EveryProblemIsNamed) {
  ServerOptions o;
  o.host = "";
  o.port = 65536;
  o.io_threads = 0;
  o.max_connections = 0;
  o.idle_timeout = std::chrono::seconds(0);
  o.allowed_origins = {"https://ok.example", "https://a.example/", "a.example", "*", "http://"};
  EXPECT_THAT(o.validate(),
              testing::ElementsAre(testing::HasSubstr("host"), testing::HasSubstr("65536"),
                                   testing::HasSubstr("io_threads"), testing::HasSubstr("max_connections"),
                                   testing::HasSubstr("idle_timeout"), testing::HasSubstr("https://a.example/"),
                                   testing::HasSubstr("'a.example'"), testing::HasSubstr("'http://'")));
}

}  // namespace
}  // namespace tutti::http
