#include "engine/stream.h"

#include <gtest/gtest.h>

namespace tutti::engine {
namespace {

TEST(Stream, hands_events_over_in_order_and_notifies_once_per_drain) {
  int notified = 0;
  Stream stream(10, [&] { ++notified; });
  for (int i = 0; i < 5; ++i) stream.push({.token = i});
  EXPECT_EQ(notified, 1);
  const std::vector<Event> events = stream.drain();
  ASSERT_EQ(events.size(), 5u);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(events[static_cast<size_t>(i)].token, i);
  EXPECT_TRUE(stream.drain().empty());
  stream.push({.token = 9});
  EXPECT_EQ(notified, 2);
}

TEST(Stream, is_full_when_one_choice_has_its_capacity_waiting) {
  Stream stream(3, {});
  for (int i = 0; i < 2; ++i)
    for (int choice = 0; choice < 4; ++choice) stream.push({.choice = choice});
  EXPECT_FALSE(stream.full());
  stream.push({.choice = 2});
  EXPECT_TRUE(stream.full());
  stream.drain();
  EXPECT_FALSE(stream.full());
}

TEST(Stream, tells_of_room_only_when_it_was_full) {
  int rooms = 0;
  Stream stream(2, {});
  stream.set_on_room([&] { ++rooms; });
  stream.push({});
  stream.drain();
  EXPECT_EQ(rooms, 0);
  stream.push({});
  stream.push({});
  stream.push({});
  stream.drain();
  stream.drain();
  EXPECT_EQ(rooms, 1);
}

}  // namespace
}  // namespace tutti::engine
