#include "api/in_flight.h"

#include <gtest/gtest.h>

#include <atomic>

#include "api/call.h"

namespace tutti::api {
namespace {

struct Counter final : Ticking {
  void tick(std::chrono::steady_clock::time_point) override { ++ticks; }
  std::atomic<int> ticks{0};
};

TEST(InFlight, ids_are_unique_while_under_way) {
  InFlight in_flight(std::chrono::milliseconds(5));
  EXPECT_EQ(in_flight.claim("a"), "a");
  EXPECT_EQ(in_flight.claim("a"), "a-2");
  EXPECT_EQ(in_flight.claim("a"), "a-3");
  in_flight.release("a-2");
  EXPECT_EQ(in_flight.claim("a"), "a-2");
  in_flight.release("a");
  EXPECT_EQ(in_flight.claim("a"), "a");
  in_flight.release("never claimed");
  EXPECT_EQ(in_flight.size(), 3u);
}

TEST(InFlight, keeps_work_alive_and_ticking_until_released) {
  InFlight in_flight(std::chrono::milliseconds(2));
  auto work = std::make_shared<Counter>();
  const std::weak_ptr<Counter> weak = work;
  in_flight.keep(in_flight.claim("a"), work);
  while (work->ticks < 3) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  work.reset();
  EXPECT_FALSE(weak.expired());
  in_flight.release("a");
  for (int i = 0; i < 2000 && !weak.expired(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(weak.expired());
}

TEST(InFlight, stop_lets_go_of_everything) {
  InFlight in_flight(std::chrono::milliseconds(2));
  auto work = std::make_shared<Counter>();
  in_flight.keep(in_flight.claim("a"), work);
  in_flight.stop();
  EXPECT_EQ(work.use_count(), 1);
  in_flight.keep("b", work);  // too late
  EXPECT_EQ(work.use_count(), 1);
}

TEST(RequestId, has_a_form) {
  EXPECT_TRUE(valid_request_id("aZ0._:-"));
  EXPECT_TRUE(valid_request_id(std::string(128, 'x')));
  for (const std::string& id : std::vector<std::string>{"", std::string(129, 'x'), "a b", "a\n", "\xc3\xa9", "a/b"}) {
    EXPECT_FALSE(valid_request_id(id)) << id;
  }
  EXPECT_TRUE(valid_request_id(new_request_id()));
  EXPECT_NE(new_request_id(), new_request_id());
}

}  // namespace
}  // namespace tutti::api
