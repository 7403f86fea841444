#pragma once

#include <gtest/gtest.h>
#include <pthread.h>

#include <cstddef>
#include <system_error>
#include <thread>

namespace darkroom {

/// While it lives, this process cannot start a thread, as at its limit of processes, which does not bind root: the stack that a new
/// thread asks for is larger than the address space.
class NoNewThreads {
 public:
  NoNewThreads() {
    pthread_attr_t vast{};
    EXPECT_EQ(pthread_getattr_default_np(&before_), 0);
    EXPECT_EQ(pthread_getattr_default_np(&vast), 0);
    EXPECT_EQ(pthread_attr_setstacksize(&vast, size_t{1} << 56), 0);
    EXPECT_EQ(pthread_setattr_default_np(&vast), 0);
    pthread_attr_destroy(&vast);
    EXPECT_THROW(std::jthread([] {}), std::system_error);
  }
  ~NoNewThreads() {
    EXPECT_EQ(pthread_setattr_default_np(&before_), 0);
    pthread_attr_destroy(&before_);
  }
  NoNewThreads(const NoNewThreads&) = delete;
  NoNewThreads& operator=(const NoNewThreads&) = delete;

 private:
  pthread_attr_t before_{};
};

}  // namespace darkroom
