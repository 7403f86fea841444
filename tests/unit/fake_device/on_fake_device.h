#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "darkroom/tensor/device.h"
#include "support/fake_device/fake_device.h"

namespace darkroom {

/// The program finds it by its own path of libraries.
inline void load_fake_device() {
  ASSERT_TRUE(list_gpus().is_ok()) << list_gpus().status().to_string();
  ASSERT_NE(fake_device_counts(), nullptr) << "another plugin was loaded than the fake device";
}

/// Tests with the fake device loaded that compute on one thread.
class OnFakeDevice : public testing::Test {
 protected:
  static void SetUpTestSuite() { load_fake_device(); }
  void SetUp() override { at::set_num_threads(1); }

  const torch::Device device_{"cuda:0"};
  const torch::TensorOptions there_ = torch::device(device_);
};

}  // namespace darkroom
