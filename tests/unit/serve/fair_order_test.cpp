#include "darkroom/serve/fair_order.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <vector>

namespace darkroom {
namespace {

TEST(fair_order, a_short_order_passes_a_long_one_that_is_under_way) {
  FairOrder order;
  const double long_tag = order.join(50);
  order.work_done(20);
  EXPECT_LT(order.join(4), long_tag);
}

TEST(fair_order, short_orders_without_end_do_not_starve_a_long_one) {
  FairOrder order;
  const double long_tag = order.join(50);
  int num_passed = 0;
  while (num_passed < 1000 && order.join(4) < long_tag) {
    order.work_done(4);  // Each is served before the next comes.
    ++num_passed;
  }
  EXPECT_GT(num_passed, 5);
  // With orders of c that keep the machine busy, 1 + 2 s / c share it once each has had s; so (C / c) + (C / c)^2 come until s = C.
  EXPECT_LE(num_passed, 169);
}

TEST(fair_order, an_order_that_left_takes_no_share) {
  FairOrder order;
  const double gone = order.join(100);
  order.leave(gone);
  order.leave(gone);
  const double first = order.join(10);
  order.work_done(5);  // All of it the first one's.
  EXPECT_EQ(order.join(5), first);
}

struct SharedJob {
  double arrival;
  double cost;
  double tag = 0.0;
  double left = 0.0;
  double done_fair = 0.0;
  double done = 0.0;
};

// Equal sharing, in small slices.
void share_equally(std::vector<SharedJob>& jobs, double slice) {
  for (SharedJob& job : jobs) {
    job.left = job.cost;
  }
  for (double now = 0.0;; now += slice) {
    std::vector<SharedJob*> here;
    bool is_over = true;
    for (SharedJob& job : jobs) {
      is_over = is_over && job.left <= 0.0;
      if (job.arrival <= now && job.left > 0.0) {
        here.push_back(&job);
      }
    }
    for (SharedJob* job : here) {
      job->left -= slice / static_cast<double>(here.size());
      job->done_fair = now + slice;
    }
    if (is_over) {
      return;
    }
  }
}

void serve_by_tag(std::vector<SharedJob>& jobs, double slice) {
  FairOrder order;
  for (SharedJob& job : jobs) {
    job.left = job.cost;
    job.tag = 0.0;
  }
  for (double now = 0.0;; now += slice) {
    SharedJob* leader = nullptr;
    bool is_over = true;
    for (SharedJob& job : jobs) {
      is_over = is_over && job.left <= 0.0;
      if (job.arrival <= now && job.tag == 0.0) {
        job.tag = order.join(job.cost);
      }
      if (job.tag > 0.0 && job.left > 0.0 && (leader == nullptr || job.tag < leader->tag)) {
        leader = &job;
      }
    }
    if (leader != nullptr) {
      leader->left -= slice;
      leader->done = now + slice;
      order.work_done(slice);
    }
    if (is_over) {
      return;
    }
  }
}

TEST(fair_order, no_order_is_done_later_than_if_all_had_shared_equally) {
  constexpr double kSlice = 1.0 / 16;
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    std::vector<SharedJob> jobs;
    for (int i = 0; i < 12; ++i) {
      jobs.push_back({.arrival = static_cast<double>(random() % 60), .cost = static_cast<double>(1 + random() % 20)});
    }
    share_equally(jobs, kSlice);
    serve_by_tag(jobs, kSlice);
    for (const SharedJob& job : jobs) {
      EXPECT_LE(job.done, job.done_fair + 12 * kSlice) << "seed " << seed << " arrival " << job.arrival << " cost " << job.cost;
    }
  }
}

}  // namespace
}  // namespace darkroom
