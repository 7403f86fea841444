#include "darkroom/tensor/gpu_advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "support/temporary_folder.h"

namespace darkroom {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(NvidiaDriver, is_known_by_any_of_its_files) {
  EXPECT_FALSE(has_nvidia_driver(TemporaryFolder().path()));
  for (const char* file : {"proc/driver/nvidia/version", "dev/nvidiactl"}) {
    const TemporaryFolder root;
    const std::filesystem::path path = std::filesystem::path(root.path()) / file;
    std::filesystem::create_directories(path.parent_path());
    EXPECT_FALSE(has_nvidia_driver(root.path())) << file;
    std::ofstream(path) << "NVRM version: 580";
    EXPECT_TRUE(has_nvidia_driver(root.path())) << file;
  }
}

TEST(GpuAdvice, tells_a_missing_plugin_from_its_missing_libraries) {
  EXPECT_THAT(gpu_advice("no GPU is used: libdarkroom_cuda.so: cannot open shared object file: No such file"),
              HasSubstr("make install CUDA=1"));
  EXPECT_THAT(gpu_advice("libcudnn.so.9: cannot open shared object file: No such file or directory"), Not(HasSubstr("CUDA=1")));
  EXPECT_THAT(gpu_advice("libcudnn.so.9: cannot open shared object file: No such file or directory"), HasSubstr("libraries"));
}

}  // namespace
}  // namespace darkroom
